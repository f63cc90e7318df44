# SPDX-License-Identifier: MIT
"""``%tinfer.trace file.tntrace``: the viewer of traces in a notebook. The program ``tinfer`` makes the page."""

from __future__ import annotations

import html
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any


def viewer_page(path: str, program: str | None = None) -> str:
    """The page of ``tinfer trace view``: one HTML document without links. Raises FileNotFoundError where the program is
    not on the path, ValueError with its message where it refuses the file."""
    program = program or shutil.which("tinfer")
    if program is None:
        raise FileNotFoundError("the program tinfer is not on the path: build it from the source tree")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "trace.html"
        done = subprocess.run([program, "trace", "view", path, "-o", str(page)], capture_output=True, text=True)
        if done.returncode != 0:
            raise ValueError(done.stderr.strip())
        return page.read_text(encoding="utf-8")


def register(ipython: Any) -> None:
    """Adds the magic to an IPython shell."""

    def trace(line: str) -> Any:
        from IPython.display import HTML  # type: ignore[import-not-found,unused-ignore]

        [path] = shlex.split(line)
        page = html.escape(viewer_page(path), quote=True)
        # Within a division, because IPython advises against an HTML that is a frame; its own frames have addresses.
        return HTML(f'<div><iframe srcdoc="{page}" style="width:100%;height:40em;border:0"></iframe></div>')

    ipython.register_magic_function(trace, "line", "tinfer.trace")
