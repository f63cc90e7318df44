# SPDX-License-Identifier: MIT
"""Where the tests find models and programs: the build folder, which TINFER_BUILD names."""
import os
import pathlib
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TINFER_BUILD"])
TINY = str(BUILD / "tests/package/tiny.gguf")        # two layers, random weights
TALKS = str(BUILD / "python-tests/talks.gguf")       # the same with a chat template
LORA = str(BUILD / "python-tests/lora.gguf")         # an adapter for both
LOGITS = str(BUILD / "bin/tinfer_logits_sha256")
PROGRAM = os.environ.get("TINFER_PROGRAM") or str(BUILD / "bin/tinfer")
SMOL = PROJECT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"

needs_smollm2 = unittest.skipUnless(SMOL.exists(), "no SmolLM2 in models/: scripts/get_model.py smollm2 fetches it")
SMOL = str(SMOL)
