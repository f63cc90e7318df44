#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`tinfer convert` on the golden checkpoints: metadata and tensors as they must be, logits of the source's own
implementation, ids of texts, and the folders and files that must be refused. Skipped where there is no golden data.

usage: convert_golden_test.py path/to/tinfer [unittest arguments]
"""
import base64
import hashlib
import json
import os
import pathlib
import shutil
import struct
import unittest

from checkpoints import Gguf
from cli_support import FOLDER, HERE, tinfer

# The tolerances are those of a cache that rounds nothing.
EXACT = ["--kv-type-k", "f32", "--kv-type-v", "f32"]
GOLDEN = pathlib.Path(os.environ.get("TINFER_GOLDEN") or HERE.parents[2] / "shared" / "golden") / "convert"
CASES = [row["case"] for row in json.loads((GOLDEN / "index.json").read_text())] if GOLDEN.exists() else []


def read(path):
    return json.loads(path.read_text())


def copy_of(case, name):
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(GOLDEN / case, folder, copy_function=shutil.copy)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def close(got, wanted):
    return abs(got - wanted) <= 1e-6 * abs(wanted) + 1e-12


class Golden(unittest.TestCase):
    def check_metadata(self, file, expected):
        for key, wanted in expected["metadata"].items():
            self.assertIn(key, file.keys)
            got = file.keys[key]
            self.assertEqual(got.decode() if isinstance(got, bytes) else got, wanted, key)
        for key, wanted in expected["arrays"].items():
            got = file.keys[key]
            self.assertEqual(len(got), wanted["length"], key)
            if "values" in wanted:
                self.assertEqual(got, wanted["values"], key)
            if "sha256" in wanted:
                data = bytes(got) if isinstance(got[0], int) else b"".join(text + b"\0" for text in got)
                self.assertEqual(hashlib.sha256(data).hexdigest(), wanted["sha256"], key)

    def check_tensors(self, file, expected):
        self.assertEqual(sorted(file.tensors), sorted(expected["tensors"]))
        for name, wanted in expected["tensors"].items():
            self.assertEqual(file.tensors[name][0], wanted["dims"], name)
            if "sha256" in wanted:
                self.assertEqual(hashlib.sha256(file.data(name)).hexdigest(), wanted["sha256"], name)
            values = file.floats(name)
            for got, number in zip(values, wanted.get("values") or wanted.get("near", {}).get("first", [])):
                self.assertTrue(close(got, number), f"{name}: {got}, {number}")
            if "near" in wanted:
                self.assertAlmostEqual(sum(values), wanted["near"]["sum"], delta=1e-5 * abs(wanted["near"]["sum"]))

    def check_results(self, model, folder, case):
        for file, tolerance in case["tolerance"].items():
            kind = file.split(".")[0].split("_")[0]
            if case["architecture"] == "t5":
                continue  # no command gives the rows of a decoder: see check_decoder
            is_long = file == "logits_long.f32"
            args = ["--tokens", " ".join(map(str, case["long_ids" if is_long else "input_ids"]))]
            if case.get("n_ctx"):
                args += ["-c", case["long_n_ctx" if is_long else "n_ctx"]]
            args += {"logits": [], "hidden": ["--embeddings"], "pooled": ["--pooled"]}[kind]
            out = FOLDER / "rows.f32"
            tinfer("logits", model, *args, *EXACT, "-o", out)
            rows, wanted = out.read_bytes(), (folder / file).read_bytes()
            self.assertEqual(len(rows), len(wanted), file)
            n = len(rows) // 4
            pairs = zip(struct.unpack(f"<{n}f", rows), struct.unpack(f"<{n}f", wanted))
            self.assertLessEqual(max(abs(a - b) for a, b in pairs), tolerance, file)

    def check_decoder(self, model, case):
        wanted = case["greedy_decoder_ids"]
        args = ["--tokens", " ".join(map(str, case["input_ids"]))]
        document = json.loads(tinfer("run", "-m", model, *args, "-n", len(wanted) - 1, "--temp", "0", "--json",
                                     "--logit-bias", "1=-1e9", *EXACT))
        self.assertEqual(document["tokens"], wanted[1:])

    def check_texts(self, model, case):
        texts = FOLDER / "texts.jsonl"
        texts.write_text("".join(json.dumps(row["text"]) + "\n" for row in case["texts"]))
        for field, args in (("ids", ["--no-add-special"]), ("ids_special", [])):
            lines = tinfer("tokenize", "-m", model, "--jsonl", "-f", texts, "--parse-special", *args).splitlines()
            self.assertEqual([json.loads(line) for line in lines], [row[field] for row in case["texts"]], field)

    def test_cases(self):
        """[Q4] Every family: metadata, tensors, logits within the tolerance, ids equal."""
        if not CASES:
            self.skipTest("no golden data (see TINFER_GOLDEN)")
        for name in CASES:
            with self.subTest(name):
                folder, model = GOLDEN / name, FOLDER / "golden.gguf"
                case, expected = read(folder / "case.json"), read(folder / "gguf.json")
                tinfer("convert", folder, "-o", model, "--type", "f32")
                file = Gguf(model)
                self.check_metadata(file, expected)
                self.check_tensors(file, expected)
                self.check_results(model, folder, case)
                if case["architecture"] == "t5":
                    self.check_decoder(model, case)
                self.check_texts(model, case)

    def test_other_types_run(self):
        """[Q4] The same text in f16, bf16, q8_0: logits stay near those of f32."""
        if not CASES:
            self.skipTest("no golden data (see TINFER_GOLDEN)")
        for name, kind, tolerance in (("llama-spm", "f16", 0.05), ("qwen2moe", "bf16", 0.4), ("gemma3", "q8_0", 0.7),
                                      ("llama3", "q4_k_m", 3.0)):
            with self.subTest(name):
                folder, model, out = GOLDEN / name, FOLDER / "golden.gguf", FOLDER / "rows.f32"
                case = read(folder / "case.json")
                tinfer("convert", folder, "-o", model, "--type", kind)
                tinfer("logits", model, "--tokens", " ".join(map(str, case["input_ids"])), "-o", out)
                rows, wanted = out.read_bytes(), (folder / "logits.f32").read_bytes()
                n = len(rows) // 4
                pairs = zip(struct.unpack(f"<{n}f", rows), struct.unpack(f"<{n}f", wanted))
                self.assertLess(max(abs(a - b) for a, b in pairs), tolerance)

    def change(self, folder, op):
        path = folder / op["file"]
        if op["op"] == "delete":
            path.unlink()
        elif op["op"] == "truncate":
            path.write_bytes(path.read_bytes()[:-op["drop_bytes"]])
        else:
            document = read(path)
            *parents, last = op["pointer"].split("/")[1:]
            at = document
            for key in parents:
                at = at[int(key)] if isinstance(at, list) else at[key]
            last = int(last) if isinstance(at, list) else last
            if op["op"] == "set":
                at[last] = op["value"]
            else:
                del at[last]
            path.write_text(json.dumps(document))

    def test_folders_that_are_refused(self):
        """[Q4] The message names what is wrong; nothing is written."""
        if not CASES:
            self.skipTest("no golden data (see TINFER_GOLDEN)")
        for case in read(GOLDEN / "reject.json")["cases"]:
            with self.subTest(case["about"]):
                folder = copy_of(case["base"], "checkpoint")
                for op in case["ops"]:
                    self.change(folder, op)
                tinfer("convert", folder, "-o", FOLDER / "refused.gguf", code=1)
                for name in case["names"]:
                    self.assertIn(name, tinfer.stderr)
                self.assertEqual([f.name for f in FOLDER.iterdir() if f.name.startswith("refused")], [])

    def test_safetensors_files(self):
        """[Q4] Those that are whole miss the tensors of the model; the others are refused for what they are."""
        if not CASES:
            self.skipTest("no golden data (see TINFER_GOLDEN)")
        folder = copy_of("qwen2", "checkpoint")
        for case in read(GOLDEN / "safetensors.json")["cases"]:
            with self.subTest(case["name"]):
                if "repeat" in case:
                    text = (case["repeat"]["header_prefix"] + case["repeat"]["text"] * case["repeat"]["times"]).encode()
                    data = struct.pack("<Q", len(text)) + text
                else:
                    data = base64.b64decode(case["base64"])
                (folder / "model.safetensors").write_bytes(data)
                tinfer("convert", folder, "--dry-run", code=1)
                self.assertEqual("'model.embed_tokens.weight' is missing" in tinfer.stderr, case["accept"])


if __name__ == "__main__":
    unittest.main()
