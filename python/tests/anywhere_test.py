# SPDX-License-Identifier: MIT
"""[P1] An installed package on any system, with nothing beside it but numpy and this source tree: it has the logits
that it has elsewhere. cibuildwheel runs this after each build, and wheels_test.py in clean systems."""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import tinfer

TEXT = "once upon a time the rain in the north"
#: Of all rows of the model that tests/support/tiny_model.py writes, on every machine and with every kernel table.
EXPECTED = "26561b6ce1b0a97298b4370fc0f8f9996338d24088904e36b45aa44717f776a1"


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tiny.gguf")
        maker = pathlib.Path(__file__).resolve().parents[2] / "tests/support/tiny_model.py"
        subprocess.run([sys.executable, maker, path], check=True)
        model = tinfer.Model.load(path)
        for isa in ("automatic", "reference"):
            context = tinfer.Context(model, n_ctx=64, logits_all=True, isa=isa)
            context.decode(model.vocab.encode(TEXT))
            hashed = hashlib.sha256()
            for i in range(context.n_outputs):
                hashed.update(context.logits(i))
            used, found = context.isa, hashed.hexdigest()
            assert found == EXPECTED, f"{used}: {found}"
            del context
        with tinfer.LLM(model, n_ctx=128, n_parallel=2) as llm:
            one, two = llm.generate(["once", "once"], temperature=0, max_tokens=4)
            assert one.token_ids == two.token_ids and len(one.token_ids) >= 1
        try:
            tinfer.Model.load("no-such.gguf")
        except tinfer.Error as error:
            assert error.code == "io_error"
        del model   # so that the file can go where mapped files are locked
    print(f"tinfer {tinfer.__version__}, numpy {np.__version__}, {sys.implementation.cache_tag}: the expected bits")


if __name__ == "__main__":
    main()
