#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tokens per second of `tinfer serve` under several streams at once, beside another server of the same interface, on
the same file, threads and requests. Both take turns, and the best of each counts. --other is how that one is started:
a command in which {model}, {port}, {threads}, {streams} and {n_ctx} (tokens of all streams together) are filled in.

usage: beside_server.py MODEL.gguf [--other COMMAND] [--streams 8] [--predict 64] [--threads N] [--rounds 3]
                        [--tinfer PROGRAM]
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import shlex
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROMPTS = ["The first thing that one sees of a harbour is", "A letter from the north came, and it said that",
           "In order to mend a clock one has to", "Rivers are older than the hills because"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask(port, i, n_predict):
    """Tokens of one answer; random weights or not, it has the length that was asked for where no end is drawn."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"prompt": f"{i}. {PROMPTS[i % len(PROMPTS)]}", "max_tokens": n_predict, "temperature": 0.8, "seed": i + 1,
            "stream": False}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    document = json.loads(response.read())
    if response.status != 200:
        raise RuntimeError(f"{response.status}: {document}")
    return document["usage"]["completion_tokens"]


def wait_for(port, process):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/v1/models")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the server did not come up")


def rate(command, port, streams, n_predict):
    """Tokens per second of all streams together."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, process)
        ask(port, 99, 4)  # warm
        begin = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
            tokens = sum(pool.map(lambda i: ask(port, i, n_predict), range(streams)))
        return tokens / (time.perf_counter() - begin)
    finally:
        process.terminate()
        process.wait(60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--other", help="command that starts the other server")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--predict", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tinfer", default=ROOT / "build/release/bin/tinfer")
    args = parser.parse_args()
    n_ctx = args.streams * (args.predict + 64)
    servers = {"tinfer": lambda port: [args.tinfer, "serve", args.model, "--port", str(port), "--parallel",
                                       str(args.streams), "-c", str(n_ctx), "-t", str(args.threads), "--no-counts"]}
    if args.other:
        servers["other"] = lambda port: [
            part.format(model=args.model, port=port, threads=args.threads, streams=args.streams, n_ctx=n_ctx)
            for part in shlex.split(args.other)]
    best = dict.fromkeys(servers, 0.0)
    for _ in range(args.rounds):
        for name, command in servers.items():
            port = free_port()
            best[name] = max(best[name], rate(list(map(str, command(port))), port, args.streams, args.predict))
    print(json.dumps({"streams": args.streams, **{name: round(value, 2) for name, value in best.items()}}))


if __name__ == "__main__":
    main()
