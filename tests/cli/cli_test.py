#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Text, numbers and files: what the program prints agrees with what can be computed from its own raw logits.

usage: cli_test.py path/to/tinfer [unittest arguments]
"""
import csv
import hashlib
import io
import json
import math
import pathlib
import re
import struct
import unittest

from cli_support import FOLDER, HERE, MODEL, damaged, floats, tinfer

CSV_HEADER = ("index,name,type,n_dims,ne0,ne1,ne2,ne3,elements,bytes,bits_per_weight,file,offset_in_data,file_offset,"
              "file_end,padding_before,layer,role,expert_count,bytes_per_expert")

class Text(unittest.TestCase):
    def test_there_and_back(self):
        for text in ("once on a time", "the  inn", "naïve, 漢字 🙂\n", "A"):
            ids = json.loads(tinfer("tokenize", "-m", MODEL, "--no-add-special", "-p", text))
            back = tinfer("detokenize", "-m", MODEL, "--tokens", " ".join(map(str, ids)))
            self.assertEqual(back.decode().removeprefix(" "), text)

    def test_special_tokens(self):
        ids = lambda *args: json.loads(tinfer("tokenize", "-m", MODEL, *args))
        self.assertEqual(ids("-p", "on")[0], 1)
        self.assertEqual(ids("-p", "on")[1:], ids("-p", "on", "--no-add-special"))
        self.assertEqual(ids("-p", "</s>", "--no-add-special", "--parse-special"), [2])
        self.assertGreater(len(ids("-p", "</s>", "--no-add-special")), 1)
        self.assertEqual(tinfer("detokenize", "-m", MODEL, "--tokens", "2", "--special"), b"</s>")
        self.assertEqual(tinfer("detokenize", "-m", MODEL, "--tokens", "2"), b"")

    def test_T10_T13_what_begins_a_turn(self):  # [T10] [T13]
        ids = lambda *args: json.loads(tinfer("tokenize", "-m", MODEL, *args))
        plain = ids("-p", "on", "--no-add-special")
        for text in ("on", "<s>on"):
            self.assertEqual(ids("-p", text, "--no-add-special", "--parse-special", "--force-bos"), [1, *plain])
            self.assertEqual(ids("-p", text, "--parse-special", "--force-bos"), [1, *plain])
        self.assertEqual(ids("-p", "on", "--no-add-special", "--close-turn"), [2, *plain])   # no EOT here: EOS
        self.assertEqual(ids("-p", "</s>on", "--parse-special", "--close-turn", "--force-bos"), [2, 1, *plain])
        without = ["--override", "tokenizer.ggml.bos_token_id=int:-1", "--no-add-special", "--force-bos"]
        self.assertEqual(tinfer("tokenize", "-m", MODEL, "-p", "on", *without, code=1), b"")
        self.assertRegex(tinfer.stderr, r"BOS token is to be added but the vocabulary has none\n\Z")

    def test_lines_of_json(self):
        texts = ["once", "", "two\nlines", "ü"]
        lines = "".join(json.dumps(text) + "\n" for text in texts).encode()
        answers = tinfer("tokenize", "-m", MODEL, "--jsonl", "-f", "-", input=lines).splitlines()
        self.assertEqual([json.loads(a) for a in answers], [json.loads(tinfer("tokenize", "-m", MODEL, "-p", t))
                                                            for t in texts])
        tinfer("tokenize", "-m", MODEL, "--jsonl", "-f", "-", input=b"3\n", code=1)
        pieces = json.loads(tinfer("tokenize", "-m", MODEL, "--pieces", "-p", "é"))
        self.assertIn("c3", [p.get("bytes") for p in pieces])


class Numbers(unittest.TestCase):
    def logits(self, *args):
        out = FOLDER / "logits.f32"
        document = json.loads(tinfer("logits", "-m", MODEL, "-o", out, *args))
        data = out.read_bytes()
        self.assertEqual(document["sha256"], hashlib.sha256(data).hexdigest())
        self.assertEqual(len(data), 4 * document["rows"] * document.get("n_vocab", document.get("n_embd", 0)))
        return document, floats(out)

    def test_logits_do_not_depend_on_how_they_are_made(self):
        tokens = ["--tokens", "1 270 265 12 99 3 261"]
        document, values = self.logits(*tokens)
        self.assertEqual(document["rows"], 7)
        for other in (["-b", "2"], ["-u", "3"], ["-t", "2"], ["--isa", "reference"], ["--no-fuse"], ["--no-mmap"]):
            self.assertEqual(self.logits(*tokens, *other)[0], document, other)
        last, row = self.logits(*tokens, "--last", "-b", "3")
        self.assertEqual((last["rows"], row), (1, values[-document["n_vocab"]:]))
        self.assertEqual(self.logits(*tokens, "--embeddings")[0]["n_embd"], 64)
        self.assertNotEqual(self.logits(*tokens, "--first-position", "5")[0], document)

    def test_perplexity_is_that_of_the_logits(self):
        text, n = "once on a time the inn, again and again. " * 4, 32
        (FOLDER / "text.txt").write_text(text)
        document = json.loads(tinfer("perplexity", "-m", MODEL, "-f", FOLDER / "text.txt", "-c", n, "--json"))
        tokens = json.loads(tinfer("tokenize", "-m", MODEL, "-p", text))
        nll = []
        for chunk in range(len(tokens) // n):
            window = tokens[chunk * n:(chunk + 1) * n]
            head, values = self.logits("--tokens", " ".join(map(str, [1] + window[1:])))
            for j in range(n // 2, n - 1):
                row = values[j * head["n_vocab"]:(j + 1) * head["n_vocab"]]
                top = max(row)
                nll.append(math.log(sum(math.exp(x - top) for x in row)) + top - row[window[j + 1]])
        mean = sum(nll) / len(nll)
        error = math.sqrt((sum(x * x for x in nll) / len(nll) - mean * mean) / (len(nll) - 1)) * math.exp(mean)
        self.assertEqual(document["tokens"], len(nll))
        self.assertAlmostEqual(document["ppl"] / math.exp(mean), 1, places=9)
        self.assertAlmostEqual(document["error"] / error, 1, places=6)
        self.assertEqual(document["model_sha256"], hashlib.sha256(pathlib.Path(MODEL).read_bytes()).hexdigest())

    def test_perplexity_that_is_not_finite_is_an_error(self):
        text = "once on a time the inn, again and again. " * 8
        for model in (damaged("nan.gguf", MODEL, "blk.1.attn_q.weight", 7, [math.nan]),
                      damaged("large.gguf", MODEL, "blk.0.ffn_down.weight", 0, [3e38] * 64 * 96)):
            self.assertEqual(tinfer("perplexity", model, "-p", text, "-c", "32", "--json", code=1), b"")
            error = tinfer.stderr.splitlines()[-1]
            self.assertRegex(error, r"\Atinfer: .*(blk\.1\.attn_q\.weight|token \d+ of the text).*finite")
        tinfer("logits", model, "-p", "once")
        self.assertIn("not finite", tinfer.stderr)

    def test_bench_prints_one_document_per_test(self):
        lines = [json.loads(line) for line in
                 tinfer("bench", "-m", MODEL, "-p", "8", "-n", "2", "-d", "0,4", "-t", "1", "-r", "3",
                        "--json").splitlines()]
        self.assertEqual([line["test"] for line in lines], ["pp8", "tg2", "pp8@d4", "tg2@d4"])
        for line in lines:
            self.assertTrue(0 < line["min"] <= line["median"] <= line["max"], line)
            self.assertEqual(line["threads"], 1)
            self.assertGreater(line["stream_gbps"], 0)
            self.assertGreater(line["file_gbps"], 0)
            self.assertGreaterEqual(line["roof"], 0)
            self.assertGreater(line["weight_bytes"], 0)

    def test_bench_counts_each_weight_once_per_token_and_a_batch_like_a_prompt_with_all_outputs(self):
        lines = {line["test"]: line for line in map(json.loads, tinfer(
            "bench", "-m", MODEL, "-p", "4", "-n", "2", "--batches", "4", "-t", "1", "-r", "1", "--json").splitlines())}
        rows = list(csv.DictReader(io.StringIO(tinfer("inspect", MODEL, "--csv").decode())))
        weights = sum(int(row["bytes"]) for row in rows if row["role"] != "token_embd")
        embedding = next(row for row in rows if row["role"] == "token_embd")
        row_bytes = int(embedding["bytes"]) // int(embedding["ne1"])
        self.assertEqual(lines["tg2"]["weight_bytes"], 2 * (weights + row_bytes))
        self.assertLessEqual(lines["pp4"]["weight_bytes"] - weights, 4 * row_bytes)
        self.assertEqual(lines["b4"]["weight_bytes"], lines["pp4"]["weight_bytes"])
        self.assertGreater(lines["b4"]["gmacs"] / lines["b4"]["median"], lines["pp4"]["gmacs"] / lines["pp4"]["median"])

    def test_N7_bench_roofline_has_a_row_for_every_role(self):
        test, *rows = [json.loads(line) for line in
                       tinfer("bench", "-m", MODEL, "-p", "0", "-n", "4", "-t", "1", "-r", "1", "--roofline",
                              "--json").splitlines()]
        roles = {row["role"] for row in rows}
        tensors = {row["role"] for row in csv.DictReader(io.StringIO(tinfer("inspect", MODEL, "--csv").decode()))}
        self.assertEqual({role for roles_of_step in roles for role in roles_of_step.split("+")} - {""}, tensors)
        self.assertEqual(sum(row["weight_bytes"] for row in rows), test["weight_bytes"])
        self.assertEqual(sum(row["cache_bytes"] for row in rows), test["cache_bytes"])
        self.assertTrue(all(row["bound"] in ("memory", "compute") for row in rows if row["role"]))
        self.assertTrue(0 < sum(row["share"] for row in rows) <= 100.001)
        table = tinfer("bench", "-m", MODEL, "-p", "0", "-n", "4", "-t", "1", "-r", "1", "--roofline").decode()
        self.assertIn("ffn_down", table)
        self.assertIn("all steps", table)


class Inspect(unittest.TestCase):
    def test_L24_the_directory_as_csv(self):
        text = tinfer("inspect", MODEL, "--csv").decode()
        self.assertEqual(text.splitlines()[0], CSV_HEADER)
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual(len(rows), 3 + 2 * 9)
        data = pathlib.Path(MODEL).read_bytes()
        for index, row in enumerate(rows):
            self.assertEqual(int(row["index"]), index)
            self.assertEqual(int(row["file_end"]), int(row["file_offset"]) + int(row["bytes"]))
            if "norm" in row["name"]:   # all ones: the offset is the right one
                self.assertEqual(data[int(row["file_offset"]):int(row["file_end"])], struct.pack("<f", 1) * 64)
        self.assertEqual((rows[3]["layer"], rows[3]["role"]), ("0", "attn_norm"))

    def test_summary_and_json(self):
        document = json.loads(tinfer("inspect", MODEL, "--json", "--data-check"))
        self.assertEqual(document["hyperparameters"]["n_layer"], 2)
        self.assertGreater(document["memory"]["total"], document["memory"]["weights_mapped"])
        self.assertEqual(len(document["tensors"]), 21)
        self.assertIn("blk.1.ffn_down.weight", tinfer("inspect", MODEL).decode())
        names = [row["name"] for row in json.loads(tinfer("inspect", "--architectures", "--json"))]
        page = (HERE.parents[1] / "docs/models.md").read_text()
        table = page[:page.index("Weights in any of")]
        listed = [name for line in table.splitlines() if line.startswith("| `")
                  for name in re.findall("`([^`]+)`", line.split("|")[1])]
        self.assertEqual(sorted(names), sorted(listed))

    def test_graph_and_plan(self):
        self.assertTrue(tinfer("graph", MODEL).startswith(b"digraph"))
        self.assertIn(b"mul_mat", tinfer("graph", MODEL, "--view", "plan", "--format", "text", "--tokens", "4"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
