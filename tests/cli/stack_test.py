#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The whole program on stacks of 256 KiB, its threads' as well: every kind of file that nests is read as deep as it may
be, and one that nests deeper is an error of one line."""
import json
import resource
import subprocess
import unittest

from cli_support import FOLDER, MODEL, TINFER, environment

STACK = 256 << 10


def run(*args, input=None):
    limit = lambda: (resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK)),
                     resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
    return subprocess.run([TINFER, *map(str, args)], input=input, capture_output=True, timeout=300,
                          env=environment(), preexec_fn=limit)


def file(name, text):
    path = FOLDER / name
    path.write_text(text)
    return path


class SmallStacks(unittest.TestCase):
    def runs(self, *args, input=None):
        done = run(*args, input=input)
        self.assertEqual(done.returncode, 0, (args, done.stderr[-500:]))
        return done.stdout

    def refuses(self, *args, says):
        done = run(*args)
        self.assertIn(done.returncode, (1, 2), (args, done.stderr[-500:]))
        self.assertRegex(done.stderr.decode(), r"\A(tinfer: [^\n]*\n)+\Z", args)
        self.assertIn(says, done.stderr.decode(), args)

    def test_models(self):
        self.runs("run", MODEL, "-p", "once the one", "-n", 8, "-t", 2)
        self.runs("graph", MODEL)

    def test_traces(self):
        trace = FOLDER / "deep.trace"
        self.runs("trace", "record", MODEL, "-p", "once the one", "-n", 4, "-o", trace)
        self.runs("trace", "stats", trace)

    def test_configurations(self):
        for name, text in {"lists": "n = " + "[" * 100000 + "]" * 100000, "tables": "n = " + "{a = " * 50000,
                           "sections": "[" * 100000 + "run" + "]" * 100000}.items():
            done = run("--config", file(name + ".toml", text), "inspect", MODEL)
            self.assertIn(done.returncode, (0, 1, 2), (name, done.stderr[-500:]))
        long = ".".join("a" * 30000)
        for name, text in {"section": f"[{long}]\nb = 1\n", "quoted": f'["{long}"]\nb = 1\n', "key": f"{long} = 1\n",
                           "quoted_key": f'"{long}" = 1\n'}.items():
            self.refuses("--config", file(name + ".toml", text), "inspect", MODEL, says="a name of 30000 parts, limit")

    def test_grammars_and_schemas(self):
        self.runs("run", MODEL, "-p", "once", "-n", 2, "--json-schema",
                  file("schema.json", '{"properties": {"a": ' * 99 + "true" + "}}" * 99))
        self.refuses("run", MODEL, "-p", "once", "-n", 2, "--json-schema",
                     file("deep.json", '{"properties": {"a": ' * 5000 + "true" + "}}" * 5000),
                     says="nested deeper than")
        self.refuses("run", MODEL, "-p", "once", "-n", 2, "--grammar-file",
                     file("deep.gbnf", "root ::= " + "(" * 5000 + '"a"' + ")" * 5000),
                     says="parentheses inside each other")

    def test_a_prompt_that_memory_has_no_context_for_is_the_cause(self):
        prompt = file("prompt.txt", "once on a time in the inn " * 600000)
        for command in ("run", "logits"):
            self.refuses(command, MODEL, "-f", prompt, "--kv-type-k", "f32", "--kv-type-v", "f32",
                         *(["-o", FOLDER / "none.f32"] if command == "logits" else []),
                         says=" tokens, and a context for so many cannot be made: ")
            self.assertFalse((FOLDER / "none.f32").exists())

    def test_templates(self):
        plain = file("messages.json", json.dumps([{"role": "user", "content": "a"}]))
        for depth, ok in ((60, True), (5000, False)):
            template = file("deep.jinja", "{{ " + "(" * depth + "1" + ")" * depth + " }}")
            args = "template", MODEL, "--template", template, "--messages", plain
            if ok:
                self.runs(*args)
            else:
                self.refuses(*args, says="too deep")
        messages = file("deep_messages.json", json.dumps([{"role": "user", "content": "a"}])[:-1] + ", " + "[" * 5000)
        self.refuses("template", MODEL, "--template", "chatml", "--messages", messages, says="nested deeper than")


if __name__ == "__main__":
    unittest.main()
