# SPDX-License-Identifier: MIT
"""Packages of others, in environments beside the build."""
import os
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77


def folder_of(program):
    """Where a build keeps them. TINFER_CLIENTS names another place."""
    given = os.environ.get("TINFER_CLIENTS")
    return pathlib.Path(given) if given else pathlib.Path(program).resolve().parent.parent / "clients"


def environment(program, name, *packages):
    """The interpreter of an environment with the packages; ends the test as skipped where they cannot be had."""
    folder = folder_of(program) / name
    python = folder / "bin/python"
    stamp = folder / "complete"
    if stamp.exists() and stamp.read_text() == " ".join(packages):
        return python
    if not python.exists():
        venv.create(folder, with_pip=True)
    done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1",
                           "--timeout", "20", *packages], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"skipped: {', '.join(packages)} cannot be installed:", *done.stderr.strip().splitlines()[-1:])
        sys.exit(SKIPPED)
    stamp.write_text(" ".join(packages))
    return python


def node_modules(program, name, *packages):
    """The same of Node: a folder with node_modules, or None and the reason said."""
    folder = folder_of(program) / name
    stamp = folder / "complete"
    if stamp.exists() and stamp.read_text() == " ".join(packages):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, *packages],
                              capture_output=True, text=True, timeout=300)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        print(f"skipped: {', '.join(packages)}: {error}")
        return None
    if done.returncode != 0:
        print(f"skipped: {', '.join(packages)} cannot be installed:", *done.stderr.strip().splitlines()[-1:])
        return None
    stamp.write_text(" ".join(packages))
    return folder
