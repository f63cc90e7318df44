# SPDX-License-Identifier: MIT
"""What the tests of the program share: a tiny model made on the spot, and one way to run the program.

The first argument of each test file is the path of the program; the others are unittest's.
"""
import csv
import io
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

TINFER = sys.argv.pop(1) if len(sys.argv) > 1 else "tinfer"
HERE = pathlib.Path(__file__).resolve().parent
WORK = tempfile.TemporaryDirectory(prefix="tinfer-cli-")
FOLDER = pathlib.Path(WORK.name)
MODEL = str(FOLDER / "tiny.gguf")
NO_EOG = ["--logit-bias", "2=-1e9"]


def make_model(name, *args):
    """A model of tests/support/tiny_model.py with these arguments behind the path."""
    path = FOLDER / name
    subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", path, *map(str, args)], check=True)
    return path


def golden_model(name):
    """A model of the golden data, or None where that is not there."""
    folder = pathlib.Path(os.environ.get("TINFER_GOLDEN") or HERE.parents[2] / "shared" / "golden")
    path = folder / "models" / name / "model.gguf"
    return path if path.exists() else None


def environment(env=None):
    """Ours without what would speak to the program."""
    own = {"XDG_STATE_HOME": str(FOLDER / "state")}   # what is typed in tests is nobody's history
    return {k: v for k, v in os.environ.items() if not k.startswith("TINFER_") and k != "NO_COLOR"} | own | (env or {})


def tinfer(*args, input=None, env=None, code=0, cwd=None):
    """stdout as bytes; fails unless the exit code is `code` (None: any). tinfer.stderr has the rest."""
    done = subprocess.run([TINFER, *map(str, args)], input=input, capture_output=True, timeout=300,
                          env=environment(env), cwd=cwd)
    tinfer.stderr = done.stderr.decode()
    if code is not None and done.returncode != code:
        raise AssertionError(f"tinfer {' '.join(map(str, args))}: exit {done.returncode}, expected "
                             f"{code}\n{tinfer.stderr}")
    return done.stdout


def run_json(*args, **kw):
    return json.loads(tinfer("run", MODEL, "--temp", "0", "--json", *args, **kw))


def record(path, model, *args, threads=2, **kw):
    """A trace of six tokens."""
    return tinfer("trace", "record", model, "-p", "once on a time", "-n", 6, "--temp", 0, *NO_EOG, "-t", threads, "-o",
                  path, *args, **kw)


def trace(verb, path, *args, **kw):
    return tinfer("trace", verb, path, *args, **kw).decode()


def trace_json(verb, path, *args, **kw):
    return json.loads(trace(verb, path, *args, "--json", **kw))


def ids_of(text, *args, model=None):
    return json.loads(tinfer("tokenize", model or MODEL, *args, "-p", text))


def floats(path):
    data = pathlib.Path(path).read_bytes()
    return struct.unpack(f"<{len(data) // 4}f", data)


def damaged(name, model, tensor, first, values):
    """A copy of a model whose tensor (of floats) has other values from element `first` on."""
    rows = csv.DictReader(io.StringIO(tinfer("inspect", model, "--csv").decode()))
    offset = next(int(row["file_offset"]) for row in rows if row["name"] == tensor) + 4 * first
    data = bytearray(pathlib.Path(model).read_bytes())
    data[offset:offset + 4 * len(values)] = struct.pack(f"<{len(values)}f", *values)
    path = FOLDER / name
    path.write_bytes(data)
    return path


make_model("tiny.gguf")
