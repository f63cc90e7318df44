#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""--prompt-cache of run and chat: what is not evaluated again, and when the file is written.

usage: state_test.py path/to/tinfer [unittest arguments]
"""
import hashlib
import json
import pathlib
import unittest

from cli_support import FOLDER, MODEL, NO_EOG, ids_of, make_model, run_json, tinfer

make_model("tiny.gguf", 1)
PROMPT = "once upon a time on the inn"


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class PromptCache(unittest.TestCase):
    def run_with(self, name, prompt, *args):
        return run_json("-p", prompt, "-n", "6", *NO_EOG, "--prompt-cache", FOLDER / name, *args)

    def assert_same(self, document, plain):
        self.assertEqual((document["tokens"], document["text"]), (plain["tokens"], plain["text"]))

    def test_Z2_only_the_tail_that_differs_is_evaluated(self):  # [Z2]
        n = len(ids_of(PROMPT))
        plain = run_json("-p", PROMPT, "-n", "6", *NO_EOG)
        self.assertEqual(plain["reused_n"], 0)
        first = self.run_with("tail.state", PROMPT)
        self.assertEqual((first["reused_n"], first["timings"]["prompt_n"]), (0, n))
        again = self.run_with("tail.state", PROMPT)   # its outputs are in the file: nothing is left to evaluate
        self.assertEqual((again["reused_n"], again["timings"]["prompt_n"]), (n, 0))
        for document in (first, again):
            self.assert_same(document, plain)
        longer = PROMPT + " again and again"
        document = self.run_with("tail.state", longer)
        same = [a == b for a, b in zip(ids_of(longer), ids_of(PROMPT))]
        common = same.index(False) if False in same else len(same)
        self.assertEqual(document["reused_n"], common)
        self.assertEqual(document["timings"]["prompt_n"], len(ids_of(longer)) - common)
        self.assert_same(document, run_json("-p", longer, "-n", "6", *NO_EOG))
        shorter = self.run_with("tail.state", "once upon")
        self.assertEqual(shorter["timings"]["prompt_n"] + shorter["reused_n"], len(ids_of("once upon")))
        self.assertGreaterEqual(shorter["reused_n"], 1)
        self.assert_same(shorter, run_json("-p", "once upon", "-n", "6", *NO_EOG))

    def test_N20_a_restored_row_counts_as_one_that_was_computed(self):  # [N20]
        plain = run_json("-p", PROMPT, "-n", "6", *NO_EOG, "--hash")["logits_sha256"]
        for speculate in ((), ("--speculate", "ngram")):
            name = f"hash{len(speculate)}.state"
            for n_reused in (0, len(ids_of(PROMPT))):  # then the whole prompt, and the row of its last token
                document = self.run_with(name, PROMPT, "--hash", *speculate)
                self.assertEqual((document["reused_n"], document["logits_sha256"]), (n_reused, plain))
        longer = PROMPT + " again and again"
        self.assertEqual(self.run_with("hash0.state", longer, "--hash")["logits_sha256"],
                         run_json("-p", longer, "-n", "6", *NO_EOG, "--hash")["logits_sha256"])

    def test_Z3_when_the_file_is_written(self):  # [Z3]
        path = FOLDER / "written.state"
        self.run_with(path.name, PROMPT, "--prompt-cache-ro")
        self.assertFalse(path.exists())
        self.run_with(path.name, PROMPT)
        before, when = digest(path), path.stat().st_mtime_ns
        self.run_with(path.name, PROMPT)                       # nothing new
        self.run_with(path.name, "another", "--prompt-cache-ro")
        self.assertEqual((digest(path), path.stat().st_mtime_ns), (before, when))
        answer = self.run_with(path.name, PROMPT, "--prompt-cache-all")
        self.assertNotEqual(digest(path), before)
        document = self.run_with(path.name, PROMPT + answer["text"], "--prompt-cache-ro")
        self.assertGreaterEqual(document["reused_n"], len(ids_of(PROMPT)))
        self.assertEqual([p.name for p in FOLDER.iterdir() if p.name.startswith("written")], [path.name])

    def test_Z1_other_threads_table_and_context(self):  # [Z1] [N9]
        plain = run_json("-p", PROMPT, "-n", "6", *NO_EOG)
        self.run_with("other.state", PROMPT, "-t", "1", "--isa", "reference", "-c", "64")
        for args in (["-t", "2"], ["-c", "512"], ["-u", "3"]):
            document = self.run_with("other.state", PROMPT, "--prompt-cache-ro", *args)
            self.assertGreater(document["reused_n"], 0)
            self.assert_same(document, plain)

    def test_penalties_see_the_whole_prompt(self):
        args = ["--penalty-repeat", "1.5"]
        plain = run_json("-p", PROMPT, "-n", "6", *NO_EOG, *args)
        for _ in range(2):
            self.assert_same(self.run_with("penalty.state", PROMPT, *args), plain)

    def test_what_does_not_fit_is_named_and_left_alone(self):
        path = FOLDER / "foreign.state"
        self.run_with(path.name, PROMPT)
        other = make_model("other.gguf", 2)
        before = digest(path)
        for args, said in ((["run", other], "made with another model"), (["run", MODEL, "--kv-type-k", "f32"], "f32")):
            self.assertEqual(tinfer(*args, "-p", PROMPT, "-n", "2", "--prompt-cache", path, code=1), b"")
            self.assertIn(f"tinfer: {path}: ", tinfer.stderr)
            self.assertIn(said, tinfer.stderr)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        tinfer("run", MODEL, "-p", PROMPT, "-n", "2", "--prompt-cache", path, code=1)
        self.assertIn("truncated or damaged", tinfer.stderr)
        self.assertEqual(path.read_bytes(), bytes(data))
        self.assertNotEqual(digest(path), before)
        tinfer("run", MODEL, "-p", PROMPT, "--prompt-cache-all", code=2)
        tinfer("run", MODEL, "-p", PROMPT, "--prompt-cache", path, "--prompt-cache-all", "--prompt-cache-ro", code=2)

    def test_a_file_that_differs_anywhere_is_another_model(self):
        """Bytes that the sample of the fingerprint does not see; it has all of a small file, so it gets a tail."""
        path, models = FOLDER / "twins.state", []
        path.unlink(missing_ok=True)
        for name in ("a", "b"):
            models.append(FOLDER / f"twin-{name}.gguf")
            data = bytearray(pathlib.Path(MODEL).read_bytes() + bytes(1 << 20))
            data[-4500] = ord(name)   # between two pieces of the sample
            models[-1].write_bytes(data)
        args = ["-p", PROMPT, "-n", "2", "--prompt-cache", path]
        tinfer("run", models[0], *args)
        before = digest(path)
        self.assertEqual(tinfer("run", models[1], *args, code=1), b"")
        self.assertIn(f"tinfer: {path}: state was made with another model", tinfer.stderr)
        self.assertEqual(digest(path), before)
        tinfer("run", models[0], *args)

    def test_chat_goes_on(self):
        path = FOLDER / "chat.state"
        chat = ["chat", MODEL, "--temp", "0", "-n", "6", "--json", "-p", "once", *NO_EOG]
        plain = json.loads(tinfer(*chat))
        first = json.loads(tinfer(*chat, "--prompt-cache", path))
        self.assertEqual((first["text"], first["reused_n"]), (plain["text"], 0))
        before = digest(path)
        second = json.loads(tinfer(*chat, "--prompt-cache", path, "--prompt-cache-ro"))
        self.assertEqual(second["text"], plain["text"])
        self.assertEqual(second["reused_n"], first["timings"]["prompt_n"] - 1)
        self.assertEqual(digest(path), before)


if __name__ == "__main__":
    unittest.main()
