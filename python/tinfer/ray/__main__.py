# SPDX-License-Identifier: MIT
# mypy: ignore-errors
"""``python -m tinfer.ray serve MODEL``: what ``tinfer serve MODEL`` is, from several replicas on Ray."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys

USAGE = """\
Serves a model from several replicas on Ray, on the routes of `tinfer serve`. Prints {"address": ...} once requests are
answered, and runs until SIGINT or SIGTERM. What is not named here goes to `tinfer serve` of each replica: see its help.
RAY_ADDRESS names a cluster; without one, Ray starts on this machine for as long as this runs."""
EXAMPLES = """\
examples:
  python -m tinfer.ray serve model.gguf --replicas 2 --cpus 4 -c 16384
  RAY_ADDRESS=auto python -m tinfer.ray serve /models/model.gguf --autoscale 1,8 --host 0.0.0.0 --api-key-file keys"""


def arguments_of(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m tinfer.ray", description=USAGE, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--replicas", type=int, default=1, help="how many (1)")
    parser.add_argument("--autoscale", metavar="MIN,MAX", help="as many as are needed, between these")
    parser.add_argument("--cpus", type=float, default=1, help="processors of a replica, as Ray counts them (1)")
    parser.add_argument("--program", help="the program tinfer (the one on the path)")
    parser.add_argument("--round-robin", action="store_true", help="replicas take turns, whatever prompts they know")
    parser.add_argument("--host", default="127.0.0.1", help="where the ingress listens (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free (8000)")
    return parser.parse_known_args(argv)


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as found:
        return found.getsockname()[1]


def main() -> int:
    own, rest = arguments_of(sys.argv[1:])
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray import serve

    from .serving import app

    autoscaling = None
    if own.autoscale:
        least, most = (int(number) for number in own.autoscale.split(","))
        autoscaling = {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": 8}
    application = app(own.model, rest, program=own.program, replicas=own.replicas, autoscaling=autoscaling,
                      cpus=own.cpus, prefix_routing=not own.round_robin)
    stopped = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stopped.append(number))
    if "RAY_ADDRESS" in os.environ:
        ray.init(logging_level="warning")
    else:
        needed = own.cpus * (int(own.autoscale.split(",")[1]) if own.autoscale else own.replicas)
        ray.init(address="local", num_cpus=max(os.cpu_count() or 1, int(needed) + 1), include_dashboard=False,
                 logging_level="warning", object_store_memory=256 << 20)
    try:
        port = own.port or free_port(own.host)
        serve.start(proxy_location="HeadOnly", http_options={"host": own.host, "port": port})
        serve.run(application, name="tinfer")
        print(json.dumps({"address": f"http://{own.host}:{port}"}), flush=True)
        while not stopped:
            signal.pause()
    finally:
        serve.shutdown()
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
