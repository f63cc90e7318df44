#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer split and merge, and what tells files apart: manifests, expected hashes, two files.

usage: split_test.py path/to/tinfer [unittest arguments]
"""
import hashlib
import json
import pathlib
import unittest

from cli_support import FOLDER, MODEL, damaged, tinfer


class Split(unittest.TestCase):
    def test_what_is_merged_has_the_bytes_of_before(self):   # [Q3]
        whole = pathlib.Path(MODEL).read_bytes()
        for limits in (("--max-size", "64K"), ("--max-size", "100K"), ("--max-tensors", "3"), ("--max-size", "1G")):
            prefix = FOLDER / "part"
            files = json.loads(tinfer("split", MODEL, prefix, *limits, "--json"))["files"]
            count = len(files)
            self.assertEqual(files, [f"{prefix}-{i + 1:05d}-of-{count:05d}.gguf" for i in range(count)])
            self.assertEqual(count == 1, limits[1] == "1G")
            if limits[1] == "100K":
                self.assertLessEqual(max(pathlib.Path(f).stat().st_size for f in files[1:]), 100 * 1024)
            same = [json.loads(tinfer("run", m, "--temp", "0", "--json", "-p", "a", "-n", "3"))["tokens"]
                    for m in (MODEL, files[0])]
            self.assertEqual(*same)
            self.assertEqual(json.loads(tinfer("merge", files[0], FOLDER / "one.gguf", "--json")),
                             {"files": [str(FOLDER / "one.gguf")]})
            self.assertEqual((FOLDER / "one.gguf").read_bytes(), whole)
            for file in files:
                pathlib.Path(file).unlink()

    def test_what_cannot_be_done_is_said(self):
        tinfer("split", MODEL, FOLDER / "x", code=2)
        self.assertIn("--max-size", tinfer.stderr)
        tinfer("merge", MODEL, MODEL, code=1)
        self.assertIn("is read too", tinfer.stderr)
        files = json.loads(tinfer("split", MODEL, FOLDER / "y", "--max-tensors", "9", "--json"))["files"]
        pathlib.Path(files[1]).unlink()
        tinfer("merge", files[0], FOLDER / "z.gguf", code=1)
        self.assertIn(pathlib.Path(files[1]).name, tinfer.stderr)
        self.assertFalse((FOLDER / "z.gguf").exists())


class Inspect(unittest.TestCase):
    def test_a_changed_value_is_named_by_its_tensor(self):
        manifest = FOLDER / "manifest.json"
        manifest.write_bytes(tinfer("inspect", MODEL, "--manifest"))
        whole = hashlib.sha256(pathlib.Path(MODEL).read_bytes()).hexdigest()
        self.assertEqual(json.loads(manifest.read_text())["files"][0]["sha256"], whole)
        changed = damaged("changed.gguf", MODEL, "blk.1.ffn_up.weight", 5, [0.25])
        for expected in (manifest, whole, whole.upper()):
            tinfer("inspect", MODEL, "--expect", expected)
            found = json.loads(tinfer("inspect", changed, "--json", "--expect", expected, code=1))
            self.assertFalse(found["equal"])
        for other in (("--expect", manifest), (MODEL,)):
            said = tinfer("inspect", changed, *other, code=1).decode()
            self.assertIn("blk.1.ffn_up.weight", said)
            self.assertNotIn("blk.0.", said)
        (FOLDER / "no.json").write_text("{}")
        tinfer("inspect", MODEL, "--expect", FOLDER / "no.json", code=1)

    def test_two_files_differ_in_metadata_types_and_tensors(self):
        tinfer("inspect", MODEL, MODEL)
        tinfer("quantize", MODEL, FOLDER / "q.gguf", "Q8_0")
        found = json.loads(tinfer("inspect", MODEL, FOLDER / "q.gguf", "--json", code=1))["differences"]
        kinds = {(d["kind"], d["name"]) for d in found}
        self.assertIn(("metadata", "general.file_type"), kinds)
        self.assertIn(("tensor", "blk.0.attn_q.weight"), kinds)
        self.assertFalse([d for d in found if d["name"] == "blk.0.attn_norm.weight"])


if __name__ == "__main__":
    unittest.main()
