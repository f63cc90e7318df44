# SPDX-License-Identifier: MIT
# mypy: ignore-errors
"""A replica: the program ``tinfer serve`` on an address of this machine alone, and what hands requests on to it.

All that is known of the routes, their fields and errors is in that program, which is the one that serves without Ray.
A replica and its process are one: where either ends, so does the other, and Ray Serve starts both anew.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import Any, AsyncIterator, Sequence

import aiohttp
import yarl

from .prefixes import Known

# What belongs to one connection is not handed on.
HOP_BY_HOP = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "trailers",
              "transfer-encoding", "upgrade", "content-length", "proxy-connection"}
_PR_SET_PDEATHSIG = 1


class ReplicaLost(Exception):
    """The process behind a replica has ended before its answer did."""


def find_program(program: str | os.PathLike[str] | None) -> str:
    """The path of the program tinfer: the one that is named, or else the one on the path. Wheels have the library and
    not the program. Raises FileNotFoundError."""
    found = shutil.which(program if program is not None else "tinfer")
    if found is None:
        name = "no program 'tinfer' on the path" if program is None else f"no program {os.fspath(program)!r}"
        raise FileNotFoundError(f"{name}: say program=, or put the program tinfer (with its server) on the path of "
                                "every node")
    return found


class Program:
    """``tinfer serve`` as a child, which ends with this process, however that ends (on Linux)."""

    def __init__(self, program: str | os.PathLike[str] | None, arguments: Sequence[str], on_end: Any) -> None:
        command = [find_program(program), "serve", *arguments, "--host", "127.0.0.1", "--port", "0"]
        started = threading.Event()
        self.address = ""
        self.is_stopping = False
        self._failure: str | None = None
        # The kernel ends a child with the thread that made it, so that thread stays for as long as the child.
        self._thread = threading.Thread(target=self._run, args=(command, started, on_end), daemon=True)
        self._thread.start()
        started.wait()
        if self._failure is not None:
            raise RuntimeError(f"{' '.join(command)}: {self._failure}")

    def _run(self, command: list[str], started: threading.Event, on_end: Any) -> None:
        try:
            libc = ctypes.CDLL(None) if sys.platform == "linux" else None
            prepare = (lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)) if libc else None
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                            preexec_fn=prepare)
            errors = threading.Thread(target=self._log, daemon=True)
            self._last = ""
            errors.start()
            line = self.process.stdout.readline()   # once requests are answered
            if line:
                self.address = json.loads(line)["address"]
            else:
                code = self.process.wait()
                errors.join()
                self._failure = f"ended with code {code}: {self._last}"
                return
        except Exception as error:
            self._failure = str(error)
            return
        finally:
            started.set()
        code = self.process.wait()
        if not self.is_stopping:
            on_end(code)

    def _log(self) -> None:
        """What the program says goes to the log of the replica; its last line says why it did not start."""
        for line in self.process.stderr:
            self._last = line.strip() or self._last
            sys.stderr.write(line)

    def stop(self) -> None:
        self.is_stopping = True
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)   # answers go on for as long as --drain says
        self._thread.join()


class Replica:
    """What Ray Serve makes several of. arguments: of ``tinfer serve``, the model first."""

    def __init__(self, arguments: Sequence[str], program: str | None = None, most_blocks: int = 1024) -> None:
        self._program = Program(program, arguments, lambda code: os._exit(1))
        self._known = Known(most_blocks)
        self._session: aiohttp.ClientSession | None = None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"))
        return self._session

    async def ask(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes,
                  blocks: Sequence[int] = ()) -> AsyncIterator[Any]:
        """Hands a request on: first (status, headers), then the body in pieces. Raises ReplicaLost."""
        self._known.add(blocks)
        try:
            async with self._client().request(method, yarl.URL(self._program.address + target, encoded=True),
                                              headers=headers, data=body or None, allow_redirects=False) as answer:
                kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP]
                yield answer.status, kept
                async for piece in answer.content.iter_any():
                    yield piece
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError) as error:
            raise ReplicaLost(f"{type(error).__name__}: {error}") from None

    def record_routing_stats(self) -> dict[str, Any]:
        return {"blocks": self._known.blocks()}

    async def check_health(self) -> None:
        async with self._client().get(self._program.address + "/health",
                                      timeout=aiohttp.ClientTimeout(total=10)) as answer:
            if answer.status != 200:
                raise RuntimeError(f"GET /health: {answer.status}")

    async def process_id(self) -> tuple[int, int]:
        """Of this process and of the program's."""
        return os.getpid(), self._program.process.pid

    def __del__(self) -> None:
        """Called by Ray Serve, after the last answer."""
        if hasattr(self, "_program") and hasattr(self._program, "process"):
            self._program.stop()


__all__ = ["Program", "Replica", "ReplicaLost", "find_program"]
