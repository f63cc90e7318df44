#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The clients that people use, unchanged: the Python packages openai, anthropic, litellm and langchain-openai, and
openai of npm, installed beside the build. Those that cannot be installed are skipped, and said so; TINFER_CLIENTS names
a folder that keeps them."""
import concurrent.futures
import subprocess
import sys

PROGRAM = sys.argv[1]

from client_environment import HERE, SKIPPED, environment, node_modules  # noqa: E402


def run_python(name, cases, *packages):
    try:
        python = environment(PROGRAM, name, *packages)
    except SystemExit as skipped:
        return skipped.code
    return max(subprocess.run([python, "-W", "ignore", HERE / one, PROGRAM]).returncode for one in cases)


def run_node():
    folder = node_modules(PROGRAM, "node", "openai")
    if folder is None:
        return SKIPPED
    sys.argv = [sys.argv[0], PROGRAM]
    from server_support import Server
    with (Server("--parallel", 4, "-c", 2048, "--any-model", "--api-key", "sk-test") as text,
          Server("--pooling", "mean", "-c", 512) as vectors):
        return subprocess.run(["node", HERE / "clients_cases.mjs", folder, text.address, vectors.address]).returncode


if __name__ == "__main__":
    with concurrent.futures.ThreadPoolExecutor() as pool:  # each with a server of its own
        runs = [pool.submit(run_python, "frameworks", ["frameworks_cases.py"], "litellm", "langchain-openai"),
                pool.submit(run_python, "openai", ["clients_cases.py", "streams_cases.py", "requests_cases.py"],
                            "openai", "anthropic", "pydantic"),
                pool.submit(run_node)]
        codes = [run.result() for run in runs]
    failed = [code for code in codes if code not in (0, SKIPPED)]
    sys.exit(1 if failed else SKIPPED if SKIPPED in codes and 0 not in codes else 0)
