#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer chat inside of tmux, a terminal that people use: what its screen shows. Skipped where tmux is not installed.

usage: tmux_test.py path/to/tinfer [unittest arguments]
"""
import os
import shlex
import shutil
import subprocess
import sys
import time
import unittest

if shutil.which("tmux") is None:
    print("skipped: no tmux")
    sys.exit(77)

from chat_support import CHAT, FOLDER, TINFER, environment


class Tmux(unittest.TestCase):
    def setUp(self):
        self.socket = str(FOLDER / "tmux")
        self.env = environment({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"})
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "60", "-y", "40",
                  shlex.join([TINFER, *CHAT, "--no-history"]))
        self.addCleanup(lambda: subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True))
        self.until(lambda shown: shown.rstrip().endswith(">"))

    def tmux(self, *args, **more):
        return subprocess.run(["tmux", "-u", "-S", self.socket, *args], env=self.env, check=True, capture_output=True,
                              text=True, **more).stdout

    def until(self, is_shown):
        end = time.monotonic() + 60
        while not is_shown(shown := self.tmux("capture-pane", "-p")):
            self.assertLess(time.monotonic(), end, shown)
            time.sleep(0.05)
        return shown

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def test_a_paste_a_resize_and_an_answer(self):
        self.tmux("set-buffer", "one\ntwo 日本語")
        self.tmux("paste-buffer", "-p")   # bracketed, as terminals paste
        self.until(lambda shown: "日本語" in shown)
        self.tmux("resize-window", "-x", "30", "-y", "40")
        self.keys("-l", "!")
        self.until(lambda shown: "日本語!" in shown)
        self.keys("Enter")
        saved = FOLDER / "t.json"
        self.until(lambda shown: shown.rstrip().endswith("\n>"))
        self.keys("-l", "/save %s" % os.path.relpath(saved, "/"))
        self.keys("C-u")                  # a line is taken back whole
        self.until(lambda shown: shown.rstrip().endswith("\n>"))
        self.keys("/stats", "Enter")
        shown = self.until(lambda shown: "context" in shown)
        self.assertIn("generation  6 tokens", shown)
        self.keys("C-c")
        self.until(lambda shown: "once more" in shown.replace("\n", ""))
        self.keys("C-c")
        end = time.monotonic() + 60
        while subprocess.run(["tmux", "-S", self.socket, "list-sessions"], capture_output=True).returncode == 0:
            self.assertLess(time.monotonic(), end, "the program is still there")
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
