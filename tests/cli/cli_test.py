#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The contract of the program tinfer: results on stdout, one-line errors on stderr, exit codes, and numbers that agree
with what can be computed from its own raw logits.

usage: cli_test.py path/to/tinfer [unittest arguments]
"""
import csv
import hashlib
import io
import json
import math
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

TINFER = sys.argv.pop(1) if len(sys.argv) > 1 else "tinfer"
HERE = pathlib.Path(__file__).resolve().parent
WORK = tempfile.TemporaryDirectory(prefix="tinfer-cli-")
FOLDER = pathlib.Path(WORK.name)
MODEL = str(FOLDER / "tiny.gguf")
NO_EOG = ["--logit-bias", "2=-1e9"]
CSV_HEADER = ("index,name,type,n_dims,ne0,ne1,ne2,ne3,elements,bytes,bits_per_weight,file,offset_in_data,file_offset,file_end,"
              "padding_before,layer,role,expert_count,bytes_per_expert")


def tinfer(*args, input=None, env=None, code=0):
    """stdout as bytes; fails unless the exit code is `code`."""
    done = subprocess.run([TINFER, *map(str, args)], input=input, capture_output=True, timeout=300,
                          env={k: v for k, v in os.environ.items() if not k.startswith("TINFER_")} | (env or {}))
    if done.returncode != code:
        raise AssertionError(f"tinfer {' '.join(map(str, args))}: exit {done.returncode}, expected {code}\n{done.stderr.decode()}")
    tinfer.stderr = done.stderr.decode()
    return done.stdout


def run_json(*args, **kw):
    return json.loads(tinfer("run", "-m", MODEL, "--temp", "0", "--json", *args, **kw))


def floats(path):
    data = pathlib.Path(path).read_bytes()
    return struct.unpack(f"<{len(data) // 4}f", data)


class Usage(unittest.TestCase):
    def test_wrong_usage_is_2_and_one_line(self):
        for args in ([], ["fly"], ["run"], ["run", "-m", MODEL], ["run", "-m", MODEL, "-p", "a", "-n", "many"],
                     ["run", "-m", MODEL, "-p", "a", "-f", "b"], ["run", "-m", MODEL, "-p", "a", "--no-such-option"],
                     ["logits", "-m", MODEL], ["logits", "-m", MODEL, "-p", "a", "--tokens", "1"]):
            self.assertEqual(tinfer(*args, code=2), b"")
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\n\Z")

    def test_errors_are_1_and_one_line(self):
        broken = FOLDER / "broken.gguf"
        broken.write_bytes(pathlib.Path(MODEL).read_bytes()[:5000])
        for args in (["run", "-m", FOLDER / "absent.gguf", "-p", "a"], ["run", "-m", broken, "-p", "a"],
                     ["tokenize", "-m", MODEL, "-f", FOLDER / "absent.txt"], ["logits", "-m", MODEL, "--tokens", "1 x"],
                     ["logits", "-m", MODEL, "--tokens", "1 999999"], ["logits", "-m", MODEL, "--tokens", "1 2", "--isa", "abacus"],
                     ["run", "-m", MODEL, "-p", "a", "--override", "key"], ["perplexity", "-m", MODEL, "-p", "short"]):
            self.assertEqual(tinfer(*args, code=1), b"")
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\n\Z")

    def test_help_and_version(self):
        self.assertRegex(tinfer("--version"), rb"^\d+\.\d+\.\d+\n$")
        for command in ("run", "tokenize", "detokenize", "logits", "embed", "perplexity", "bench", "inspect", "graph"):
            self.assertIn(b"Examples:", tinfer(command, "--help"))

    def test_options_from_environment_and_file(self):
        config = FOLDER / "options.toml"
        config.write_text(f'predict = 4\n[run]\nmodel = "{MODEL}"\n')
        base = ["run", "-p", "once", "--temp", "0", "--json", *NO_EOG]
        count = lambda *args, **kw: len(json.loads(tinfer(*args, **kw))["tokens"])
        self.assertEqual(count(*base, env={"TINFER_MODEL": MODEL, "TINFER_PREDICT": "3"}), 3)
        self.assertEqual(count("run", "--json", *NO_EOG, env={"TINFER_MODEL": MODEL, "TINFER_PREDICT": "2", "TINFER_PROMPT": "a"}), 2)
        self.assertEqual(count(*base, "--config", config), 4)
        self.assertEqual(count(*base, "--config", config, "-n", "5"), 5)


class Run(unittest.TestCase):
    def test_C1_text_and_json_agree(self):  # [C1]
        args = ["-p", "once on a time", "-n", "12", *NO_EOG]
        document = run_json(*args)
        self.assertEqual(tinfer("run", "-m", MODEL, "--temp", "0", *args), document["text"].encode())
        self.assertEqual(set(document), {"text", "tokens", "stop", "timings"})
        self.assertEqual(document["timings"]["generation_n"], 12)
        self.assertEqual(run_json(*args, "--echo")["text"], "once on a time" + document["text"])

    def test_C12_the_budget_is_exact(self):  # [C12]
        for n in (0, 1, 2, 7):
            document = run_json("-p", "a", "-n", n, *NO_EOG)
            self.assertEqual((len(document["tokens"]), document["stop"]), (n, "limit"))
        unlimited = run_json("-p", "a", "-c", "64", *NO_EOG)   # until the cache is full: the last token needs no cell
        prompt = json.loads(tinfer("tokenize", "-m", MODEL, "-p", "a"))
        self.assertEqual(len(unlimited["tokens"]), 64 - len(prompt) + 1)

    def test_C4_prompt_from_option_file_and_stdin(self):  # [C4]
        text = "on the inn\nagain"
        (FOLDER / "prompt.txt").write_text(text)
        expected = run_json("-p", text, "-n", "4")
        for document in (run_json("-f", FOLDER / "prompt.txt", "-n", "4"), run_json("-f", "-", "-n", "4", input=text.encode())):
            self.assertEqual(document["tokens"], expected["tokens"])

    def test_C11_stop_strings_end_before_their_first_occurrence(self):  # [C11]
        args = ["-p", "once", "-n", "40", *NO_EOG]
        whole = run_json(*args)
        text = whole["text"]
        for length in (1, 2, 3, 5, 8):
            for start in range(0, min(len(text) - length, 24), 3):
                stop = text[start:start + length]
                if "\0" in stop or stop.startswith("-"):
                    continue
                document = run_json(*args, "--stop", stop, "--stop", "never to be seen")
                self.assertEqual(document["text"], text[:text.index(stop)], repr(stop))
                self.assertEqual(document["stop"], "string")
                self.assertEqual(document["tokens"], whole["tokens"][:len(document["tokens"])])
        self.assertEqual(run_json(*args, "--stop", text + "more")["text"], text)   # what was withheld comes at the end
        ends = run_json("-p", "once", "-n", "40", "--logit-bias", "2=1e9")
        self.assertEqual((ends["tokens"], ends["stop"]), ([], "eog"))

    def test_the_seed_decides(self):
        draw = lambda seed: json.loads(tinfer("run", "-m", MODEL, "-p", "a", "-n", 20, "--seed", seed, "--json", *NO_EOG))["tokens"]
        self.assertEqual(draw(7), draw(7))
        self.assertNotEqual(draw(7), draw(8))

    def test_an_encoder_reads_the_text_and_the_decoder_answers(self):
        model = FOLDER / "t5.gguf"
        subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", model, "3", "t5"], check=True)
        answer = lambda text: json.loads(tinfer("run", "-m", model, "-p", text, "-n", "8", "--temp", "0", "--json", *NO_EOG))
        document = answer("once on a time")
        self.assertEqual(document["timings"]["prompt_n"], len(json.loads(tinfer("tokenize", "-m", model, "-p", "once on a time"))) + 1)
        self.assertEqual(document["timings"]["generation_n"], 8)
        self.assertEqual(answer("once on a time")["tokens"], document["tokens"])
        self.assertNotEqual(answer("the inn")["tokens"], document["tokens"])
        tinfer("logits", "-m", model, "--tokens", "1 2", code=1)
        self.assertIn("nothing is encoded for sequence 0", tinfer.stderr)

    @unittest.skipIf(os.name == "nt", "signals")
    def test_an_interrupt_is_130(self):
        with subprocess.Popen([TINFER, "run", "-m", MODEL, "-p", "a", "-c", "400000", "--json", *NO_EOG],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(3)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(json.loads(out)["stop"], "interrupt")


class Embed(unittest.TestCase):
    LINES = ["once on a time", "a", "the inn on the hill, again and again", "time"]

    def vectors(self, *args, **kw):
        return [json.loads(line)["embedding"] for line in tinfer("embed", "-m", MODEL, *args, **kw).splitlines()]

    def test_E3_lines_together_equal_each_alone(self):  # [E3] [B11]
        text = "\n".join(self.LINES).encode()
        together = self.vectors("-f", "-", input=text)
        self.assertEqual(together, [self.vectors("-p", line)[0] for line in self.LINES])
        self.assertEqual(together, self.vectors("-f", "-", "--parallel", "2", "-u", "3", input=text))
        for vector in together:
            self.assertAlmostEqual(math.hypot(*vector), 1, places=5)

    def test_E2_the_mean_is_that_of_the_rows_of_logits(self):  # [E2]
        ids = tinfer("tokenize", "-m", MODEL, "-p", self.LINES[0]).decode()
        out = FOLDER / "rows.f32"
        document = json.loads(tinfer("logits", "-m", MODEL, "--tokens", ids, "--embeddings", "-o", out))
        rows = floats(out)
        width = document["n_embd"]
        mean = [sum(rows[i::width]) / document["rows"] for i in range(width)]
        pooled = json.loads(tinfer("logits", "-m", MODEL, "--tokens", ids, "--pooled", "--pooling", "mean", "-o", out))
        self.assertEqual((pooled["rows"], pooled["n_embd"]), (1, width))
        for ours, expected, embedded in zip(floats(out), mean, self.vectors("-p", self.LINES[0], "--normalize", "-1")[0]):
            self.assertAlmostEqual(ours, expected, places=4)
            self.assertAlmostEqual(ours, embedded, places=5)
        last = self.vectors("-p", self.LINES[0], "--pooling", "last", "--normalize", "-1", "--dimensions", "5")[0]
        self.assertEqual(len(last), 5)
        for ours, expected in zip(last, rows[-width:]):
            self.assertAlmostEqual(ours, expected, places=5)

    def test_raw_output_and_limits(self):
        out = FOLDER / "vectors.f32"
        text = "\n".join(self.LINES).encode()
        document = json.loads(tinfer("embed", "-m", MODEL, "-f", "-", "-o", out, input=text))
        self.assertEqual(document["rows"], len(self.LINES))
        self.assertEqual(document["sha256"], hashlib.sha256(out.read_bytes()).hexdigest())
        self.assertEqual(len(floats(out)), document["rows"] * document["n_embd"])
        long = ["-p", "a " * 400, "-c", "64"]
        tinfer("embed", "-m", MODEL, *long, code=1)
        self.assertIn("line 1 has", tinfer.stderr)
        self.assertEqual(len(self.vectors(*long, "--truncate")), 1)
        self.assertIn("cut", tinfer.stderr)
        for args in (["embed", "-m", MODEL, "-p", "a", "--pooling", "rank"], ["embed", "-m", MODEL, "-p", "a", "--pooling", "odd"],
                     ["logits", "-m", MODEL, "-p", "a", "--pooled"]):
            self.assertEqual(tinfer(*args, code=1), b"")
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\n\Z")
        tinfer("logits", "-m", MODEL, "-p", "a", "--pooled", "--last", code=2)


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
        self.assertEqual([json.loads(a) for a in answers], [json.loads(tinfer("tokenize", "-m", MODEL, "-p", t)) for t in texts])
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

    def test_bench_prints_one_document_per_test(self):
        lines = [json.loads(line) for line in
                 tinfer("bench", "-m", MODEL, "-p", "8", "-n", "2", "-d", "0,4", "-t", "1", "-r", "3", "--json").splitlines()]
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
                       tinfer("bench", "-m", MODEL, "-p", "0", "-n", "4", "-t", "1", "-r", "1", "--roofline", "--json").splitlines()]
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
        readme = (HERE.parents[1] / "README.md").read_text()
        table = readme[readme.index("## What runs"):readme.index("Weights in any of")]
        listed = [name for line in table.splitlines() if line.startswith("| `") for name in re.findall("`([^`]+)`", line.split("|")[1])]
        self.assertEqual(sorted(names), sorted(listed))

    def test_graph_and_plan(self):
        self.assertTrue(tinfer("graph", MODEL).startswith(b"digraph"))
        self.assertIn(b"mul_mat", tinfer("graph", MODEL, "--view", "plan", "--format", "text", "--tokens", "4"))


if __name__ == "__main__":
    subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", MODEL], check=True)
    unittest.main(verbosity=2)
