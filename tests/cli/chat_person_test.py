#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer chat for who types: history, completion, settings, a full context, words at the edge of the window.

usage: chat_person_test.py path/to/tinfer [unittest arguments]
"""
import json
import os
import re
import time
import unittest

from chat_support import CHAT, FOLDER, NO_EOG, Terminal, screen


class Person(unittest.TestCase):
    def test_what_was_typed_is_kept_for_the_owner(self):
        # [C2] From conversation to conversation, multi-line texts too; not with --no-history.
        state = FOLDER / "typed"
        env = {"XDG_STATE_HOME": str(state)}
        t = Terminal(*CHAT, "--no-color", env=env)
        t.prompt()
        t.type("\x1b[200~on\nce\x1b[201~\r")
        t.until(r"\n> ")
        t.leave()
        history = state / "tinfer" / "history"
        self.assertEqual(history.stat().st_mode & 0o777, 0o600)
        self.assertEqual([json.loads(line) for line in history.read_text().splitlines()], ["on\nce"])
        t = Terminal(*CHAT, "--no-color", "--no-history", env=env)
        t.prompt()
        t.type("hidden\r")
        t.until(r"\n> ")
        t.leave()
        self.assertNotIn("hidden", history.read_text())
        t = Terminal(*CHAT, "--no-color", env=env)
        t.prompt()
        t.type("\x1b[A")   # the line before, of another conversation
        t.until("on.*ce")
        t.type("\r")
        t.until(r"\n> ")
        t.leave()
        self.assertEqual(history.read_text().splitlines()[1:], [json.dumps("on\nce")])

    def test_what_is_no_history_file_is_left_alone(self):
        state = FOLDER / "strange"
        history = state / "tinfer" / "history"
        history.parent.mkdir(parents=True)
        os.mkfifo(history, 0o644)
        t = Terminal(*CHAT, "--no-color", env={"XDG_STATE_HOME": str(state)})
        t.until("not kept.*no regular file")
        t.prompt()
        t.leave()
        self.assertEqual(history.stat().st_mode & 0o777, 0o644)
        history.unlink()
        lines = [json.dumps(f"line {i} " + "x" * 90) + "\n" for i in range(30_000)]   # more than is kept
        history.write_text("".join(lines))
        t = Terminal(*CHAT, "--no-color", env={"XDG_STATE_HOME": str(state)})
        t.prompt()
        t.leave()
        kept = history.read_text()
        self.assertTrue("".join(lines).endswith(kept))
        self.assertTrue(400_000 < len(kept) <= 1 << 19, len(kept))

    def test_tab_completes_commands_and_files(self):
        folder = FOLDER / "some folder"
        folder.mkdir()
        t = Terminal(*CHAT, "--no-color", "--no-history")
        t.prompt()
        t.type("/reg\t\r")
        t.until("there is no answer yet")
        t.prompt()
        t.type("/s\t\t")
        t.until("/system\n/save\n/stats\n/set\n")
        t.type(f"\x15/save {FOLDER}/some\ttalk.json\r")
        t.until("saved 0 messages")
        self.assertTrue((folder / "talk.json").exists())
        t.prompt()
        t.leave()

    def test_settings_edits_and_a_full_context(self):
        t = Terminal(*CHAT, "--no-color", "--no-history", "-c", "128", "--system", "a")
        t.until("a context of 128 tokens")
        t.prompt()
        t.type("/set\r")
        t.until(r"temp +0\.000")
        t.type("/set tmep 1\r")
        t.until("did you mean temp")
        t.type("/set temp hot\r")
        t.until("temp takes a number")
        t.type("/set temp 0.5\r")
        t.until("temp is 0.5 from here on")
        t.type("/set\r")
        t.until(r"temp +0\.500")
        t.prompt()
        t.type("once\r")
        t.until(r"\n> ")
        t.type("/edit\r")
        t.until("took back: once")
        t.until("> once")
        t.type(" more\r")
        t.until(r"\n> ")
        saved = FOLDER / "edited.json"
        t.type(f"/save {saved}\r")
        t.until("saved 3 messages")
        self.assertEqual(json.loads(saved.read_text())[1]["content"], "once more")
        t.prompt()
        for _ in range(40):   # until the context is full: the question is not lost, and dropping turns makes room
            t.type("on the inn again\r")
            if "context" in t.until(r"\n> (?!\Z)|\n> \Z"):
                break
        self.assertIn("/drop takes the older turns out", t.text)
        t.until("on the inn again")   # the question is in the line again, and the editor reads keys
        t.type("\x15/drop\r")
        self.assertRegex(t.until(r"turns? left"), r"dropped the oldest \d+ turn")
        t.prompt()
        t.type("/stats\r")   # what is left is less than what the context still holds
        used, now = map(int, re.search(r"context +(\d+) of 128 tokens; (\d+) once the conversation goes on",
                                       t.until(r"goes on")).groups())
        self.assertLess(now, used)
        t.prompt()
        t.type("once\r")
        t.until(r"\n> ")
        self.assertNotIn("the context is full", t.text.rsplit("turns left", 1)[-1])
        t.leave()

    def test_words_wrap_at_the_edge_and_a_window_may_change(self):
        t = Terminal(*CHAT[:-4], "-n", "60", *NO_EOG, "--no-color", "--no-history")
        t.size(40)
        t.prompt()
        t.type("once on a time\r")
        text = t.until(r"\n> ")
        self.assertTrue(all(len(line) < 40 for line in screen(text).splitlines()), screen(text))
        wide = "日本語の文" * 6   # 60 columns: two rows of 40
        t.type(wide)
        t.until("文")
        time.sleep(0.3)
        t.read(0.2)
        t.size(80)
        t.until("\x1b\\[J")
        t.type("!\r")
        t.until(r"\n> ")
        saved = FOLDER / "wide.json"
        t.type(f"/save {saved}\r")
        t.until("saved 4 messages")
        self.assertEqual(json.loads(saved.read_text())[2]["content"], wide + "!")
        t.leave()


if __name__ == "__main__":
    unittest.main(verbosity=2)
