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
        self.assertEqual(tinfer("tokenize", "-m", MODEL, "-p", "on", *without[:2], code=1), b"")
        self.assertIn("has none; without special tokens it is encoded (--no-add-special", tinfer.stderr)
        self.assertEqual(json.loads(tinfer("tokenize", "-m", MODEL, "-p", "on", *without[:3])), plain)

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

    def test_perplexity_saves_log_probabilities_and_measures_the_divergence_from_them(self):
        text, n, base = "once on a time the inn, again and again. " * 4, 33, FOLDER / "base.bin"
        args = ["-p", text, "-c", n, "--json"]
        plain = json.loads(tinfer("perplexity", MODEL, *args, "--save-logprobs", base))
        tokens = json.loads(tinfer("tokenize", "-m", MODEL, "-p", text))
        chunks = len(tokens) // n
        data = base.read_bytes()
        self.assertEqual(data[:8], b"_logits_")
        window, n_vocab, windows = struct.unpack_from("<3i", data, 8)
        self.assertEqual((window, windows), (n, chunks))
        self.assertEqual(list(struct.unpack_from(f"<{chunks * n}i", data, 20)), tokens[:chunks * n])
        even, at, rows = n_vocab + n_vocab % 2, 20 + 4 * chunks * n, []
        n_rows = n - 1 - n // 2
        self.assertEqual(len(data), at + chunks * n_rows * (8 + 2 * even))

        def log_probs(model, chunk):
            head = tinfer("logits", model, "-o", FOLDER / "rows.f32", "--tokens",
                          " ".join(map(str, [1] + tokens[chunk * n + 1:(chunk + 1) * n])))
            values, out = floats(FOLDER / "rows.f32"), []
            for j in range(n // 2, n - 1):
                row = values[j * n_vocab:(j + 1) * n_vocab]
                top = max(row)
                sum_ = top + math.log(sum(math.exp(x - top) for x in row))
                out.append([x - sum_ for x in row])
            return out

        other = damaged("other.gguf", MODEL, "blk.1.ffn_down.weight", 0, [0.4] * 200)
        measured = json.loads(tinfer("perplexity", other, *args, "--kl", base))
        kl, nll, base_nll, same = [], [], [], 0
        for chunk in range(chunks):
            for j, (p, q) in enumerate(zip(log_probs(MODEL, chunk), log_probs(other, chunk))):
                scale, least = struct.unpack_from("<2f", data, at)
                codes = struct.unpack_from(f"<{n_vocab}H", data, at + 8)
                at += 8 + 2 * even
                stored = [least + scale * code for code in codes]
                self.assertAlmostEqual(least, max(min(p), max(p) - 16), places=5)
                for a, b in zip(stored, p):
                    self.assertLess(abs(a - max(b, max(p) - 16)), scale)
                kl.append(sum(math.exp(a) * (a - b) for a, b in zip(stored, q) if a > -16))
                token = tokens[chunk * n + n // 2 + j + 1]
                nll.append(-q[token])
                base_nll.append(-stored[token])
                same += codes[max(range(n_vocab), key=lambda i: q[i])] == max(codes)
        mean = lambda values: sum(values) / len(values)
        square = lambda values: sum((x - mean(values)) ** 2 for x in values) / (len(values) - 1)
        spread = lambda values: math.sqrt(square(values) / len(values))
        got = measured["kl"]
        close = lambda a, b: self.assertAlmostEqual(a, b, delta=1e-6 * max(1, abs(b)))
        close(got["mean_kl"], mean(kl))
        close(got["error"], spread(kl))
        close(got["max"], max(kl))
        close(got["median"], sorted(kl)[len(kl) // 2] if len(kl) % 2 else mean(sorted(kl)[len(kl) // 2 - 1:][:2]))
        close(got["ppl_base"], math.exp(mean(base_nll)))
        close(got["ln_ppl_ratio"], mean(nll) - mean(base_nll))
        close(got["ln_ppl_ratio_error"], spread([a - b for a, b in zip(nll, base_nll)]))
        close(got["ppl_ratio"], math.exp(mean(nll) - mean(base_nll)))
        close(got["top1"], same / len(kl))
        deltas = [math.exp(-a) - math.exp(-b) for a, b in zip(nll, base_nll)]
        close(got["delta_p"]["mean"], mean(deltas))
        close(got["delta_p"]["rms"], math.sqrt(mean([x * x for x in deltas])))
        close(got["delta_p"]["min"], min(deltas))
        self.assertGreater(got["mean_kl"], 1e-3)

        itself = json.loads(tinfer("perplexity", MODEL, "-p", text, "--json", "--kl", base))   # its windows, not 512
        self.assertEqual({**itself, "kl": 0}, {**plain, "kl": 0})
        self.assertLess(abs(itself["kl"]["mean_kl"]), 1e-4)
        self.assertEqual(itself["kl"]["top1"], 1)
        self.assertRegex(tinfer("perplexity", other, "-p", text, "--kl", base).decode(),
                         r"\APPL .*\nKL        mean .*\nbase      PPL .*\nnext      .*\nsame top  .* %\n\Z")
        for wrong, message in ((["-c", "16"], f"--ctx 16: the windows of {base} have 33 tokens"),
                               (["-p", text.replace("again", "a gain", 1)], "is of another text: token"),
                               (["-p", text * 2], "(see --chunks)")):
            tinfer("perplexity", MODEL, *([] if "-p" in wrong else ["-p", text]), *wrong, "--kl", base, code=None)
            self.assertIn(message, tinfer.stderr)
        tinfer("perplexity", MODEL, "-p", text * 2, "--chunks", chunks, "--kl", base)

    def test_a_file_that_holds_no_log_probabilities_is_refused(self):
        text, base = "once on a time the inn, again and again. " * 4, FOLDER / "whole.bin"
        tinfer("perplexity", MODEL, "-p", text, "-c", "32", "--save-logprobs", base)
        data = base.read_bytes()
        cut = lambda at, bytes_: data[:at] + bytes_ + data[at + len(bytes_):]
        nan = struct.pack("<f", math.nan)
        n_tokens = struct.unpack_from("<i", data, 8)[0] * struct.unpack_from("<i", data, 16)[0]
        for bad, message in ((data[:-1], "bytes, which is not what"), (data + b"x", "bytes, which is not what"),
                             (b"", "is no file of log-prob"), (data[:12], "is no file of log-prob"),
                             (b"GGUF" + data[4:], "is no file of log-prob"),
                             (cut(8, struct.pack("<i", -1)), "these sizes cannot be"),
                             (cut(8, struct.pack("<i", 2 ** 31 - 1)), "bytes, which is not what"),
                             (cut(12, struct.pack("<i", 2 ** 31 - 1)), "bytes, which is not what"),
                             (cut(16, struct.pack("<i", 2 ** 31 - 1)), "bytes, which is not what"),
                             (cut(16, struct.pack("<i", 0)), "these sizes cannot be"),
                             (cut(20, struct.pack("<i", -5)), "is of another text: token 0 is -5 there"),
                             (cut(20 + 4 * n_tokens, nan), "no row of log-probabilities"),
                             (cut(20 + 4 * n_tokens + 4, nan), "no row of log-probabilities"),
                             (cut(20 + 4 * n_tokens + 4, struct.pack("<f", -math.inf)), "no row of log-prob")):
            broken = FOLDER / "broken.bin"
            broken.write_bytes(bad)
            self.assertEqual(tinfer("perplexity", MODEL, "-p", text, "--kl", broken, code=1), b"")
            self.assertIn(message, tinfer.stderr.splitlines()[-1])
            self.assertIn("broken.bin", tinfer.stderr.splitlines()[-1])
        other = FOLDER / "absent.bin"
        self.assertEqual(tinfer("perplexity", MODEL, "-p", text, "--kl", other, code=1), b"")
        self.assertIn("absent.bin: there is no such file", tinfer.stderr)
        # An interrupted or failed run leaves nothing behind.
        nan_model = damaged("nan.gguf", MODEL, "blk.1.attn_q.weight", 7, [math.nan])
        tinfer("perplexity", nan_model, "-p", text, "-c", "32", "--save-logprobs", FOLDER / "none.bin", code=1)
        self.assertEqual(list(FOLDER.glob("none.bin*")), [])

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

    def test_bench_generates_with_drafts_where_there_are_some(self):  # [J4]
        plain, drafted = [json.loads(line) for line in
                          tinfer("bench", "-m", MODEL, "-p", "0", "-n", "24", "-t", "1", "-r", "1", "--speculate",
                                 "ngram", "--json").splitlines()]
        self.assertEqual((plain["test"], drafted["test"]), ("tg24", "dg24"))
        self.assertNotIn("drafted_n", plain)
        self.assertGreater(drafted["drafted_n"], 0)
        self.assertLessEqual(drafted["accepted_n"], drafted["drafted_n"])

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
