#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Grammars and schemas: what grammar check says, and that generated text is one of theirs.

usage: grammar_test.py path/to/tinfer [unittest arguments]
"""
import json
import re
import unittest

from cli_support import FOLDER, MODEL, tinfer

SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Ann", "Bo"]},
                                           "age": {"type": "integer", "minimum": 0, "maximum": 9}},
          "required": ["name", "age"], "additionalProperties": False}


def file_of(name, text):
    path = FOLDER / name
    path.write_text(text)
    return path


def run_json(*args):
    return json.loads(tinfer("run", MODEL, "--json", *args))


def check(*args, **kw):
    return tinfer("grammar", "check", *args, **kw).decode()


class Check(unittest.TestCase):
    def test_says_rules_and_size(self):
        path = file_of("list.gbnf", 'root ::= "[" number ("," number)* "]"\nnumber ::= [0-9]+\n')
        self.assertRegex(check(path), r"^\d+ rules, \d+ nodes\n$")
        self.assertEqual(json.loads(check(path, "--json"))["warnings"], [])
        self.assertEqual(check(path, "--print"), path.read_text())

    def test_matches_whole_texts(self):
        path = file_of("yes.gbnf", 'root ::= "yes" | "no"')
        self.assertEqual(json.loads(check(path, "--match", "yes")), {"accepted": True})
        for text in ("maybe", "ye", "yes ", ""):
            self.assertEqual(json.loads(check(path, "--match", text, code=1)), {"accepted": False}, text)

    def test_says_where_a_text_stops_matching(self):
        path = file_of("list.gbnf", 'root ::= "[" number ("," number)* "]"\nnumber ::= [0-9]+\n')
        for text, place, expected in (("[1,x2]", "line 1, column 4 (byte 3): \"x2]\" does not match", '"0", "1", "2"'),
                                      ("[1", "line 1, column 3 (byte 2): the text ends too early",
                                       '",", "0", "1"'),
                                      ("[1]!", "column 4 (byte 3): \"!\" does not match", "expected the end")):
            check(path, "--match", text, code=1)
            self.assertIn(place, tinfer.stderr)
            self.assertIn(expected, tinfer.stderr)
        check(path, "--match", "[1", "--quiet", code=1)
        self.assertEqual(tinfer.stderr, "")
        words = file_of("words.gbnf", 'root ::= "ä\\n" ("yes" | "no!")\n')
        document = json.loads(check(words, "--match", "ä\nnö", "--json", code=1))
        self.assertEqual(document, {"accepted": False, "byte": 4, "line": 2, "column": 2, "expected": ['"o!"']})
        check(words, "--match", "ö", code=1)   # the first byte of a character is right, the second is not
        self.assertIn("line 1, column 1 (byte 0): \"ö\" does not match", tinfer.stderr)
        check("--json-schema", json.dumps(SCHEMA), "--match", '{"name":"Al","age":1}', code=1)
        self.assertIn('"l\\",\\"age\\":1}" does not match; expected "nn\\""', tinfer.stderr)
        lines = file_of("some.jsonl", '"[1]"\n"[a]"\n')
        out = check(path, "--match-file", lines, "--json").splitlines()
        self.assertEqual([json.loads(line).get("byte") for line in out], [None, 1])

    def test_matches_lines_of_a_file(self):
        texts = ['{"name": "Ann", "age": 7}', '{"name":"Bo","age":10}', "", '{"age": 1, "name": "Bo"}',
                 '{"name":"Bo",\n"age":0}']
        lines = file_of("texts.jsonl", "\n".join(json.dumps(t) for t in texts) + "\n")
        out = check("--json-schema", json.dumps(SCHEMA), "--match-file", lines)
        self.assertEqual([json.loads(line)["accepted"] for line in out.splitlines()], [True, False, False, True, True])
        damaged = file_of("damaged.jsonl", '"a"\nb\n')
        check("--json-schema", "{}", "--match-file", damaged, code=1)
        self.assertIn("line 2", tinfer.stderr)

    def test_refusals_name_the_place(self):
        for text, place in (('root ::= "a', "line 1"), ("root ::= a", "a"), ('start ::= "a"', "root"),
                            ("root ::= root", "left-recursive")):
            check(file_of("bad.gbnf", text), code=1)
            self.assertTrue(tinfer.stderr.startswith("tinfer: "), tinfer.stderr)
            self.assertIn(place, tinfer.stderr)
        schema = {"properties": {"a": {"type": "string", "pattern": "(?=x)y"}}}
        check("--json-schema", json.dumps(schema), code=1)
        self.assertIn("/properties/a/pattern", tinfer.stderr)
        check("--json-schema", json.dumps(schema), "--lenient")
        self.assertIn("/properties/a/pattern", tinfer.stderr)

    def test_a_schema_is_text_or_file(self):
        path = file_of("schema.json", json.dumps(SCHEMA))
        for given in (path, f"@{path}", path.read_text()):
            self.assertEqual(json.loads(check("--json-schema", given, "--match", '{"name":"Bo","age":1}')),
                             {"accepted": True})
        check("--json-schema", FOLDER / "missing.json", code=1)
        self.assertIn("missing.json", tinfer.stderr)

    def test_wrong_usage(self):
        check(code=2)
        check(file_of("a.gbnf", 'root ::= "a"'), "--json-schema", "{}", code=2)
        tinfer("grammar", code=2)

    def test_tokens_need_a_vocabulary(self):
        path = file_of("token.gbnf", "root ::= <[5]>")
        self.assertRegex(check(path, "-m", MODEL), "rule")


class Folders(unittest.TestCase):
    def test_a_schema_refers_to_files_of_its_folder(self):
        folder = FOLDER / "schemas"
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        (folder / "parts" / "town.json").write_text('{"$defs": {"town": {"type": "string", "maxLength": 3}}}')
        person = folder / "person.json"
        person.write_text('{"type": "object", "properties": {"town": {"$ref": "parts/town.json#/$defs/town"}}}')
        for text, accepted in (('{"town": "Ås"}', True), ('{"town": "Oslo"}', False)):
            self.assertEqual(json.loads(tinfer("grammar", "check", "--json-schema", person, "--match", text, "--json",
                                               code=0 if accepted else 1))["accepted"], accepted)
        for outside in ("../secret.json", "/etc/hostname", "file:///etc/hostname", "parts/../../secret.json"):
            (FOLDER / "secret.json").write_text("{}")
            person.write_text(json.dumps({"$ref": outside}))
            tinfer("grammar", "check", "--json-schema", person, code=1)
            self.assertIn("is not known to the loader", tinfer.stderr)

    def test_one_space_behind_marks(self):
        schema = '{"type": "array", "items": {"type": "integer"}}'
        for text, code in (("[1, 2]", 0), ("[1,2]", 1), ("[1,  2]", 1)):
            tinfer("grammar", "check", "--json-schema", schema, "--json-space", "spaced", "--match", text, code=code)


class Generation(unittest.TestCase):
    def test_run_follows_a_grammar(self):
        for seed in range(8):
            out = run_json("-p", "a", "-n", "40", "--temp", "3", "--seed", seed, "--grammar",
                           'root ::= [ab]{3} "!" ([0-9] "!")?')
            self.assertRegex(out["text"], r"^[ab]{3}!([0-9]!)?$")
            self.assertEqual(out["stop"], "eog")

    def test_run_follows_a_file_and_a_schema(self):
        path = file_of("file.gbnf", 'root ::= "x" root | "y"')
        self.assertRegex(run_json("-p", "a", "-n", "30", "--grammar-file", path)["text"], r"^x*y?$")
        for seed in range(8):
            out = run_json("-p", "a", "-n", "200", "--temp", "2", "--seed", seed, "--json-schema", json.dumps(SCHEMA),
                           "--json-space", "compact")
            value = json.loads(out["text"])
            self.assertEqual(list(value), ["name", "age"])
            self.assertIn(value["name"], ["Ann", "Bo"])
            self.assertIn(value["age"], range(10))

    def test_chat_follows_it_in_each_turn(self):
        args = ["chat", MODEL, "--template", "chatml", "--temp", "2", "--seed", "1", "-n", "40", "--json", "--grammar",
                'root ::= "<" [a-c]+ ">"']
        out = tinfer(*args, input=b"one\ntwo\nthree\n").decode().splitlines()
        self.assertEqual(len(out), 3)
        for line in out:
            document = json.loads(line)
            self.assertRegex(document["text"], r"^<[a-c]*>?$")
            self.assertTrue(document["stop"] == "limit" or re.fullmatch("<[a-c]+>", document["text"]))

    def test_refusals_come_before_the_model(self):
        tinfer("run", FOLDER / "no.gguf", "-p", "a", "--json-schema", '{"type": "colour"}', code=1)
        self.assertIn("/type", tinfer.stderr)
        tinfer("run", MODEL, "-p", "a", "--grammar", "root ::= [", code=1)
        tinfer("run", MODEL, "-p", "a", "--grammar", 'root ::= "a"', "--json-schema", "{}", code=2)


if __name__ == "__main__":
    unittest.main()
