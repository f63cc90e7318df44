#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer run: what it completes, when it stops, and what it reports.

usage: run_test.py path/to/tinfer [unittest arguments]
"""
import hashlib
import json
import math
import os
import re
import signal
import subprocess
import time
import unittest

from cli_support import (FOLDER, MODEL, NO_EOG, TINFER, damaged, environment, golden_model, ids_of, make_model,
                         run_json, tinfer)


class Run(unittest.TestCase):
    def test_C1_text_and_json_agree(self):  # [C1]
        args = ["-p", "once on a time", "-n", "12", *NO_EOG]
        document = run_json(*args)
        self.assertEqual(tinfer("run", "-m", MODEL, "--temp", "0", *args), document["text"].encode())
        self.assertEqual(set(document), {"text", "tokens", "stop", "seed", "reused_n", "timings", "drafted_n",
                                         "accepted_n", "gain", "shifts_n"})
        self.assertEqual(document["timings"]["generation_n"], 12)
        self.assertEqual(run_json(*args, "--echo")["text"], "once on a time" + document["text"])

    def test_the_hash_is_that_of_the_rows_that_tokens_were_drawn_from(self):
        args = ["-p", "once on a time", "-n", "7", *NO_EOG]
        one = run_json(*args, "--hash")
        self.assertNotIn("logits_sha256", run_json(*args))
        prompt, rows = ids_of("once on a time"), FOLDER / "rows.f32"
        tinfer("logits", MODEL, "--tokens", " ".join(map(str, prompt + one["tokens"][:-1])), "-o", rows)
        data = rows.read_bytes()
        n_vocab = len(data) // (4 * (len(prompt) + len(one["tokens"]) - 1))
        self.assertEqual(hashlib.sha256(data[4 * n_vocab * (len(prompt) - 1):]).hexdigest(), one["logits_sha256"])
        for other in (["-t", "1"], ["-b", "3", "-u", "2"], ["--isa", "reference"], ["--speculate", "ngram"]):
            self.assertEqual(run_json(*args, "--hash", *other)["logits_sha256"], one["logits_sha256"], other)
        tinfer("run", MODEL, *args, "--hash", "--temp", "0")
        self.assertIn("logits      " + one["logits_sha256"], tinfer.stderr)

    def test_token_ids_stand_in_place_of_a_text(self):
        args = ["-n", "5", "--temp", "0", *NO_EOG]
        ids = ids_of("once on a time")
        self.assertEqual(tinfer("run", MODEL, "--tokens", json.dumps(ids), *args),
                         tinfer("run", MODEL, "-p", "once on a time", *args))
        tinfer("run", MODEL, "--tokens", "1 2", "-p", "a", code=2)
        tinfer("run", MODEL, "--tokens", " ", code=1)
        if bare := golden_model("llama"):   # has no vocabulary, so ids come out
            document = json.loads(tinfer("run", bare, "--tokens", "74 0 197", *args, "--json"))
            self.assertEqual(document["text"], " ".join(map(str, document["tokens"])))
            self.assertEqual(tinfer("run", bare, "--tokens", "74 0 197", *args).decode().split(),
                             document["text"].split())

    def test_C12_the_budget_is_exact(self):  # [C12]
        for n in (0, 1, 2, 7):
            document = run_json("-p", "a", "-n", n, *NO_EOG)
            self.assertEqual((len(document["tokens"]), document["stop"]), (n, "limit"))
        unlimited = run_json("-p", "a", "-c", "64", *NO_EOG)   # until the cache is full: the last token needs no slot
        prompt = json.loads(tinfer("tokenize", "-m", MODEL, "-p", "a"))
        self.assertEqual((len(unlimited["tokens"]), unlimited["stop"]), (64 - len(prompt) + 1, "context"))
        text = tinfer("run", MODEL, "--temp", "0", "-p", "a", "-c", "64", *NO_EOG).decode()
        self.assertEqual(text, unlimited["text"])
        self.assertRegex(tinfer.stderr, r"(?m)^stop +context: it is full with 64 tokens \(see --ctx\)$")

    def test_C12_a_full_context_is_an_end_for_learned_positions_too(self):  # [C12]
        model = make_model("gpt2.gguf", 3, "gpt2")   # a table of 256 positions
        document = json.loads(tinfer("run", model, "-p", "once", "-c", "1024", "--temp", "0", "--json", *NO_EOG))
        self.assertEqual((len(document["tokens"]), document["stop"]), (256 - len(ids_of("once")) + 1, "context"))
        for args in (["-c", "64"], ["-c", "64", "-b", "16"], ["-c", "64", "-u", "16"]):
            self.assertEqual(tinfer("run", MODEL, "-p", "a " * 100, "--json", *args, code=1), b"")
            self.assertRegex(tinfer.stderr,
                             r"\Atinfer: the prompt has 1\d\d tokens, the context room for 64 \(see --ctx\)\n\Z")
        tinfer("run", model, "-p", "a " * 300, "-c", "1024", code=1)
        self.assertRegex(tinfer.stderr, r"tinfer: the prompt has 3\d\d tokens, the context room for 256 ")

    def test_C4_prompt_from_option_file_and_stdin(self):  # [C4]
        text = "on the inn\nagain"
        (FOLDER / "prompt.txt").write_text(text)
        expected = run_json("-p", text, "-n", "4")
        for document in (run_json("-f", FOLDER / "prompt.txt", "-n", "4"),
                         run_json("-f", "-", "-n", "4", input=text.encode())):
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
                document = run_json(*args, "--stop", stop.replace("\\", "\\\\"), "--stop", "never to be seen")
                self.assertEqual(document["text"], text[:text.index(stop)], repr(stop))
                self.assertEqual(document["stop"], "string")
                self.assertEqual(document["tokens"], whole["tokens"][:len(document["tokens"])])
        withheld = (text + "more").replace("\\", "\\\\").replace("\0", "\\0")
        self.assertEqual(run_json(*args, "--stop", withheld)["text"], text)   # what was withheld comes at the end
        for escaped, plain in (("\\n", "\n"), ("\\t", "\t"), ("\\\\", "\\"), ("\\x41", "A"), ("\\u0041", "A"),
                               ("\\u00e9", "é"), ("a\\nb", "a\nb")):
            token = ids_of(plain, "--no-add-special")
            forced = run_json("-p", "once", "-n", "3", "--logit-bias", f"{token[-1]}=1e9", "--stop", escaped)
            self.assertEqual(forced["stop"] == "string", len(plain.encode()) == 1, escaped)
        ends = run_json("-p", "once", "-n", "40", "--logit-bias", "2=1e9")
        self.assertEqual((ends["tokens"], ends["stop"]), ([], "eog"))

    def test_the_seed_decides(self):
        draw = lambda seed: json.loads(tinfer("run", "-m", MODEL, "-p", "a", "-n", 20, "--seed", seed, "--json",
                                              *NO_EOG))["tokens"]
        self.assertEqual(draw(7), draw(7))
        self.assertNotEqual(draw(7), draw(8))

    def test_the_seed_is_shown_and_repeats_the_text(self):
        document = json.loads(tinfer("run", MODEL, "-p", "a", "-n", "20", "--json", *NO_EOG))
        again = json.loads(tinfer("run", MODEL, "-p", "a", "-n", "20", "--seed", document["seed"], "--json", *NO_EOG))
        self.assertEqual((again["tokens"], again["seed"]), (document["tokens"], document["seed"]))
        tinfer("run", MODEL, "-p", "a", "-n", "20", "--seed", "-1", *NO_EOG)
        seed = re.search(r"(?m)^seed +(\d+)$", tinfer.stderr)[1]
        text = tinfer("run", MODEL, "-p", "a", "-n", "20", "--seed", seed, *NO_EOG)
        self.assertEqual(text, tinfer("run", MODEL, "-p", "a", "-n", "20", "--seed", seed, *NO_EOG))

    def test_numbers_are_true_or_absent(self):
        one = run_json("-p", "once", "-n", "1", *NO_EOG)["timings"]   # its token comes from the prompt's logits
        self.assertEqual((one["prompt_n"], one["generation_n"], one["generation_s"], one["generation_tps"]),
                         (len(ids_of("once")), 1, 0, None))
        tinfer("run", MODEL, "-p", "once", "-n", "1", *NO_EOG)
        self.assertRegex(tinfer.stderr, r"(?m)^generation +1 token$")
        more = run_json("-p", "once", "-n", "9", *NO_EOG)["timings"]
        self.assertAlmostEqual(more["generation_tps"], 8 / more["generation_s"], places=6)
        self.assertAlmostEqual(more["prompt_tps"], more["prompt_n"] / more["prompt_s"], places=6)
        tinfer("run", MODEL, "-p", "once", "-n", "9", *NO_EOG)
        self.assertRegex(tinfer.stderr,
                         r"\Aload +\d+\.\d{3} s\nprompt +\d+ tokens, \S+ s, \S+ t/s\ngeneration +9 tokens, \S+ s, \S+ "
                         r"t/s\n"
                                        r"seed +\d+\nstop +limit\n\Z")

    def test_statistics_stand_apart_from_the_text_where_both_end_in_one_place(self):
        args = [TINFER, "run", MODEL, "-p", "once", "-n", "5", "--temp", "0", *NO_EOG]
        text = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(),
                              check=True).stdout
        both = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(),
                              check=True).stdout
        self.assertTrue(both.startswith(text + b"\n\nload "), both)
        quiet = subprocess.run([*args, "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(),
                               check=True).stdout
        self.assertEqual(quiet, text)
        line = subprocess.run([*args, "--logit-bias", f"{ids_of(chr(10))[-1]}=1e9"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT,
                              env=environment(), check=True).stdout
        self.assertTrue(line.startswith(b"\n" * 5 + b"\nload "), line)

    def test_a_late_failure_still_prints_what_was_generated(self):
        args = ["-p", "once", "-n", "30", "--temp", "0", *NO_EOG]
        whole = json.loads(tinfer("run", MODEL, "--json", *args))
        tokens = whole["tokens"]
        # the first time this token comes
        at = next(i for i in range(3, 30) if tokens[i] not in tokens[:i] + ids_of("once"))
        model = damaged("late.gguf", MODEL, "token_embd.weight", 64 * tokens[at], [math.nan])
        document = json.loads(tinfer("run", model, "--json", *args, code=1))
        self.assertEqual(document["tokens"], tokens[:at + 1])
        self.assertEqual((document["stop"], document["error"]["code"]), ("error", "bad_tensor_data"))
        self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]*tensor 'token_embd\.weight'[^\n]*not finite[^\n]*\n\Z")
        self.assertIn(document["error"]["message"], tinfer.stderr)
        self.assertTrue(whole["text"].startswith(document["text"].rstrip("\ufffd")))
        self.assertEqual(tinfer("run", model, *args, code=1).decode(), document["text"])
        held = tinfer("run", model, *args, "--stop", whole["text"].replace("\\", "\\\\").replace("\0", "\\0") + "!",
                      code=1)
        self.assertEqual(held.decode(), document["text"])   # what a stop string held back, too

    def test_an_encoder_reads_the_text_and_the_decoder_answers(self):
        model = make_model("t5.gguf", 3, "t5")
        answer = lambda text: json.loads(tinfer("run", "-m", model, "-p", text, "-n", "8", "--temp", "0", "--json",
                                                *NO_EOG))
        document = answer("once on a time")
        self.assertEqual(document["timings"]["prompt_n"],
                         len(json.loads(tinfer("tokenize", "-m", model, "-p", "once on a time"))) + 1)
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

    @unittest.skipIf(os.name == "nt", "signals")
    def test_an_interrupt_in_the_prompt_counts_what_was_computed(self):
        prompt = FOLDER / "long.txt"
        prompt.write_text("on the inn " * 20000)
        with subprocess.Popen([TINFER, "run", MODEL, "-f", prompt, "-n", "5", "-t", "1", "--isa", "reference",
                               "--json"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
            time.sleep(3)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        document = json.loads(out)
        self.assertEqual((document["stop"], document["tokens"], document["text"]), ("interrupt", [], ""))
        # one transaction
        self.assertEqual((document["timings"]["prompt_n"], document["timings"]["prompt_tps"]), (0, None))


if __name__ == "__main__":
    unittest.main(verbosity=2)
