#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How the program is spoken to: exit codes, help, what it says of mistakes, where options come from.

usage: usage_test.py path/to/tinfer [unittest arguments]
"""
import json
import os
import pathlib
import re
import subprocess
import unittest

from cli_support import FOLDER, MODEL, NO_EOG, TINFER, environment, ids_of, make_model, run_json, tinfer

COMMANDS = ("run", "tokenize", "detokenize", "template", "logits", "embed", "perplexity", "bench", "inspect", "graph")


class Usage(unittest.TestCase):
    def test_wrong_usage_is_2_and_one_line(self):
        for args in ([], ["fly"], ["run"], ["run", "-m", MODEL], ["run", "-m", MODEL, "-p", "a", "-n", "many"],
                     ["run", "-m", MODEL, "-p", "a", "-f", "b"],
                     ["logits", "-m", MODEL, "--tokens", "1 2", "--isa", "abacus"],
                     ["run", MODEL, "-p", "a", "--kv-type-v", "f17"],
                     ["run", MODEL, "-p", "a", "--kv-rotation", "maybe"],
                     ["run", MODEL, "-p", "a", "--temp", "0", "--temp", "1"],
                     ["run", "-m", MODEL, "-p", "a", "--no-such-option"],
                     ["logits", "-m", MODEL], ["logits", "-m", MODEL, "-p", "a", "--tokens", "1"]):
            self.assertEqual(tinfer(*args, code=2), b"")
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\n\Z")

    def test_errors_are_1_and_one_line(self):
        broken = FOLDER / "broken.gguf"
        broken.write_bytes(pathlib.Path(MODEL).read_bytes()[:5000])
        for args in (["run", "-m", FOLDER / "absent.gguf", "-p", "a"], ["run", "-m", broken, "-p", "a"],
                     ["tokenize", "-m", MODEL, "-f", FOLDER / "absent.txt"], ["logits", "-m", MODEL, "--tokens", "1 x"],
                     ["logits", "-m", MODEL, "--tokens", "1 999999"],
                     ["logits", "-m", MODEL, "--tokens", "1 2", "--isa", "cuda"],
                     ["run", "-m", MODEL, "-p", "a", "--override", "key"],
                     ["perplexity", "-m", MODEL, "-p", "short"]):
            self.assertEqual(tinfer(*args, code=1), b"")
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\n\Z")

    def every_command(self):
        named = lambda text: re.findall(r"(?m)^  (\w+) +[A-Z]", text[text.index("\nCommands:\n"):].split("\n\n")[0])
        commands = [[command] for command in named(tinfer("--help").decode()) if command not in ("trace", "grammar")]
        commands += [["trace", verb] for verb in named(tinfer("trace", "--help").decode())] + [["grammar", "check"]]
        self.assertGreater(len(commands), 30)
        return commands

    def test_help_fits_a_screen_or_two_and_help_all_has_every_option(self):
        self.assertRegex(tinfer("--version"), rb"^\d+\.\d+\.\d+\n$")
        general = tinfer("--help").decode()
        self.assertEqual(tinfer.stderr, "")
        for command in COMMANDS:
            self.assertRegex(general, rf"(?m)^  {command} +[A-Z]")
            short, full = tinfer(command, "--help").decode(), tinfer(command, "--help-all").decode()
            options = lambda text: set(re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)", text))
            self.assertLess(len(short.splitlines()), 60, command)
            self.assertLess(options(short), options(full), command)
            self.assertLessEqual(max(map(len, full.splitlines())), 120, command)
            examples = short[short.index("\nExamples:\n"):].strip().splitlines()[1:]
            self.assertEqual(len(examples), 2, command)
            for example in examples:   # what they name is there
                self.assertIn(command, example)
                for option in re.findall(r"(?<= )--[\w-]+", example):
                    self.assertIn(option, options(full) | {"--help"}, example)
            for option in ("--config", "--quiet", "--no-color", "--help", "--model"):
                self.assertIn(option, options(short), command)
        for command in self.every_command():
            short = tinfer(*command, "--help").decode()
            lines = short.splitlines()
            self.assertLess(len(lines), 60, command)
            self.assertEqual(len(short[short.index("\nExamples:\n"):].strip().splitlines()[1:]), 2, command)
            self.assertLessEqual(max(map(len, lines[:lines.index("Common:")])), 100, command)
            self.assertEqual(lines[lines.index("Common:") + 1].split()[0], "-h,", command)   # others have a title
            self.assertFalse([line for line in lines if re.match(r" \S", line)], command)
        for usage in ("replay FILE [MODEL]", "template [MODEL]", "man [COMMAND]", "trace view [FILE] [OTHER]",
                      "trace show FILE", "grammar check [FILE]", "completion SHELL"):
            command = [word for word in usage.split() if word.islower()]
            self.assertIn(f"Usage: tinfer {usage} [options]\n", tinfer(*command, "--help").decode())
        run = tinfer("run", "--help").decode()
        self.assertRegex(run, r"(?m)\A[^\n]+\n\nUsage: tinfer run MODEL \[options\]\n\nText:\n  -p, --prompt TEXT")
        for default in ("--temp X .*default 0.8", "--top-k N .*default 40", "--top-p X .*default 0.95",
                        "--seed N .*default -1"):
            self.assertRegex(run, default)

    def test_every_option_has_its_text_and_an_unknown_one_is_an_error(self):
        # [C3]
        for command in [*self.every_command(), ["trace"], ["grammar"]]:
            tinfer(*command, "--no-such-option", code=2)
            self.assertRegex(tinfer.stderr, r"unknown option --no-such-option", command)
            if command in (["trace"], ["grammar"]):
                continue
            lines, n_options = tinfer(*command, "--help-all").decode().split("\nExamples:\n")[0].splitlines(), 0
            for i, line in enumerate(lines):
                if option := re.match(r"  (?:-\w, )?--[\w-]+(.*)", line):   # a long one has its text in the next line
                    about = option[1].split("  ", 1)[1] if "  " in option[1] else lines[i + 1]
                    self.assertRegex(about, r"\A +[^-].*\w{2}|\A[^-].*\w{2}", f"{command} {line}")
                    n_options += 1
            self.assertGreater(n_options, 2, command)

    def test_a_near_miss_is_told_what_may_have_been_meant(self):
        for args, meant in {("rnu", "-m", MODEL): "run", ("inspct", MODEL): "inspect",
                            ("detokenise", MODEL): "detokenize",
                            ("run", MODEL, "-p", "a", "--temperature", "3"): "--temp",
                            ("run", MODEL, "--prmopt", "a"): "--prompt",
                            ("run", MODEL, "-p", "a", "--ctx-size", "64"): "--ctx",
                            ("run", MODEL, "-p", "a", "--n-predict=4"): "--predict",
                            ("run", MODEL, "-p", "a", "--repeat-penalty", "2"): "--penalty-repeat",
                            ("run", "--help-al"): "--help-all", ("--hlep",): "--help"}.items():
            tinfer(*args, code=2)
            self.assertIn(f"did you mean {meant}?", tinfer.stderr)
        meanings = {("run", MODEL, "-p", "a", "-temp", "0"): "long options have two dashes: --temp",
                    ("version",): "did you mean --version?",
                    ("run", MODEL, "-p", "a", "b", "c"): "a text of several words stands in quotes",
                    ("run", MODEL, MODEL, "-p", "a"): "the model is given already",
                    ("run", MODEL, "-p", "a", "--temp", "0", "--temp", "1"): "--temp: given more than once"}
        for args, meant in meanings.items():
            tinfer(*args, code=2)
            self.assertIn(meant, tinfer.stderr)
        self.assertEqual(tinfer("help", "run"), tinfer("run", "--help"))
        self.assertEqual(tinfer("help"), tinfer("--help"))
        self.assertEqual(tinfer("--help-all"), tinfer("--help"))
        self.assertEqual(tinfer("--help-all", "run"), tinfer("run", "--help-all"))
        for args, meant in {("help", "chatt"): "unknown command 'chatt': did you mean chat?",
                            ("chatt", "--help"): "unknown command 'chatt': did you mean chat?",
                            ("trace", "shwo", "--help"): "unknown command 'shwo': did you mean show?",
                            ("help", "trace", "shwo"): "unknown command 'shwo': did you mean show?",
                            ("help", "xyzzy"): "unknown command 'xyzzy' (see tinfer --help)"}.items():
            self.assertEqual(tinfer(*args, code=2), b"")
            self.assertIn(meant, tinfer.stderr)
        for args in (("xyzzy",), ("run", MODEL, "-p", "a", "--xyzzy")):
            tinfer(*args, code=2)
            self.assertNotIn("did you mean", tinfer.stderr)

    def test_options_of_other_programs_say_what_to_write(self):
        for args, meant in {("run", MODEL, "-p", "a", "-ngl", "99"): "-ngl: tinfer computes on CPUs: leave it out",
                            ("run", MODEL, "-p", "a", "--n-gpu-layers=99"): "computes on CPUs",
                            ("serve", MODEL, "--device", "none"): "--device: tinfer computes on CPUs",
                            ("chat", MODEL, "-r", "User:"): "write --stop TEXT",
                            ("chat", MODEL, "--jinja"): "the template of the file is always used",
                            ("run", MODEL, "-p", "a", "-fa"): "that is always so",
                            ("run", MODEL, "-p", "a", "-ctk", "q8_0"): "write --kv-type-k TYPE",
                            ("run", MODEL, "-p", "a", "-cnv"): "write tinfer chat",
                            ("chat", MODEL, "-sys", "a"): "write --system TEXT"}.items():
            tinfer(*args, code=2)
            self.assertIn(meant, tinfer.stderr)
            self.assertEqual(tinfer.stderr.count("\n"), 1)
        tinfer("bench", MODEL, "-r", "0", code=2)   # its own -r
        self.assertNotIn("--stop", tinfer.stderr)

    def test_verbs_take_the_common_options(self):
        grammar = FOLDER / "letter.gbnf"
        grammar.write_text('root ::= "a"')
        self.assertEqual(tinfer("grammar", "check", grammar, "--quiet", "--no-color"),
                         tinfer("grammar", "check", grammar))

    def test_bounds_read_as_a_person_writes_them(self):
        for args, message in {("-n", "-5"): "--predict: must be at least -1, not -5",
                              ("-n", "many"): "--predict: 'many' is no whole number",
                              ("-n", "1.5"): "--predict: '1.5' is no whole number",
                              ("--top-p", "3"): "--top-p: must be at most 1, not 3",
                              ("--top-k", "99999999999"): "--top-k: must be at most 2147483647, not 99999999999",
                              ("--temp", "nan"): "--temp: 'nan' is no number",
                              ("--penalty-repeat", "0"): "--penalty-repeat: must be above 0, not 0",
                              ("--seed", "4294967296"): "--seed: must be at most 4294967295",
                              ("-c", "-1"): "--ctx: must be at least 0, not -1",
                              ("-c", "300000000"): "--ctx: must be at most 268435456, not 300000000",
                              ("-b", "300000000"): "--batch: must be at most 268435456",
                              ("-u", "300000000"): "--ubatch: must be at most 268435456",
                              ("-t", "-1"): "--threads: must be at least 0, not -1",
                              ("-t", "9999"): "--threads: must be at most 512, not 9999",
                              ("--threads-batch", "9999"): "--threads-batch: must be at most 512, not 9999",
                              ("-n", "9" * 30): f"--predict: {'9' * 30} has too many digits",
                              ("--stop", ""): "--stop: the text is empty",
                              ("--isa", "sse"): "--isa: 'sse' is none of auto, reference, avx2",
                              ("-f", "a"): "--prompt and --file are both given",
                              ("-c",): "--ctx: its value is missing",
                              ("--log-level", "loud"): "'loud' is none of none, warning, info, debug",
                              ("--stop", "a\\d"): "--stop 'a\\d': after \\ comes n, t, r"}.items():
            tinfer("run", MODEL, "-p", "a", *args, code=2)
            self.assertIn(message, tinfer.stderr)
            self.assertIn("(see tinfer run --help)", tinfer.stderr)

    def test_what_is_missing_is_told_as_it_is_typed(self):
        trace = str(FOLDER / "named.tntrace")
        tinfer("trace", "record", MODEL, "-p", "a", "-n", "1", "-o", trace)
        for args, message in {("completion",): "a shell is needed: bash, zsh or fish",
                              ("trace", "view"): "a file to write is needed: -o FILE.html",
                              ("run", MODEL): "a text is needed: --prompt TEXT or --file FILE",
                              ("serve",): "a model is needed", ("serve", "--check"): "a model is needed",
                              ("embed", MODEL, "-p", "a", "--pooling", "sum"): "--pooling: 'sum' is none of auto, mean",
                              ("logits", MODEL, "-p", "a", "--pooling", "sum"): "--pooling: 'sum' is none of auto",
                              ("trace", "show", trace, "--op", "mulmat"): "did you mean mul_mat?",
                              ("trace", "show", trace, "--part", "ffm"): "did you mean ffn?",
                              ("trace", "show", trace, "--phase", "decoed"): "did you mean decode?"}.items():
            self.assertEqual(tinfer(*args, code=2), b"")
            self.assertIn(message, tinfer.stderr)
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\(see tinfer [^\n]+\)\n\Z")
        tinfer("run", MODEL, "-p", "a", "--samplers", "foo", code=1)
        self.assertRegex(tinfer.stderr, r"\Atinfer: --samplers: no sampler is named 'foo'")

    def test_the_model_stands_anywhere_and_shards_in_a_list(self):
        whole = tinfer("tokenize", "-m", MODEL, "-p", "once")
        for args in (["tokenize", MODEL, "-p", "once"], ["tokenize", "-p", "once", MODEL],
                     ["tokenize", "-p", "once", "--model", MODEL]):
            self.assertEqual(tinfer(*args), whole)
        for command, *args in (["run", "-p", "a", "-n", "1"], ["tokenize", "-p", "a"],
                               ["detokenize", "--tokens", "270"], ["logits", "-p", "a"],
                               ["embed", "-p", "a"], ["perplexity", "-p", "a on the " * 30, "-c", "16"], ["inspect"],
                               ["graph"],
                               ["bench", "-p", "2", "-n", "1", "-r", "1", "-t", "1"]):
            self.assertNotEqual(tinfer(command, MODEL, *args), b"", command)
            tinfer(command, *args, code=2)
            self.assertIn("a model is needed", tinfer.stderr)
        tinfer("run", MODEL, "once upon", code=2)
        self.assertIn("unexpected 'once upon'", tinfer.stderr)
        first = make_model("first", 1, "llama", 2)
        second = f"{first}.1"
        for command, *args in (["tokenize", "-p", "once"], ["detokenize", "--tokens", "1 270"],
                               ["run", "-p", "once", "-n", "3", "--temp", "0"]):
            self.assertEqual(tinfer(command, "-m", first, "-m", second, *args), tinfer(command, MODEL, *args), command)

    def test_each_kind_of_path_has_its_sentence(self):
        pipe = FOLDER / "pipe"
        os.mkfifo(pipe)
        for args, message in {("inspect", str(FOLDER)): "is a directory, a GGUF file is needed",
                              ("tokenize", str(FOLDER), "-p", "a"): "is a directory, a GGUF file is needed",
                              ("run", str(pipe), "-p", "a"): "is a pipe: a model is read in any order",
                              ("inspect", "/dev/null"): "is a device",
                              ("run", MODEL, "-f", str(FOLDER)): "is a directory, a file is needed",
                              ("run", MODEL, "-f", str(FOLDER / "no")): "cannot be opened: No such file",
                              ("graph", MODEL, "-o", str(FOLDER)): "is a directory, a file is to be written",
                              ("trace", "record", MODEL, "-p", "a", "-o", str(FOLDER)):
                                  "is a directory, a file is to be written"}.items():
            self.assertEqual(tinfer(*args, code=1), b"")
            self.assertIn(message, tinfer.stderr)
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\n\Z")
        for path, message in {FOLDER: "is a directory, a trace is needed", pipe: "is a pipe or a device",
                              FOLDER / "no": "cannot be opened: No such file"}.items():
            self.assertEqual(tinfer("trace", "stats", path, code=2), b"")
            self.assertIn(message, tinfer.stderr)
        no_model = FOLDER / "no_model.gguf"
        no_model.write_bytes(b"GGUF")
        for path, message in {FOLDER: "is a directory, a GGUF file is needed", no_model: "header",
                              FOLDER / "no": "cannot open: No such file"}.items():
            self.assertEqual(tinfer("serve", path, "--port", 0, code=1), b"")
            self.assertRegex(tinfer.stderr, rf"\Atinfer: [^\n]+{message}[^\n]*\n\Z")  # and nothing of an address
        with subprocess.Popen(["sh", "-c", f"printf 'on the inn' > {pipe}"]):
            self.assertEqual(json.loads(tinfer("tokenize", MODEL, "-f", pipe)), ids_of("on the inn"))

    def test_a_text_file_may_be_empty_and_may_begin_with_a_byte_order_mark(self):
        file = FOLDER / "text.txt"
        file.write_bytes(b"")
        self.assertEqual(json.loads(tinfer("tokenize", MODEL, "-f", file)), ids_of(""))
        self.assertEqual(run_json("-f", file, "-n", "4")["tokens"], run_json("-p", "", "-n", "4")["tokens"])
        file.write_bytes(b"\xEF\xBB\xBFon the inn")
        self.assertEqual(json.loads(tinfer("tokenize", MODEL, "-f", file)), ids_of("on the inn"))
        file.write_bytes(b"\xEF\xBB\xBF" * 2)
        self.assertEqual(json.loads(tinfer("tokenize", MODEL, "-f", file)), ids_of("\ufeff"))

    def test_quiet_leaves_results_and_errors(self):
        for args in (["run", MODEL, "-p", "a", "-n", "3"], ["perplexity", MODEL, "-p", "a on the " * 30, "-c", "16"],
                     ["embed", MODEL, "-p", "a " * 80, "-c", "64", "--truncate"],
                     ["run", MODEL, "-p", "a", "-n", "1", "-c", "4096"]):
            self.assertNotEqual(tinfer(*args), b"")
            self.assertNotEqual(tinfer.stderr, "")
            tinfer(*args, "--quiet")
            self.assertEqual(tinfer.stderr, "")
            tinfer(*args, env={"TINFER_QUIET": "1"})
            self.assertEqual(tinfer.stderr, "")
        tinfer("--quiet", "run", MODEL, "-f", FOLDER / "no", code=1)
        self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\n\Z")

    def test_options_from_environment_and_file(self):
        config = FOLDER / "options.toml"
        config.write_text(f'predict = 4\n[run]\nmodel = "{MODEL}"\n')
        base = ["run", "-p", "once", "--temp", "0", "--json", *NO_EOG]
        count = lambda *args, **kw: len(json.loads(tinfer(*args, **kw))["tokens"])
        self.assertEqual(count(*base, env={"TINFER_MODEL": MODEL, "TINFER_PREDICT": "3"}), 3)
        self.assertEqual(count("run", "--json", *NO_EOG, env={"TINFER_MODEL": MODEL, "TINFER_PREDICT": "2",
                                                              "TINFER_PROMPT": "a"}), 2)
        self.assertEqual(count(*base, "--config", config), 4)
        self.assertEqual(count(*base, "--config", config, "-n", "5"), 5)
        self.assertEqual(count(*base, env={"TINFER_CONFIG": str(config)}), 4)
        self.assertEqual(count(*base, "--config", config, env={"TINFER_CONFIG": "/nowhere.toml"}), 4)
        tinfer(*base, env={"TINFER_CONFIG": "/nowhere.toml"}, code=2)
        self.assertIn("/nowhere.toml: cannot be opened", tinfer.stderr)

    def test_a_configuration_file_is_read_to_its_end_or_refused(self):
        for file, message in {"/dev/zero": "--config /dev/zero: more than 1 MiB",
                              "/proc/self/mem": "/proc/self/mem: cannot be read: Input/output error"}.items():
            for args, env in ((["--config", file], {}), ([], {"TINFER_CONFIG": file})):
                self.assertEqual(tinfer("run", MODEL, "-p", "a", "-n", "1", *args, env=env, code=1), b"")
                self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\n\Z")
                self.assertIn(message, tinfer.stderr)
        pipe = FOLDER / "options.pipe"   # which can be read once
        os.mkfifo(pipe)
        with subprocess.Popen(["sh", "-c", f"printf 'predict = 3' > {pipe}"]):
            done = tinfer("run", MODEL, "-p", "once", "--temp", "0", "--json", *NO_EOG, "--config", pipe)
        self.assertEqual(len(json.loads(done)["tokens"]), 3)

    def test_what_the_command_line_excludes_does_not_count(self):
        """Each pair of options that exclude each other: one in the environment or a file, the other one by hand."""
        config, grammar = FOLDER / "excluded.toml", FOLDER / "a.gbnf"
        grammar.write_text('root ::= "a"')
        run = ["run", MODEL, "-n", "1", "--temp", "0"]
        trace = FOLDER / "excluded.tntrace"
        tinfer("trace", "record", MODEL, "-p", "a", "-n", "1", "-o", trace, "--overwrite")
        cases = ((["tokenize", MODEL, "-p", "hi"], {"file": "x"}),
                 (["tokenize", MODEL, "-f", grammar], {"prompt": "x"}),
                 ([*run, "--tokens", "5"], {"prompt": "x"}), ([*run, "--tokens", "5"], {"file": "x"}),
                 ([*run, "-p", "a"], {"tokens": "5"}), (["logits", MODEL, "-p", "a"], {"tokens": "5"}),
                 (["detokenize", MODEL, "--tokens", "5"], {"file": "x"}),
                 ([*run, "-p", "a", "--grammar-file", grammar], {"grammar": "root ::= x"}),
                 ([*run, "-p", "a", "--grammar", 'root ::= "a"'], {"json-schema": "{}"}),
                 (["grammar", "check", grammar], {"json-schema": "{}"}),
                 (["grammar", "check", "--json-schema", "{}"], {}),
                 (["inspect", MODEL, "--csv"], {"json": "true"}), (["inspect", MODEL, "--json"], {"csv": "true"}),
                 (["inspect", MODEL, "--placement"], {"csv": "true"}),
                 (["trace", "stats", trace, "--csv"], {"json": "true"}),
                 ([*run, "-p", "a", "--self-extend", "2,64"], {"context-shift": "true", "keep": "4"}),
                 ([*run, "-p", "a", "--context-shift"], {"self-extend": "2,64"}),
                 ([*run, "-p", "a", "--explain"], {"speculate": "ngram"}),
                 ([*run, "-p", "a", "--speculate", "ngram"], {"explain": "true"}),
                 ([*run, "-p", "a", "--speculate", "off"], {"draft": str(MODEL)}),
                 ([*run, "-p", "a", "--receipt", FOLDER / "r.json"], {"context-shift": "true", "keep": "2"}),
                 ([*run, "-p", "a", "--receipt", FOLDER / "r.json"], {"prompt-cache": str(FOLDER / "c")}),
                 ([*run, "-p", "a", "--prompt-cache", FOLDER / "c", "--prompt-cache-ro"], {"prompt-cache-all": "true"}),
                 (["logits", MODEL, "-p", "a", "--last"], {"pooled": "true"}))
        for args, other in cases:
            plain = tinfer(*args)
            variables = {"TINFER_" + name.upper().replace("-", "_"): value for name, value in other.items()}
            self.assertEqual(tinfer(*args, env=variables), plain, (args, other))
            if args[0] not in ("trace", "grammar"):
                config.write_text("".join(f"{name} = '{value}'\n" for name, value in other.items()))
                self.assertEqual(tinfer(*args, "--config", config), plain, (args, other))
        tinfer("tokenize", MODEL, "-p", "a", "-f", grammar, code=2)   # both by hand
        tinfer("tokenize", MODEL, env={"TINFER_PROMPT": "a", "TINFER_FILE": "x"}, code=2)
        config.write_text("prompt = 'hi'\n")   # a file counts before the environment
        self.assertEqual(tinfer("tokenize", MODEL, "--config", config, env={"TINFER_FILE": "x"}),
                         tinfer("tokenize", MODEL, "-p", "hi"))
        receipt, other = FOLDER / "r.json", FOLDER / "r.html"
        plain = tinfer("replay", receipt, "--at", "0", "--model", MODEL)
        self.assertEqual(tinfer("replay", receipt, "--at", "0", "--model", MODEL,
                                env={"TINFER_COMPARE": "true", "TINFER_HTML": str(other)}), plain)
        self.assertFalse(other.exists())

    def test_json_nested_without_end_is_an_error_everywhere(self):
        deep, file = "[" * 100_000 + "]" * 100_000, FOLDER / "deep.json"
        template, tools = ["--template", "chatml"], ["chat", MODEL, "--template", "chatml", "-p", "a", "--tools", file]
        for text, args in ((deep, ["template", MODEL, "--messages", file, *template]),
                           ('{"messages": [{"role": "user", "content": %s}]}' % deep,
                            ["template", MODEL, "--messages", file, *template]),
                           (deep, ["chat", MODEL, *template, "-p", "a", "--messages", file]), (deep, tools),
                           ('[{"name": "f", "parameters": %s}]' % deep, tools),
                           (deep, ["score", MODEL, "-f", file]),
                           ('{"text": [%s]}' % deep, ["score", MODEL, "-f", file]),
                           (deep, ["tokenize", MODEL, "--jsonl", "-f", file]), (deep, ["replay", file]),
                           (deep, ["grammar", "check", "--json-schema", "{}", "--match-file", file]),
                           (deep, ["run", MODEL, "-p", "a", "--json-schema", file])):
            file.write_text(text)
            self.assertEqual(tinfer(*args, code=1), b"", args)
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]*nested deeper than \d+\n\Z", args)
            file.write_text("[1," + text[:100])
            self.assertEqual(tinfer(*args, code=1), b"", args)
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\n\Z", args)

    def test_an_error_is_one_line_that_a_terminal_does_not_obey(self):
        for args in (["--\x1b[31m"], ["\x1b[31m\n"], ["run", MODEL, "-p", "a", "\x1b]0;x\x07"],
                     ["run", "a\x1b\nb.gguf", "-p", "a"], ["run", MODEL, "-f", "a\x1b\nb"],
                     ["run", MODEL, "-p", "a", "--receipt", "no/\x1b\nb"],
                     ["run", MODEL, "-p", "a", "--temp", "\x1b\n"]):
            tinfer(*args, code=None)
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\x00-\x1f\x7f]*\\x1b[^\x00-\x1f\x7f]*\n\Z", args)

    def test_a_wrong_value_is_blamed_on_where_it_stands(self):
        config = FOLDER / "value.toml"
        for text, env, args, message in (
                ("", {"TINFER_TEMP": "warm"}, [], "TINFER_TEMP: 'warm' is no number"),
                ("", {"TINFER_TOP_P": "3"}, [], "TINFER_TOP_P: must be at most 1, not 3"),
                ("", {"TINFER_JSON": "perhaps"}, [], "TINFER_JSON: "),
                ("", {"TINFER_STOP": "a\\d"}, [], "TINFER_STOP 'a\\d': after \\ comes"),
                ("", {"TINFER_RECEIPT": "/nowhere/r.json"}, [], "TINFER_RECEIPT /nowhere/r.json: cannot be written"),
                ("temp = 'warm'\n", {}, [], f"{config}: temp: 'warm' is no number"),
                ("[run]\ntop-p = 3\n", {}, [], f"{config}: top-p: must be at most 1, not 3"),
                ("temp = 'warm'\n", {"TINFER_TEMP": "hot"}, ["--temp", "cold"], "--temp: 'cold' is no number"),
                ("temp = 1\n", {"TINFER_TOP_P": "3"}, [], "TINFER_TOP_P: must be at most 1, not 3")):
            config.write_text(text)
            self.assertEqual(tinfer("run", MODEL, "-p", "a", "--config", config, *args, env=env, code=None), b"")
            self.assertRegex(tinfer.stderr, rf"\Atinfer: {re.escape(message)}[^\n]*\n\Z")

    def test_what_is_rounded_or_left_out_is_said(self):
        tinfer("run", MODEL, "-p", "a", "-n", "1", "-c", "10")
        self.assertIn("--ctx 10 becomes 64: the context holds whole pages of 64 tokens\n", tinfer.stderr)
        for args in (["-c", "64"], ["-c", "0"], []):
            tinfer("run", MODEL, "-p", "a", "-n", "1", *args)
            self.assertNotIn("becomes", tinfer.stderr)
        self.assertEqual(tinfer("bench", MODEL, "-p", "0", "-n", "0", code=2), b"")
        self.assertIn("nothing is measured: --prompt, --predict and --batches are all 0", tinfer.stderr)
        self.assertEqual(tinfer("bench", MODEL, "-p", "8", "-n", "0", "-d", "2147483647", code=2), b"")
        self.assertIn("2147483655 tokens, the limit is 2147483647", tinfer.stderr)
        for option in ("--prompt", "--predict", "--batches", "--depth", "--threads"):
            for wrong in ("1,,2", ",1", "1,"):
                self.assertEqual(tinfer("bench", MODEL, option, wrong, code=2), b"")
                self.assertTrue(tinfer.stderr.startswith(f"tinfer: {option}: '' is no whole number"), tinfer.stderr)
        tinfer("bench", MODEL, "-p", "2", "-n", "0", "-r", "1", "-t", "1")
        self.assertRegex(tinfer.stderr, r"(?m)^1 thread, ")

    def test_what_no_command_knows_in_a_config_file_is_an_error(self):
        config = FOLDER / "wrong.toml"
        for text, message in {"predcit = 4\n": "unknown key 'predcit': did you mean predict?",
                              "[run]\ntemperature = 1\n": "'run.temperature': did you mean temp?",
                              "[rnu]\npredict = 1\n": "unknown section [rnu]: did you mean run?",
                              "[run]\npooling = 'mean'\n": "unknown key 'run.pooling'",
                              "[embed]\nno_such = 1\n": "unknown key 'embed.no_such'",
                              "predict = -7\n": "must be at least -1, not -7"}.items():
            config.write_text(text)
            self.assertEqual(tinfer("run", MODEL, "-p", "a", "--config", config, code=2), b"")
            self.assertIn(message, tinfer.stderr)
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\n\Z")
        tinfer("run", MODEL, "-p", "a", "--config", FOLDER / "absent.toml", code=2)
        self.assertIn("absent.toml: cannot be opened: No such file", tinfer.stderr)
        tinfer("run", MODEL, "-p", "a", "--config", FOLDER, code=2)
        self.assertIn("is a directory, a file is needed", tinfer.stderr)
        # what another command knows is for that one
        config.write_text("predict = 2\npooling = 'last'\nquiet = true\n[embed]\nparallel = 3\n[run]\ntemp = 0\n")
        self.assertEqual(tinfer("run", MODEL, "-p", "a", "--config", config, *NO_EOG),
                         tinfer("run", MODEL, "-p", "a", "-n", "2", "--temp", "0", *NO_EOG))
        tinfer("run", MODEL, "-p", "a", "--config", config)
        self.assertEqual(tinfer.stderr, "")
        self.assertEqual(json.loads(tinfer("tokenize", MODEL, "-p", "a", "--config", config)), ids_of("a"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
