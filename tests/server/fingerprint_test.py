#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the fingerprint of a server says: equal ones give equal answers, whatever the machine."""
import json
import subprocess
import sys
import unittest

from server_support import FOLDER, HERE, MODEL, TINFER, Server, chat


class Fingerprint(unittest.TestCase):
    def test_v9_fingerprint(self):  # [V9]
        """servers with one fingerprint give equal answers: other threads and kernels, the same bytes"""
        answers = []
        for args in [["-t", 1], ["-t", 2, "--isa", "reference"]]:
            with Server(*args, "-c", 512) as server:
                answer = server.post("/v1/chat/completions", chat("same", seed=3, temperature=1))
                answers.append((answer["system_fingerprint"], answer["choices"]))
        self.assertEqual(answers[0], answers[1])

    def test_v9_fingerprint_covers_what_changes_answers(self):  # [V9]
        """each option that can change an answer changes the fingerprint, and no other does"""
        template = FOLDER / "fingerprint.jinja"
        template.write_text("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
        lora, control, other = (FOLDER / f"fingerprint-{name}.gguf" for name in ["lora", "control", "other"])
        for path, seed, kind in [(lora, "3", "lora"), (control, "4", "control"), (other, "5", "llama")]:
            subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", path, seed, kind], check=True)

        def fingerprint(*args, model=MODEL):
            room = [] if "--ctx" in args else ["--ctx", "512"]
            done = subprocess.run([TINFER, "serve", model, "--check", *room, *args], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["system_fingerprint"]
        base = fingerprint()
        changing = ["--temp 0.3", "--top-k 7", "--top-p 0.5", "--min-p 0.2", "--typical-p 0.5", "--seed 4",
                    "--penalty-repeat 1.3", "--penalty-last-n 9", "--penalty-present 0.5", "--penalty-freq 0.5",
                    "--xtc-probability 0.5", "--xtc-threshold 0.3", "--dry-multiplier 0.8", "--dry-base 2",
                    "--dry-allowed-length 4", "--dry-penalty-last-n 64", "--top-n-sigma 1.5", "--dynatemp-range 0.2",
                    "--dynatemp-exponent 2", "--mirostat 2", "--mirostat-tau 3", "--mirostat-eta 0.3",
                    "--samplers top_k;temperature", "--ctx 448", "--kv-type-k f32", "--kv-type-v bf16", "--min-keep 3",
                    "--logit-bias 7=-2", "--adaptive-target 0.5", "--dry-breaker x", "--clip-max-tokens",
                    f"--chat-template-file {template}",
                    f"--lora {lora}", f"--lora red={lora}", f"--control-vector {control}",
                    "--override llama.rope.freq_base=float:5000"]
        found = {}
        for options in changing:
            found[options] = fingerprint(*options.split(" "))
        found["another file"] = fingerprint(model=other)
        self.assertEqual([options for options, value in found.items() if value == base], [])
        self.assertEqual(len(set(found.values())), len(found))
        same = ["-t 2", "--isa reference", "--parallel 3", "--keep-sequences 2", "--max-batch-tokens 64",
                "--max-queue 5", "--no-share", "--port 0", "--api-key k", "--alias other", "--any-model",
                "--strict-model", "--strict", "--log-requests",
                "--request-timeout 9", "--drain 3", "--max-body 5000", "--answer-memory 2000000", "--no-page",
                "--expose-text", "--speculate ngram", "--draft-max 3", "--receipts", "--no-counts",
                f"--trace-dir {FOLDER / 'fingerprint-traces'}", f"--prompt-store {FOLDER / 'fingerprint-store'}"]
        self.assertEqual([options for options in same if fingerprint(*options.split(" ")) != base], [])
        with Server("-c", 512) as server:
            card = server.get("/v1/models")["data"][0]["meta"]
            self.assertEqual(card["system_fingerprint"], base)
            for path, body in [("/v1/chat/completions", chat("x")), ("/v1/completions", {"prompt": "x"}),
                               ("/v1/responses", {"input": "x"}), ("/v1/messages", chat("x"))]:
                self.assertEqual(server.post(path, body)["system_fingerprint"], base)


if __name__ == "__main__":
    unittest.main()
