#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The clients that people use, unchanged: the Python packages openai, anthropic, litellm and langchain-openai, openai
of npm, and those of both that speak Ollama's interface, installed beside the build. Which of them, the second argument
says, so that each is a test of its own, which is skipped, saying so, where they cannot be installed: what is not there
never passes beside what is.
TINFER_CLIENTS names a folder that keeps them.

usage: clients_test.py PROGRAM openai|frameworks|node|ollama|node_ollama
"""
import subprocess
import sys

PROGRAM, WHICH = sys.argv[1:3]

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
    sys.argv = [sys.argv[0], PROGRAM]  # what server_support expects
    from models_test import FILES, Several, named, room_for_two
    from server_support import Server
    with (Server("--parallel", 4, "-c", 2048, "--any-model", "--api-key", "sk-test") as text,
          Server("--pooling", "mean", "-c", 512) as vectors,
          Several(*named(FILES), "--memory", room_for_two()) as several):
        return subprocess.run(["node", HERE / "clients_cases.mjs", folder, text.address, vectors.address,
                               several.address]).returncode


def run_node_ollama():
    folder = node_modules(PROGRAM, "node_ollama", "ollama", "@langchain/ollama", "@langchain/core",
                          "ollama-ai-provider-v2", "ai")
    if folder is None:
        return SKIPPED
    sys.argv = [sys.argv[0], PROGRAM]
    from pulls_test import Pulling, hub
    from server_support import Server
    with (Server("--parallel", 4, "-c", 2048, "--strict-model") as text,
          Server("--pooling", "mean", "-c", 512) as vectors,
          hub() as one, Pulling(one, "--allow-pull") as pulling):
        return subprocess.run(["node", HERE / "ollama_cases.mjs", folder, text.address, vectors.address,
                               pulling.address]).returncode


if __name__ == "__main__":
    ollama = ["ollama", "langchain-ollama", "llama-index-llms-ollama", "llm-ollama"]
    openai = ["clients_cases.py", "streams_cases.py", "requests_cases.py", "several_cases.py"]
    sys.exit({"openai": lambda: run_python("openai", openai, "openai", "anthropic", "pydantic"),
              "frameworks": lambda: run_python("frameworks", ["frameworks_cases.py"], "litellm", "langchain-openai"),
              "ollama": lambda: run_python("ollama", ["ollama_cases.py"], *ollama),
              "node_ollama": run_node_ollama,
              "node": run_node}[WHICH]())
