#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer chat: in a real pseudo-terminal, from a pipe, with one question, and what a person is told who names no model.

usage: chat_test.py path/to/tinfer [unittest arguments]
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

from chat_support import CHAT, TEMPLATE, Terminal, answers
from cli_support import FOLDER, HERE, MODEL, NO_EOG, TINFER, environment, make_model, tinfer


class Chat(unittest.TestCase):
    def test_a_model_alone_talks_if_it_can_and_completes_if_not(self):
        # [C5]
        options = ["-p", "once upon", "--temp", "0", "-n", "4", *NO_EOG]
        talking = make_model("talks", 1, "talks")
        answer, completed = tinfer("chat", talking, *options), tinfer("run", talking, *options)
        self.assertNotEqual(answer, completed)
        for named in ([talking], ["-m", talking]):
            self.assertEqual(tinfer(*named, *options), answer)
        self.assertEqual(tinfer(MODEL, *options), tinfer("run", MODEL, *options))   # has no template
        for absent in ("absent.gguf", "absent.ggu"):   # a path is no command
            tinfer(FOLDER / absent, *options, code=2)
            self.assertIn("there is no command and no GGUF file", tinfer.stderr)
        (FOLDER / "text.gguf").write_text("once upon a time")
        tinfer(FOLDER / "text.gguf", *options, code=2)

    def test_from_a_pipe_each_line_is_a_turn(self):
        """[C2] the second turn evaluates only what is new."""
        first, second = answers("once", "the")
        self.assertEqual(first["stop"], "limit")
        self.assertEqual(first["timings"]["generation_n"], 6)
        self.assertEqual(len(first["tokens"]), 6)
        self.assertEqual(len(second["tokens"]), second["timings"]["generation_n"])
        self.assertEqual(first["shifts_n"], 0)
        self.assertGreater(second["reused_n"], first["timings"]["prompt_n"] - 1)
        self.assertEqual([first], [a | {"seed": first["seed"], "timings": first["timings"]} for a in answers("once")])
        self.assertEqual(tinfer(*CHAT, input=b"once\nthe\n").decode(), first["text"] + "\n" + second["text"] + "\n")

    def test_a_full_context_is_told_on_a_line_of_its_own(self):
        args = [arg for arg in CHAT if arg not in ("-n", "6")]
        for more in ([], ["-p", "on the inn"]):
            done = subprocess.run([TINFER, *args, "-c", "64", *more], input=b"on the inn\n", stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=120, env=environment())
            self.assertRegex(done.stdout.decode(errors="replace"),
                         r"(?m)^\(the context is full: see --ctx, or --context-shift.*\)$")

    def test_from_a_pipe_nothing_is_a_command(self):
        saved = FOLDER / "not-written.md"
        turns = answers("/reset", f"/save {saved}", "once")
        self.assertEqual(len(turns), 3)
        self.assertEqual(tinfer.stderr.count("from a pipe every line is a turn, also one that begins with /"), 1)
        self.assertGreater(turns[2]["reused_n"], 0)
        self.assertFalse(saved.exists())
        answers("once")
        self.assertNotIn("from a pipe", tinfer.stderr)

    def test_one_question(self):
        """[C4] from an option and from a file, with a system message likewise."""
        (answer,) = answers("once")
        self.assertEqual(tinfer(*CHAT, "-p", "once").decode(), answer["text"])
        self.assertRegex(tinfer.stderr, r"(?m)^prompt +\d+ of \d+ tokens.*\n(.*\n)*stop +limit$")
        question, system = FOLDER / "question.txt", FOLDER / "system.txt"
        question.write_text("once")
        system.write_text("on a")
        self.assertEqual(tinfer(*CHAT, "-f", question).decode(), answer["text"])
        with_system = tinfer(*CHAT, "-p", "once", "--system", "on a", "--json")
        self.assertEqual(json.loads(with_system)["text"],
                         json.loads(tinfer(*CHAT, "-p", "once", "--system-file", system, "--json"))["text"])
        self.assertGreater(json.loads(with_system)["timings"]["prompt_n"], answer["timings"]["prompt_n"])

    def test_prefix_and_suffix_stand_in_for_a_template(self):
        # [C9] They stand around a text of the user.
        raw = ["chat", MODEL, "--temp", "0", "-n", "4", *NO_EOG, "--input-prefix", "A\\n", "--input-suffix", " B", "-p"]
        plain = ["run", MODEL, "--temp", "0", "-n", "4", *NO_EOG, "-p"]
        self.assertEqual(tinfer(*raw, "once"), tinfer(*plain, "A\nonce B"))

    def test_a_terminal(self):
        # [C2][C10][C14] Turns, several lines, commands, an interrupt.
        first, second = answers("once", "the")
        t = Terminal(*CHAT, "--no-color")
        t.until("/help tells.*\n")
        t.until("> ")
        t.type("once\r")
        t.until(r"\n> ")
        t.type("the\r")
        t.until(r"\n> ")
        t.type("/stats\r")
        self.assertRegex(t.until(r"stop +limit"), r"context +\d+ of \d+ tokens")
        saved = FOLDER / "talk.json"
        t.type(f"/save {saved}\r")
        t.until("saved 4 messages")
        messages = json.loads(saved.read_text())
        self.assertEqual([m["content"] for m in messages], ["once", first["text"], "the", second["text"]])

        t.type("/regenerate\r")
        t.until(r"\n> ")
        t.type(f"/save {saved}\r")
        t.until("is there already; write over it")
        t.type("n\r")
        t.until("nothing was written")
        t.type(f"/save {saved}\r")
        t.until("write over it")
        t.type("y\r")
        t.until("saved 4 messages")
        self.assertEqual(json.loads(saved.read_text()), messages)   # at temperature 0 the same

        t.type("/reset\r")
        t.until("begins anew")
        t.type("an\\\r")
        t.until(r"\. ")
        t.type("on\r")
        t.until(r"\n> ")
        t.type('"""a\r')
        t.until(r"\. ")
        t.type('b"""\r')
        t.until(r"\n> ")
        saved.unlink()
        t.type(f"/save {saved}\r")
        t.until("saved 4 messages")
        self.assertEqual([m["content"] for m in json.loads(saved.read_text())][::2], ["an\non", "a\nb"])

        t.type("/sytem x\r")
        t.until("did you mean /system.*A space in front sends it as text")
        t.type("/help\r")
        t.until("/regenerate")
        t.type("/system on a\r")
        t.until("this is the system message")
        markdown = FOLDER / "talk.md"
        t.type(f"/save {markdown}\r")
        t.until("saved 5 messages")
        self.assertIn("## System\n\non a\n\n## User\n\nan\non\n\n## Assistant\n\n", markdown.read_text())
        saved.write_text(json.dumps(messages))
        t.type(f"/load {saved}\r")
        t.until("loaded 4 messages")
        t.until("## User")   # and shows them
        t.leave()

    def test_a_paste_is_one_message(self):
        # [C10] Bracketed paste: line breaks, tabs and a leading / are text; the paste is sent by Enter alone.
        t = Terminal(*CHAT, "--no-color")
        t.until("/help tells.*\n")
        t.until("> ")
        self.assertIn("\x1b[?2004h", t.raw)
        t.type("\x1b[200~/first\nsecond\tcolumn\nthird\x1b[201~ and more\r")
        t.until(r"\n> ")
        saved = FOLDER / "pasted.json"
        t.type(f"/save {saved}\r")
        t.until("saved 2 messages")
        self.assertEqual(json.loads(saved.read_text())[0]["content"], "/first\nsecond\tcolumn\nthird and more")
        t.type("again\r")
        t.until(r"\n> ")
        t.type("/undo\r")
        t.until("took back: again")
        saved.unlink()
        t.type(f"/save {saved}\r")
        t.until("saved 2 messages")
        t.type("typed\x1b[Dx")   # other keys that begin with an escape are keys
        t.until("d")
        t.type("\r")
        t.until(r"\n> ")
        saved.unlink()
        t.type(f"/save {saved}\r")
        t.until("saved 4 messages")
        self.assertEqual(json.loads(saved.read_text())[2]["content"], "typexd")
        # A character that is cut takes nothing with it: not the end of a paste, not the next one, not Enter.
        t.type(b"\x1b[200~a\xc3\x1b[201~\xc3b\xe2\x82\r")
        t.until(r"\n> ")
        saved.unlink()
        t.type(f"/save {saved}\r")
        t.until("saved 6 messages")
        self.assertEqual(json.loads(saved.read_text())[4]["content"], "ab")
        t.leave()

    def test_signs_that_stand_for_line_breaks_are_text_where_they_were_typed(self):
        # [C10] U+2424 and U+2409 show pasted line breaks and tabs: typed and pasted ones stay, and come back with Up.
        t = Terminal(*CHAT, "--no-color")
        t.until("/help tells.*\n")
        t.until("> ")
        text = "a\u2424b\u2409c\nd\u2424e\tf"
        t.type("a\u2424b\u2409\x1b[200~c\nd\u2424e\tf\x1b[201~\r")
        t.until(r"\n> ")
        t.type("\x1b[A\r")
        t.until(r"\n> ")
        saved = FOLDER / "signs.json"
        t.type(f"/save {saved}\r")
        t.until("saved 4 messages")
        self.assertEqual([m["content"] for m in json.loads(saved.read_text())[::2]], [text, text])
        t.leave()

    def test_ctrl_c_takes_a_line_back(self):
        # [C2] However often: only on an empty line it is about to leave.
        t = Terminal(*CHAT, "--no-color")
        t.until("/help tells.*\n")
        for _ in range(3):
            t.prompt()
            t.type("half")
            t.until("half")
            t.type("\x03")
        t.prompt()
        t.type("\x03")
        t.until("Ctrl-C once more")
        t.prompt()
        t.leave("\x03", code=130)

    def test_ctrl_c_stops_the_turn_and_not_the_program(self):
        t = Terminal("chat", MODEL, "--template", TEMPLATE, "-n", "-1", "-c", "65536", "--temp", "0", *NO_EOG,
                     "--no-color")
        t.until("> ")
        t.type("once\r")
        t.until("once\n.")
        time.sleep(0.3)
        t.process.send_signal(signal.SIGINT)
        t.until(r"\(stopped\)")
        t.until("> ")
        t.type("/stats\r")
        t.until("stop +interrupt")
        t.until("> ")
        time.sleep(0.5)   # the prompt is written before the line is read
        t.process.send_signal(signal.SIGINT)
        t.until("Ctrl-D leaves, and so does")
        t.process.send_signal(signal.SIGINT)
        t.leave(keys="", code=130)

    def test_ctrl_c_while_the_terminal_takes_nothing(self):
        """The program waits for a terminal that is full, and the signal ends its call: the turn stops all the same."""
        t = Terminal("chat", MODEL, "--template", TEMPLATE, "-n", "-1", "-c", "65536", "--temp", "0", *NO_EOG)
        t.until("> ")
        t.type("once\r")
        t.until("once\n.")
        ticks = lambda: pathlib.Path(f"/proc/{t.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        before, end = None, time.monotonic() + 60
        while before != (before := ticks()):   # until it computes no more
            self.assertLess(time.monotonic(), end, "the terminal takes everything")
            time.sleep(0.3)
        t.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        self.assertNotIn("cannot be written", t.until(r"\(stopped\)|cannot be written"))
        t.until("> ")
        t.leave()

    def test_colours_on_terminals_alone(self):
        t = Terminal(*CHAT)
        t.until("\x1b\\[2m/help tells")
        t.leave()
        t = Terminal(*CHAT, env={"NO_COLOR": "1"})
        t.until("/help tells")
        t.leave()
        self.assertNotIn("\x1b[2m", t.text)
        tinfer(*CHAT, "-p", "once")
        self.assertNotIn("\x1b", tinfer.stderr)

    def test_a_transcript_is_written_and_read(self):
        out = FOLDER / "out.json"
        tinfer(*CHAT, "-p", "once", "--transcript", out)
        messages = json.loads(out.read_text())
        self.assertEqual([m["role"] for m in messages], ["user", "assistant"])
        tinfer(*CHAT, "-p", "the", "--messages", out, "--transcript", out)
        self.assertEqual(json.loads(out.read_text())[:2], messages)
        self.assertEqual(len(json.loads(out.read_text())), 4)

    def test_what_is_wrong_in_a_file_is_said_before_the_model_with_its_name(self):
        file = FOLDER / "input.json"
        absent = FOLDER / "absent.gguf"
        tool = json.dumps([{"type": "function", "function": {"name": "add"}}, {"name": "now"}])
        for text, args, code, message in (
                ('{"a": 1}', ["--tools", file], 1, f"--tools {file}: a JSON array is expected"),
                ("[1,", ["--tools", file], 1, f"--tools {file}: no JSON, byte 4"),
                (tool, ["--tools", file, "--tool-choice", "ad"], 2,
                 f"--tool-choice ad: is none of auto, none, required, nor a tool of {file}: did you mean add?"),
                ("", ["--tool-choice", "required"], 2, "--tool-choice required: there are no tools: --tools FILE"),
                ("", ["--tool-choice", "add"], 2, "--tool-choice add: there are no tools: --tools FILE"),
                ('{"a": 1}', ["--messages", file], 1, f"--messages {file}: a JSON array is expected"),
                ('[{"role": "user", "content": "a"}, {"content": "b"}]', ["--messages", file], 1,
                 f"--messages {file}: message 1: an object with a role is expected")):
            file.write_text(text)
            self.assertEqual(tinfer("chat", absent, "-p", "a", *args, code=code), b"")
            self.assertRegex(tinfer.stderr, rf"\Atinfer: {re.escape(message)}[^\n]*\n\Z")
        file.write_text(tool)
        for choice in ("auto", "none", "required", "add", "now"):
            tinfer("chat", absent, "-p", "a", "--tools", file, "--tool-choice", choice, code=1)
            self.assertIn("absent.gguf", tinfer.stderr)

    def test_a_person_without_a_model_is_told_what_to_type(self):
        folder = FOLDER / "nearby"
        (folder / "models").mkdir(parents=True)
        (folder / "models" / "a.gguf").write_bytes(b"")
        (folder / "b-00001-of-00002.gguf").write_bytes(b"")
        (folder / "b-00002-of-00002.gguf").write_bytes(b"")
        run = lambda *args: subprocess.run([TINFER, *args], capture_output=True, cwd=folder, env=environment(),
                                           stdin=subprocess.DEVNULL)
        done = run("chat")
        self.assertEqual(done.returncode, 2)
        self.assertIn("tinfer chat b-00001-of-00002.gguf; there is also models/a.gguf", done.stderr.decode())
        self.assertNotIn("b-00002", done.stderr.decode())
        done = run()
        self.assertEqual(done.returncode, 2)
        self.assertIn("tinfer chat b-00001-of-00002.gguf talks", done.stderr.decode())

    def test_run_says_that_a_model_would_rather_be_talked_to(self):
        hint = "has a chat template"
        override = ["--override", "tokenizer.chat_template=str:x"]
        tinfer("run", MODEL, "-p", "once", "-n", "1")
        self.assertNotIn(hint, tinfer.stderr)
        tinfer("run", MODEL, "-p", "once", "-n", "1", *override)
        self.assertEqual(tinfer.stderr.count(hint), 1)
        tinfer("run", MODEL, "-p", "once", "-n", "1", "--quiet", *override)
        self.assertNotIn(hint, tinfer.stderr)


TOOLS = FOLDER / "tools.json"
TOOLS.write_text(json.dumps([
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"enum": [1, 2]}}, "required": ["a", "b"]}}},
    {"type": "function", "function": {"name": "now"}}]))
