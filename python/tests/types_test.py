# SPDX-License-Identifier: MIT
"""[P1] The stub of the extension module is what nanobind makes of it, and the package passes mypy and pyright in strict
mode. `types_test.py --write` writes the stub."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tinfer
from support import PROJECT

STUB = PROJECT / "python/tinfer/_native.pyi"
PATTERNS = PROJECT / "python/native/stub_patterns.txt"
PACKAGE = pathlib.Path(tinfer.__file__).parent

OVER_OTHERS = ("tinfer.ray", "tinfer.shims.langchain", "tinfer.shims.lm_eval", "tinfer.shims.llm_plugin")

USE = '''
from typing import Any
import numpy as np
import tinfer
llm = tinfer.LLM("model.gguf", n_ctx=2048)
params = tinfer.SamplingParams(temperature=0.0, max_tokens=20, stop=["a"])
rows = llm.embed(["a", "b"])
reveal_type(rows)
async def main() -> None:
    async for text in llm.stream("a", params):
        print(text.upper())
context = tinfer.Context(llm.model, n_ctx=64, logits_all=True)
context.decode(llm.vocab.encode("a"))
best: int = int(context.logits(-1).argmax())
class Counts(tinfer.Observer):
    n = 0
    def on_run(self, run: object) -> None:
        self.n += 1
class Events(tinfer.Observer):
    def on_events(self, events: np.ndarray[Any, Any]) -> None:
        assert len(events)
class Both(tinfer.Observer):
    def on_events(self, events: np.ndarray[Any, Any], accesses: np.ndarray[Any, Any]) -> None:
        assert len(accesses)
with context.attach(Events()), context.attach(Both()), context.attach(Counts()) as attached:
    context.decode([best])
'''


def made():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "stub.pyi"
        subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "tinfer._native", "-P", "-p", PATTERNS,
                        "-o", path], check=True)
        return path.read_text()


class Types(unittest.TestCase):
    def test_the_stub_is_that_of_the_module(self):
        head, second, *rest = STUB.read_text().splitlines(keepends=True)
        self.assertTrue(head.startswith("# SPDX") and second.startswith("# Made by"))
        self.assertEqual("".join(rest), made(), "types_test.py --write makes it anew")

    def test_mypy(self):
        with tempfile.TemporaryDirectory() as folder:
            use = pathlib.Path(folder) / "use.py"
            use.write_text(USE)
            for arguments in (["-p", "tinfer"], [use]):
                done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder, *arguments],
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_pyright(self):
        with tempfile.TemporaryDirectory() as folder:
            use = pathlib.Path(folder) / "use.py"
            use.write_text("# pyright: strict, reportUnknownMemberType=false\n" + USE)
            done = subprocess.run([sys.executable, "-m", "pyright", "--pythonpath", sys.executable, use],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_public_type_is_known(self):
        """But for those of classes over packages that are not installed here."""
        done = subprocess.run([sys.executable, "-m", "pyright", "--verifytypes", "tinfer", "--ignoreexternal",
                               "--outputjson"], capture_output=True, text=True)
        symbols = [symbol for symbol in json.loads(done.stdout)["typeCompleteness"]["symbols"]
                   if not symbol["name"].startswith(OVER_OTHERS)]
        # Those of modules with an underscore, too: pyright 1.1.414 no longer counts what the package takes from them.
        self.assertGreater(len(symbols), 500)
        self.assertEqual([symbol["name"] for symbol in symbols
                          if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]], [])


if __name__ == "__main__":
    if "--write" in sys.argv:
        STUB.write_text("".join(STUB.read_text().splitlines(keepends=True)[:2]) + made())
    else:
        unittest.main()
