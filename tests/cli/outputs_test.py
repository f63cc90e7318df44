#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files that the program writes: one that cannot be written is refused before a model is loaded, what is read is never
written over, and no command has an output that this test does not know.

usage: outputs_test.py path/to/tinfer [unittest arguments]
"""
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import unittest

from cli_support import FOLDER, MODEL, TINFER, environment, make_model, tinfer

ABSENT = str(FOLDER / "absent.gguf")   # so that an error about the output came before the model was looked at

# Every option that names a file to write, by command.
OUTPUTS = {
    ("run", "--receipt"): ["-p", "a"],
    ("run", "--write-expert-profile"): ["-p", "a", "--ram", "1G"],
    ("run", "--prompt-cache"): ["-p", "a"],
    ("chat", "--transcript"): ["-p", "a"],
    ("chat", "--prompt-cache"): ["-p", "a"],
    ("convert", "--output"): [],
    ("imatrix", "--output"): ["-p", "a"],
    ("kl", "--svg"): [ABSENT, "-p", "a"],
    ("logits", "--output"): ["-p", "a"],
    ("embed", "--output"): ["-p", "a"],
    ("perplexity", "--save-logprobs"): ["-p", "a"],
    ("graph", "--output"): [],
    ("quantize", "--costs"): [str(FOLDER / "smaller.gguf"), "--kl", "1", "-p", "a"],
    ("replay", "--html"): ["--compare"],
    ("trace record", "--output"): ["-p", "a"],
    ("trace record", "--router-inputs"): ["-p", "a", "-o", str(FOLDER / "other.tntrace")],
    ("trace record", "--receipt"): ["-p", "a", "-o", str(FOLDER / "other.tntrace")],
    ("trace record", "--write-expert-profile"): ["-p", "a", "-o", str(FOLDER / "third.tntrace"), "--ram", "1G"],
    ("trace record", "--prompt-cache"): ["-p", "a", "-o", str(FOLDER / "other.tntrace")],
    ("trace view", "--output"): [],
    ("trace export", "--output"): ["--format", "csv"],
    ("trace cut", "--output"): [],
    ("trace recover", "--output"): [],
    ("trace disk", "--output"): [],
}
# Options that name a file to read.
INPUTS = set("""--file --model --config --grammar-file --json-schema --lora --control-vector --draft --system-file
    --template --tools --messages --kl --base --api-key-file --chat-template-file --cert --key --disk --match-file
    --vars --expect --imatrix --merge --input --router-inputs
    --peaks --recipe --model-a --model-b --expert-profile""".split())


def commands():
    """"run", "trace show" and so on, with the text of --help-all."""
    names = re.findall(r"^  (?!tinfer )([a-z]+) ", tinfer("--help").decode(), re.M)
    for name in names:
        text = tinfer(name, "--help").decode()
        verbs = re.findall(r"^  (?!tinfer )([a-z]+) ", text, re.M) if f"{name} COMMAND" in text else []
        for full in [f"{name} {verb}" for verb in verbs] or [name]:
            yield full, tinfer(*full.split(), "--help-all").decode()


class Outputs(unittest.TestCase):
    def refused(self, command, option, path, reason, model=ABSENT):
        self.assertEqual(tinfer(*command.split(), model, option, path, *OUTPUTS[command, option], code=1), b"")
        self.assertRegex(tinfer.stderr, rf"\Atinfer: {option} {re.escape(str(path))}: {reason}.*\n\Z",
                         (command, option))

    def test_every_option_that_names_a_file_is_known(self):
        for command, text in commands():
            for line in re.findall(r"^  (?:-\w, )?(--[\w-]+) FILE", text, re.M):
                self.assertTrue((command, line) in OUTPUTS or line in INPUTS, (command, line))

    def test_what_cannot_be_written_is_refused_before_the_work(self):
        file = FOLDER / "a-file"
        file.write_text("")
        for command, option in OUTPUTS:
            self.refused(command, option, FOLDER / "nowhere" / "out", "cannot be written: No such file")
            self.refused(command, option, file / "out", "cannot be written: Not a directory")
            if not (command.startswith("trace") and option in ("--output", "--router-inputs")):
                self.refused(command, option, FOLDER, "is a directory")
        self.assertEqual(file.read_text(), "")

    def test_a_stream_that_is_closed_or_full_is_an_error_and_no_file_gets_its_text(self):
        for args in (["run", MODEL, "-p", "a", "-n", 2], ["tokenize", MODEL, "-p", "a"], ["inspect", MODEL], ["--help"],
                     ["--version"], ["run", "--help"], ["man"], ["completion", "bash"]):
            for redirect in (">&-", "> /dev/full"):
                done = self.shell(args, redirect)
                self.assertEqual((done.returncode, done.stderr), (1, b"tinfer: stdout cannot be written\n"),
                                 (args, redirect))
        trace, receipt = FOLDER / "closed.tntrace", FOLDER / "closed.json"
        args = ["trace", "record", MODEL, "-p", "a", "-n", 4, "--temp", 0, "-o", trace, "--receipt", receipt]
        for closed in ("2>&-", "<&- >/dev/null 2>&-", "<&- 2>&- 3>&- >/dev/null"):
            for path in (trace, receipt):
                path.unlink(missing_ok=True)
            self.assertEqual(self.shell(args, closed).returncode, 0, closed)
            tinfer("trace", "validate", trace)
            self.assertTrue(tinfer("replay", receipt).startswith(b"equal"))

    def test_what_cannot_be_written_to_its_end_is_not_there_and_what_was_there_stays(self):
        """Files may not grow beyond 48 bytes, as on a full disk."""
        trace = FOLDER / "full.tntrace"
        tinfer("trace", "record", MODEL, "-p", "a", "-n", 2, "--temp", 0, "-o", trace)
        moe, routes = make_model("full-moe.gguf", 1, "moe"), FOLDER / "full-moe.tntrace"
        tinfer("trace", "record", moe, "-p", "a", "-n", 2, "--temp", 0, "--extras", "router", "-o", routes)
        text = ["-p", "one two three four five six seven eight", "-n", 2, "--temp", 0]
        cases = [["run", MODEL, *text, "--receipt"], ["logits", MODEL, *text[:2], "--output"],
                 ["embed", MODEL, *text[:2], "--output"], ["graph", MODEL, "--output"],
                 ["perplexity", MODEL, *text[:2], "-c", 8, "--save-logprobs"],
                 ["trace", "view", trace, "--output"], ["trace", "view", "--output"],
                 ["trace", "cut", trace, "--overwrite", "--output"],
                 ["trace", "recover", trace, "--overwrite", "--output"]]
        formats = re.search(r"(csv, chrome[\w, ]+)", tinfer("trace", "export", "--help").decode())[1]
        for name in re.findall(r"\w+", formats):
            cases.append(["trace", "export", routes, "--format", name,
                          "--output"])
        self.assertGreater(len(cases), 18)
        folder = FOLDER / "full"
        folder.mkdir()
        # A name of 250 bytes has no room for one beside it.
        for case, out in [(case, folder / "out") for case in cases] + [(cases[3], folder / ("o" * 250))]:
            for before in (None, "kept"):
                with self.subTest(case=case, before=before):
                    out.unlink(missing_ok=True)
                    if before is not None:
                        out.write_text(before)
                    done = subprocess.run(
                        [TINFER, *map(str, case), out], capture_output=True, env=environment(), timeout=120,
                        restore_signals=False,   # SIGXFSZ stays ignored
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (48, 48)))
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertIn(f"{out}: cannot be written: File too large", done.stderr.decode())
                    self.assertEqual([p.name for p in folder.iterdir()], [] if before is None else [out.name])
                    if before is not None:
                        self.assertEqual(out.read_text(), before)
            out.unlink(missing_ok=True)

    def test_a_file_that_is_replaced_keeps_its_mode_and_its_links(self):
        target, link = FOLDER / "target.dot", FOLDER / "link.dot"
        target.write_text("before")
        target.chmod(0o640)
        link.symlink_to(target)
        tinfer("graph", MODEL, "--output", link)
        self.assertTrue(link.is_symlink())
        self.assertNotEqual(target.read_text(), "before")
        self.assertEqual(target.stat().st_mode & 0o777, 0o640)
        tinfer("graph", MODEL, "--output", "/dev/full", code=1)
        self.assertRegex(tinfer.stderr, "cannot be written: No space left")

    @staticmethod
    def shell(args, redirect):
        line = shlex.join(map(str, [TINFER, *args]))
        return subprocess.run(["sh", "-c", f"{line} {redirect}"], capture_output=True, env=environment(), timeout=120)

    def test_asking_leaves_no_file_and_changes_none(self):
        new, old = FOLDER / "new.out", FOLDER / "old.out"
        old.write_text("kept")
        for command, option in OUTPUTS:
            for path in (new, old):
                tinfer(*command.split(), ABSENT, option, path, *OUTPUTS[command, option], code=None)
                self.assertFalse(new.exists(), (command, option))
                self.assertEqual(old.read_text(), "kept", (command, option))

    def test_what_is_read_is_not_written_over(self):
        for command, option in OUTPUTS:
            model = FOLDER / "precious.gguf"
            shutil.copy(MODEL, model)
            link = FOLDER / "link.gguf"
            link.unlink(missing_ok=True)
            os.link(model, link)
            before = model.read_bytes()
            overwrite = ["--overwrite"] if re.match("trace (record|cut|recover)", command) else []
            for path in (model, link, pathlib.Path(os.path.relpath(model))):
                tinfer(*command.split(), model, option, path, *OUTPUTS[command, option], *overwrite, code=1)
                self.assertIn("is read too", tinfer.stderr, (command, option))
            self.assertEqual(model.read_bytes(), before)


if __name__ == "__main__":
    unittest.main()
