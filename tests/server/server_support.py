# SPDX-License-Identifier: MIT
"""A server of the program under test, on a free port, and short ways to ask it."""
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

TINFER = sys.argv.pop(1) if len(sys.argv) > 1 else "tinfer"
HERE = pathlib.Path(__file__).resolve().parent
WORK = tempfile.TemporaryDirectory(prefix="tinfer-server-")
FOLDER = pathlib.Path(WORK.name)
MODEL = FOLDER / "tiny.gguf"
subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", MODEL], check=True)


class Server:
    """with Server("--parallel", 4) as server: server.post("/v1/completions", {...})

    With model=None the options name models."""

    def __init__(self, *args, model=MODEL, env=None):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TINFER_")} | (env or {})
        self.errors = tempfile.TemporaryFile("w+", dir=FOLDER)
        self.process = subprocess.Popen([TINFER, "serve", *([] if model is None else [str(model)]),
                                         *([] if "--port" in args else ["--port", "0"]),
                                         *([] if "-t" in args else ["-t", "1"]), *map(str, args)],
                                        stdout=subprocess.PIPE, stderr=self.errors, env=clean)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.process.stdout.close()
            self.errors.seek(0)
            raise AssertionError(f"the server did not start: {self.errors.read()}")
        self.address = json.loads(line)["address"]
        self.host, self.port = self.address.split("//")[1].rsplit(":", 1)
        self.port = int(self.port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self.process.stdout.close()
            self.errors.close()
        return code

    def connect(self, timeout=600):
        if self.address.startswith("https:"):
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout,
                                               context=ssl._create_unverified_context())
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def socket(self, timeout=60):
        """A connection as bytes, behind the handshake of TLS where there is one."""
        plain = socket.create_connection((self.host, self.port), timeout=timeout)
        if self.address.startswith("https:"):
            return ssl._create_unverified_context().wrap_socket(plain)
        return plain

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, bytes)"""
        connection = self.connect()
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def post(self, path, body, status=200, **headers):
        got, _, data = self.ask("POST", path, body, headers)
        if got != status:
            raise AssertionError(f"POST {path}: {got}, expected {status}: {data[:500]}")
        return json.loads(data)

    def get(self, path, status=200, **headers):
        got, _, data = self.ask("GET", path, None, headers)
        if got != status:
            raise AssertionError(f"GET {path}: {got}, expected {status}: {data[:500]}")
        return json.loads(data)

    def events(self, path, body):
        """The documents of a stream; fails where the stream has no end."""
        status, headers, data = self.ask("POST", path, {**body, "stream": True})
        if status != 200 or not headers["Content-Type"].startswith("text/event-stream"):
            raise AssertionError(f"{status} {headers} {data[:300]}")
        blocks = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
        if path.startswith("/v1/messages"):
            return [json.loads(block) for block in blocks]
        if blocks[-1] != "[DONE]":
            raise AssertionError(f"the stream ends with {blocks[-1]}")
        return [json.loads(block) for block in blocks[:-1]]


# Random weights end a text at once; without its end token an answer has the length that was asked for.
NO_EOG = {"logit_bias": {"2": -100}}


def chat(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **NO_EOG, **fields}


def resident(server):
    """Bytes of the process's own memory: pages of mapped files are the kernel's."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon:")).split()[1]) << 10


class SmallDisk:
    """A folder that takes few bytes."""

    def __init__(self, size):
        self.size = size

    def __enter__(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("mounting a small disk needs root")
        self.folder = tempfile.TemporaryDirectory()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "none", self.folder.name],
                          capture_output=True).returncode != 0:
            self.folder.cleanup()
            raise unittest.SkipTest("no small disk can be mounted here")
        return pathlib.Path(self.folder.name)

    def __exit__(self, *_):
        subprocess.run(["umount", self.folder.name], check=True)
        self.folder.cleanup()
