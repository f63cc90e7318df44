#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""schemathesis against the description of the server that it serves itself: everything that the description allows is
accepted, what it forbids is refused, and every answer has the form that it says. A few examples, from two servers; with
--examples N so many of each operation from three, and all combinations of what each field may and may not be. The
package is installed into an environment in the build folder; skipped, and said so, where it cannot be."""
import concurrent.futures
import json
import os
import subprocess
import sys

EXAMPLES, IS_DEEP = "3", "--examples" in sys.argv
if "--examples" in sys.argv:
    at = sys.argv.index("--examples")
    EXAMPLES = sys.argv[at + 1]
    del sys.argv[at:at + 2]
PROGRAM = sys.argv[1]

from client_environment import HERE, environment  # noqa: E402
from server_support import FOLDER, Server  # noqa: E402  takes the program's path out of the arguments


def routes_of(document):
    return {(path, method.upper()) for path, item in document["paths"].items() for method in item}


def check_routes(name, server):
    """Each described route is there, and each route that is there is described or refused as not supported."""
    document = server.get("/openapi.json", **server.key)
    described = routes_of(document)
    for path, method in sorted(described):
        status, _, _ = server.ask("POST" if method == "GET" else "GET", path.replace("{id}", "x"), None, server.key)
        assert status == 405, f"{name}: {path} with another method: {status}"
    for path in ["/v1/chat/completions", "/v1/embeddings", "/v1/rerank"]:
        status, _, _ = server.ask("POST", path, {}, server.key)
        assert (status == 501) == ((path, "POST") not in described), f"{name}: {path}: {status}"


def run(name, python, *args):
    """Every operation of one server; its output comes in one piece, because the runs go side by side."""
    with Server("--clip-max-tokens", "--parallel", 4, *args) as server:
        server.key = {"Authorization": "Bearer sk-test"} if "--api-key" in args else {}
        check_routes(name, server)
        headers = [f"--header={k}: {v}" for k, v in server.key.items()]
        phases = [] if IS_DEEP else ["--phases", "examples,fuzzing,stateful"]
        command = [python.parent / "st", "run", f"{server.address}/openapi.json", "--max-examples", EXAMPLES,
                   "--seed", "1", "--no-color", "--request-timeout", "120", "--suppress-health-check", "all",
                   *phases, *headers]
        done = subprocess.run(command, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "SCHEMATHESIS_HOOKS": "schema_hooks", "PYTHONPATH": str(HERE)})
        server.get("/health")
    lines = done.stdout.strip().splitlines()
    print("\n".join(lines if done.returncode else []) + f"\n{name} - {lines[-1] if lines else 'no output'}", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    python = environment(PROGRAM, "schemathesis", "schemathesis")
    lora, traces = FOLDER / "red.gguf", FOLDER / "traces"
    subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", lora, "3", "lora"], check=True)
    features = ("--lora", f"red={lora}", "--trace-dir", traces, "--receipts")
    runs = [("vectors, with a key", "-c", 8192, "--pooling", "mean", "--api-key", "sk-test"),
            ("every name of a model, and all features", "-c", 8192, "--any-model", *features)]
    if IS_DEEP:
        runs.append(("text", "-c", 8192))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        good = list(pool.map(lambda one: run(one[0], python, *one[1:]), runs))
    sys.exit(0 if all(good) else 1)