CALLING = str(FOLDER / "calling.jinja")
pathlib.Path(CALLING).write_text(
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for call in m.tool_calls or [] %}"
    "{{ '<tool_call>\\n' }}{{ call.function | tojson }}{{ '\\n</tool_call>' }}{% endfor %}\n{% endfor %}"
    "{{ tools | length }}{% if add_generation_prompt %}<assistant>{% endif %}")
WITH_TOOLS = ["chat", MODEL, "--template", CALLING, "--tools", TOOLS, "--temp", "2", "-n", "400", "-c", "4096"]


class Tools(unittest.TestCase):
    # [N18] Calls are those of the tools, whatever the model would say.

    def test_required_calls_are_calls(self):
        for seed in range(4):
            out = json.loads(tinfer(*WITH_TOOLS, "--seed", seed, "--tool-choice", "add", "--json", "-p", "once"))
            if out["stop"] != "eog":
                continue
            self.assertEqual(out["text"], "")
            for call in out["tool_calls"]:
                self.assertEqual(call["name"], "add")
                arguments = json.loads(call["arguments"])
                self.assertIn(arguments["a"], range(10))
                self.assertIn(arguments["b"], (1, 2))

    def test_none_hides_the_tools(self):
        out = json.loads(tinfer(*WITH_TOOLS[:-4], "-n", "4", "--tool-choice", "none", "--json", "-p", "once"))
        self.assertNotIn("tool_calls", out)

    def test_a_tool_that_is_not_there(self):
        tinfer(*WITH_TOOLS, "--tool-choice", "sub", "-p", "once", code=2)
        self.assertIn("--tool-choice sub: is none of auto, none, required, nor a tool of", tinfer.stderr)
        tinfer(*WITH_TOOLS, "--tool-choice", "required", "--grammar", 'root ::= "a"', "-p", "once", code=2)

    def test_a_person_answers_calls(self):
        t = Terminal(*WITH_TOOLS, "--seed", "1", "--tool-choice", "now", "--no-color")
        t.until("> ")
        t.type("once\r")
        while t.until("now gives> |\n> ", 120).endswith("gives> "):   # one call or several
            t.type("noon\r")
        t.type(f"/save {FOLDER}/tools-talk.json\r")
        t.until("saved")
        t.leave()
        messages = json.loads((FOLDER / "tools-talk.json").read_text())
        self.assertEqual([m["role"] for m in messages[:3]], ["user", "assistant", "tool"])
        self.assertEqual(messages[2]["content"], "noon")

    def test_example(self):
        # [C8] Two turns in the format of the model.
        t = Terminal(*CHAT, "--no-color")
        t.until("> ")
        t.type("/example\r")
        t.until("<user>Hello\n<assistant>Hi there\n<user>How are you\\?\n<assistant>")
        t.leave()


@unittest.skipUnless((HERE.parent.parent / "models/SmolLM2-135M-Instruct.Q4_1.gguf").exists(),
                     "needs SmolLM2 in models/")
class SmolLM2(unittest.TestCase):
    def test_three_turns(self):
        t = Terminal("chat", HERE.parent.parent / "models/SmolLM2-135M-Instruct.Q4_1.gguf", "--temp", "0", "-n", "24",
                     "--no-color")
        t.until("> ")
        t.type("What is the capital of France?\r")
        t.until(r"\n> ", 120)
        evaluated = []
        for question in ("And of Italy?", "Say it in one word."):
            t.type(question + "\r")
            t.until(r"\n> ", 120)
            t.type("/stats\r")
            evaluated.append([int(n) for n in re.search(r"prompt +(\d+) of (\d+)", t.until("stop +")).groups()])
            t.until("> ")
        for n, total in evaluated:
            self.assertLess(n, 30)
            self.assertGreater(total, 60)
        t.leave()


if __name__ == "__main__":
    unittest.main()
