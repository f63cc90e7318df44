#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer run --receipt, replay, score; what of loading and devices is said: from outside.

usage: replay_test.py path/to/tinfer [unittest arguments]
"""
import json
import math
import re
import shutil
import unittest

from cli_support import FOLDER, MODEL, NO_EOG, damaged, floats, ids_of, tinfer

PROMPT = "once on a time"


def record(name, *args, model=MODEL):
    path = FOLDER / name
    warmth = [] if "--temp" in args else ["--temp", 1.5]
    document = json.loads(
        tinfer("run", model, "-p", PROMPT, "--seed", 5, *warmth, "--json", "--receipt", path, *NO_EOG, *args))
    return path, document


class Replay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.receipt, cls.run_document = record("story.json", "-n", 24)
        cls.tokens = cls.run_document["tokens"]

    def test_N10_other_threads_and_tables_say_equal(self):  # [N10]
        for args in ([], ["-t", 1], ["-t", 3, "--isa", "reference"], ["-b", 7, "-u", 3], ["--no-fuse"], ["--no-mmap"]):
            text = tinfer("replay", self.receipt, *args).decode()
            self.assertRegex(text,
                             r"\Aequal: 24 rows of logits have the same bits, the sampler draws the same tokens, and "
                             r"so have all weights\n\Z")
        document = json.loads(tinfer("replay", self.receipt, "--json"))
        self.assertEqual((document["equal"], document["rows"], document["first_row"], document["weights"]),
                         (True, 24, None, []))

    def test_N10_a_changed_weight_is_named(self):  # [N10]
        other = damaged("other.gguf", MODEL, "blk.1.ffn_down.weight", 11, [0.625])
        text = tinfer("replay", self.receipt, "-m", other, code=1).decode()
        self.assertRegex(text, r"\Adiffers: the logits of token \d+ are the first that are not the same\n"
                               r"changed: 1 tensor of the model file: blk\.1\.ffn_down\.weight\n"
                               r"first node whose values differ: \S+, which reads blk\.1\.ffn_down\.weight\n\Z")
        document = json.loads(tinfer("replay", self.receipt, other, "--json", code=1))
        self.assertEqual((document["equal"], document["weights"]), (False, ["blk.1.ffn_down.weight"]))
        self.assertEqual(document["node_weights"], ["blk.1.ffn_down.weight"])

    def test_N10_greedy_and_chains_replay_too(self):  # [N10]
        for args in (["--temp", 0], ["--mirostat", 2], ["--samplers",
                                                        "dry(0.8) | top_k(9) | min_p(0.1) | temperature(1.3)"],
                     ["--penalty-repeat", 1.3, "--stop", "zzz\n", "-c", 64],
                     ["--kv-type-k", "bf16", "--kv-type-v", "f32"]):
            path, _ = record("chain.json", "-n", 12, *args)
            self.assertTrue(tinfer("replay", path).startswith(b"equal: 12 rows"), args)

    def test_N10_the_model_is_found_from_every_folder(self):  # [N10]
        home = FOLDER / "home"
        (home / "models").mkdir(parents=True)
        (home / "notes").mkdir()
        (FOLDER / "elsewhere").mkdir()
        shutil.copy(MODEL, home / "models/m.gguf")
        receipt = home / "notes/r.json"
        for cwd, model, name in ((home, "models/m.gguf", "notes/r.json"),
                                 (home / "models", "m.gguf", "../notes/r.json"),
                                 (home, str(home / "models/m.gguf"), "notes/r.json")):
            tinfer("run", model, "-p", PROMPT, "-n", 3, "--seed", 5, *NO_EOG, "--receipt", name, cwd=cwd)
            named = json.loads(receipt.read_text())["model"]["files"]
            self.assertEqual(named, [model if model.startswith("/") else "../models/m.gguf"])
            for other, path in ((home, "notes/r.json"), (home / "notes", "r.json"), (FOLDER / "elsewhere", receipt)):
                self.assertTrue(tinfer("replay", path, cwd=other).startswith(b"equal: 3 rows"))
                tinfer("replay", path, "--compare", "--kv-type-k", "f32", cwd=other)
        # Both moved into one folder; then the model is gone.
        for file in (receipt, home / "models/m.gguf"):
            shutil.move(file, FOLDER / "elsewhere")
        self.assertTrue(tinfer("replay", FOLDER / "elsewhere/r.json").startswith(b"equal: 3 rows"))
        (FOLDER / "elsewhere/m.gguf").rename(FOLDER / "elsewhere/renamed.gguf")
        for args, option in (([], "--model"), (["--compare"], "--base")):
            tinfer("replay", FOLDER / "elsewhere/r.json", *args, code=1)
            self.assertRegex(tinfer.stderr, r"\Atinfer: \S+r\.json: its model \S+/models/m\.gguf is not there \(looked "
                                            rf"for \S+, \S+/elsewhere/m\.gguf\); {option} names another file\n\Z")
        tinfer("run", MODEL, "-p", PROMPT, "-n", 1, "--receipt", "/dev/stdout", "--quiet")   # a place without a folder

    def test_N10_a_damaged_receipt_is_refused(self):  # [N10]
        bad = FOLDER / "bad.json"
        text = self.receipt.read_text()
        bad.write_text(text.replace('"n_predict":24', '"n_predict":25').replace('"n_predict": 24', '"n_predict": 25'))
        tinfer("replay", bad, code=1)
        self.assertIn("the receipt was changed", tinfer.stderr)
        bad.write_text(text[:100])
        tinfer("replay", bad, code=1)
        self.assertRegex(tinfer.stderr, r"\Atinfer: \S*bad\.json: line ")
        tinfer("replay", code=2)
        tinfer("replay", self.receipt, "--token", 3, code=2)
        tinfer("replay", self.receipt, "--at", 99, code=1)
        tinfer("replay", self.receipt, "--at", 3, "--compare", code=2)

    def test_N26_a_branch_goes_on_as_recorded_or_otherwise(self):  # [N26]
        for at in (0, 1, 7, 23, 24):
            document = json.loads(tinfer("replay", self.receipt, "--at", at, "--json"))
            self.assertEqual(document["tokens"], self.tokens[at:])
            self.assertIsNone(document["first_parted"])
        other = next(t for t in range(5, 30) if t != self.tokens[7])
        document = json.loads(tinfer("replay", self.receipt, "--at", 7, "--token", other, "--json"))
        self.assertEqual((document["tokens"][0], len(document["tokens"]), document["first_parted"]), (other, 17, 7))
        # As if the recorded tokens and the other one had been the prompt, with a greedy sampler.
        document = json.loads(tinfer("replay", self.receipt, "--at", 7, "--token", other, "--temp", 0, "-n", 9,
                                     "--json"))
        same = json.loads(tinfer("replay", self.receipt, "--at", 7, "--token", other, "--temp", 0, "-n", 9, "--json",
                                 "--isa", "reference", "-t", 1))
        self.assertEqual(document["tokens"], same["tokens"])
        self.assertEqual(len(document["tokens"]), 9)
        seeds = {tuple(json.loads(tinfer("replay", self.receipt, "--at", 2, "--seed", s, "--json"))["tokens"])
                 for s in range(4)}
        self.assertGreater(len(seeds), 1)
        text = tinfer("replay", self.receipt, "--at", 7, "--token", other)
        self.assertEqual(text.decode(),
                         json.loads(tinfer("replay", self.receipt, "--at", 7, "--token", other, "--json"))["text"])

    def test_N26_two_models_are_compared(self):  # [N26]
        other = damaged("apart.gguf", MODEL, "blk.0.ffn_up.weight", 0, [3.0] * 200)
        document = json.loads(tinfer("replay", self.receipt, "-m", other, "--compare", "--json", "--top", 3))
        self.assertEqual([t["token"] for t in document["tokens"]], self.tokens)
        self.assertEqual([t["a"]["choice"] for t in document["tokens"]], self.tokens)
        self.assertEqual(document["first_bits"], 0)
        kl = [t["kl"] for t in document["tokens"]]
        self.assertTrue(all(x > 0 for x in kl))
        self.assertAlmostEqual(document["mean_kl"], sum(kl) / len(kl), places=9)
        parted = [i for i, t in enumerate(document["tokens"]) if t["a"]["choice"] != t["b"]["choice"]]
        self.assertEqual(document["first_parted"], parted[0] if parted else None)
        self.assertTrue(all(len(t["b"]["top"]) == 3 for t in document["tokens"]))
        ppl = math.exp(-sum(math.log(t["b"]["p"]) for t in document["tokens"]) / len(kl))
        self.assertAlmostEqual(document["ppl_b"], ppl, places=6)
        table = tinfer("replay", self.receipt, "-m", other, "--compare").decode()
        self.assertEqual(len(re.findall(r"^ +\d+  ", table, re.M)), 24)
        same = json.loads(tinfer("replay", self.receipt, "--compare", "--json", "--isa", "reference"))
        self.assertEqual((same["first_bits"], same["first_parted"], same["max_kl"]), (None, None, 0))
        cache = json.loads(tinfer("replay", self.receipt, "--compare", "--json", "--kv-type-k", "bf16"))
        self.assertIsNotNone(cache["first_bits"])

    def test_N26_the_page_holds_the_comparison_and_nothing_from_outside(self):  # [N26]
        page = FOLDER / "compare.html"
        other = damaged("apart2.gguf", MODEL, "blk.0.ffn_up.weight", 0, [3.0] * 200)
        document = json.loads(tinfer("replay", self.receipt, "-m", other, "--compare", "--json", "--html", page))
        text = page.read_text()
        data = json.loads(re.search(r'<script type="application/json" id="comparison">(.*?)</script>', text, re.S)[1])
        self.assertEqual(data["tokens"], document["tokens"])
        self.assertTrue(data["prompt"].endswith(PROMPT), data["prompt"])  # BOS stands in front
        self.assertNotRegex(text, r"(?:src|href)=\"(?!data:)|https?://|url\(")


class Score(unittest.TestCase):
    def score(self, lines, *args, **kw):
        text = "\n".join(json.dumps(line) for line in lines)
        return [json.loads(line) for line in tinfer("score", MODEL, "-f", "-", *args, input=text.encode(),
                                                    **kw).splitlines()]

    def test_V7_scores_are_those_of_the_logits(self):  # [V7]
        whole = ids_of("once on a time the inn")
        tinfer("logits", MODEL, "--tokens", " ".join(map(str, whole)), "-o", FOLDER / "rows.f32")
        rows = floats(FOLDER / "rows.f32")
        n = len(rows) // len(whole)
        expected = []
        for i in range(1, len(whole)):
            row = rows[(i - 1) * n:i * n]
            most = max(row)
            expected.append(row[whole[i]] - most - math.log(sum(math.exp(x - most) for x in row)))
        before = len(ids_of("once on a time"))
        answers = self.score([{"prompt": "once on a time", "text": " the inn"}, {"text": "once on a time the inn"},
                              {"prompt": whole[:3], "text": whole[3:]}, {"text": whole}, {"prompt": whole, "text": []}])
        first = answers[0]
        self.assertEqual(first["tokens"], whole[before:])
        for answer, values in zip(answers[:3], (expected[before - 1:], expected, expected[2:])):
            self.assertEqual(len(answer["logprobs"]), len(values))
            for got, value in zip(answer["logprobs"], values):
                self.assertAlmostEqual(got, value, places=5)
            self.assertAlmostEqual(answer["sum"], sum(values), places=4)
        self.assertIsNone(answers[3]["logprobs"][0])
        self.assertEqual(answers[3]["logprobs"][1:], answers[1]["logprobs"])
        self.assertEqual(answers[4], {"logprobs": [], "sum": 0.0, "tokens": []})

    def test_V7_how_many_at_a_time_changes_nothing(self):  # [V7]
        lines = [{"prompt": "once " * (i % 5), "text": "on a time " * (i % 3 + 1)} for i in range(12)]
        answers = self.score(lines)
        for args in (["--parallel", 1], ["--parallel", 3, "-b", 5], ["-t", 1, "--isa", "reference"]):
            self.assertEqual(self.score(lines, *args), answers)
        self.assertEqual([len(row) for row in self.score(lines[:1], "--top", 2)[0]["top"]], [2]
                         * len(answers[0]["tokens"]))

    def test_V7_lines_that_are_no_texts_are_refused_by_number(self):  # [V7]
        for line in ("{", "[]", '{"prompt":"a"}', '{"text":3}', '{"text":[1,-1]}', '{"text":[99999999]}'):
            tinfer("score", MODEL, "-f", "-", input=b'{"text":"a"}\n' + line.encode(), code=1)
            self.assertRegex(tinfer.stderr, r"\Atinfer: -: line 2: ")
        self.assertEqual(tinfer("score", MODEL, "-f", "-", input=b"\n"), b"")
        tinfer("score", MODEL, code=2)
        tinfer("score", MODEL, "-p", "a", "-f", "-", code=2)

    def test_V7_plain_texts_are_scored_whole(self):  # [V7]
        text = "once on a time\non the inn"
        as_json, = self.score([{"text": text}])
        self.assertEqual(json.loads(tinfer("score", MODEL, "-p", text)), as_json)
        self.assertEqual(json.loads(tinfer("score", MODEL, "-f", "-", input=text.encode())), as_json)


class Loading(unittest.TestCase):
    def test_K10_devices_are_refused_by_name(self):  # [K10]
        for device in ("cuda", "cuda:0", "metal", "vulkan", "rpc:host:50052", "gpu"):
            tinfer("run", MODEL, "-p", "a", "-n", 1, "--isa", device, code=1)
            self.assertEqual(tinfer.stderr,
                             f"tinfer: --isa '{device}': not available: tinfer computes on the CPU alone\n")

    def test_L16_the_numa_option_changes_nothing_on_one_node(self):  # [L16]
        plain = tinfer("run", MODEL, "-p", "once", "-n", 8, "--temp", 0)
        self.assertEqual(tinfer("run", MODEL, "-p", "once", "-n", 8, "--temp", 0, "--numa", "interleave"), plain)
        self.assertRegex(tinfer.stderr, r"numa: \d+ memory nodes?: ")
        tinfer("run", MODEL, "-p", "a", "--numa", "everywhere", code=2)

    def test_L21_placement_is_told_without_loading(self):  # [L21]
        for args, place in (([], "mapped"), (["--no-mmap"], "read")):
            rows = json.loads(tinfer("inspect", MODEL, "--placement", "--json", *args))
            self.assertEqual({row["place"] for row in rows}, {place})
            self.assertEqual(len(rows), len(json.loads(tinfer("inspect", MODEL, "--json"))["tensors"]))
            table = tinfer("inspect", MODEL, "--placement", *args).decode().splitlines()
            self.assertEqual(len(table), len(rows) + 1)

    def test_G9_the_plan_names_kernels(self):  # [G9]
        text = tinfer("graph", MODEL, "--plan", "--isa", "reference").decode()
        self.assertEqual(text, tinfer("graph", MODEL, "--view", "plan", "--format", "text", "--isa",
                                      "reference").decode())
        self.assertIn("mul_mat", text)
        self.assertIn(".reference", text)


if __name__ == "__main__":
    unittest.main()
