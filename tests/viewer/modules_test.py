#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs modules_test.js in Node with traces made here. Exits with 77 where there is no Node."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import synthetic_trace as synthetic

node = shutil.which("node") or shutil.which("nodejs")
if not node:
    print("no Node: skipped")
    sys.exit(77)
with tempfile.TemporaryDirectory(prefix="tinfer-modules-") as folder:
    files = []
    for name, data in (("example", synthetic.worked_example()), ("dense", synthetic.dense(prompt=5, tokens=6)),
                       ("experts", synthetic.experts(6)), ("hostile", synthetic.hostile())):
        files.append(pathlib.Path(folder) / f"{name}.tntrace")
        files[-1].write_bytes(data)
    sys.exit(subprocess.run([node, ROOT / "tests/viewer/modules_test.js", ROOT / "apps/viewer", *files],
                            timeout=300).returncode)
