#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page of the server in a headless Chromium, served by the program: a conversation by keyboard alone, stop,
regenerate, edit, settings, a reload, light and dark. With --pictures FOLDER and --model FILE it also takes pictures."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "viewer"))
import browser


def option(name):
    if name not in sys.argv:
        return None
    at = sys.argv.index(name)
    value = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    return value


PICTURES, OTHER_MODEL = option("--pictures"), option("--model")
from server_support import MODEL, Server  # noqa: E402  reads the arguments that are left

IDLE = "!talk.abort && !document.getElementById('send').hidden"
TEXTS = "[...document.querySelectorAll('.turn > .text')].map(e => e.textContent)"


class Conversation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", 4096, "--logit-bias", "2=-100", "--seed", "1") if not OTHER_MODEL else \
            Server("-c", 4096, "--seed", "1", model=OTHER_MODEL)
        cls.page = browser.Page(1200, 800)
        cls.page.open(cls.server.address)
        cls.page.wait("document.getElementById('model').textContent.includes('parameters')")

    @classmethod
    def tearDownClass(cls):
        cls.page.close()
        cls.server.stop()

    def picture(self, name):
        if PICTURES:
            self.page.frames(4)
            self.page.picture(pathlib.Path(PICTURES) / f"{name}.png")

    def say(self, text):
        self.page.run("document.getElementById('message').focus()")
        self.page.type(text)
        self.page.key("Enter")

    def test_conversation(self):  # [V14]
        page = self.page
        looks = page.run("""(e => [getComputedStyle(document.body).display, getComputedStyle(e).borderRadius,
            e.getBoundingClientRect().width > 500])(document.getElementById('form'))""")
        self.assertEqual(looks, ["flex", "17.6px", True])
        self.picture("empty")
        page.run("talk.settings = {max_tokens: 48, temperature: 0}; settings()")
        self.say("What is the capital of France?")
        page.wait("document.querySelectorAll('.turn').length === 2")
        page.wait(IDLE)
        first = page.run(TEXTS)
        self.assertEqual(first[0], "What is the capital of France?")
        self.assertTrue(first[1])
        facts = page.run("document.querySelector('.facts').textContent")
        self.assertIn("tokens/s", facts)
        self.assertIn("from the cache", facts)
        self.assertEqual(page.run("document.getElementById('status').textContent"), "Answer complete")

        page.run("[...document.querySelectorAll('.foot button')].find(b => b.textContent === 'Regenerate').click()")
        page.wait(IDLE + " && talk.messages.length === 2 && talk.messages[1].tokens")
        self.assertEqual(page.run(TEXTS), first, "temperature 0: the same answer")

        self.say("And of Italy? Answer with `code` and\n<b>no markup</b>.")
        page.wait("document.querySelectorAll('.turn').length === 4")
        page.wait(IDLE)
        self.assertEqual(page.run("document.querySelectorAll('.turn b').length"), 0, "text is never markup")
        self.assertGreater(page.run("talk.messages[3].cached"), 0)
        self.picture("light")

        page.run("[...document.querySelectorAll('.foot button')].find(b => b.textContent === 'Edit').click()")
        page.run("document.querySelector('.turn textarea').value = 'Another question'")
        page.run("[...document.querySelectorAll('.turn .foot button')].find(b => b.textContent === 'Send').click()")
        page.wait("talk.messages.length === 2 && " + IDLE)
        self.assertEqual(page.run(TEXTS)[0], "Another question")

        # The key comes from inside of the page, at a certain place of the answer: a tiny model's whole story may be in
        # one packet, and over before the page looks at the keyboard again.
        page.run("""talk.settings.max_tokens = 3000;
            showSoon = (show => answer => {
                if (answer.content.length > 10) document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
                show(answer);
            })(showSoon)""")
        self.say("Tell a long story.")
        page.wait("talk.messages.length === 4 && " + IDLE)
        self.assertEqual(page.run("document.getElementById('status').textContent"), "Stopped")
        self.assertLess(page.run("talk.messages[3].content.length"), 100)

        page.open(self.server.address)
        page.wait("document.querySelectorAll('.turn').length === 4")  # kept in the browser
        page.run("document.getElementById('panel-button').click()")
        page.dark(True)
        self.picture("dark")
        self.assertEqual(page.run("document.getElementById('panel-button').getAttribute('aria-expanded')"), "true")
        unnamed = page.run("""[...document.querySelectorAll('button, input, textarea')].filter(e =>
            !(e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && e.labels.length))).map(e => e.id)""")
        self.assertEqual(unnamed, [], "controls that a screen reader cannot name")
        page.run("talk.settings = {temperature: 99}; talk.messages = []; draw()")
        page.run("talk.settings.top_p = 5")
        self.say("x")
        page.wait("document.getElementById('status').classList.contains('bad')")
        self.assertIn("top_p", page.run("document.getElementById('status').textContent"))
        page.run("document.getElementById('new').click()")
        self.assertEqual(page.run("document.querySelectorAll('.turn').length"), 0)
        self.assertFalse([u for u in page.requests if not u.startswith((self.server.address, "data:", "about:"))])
        self.assertFalse([e for e in page.errors if "400" not in e], page.errors)


if __name__ == "__main__":
    if browser.find() is None:
        print("skipped: no Chromium; scripts/setup --chromium installs one, TINFER_CHROMIUM names one")
        sys.exit(77)
    unittest.main()
