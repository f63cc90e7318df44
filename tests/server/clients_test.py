#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The clients that people use, unchanged: the Python packages openai and anthropic, installed into an environment of
their own. Skipped, and said so, where they cannot be installed. TINFER_CLIENTS names an environment that has them."""
import os
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent


def environment():
    given = os.environ.get("TINFER_CLIENTS")
    if given:
        return pathlib.Path(given) / "bin/python"
    folder = pathlib.Path(sys.argv[1]).resolve().parent.parent / "clients"
    python = folder / "bin/python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    done = subprocess.run([python, "-m", "pip", "install", "-q", "openai", "anthropic", "pydantic"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        print("skipped: the packages openai and anthropic cannot be installed:", done.stderr.strip().splitlines()[-1:])
        sys.exit(77)
    return python


if __name__ == "__main__":
    sys.exit(subprocess.run([environment(), HERE / "clients_cases.py", *sys.argv[1:]]).returncode)
