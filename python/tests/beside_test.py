# SPDX-License-Identifier: MIT
"""[P1] The shim beside llama-cpp-python itself: on the same files the same ids, and the same best tokens, nearly all of
them where both round activations, and as good as all where neither does. benchmarks/beside_text.py compares.

TINFER_LLAMA_CPP_PYTHON names an interpreter that has llama-cpp-python, where build/beside/bin/python is none."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import PROGRAM, PROJECT, SMOL, needs_smollm2
from wheel import SKIPPED

OTHER = os.environ.get("TINFER_LLAMA_CPP_PYTHON") or str(PROJECT / "build/beside/bin/python")


def has_package():
    if not os.access(OTHER, os.X_OK):
        return False
    return subprocess.run([OTHER, "-c", "import llama_cpp"], capture_output=True).returncode == 0


@needs_smollm2
class Beside(unittest.TestCase):
    def compare(self, model, agreement):
        done = subprocess.run([sys.executable, PROJECT / "benchmarks/beside_text.py", model, "--other", OTHER,
                               "--predict", "24", "--rounds", "0", "--each", "--agreement", str(agreement)],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        print(done.stdout)

    def test_both_round(self):
        self.compare(SMOL, 0.95)

    def test_neither_rounds(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "f32.gguf"
            subprocess.run([PROGRAM, "quantize", SMOL, path, "F32", "--pure", "--allow-requantize", "--quiet"],
                           check=True, stdout=subprocess.DEVNULL)
            self.compare(path, 0.995)


if __name__ == "__main__":
    if not has_package():
        print("skipped: no llama-cpp-python: TINFER_LLAMA_CPP_PYTHON names an interpreter that has it")
        sys.exit(SKIPPED)
    unittest.main()
