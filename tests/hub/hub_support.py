# SPDX-License-Identifier: MIT
"""Runs the program and the driver of this folder against a fake hub, with an environment of their own."""
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

TINFER, DRIVER = (sys.argv.pop(1), sys.argv.pop(1)) if len(sys.argv) > 2 else ("tinfer", "tinfer_hub_driver")
HERE = pathlib.Path(__file__).resolve().parent
WORK = tempfile.TemporaryDirectory(prefix="tinfer-hub-")
FOLDER = pathlib.Path(WORK.name)
PREFIXES = ("TINFER_", "HF_", "HUGGINGFACE_", "OLLAMA_", "SSL_", "XDG_CACHE_HOME")


def environment(**changes):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(PREFIXES) and not k.lower().endswith("_proxy")}
    return clean | {"HOME": str(FOLDER)} | {k: str(v) for k, v in changes.items()}


def gguf(n, seed):
    return b"GGUF" + random.Random(seed).randbytes(n - 4)


class Cache:
    """A cache of its own, with what asks a hub for it."""

    def __init__(self, hub=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))
        self.hub = hub

    def env(self, **changes):
        own = {"HF_HUB_CACHE": self.folder}
        return environment(**(own | ({"HF_ENDPOINT": self.hub.address} if self.hub else {}) | changes))

    def drive(self, name, stall=400, pause=10, **env):
        """(exit code, stdout, stderr) of the driver."""
        done = subprocess.run([DRIVER, self.folder, str(stall), str(pause), name], capture_output=True, text=True,
                              env=self.env(**env), timeout=120)
        return done.returncode, done.stdout.strip(), done.stderr

    def start(self, name, stall=400, pause=10, **env):
        return subprocess.Popen([DRIVER, self.folder, str(stall), str(pause), name], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=self.env(**env))

    def tinfer(self, *args, **env):
        return subprocess.run([TINFER, *map(str, args)], capture_output=True, text=True, env=self.env(**env),
                              timeout=120, stdin=subprocess.DEVNULL)

    def repository(self, name):
        return self.folder / ("models--" + name.replace("/", "--"))

    def blobs(self, name):
        folder = self.repository(name) / "blobs"
        return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []

    def false_blobs(self):
        """Blobs whose bytes are not what their names say."""
        wrong = []
        for blob in self.folder.glob("models--*/blobs/*"):
            data = blob.read_bytes()
            names = (hashlib.sha256(data).hexdigest(), hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest())
            if not blob.name.endswith(".incomplete") and blob.name not in names:
                wrong.append(blob.name)
        return wrong


def lines(text):
    return [json.loads(line) for line in text.splitlines()]
