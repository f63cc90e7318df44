#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page of the server in a headless Chromium, served by the program: a conversation by keyboard alone, stop,
regenerate, edit, settings, a reload, light and dark. With --pictures FOLDER and --model FILE it also takes pictures."""
import pathlib
import subprocess
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
from server_support import FOLDER, HERE, MODEL, Server  # noqa: E402  reads the arguments that are left

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
        page.dark(False)
        page.run("talk.settings = {temperature: 99}; talk.messages = []; draw()")
        page.run("talk.settings.top_p = 5")
        self.say("x")
        page.wait("document.getElementById('status').classList.contains('bad')")
        self.assertIn("top_p", page.run("document.getElementById('status').textContent"))
        page.run("document.getElementById('new').click()")
        self.assertEqual(page.run("document.querySelectorAll('.turn').length"), 0)
        self.assertFalse([u for u in page.requests if not u.startswith((self.server.address, "data:", "about:"))])
        self.assertFalse([e for e in page.errors if "400" not in e], page.errors)

    def test_strip(self):  # [V14]
        """The strip of layers: asked for only while it is shown, filled by what an answer reads, used by keyboard."""
        page = self.page
        page.run("talk.messages = []; talk.settings = {max_tokens: 600, temperature: 0}; settings(); draw()")
        asked = "performance.getEntriesByType('resource').filter(e => e.name.endsWith('/activity')).length"
        self.assertEqual(page.run("[strip.shown, " + asked + "]"), [False, 0])
        page.run("document.getElementById('strip-button').focus()")
        page.key("Enter")
        page.wait("strip.asks > 2")
        self.assertEqual(page.run("document.getElementById('strip-button').getAttribute('aria-expanded')"), "true")
        self.say("Tell a story.")
        page.wait("strip.rate && strip.layers.length > 0 && strip.layers.every(l => l.weights > 0.3 && l.cache > 0)")
        text = page.run("document.getElementById('strip-text').textContent")
        self.assertRegex(text, r"of weights and .* of cache a step")
        lit = """(() => { const v = document.getElementById('strip-view'), p = v.getContext('2d'); const pixel = x =>
            [...p.getImageData(Math.floor(x), 6, 1, 1).data].slice(0, 3).join();
            return strip.layers.map((_, i) => pixel((i + 0.4) / strip.layers.length * v.width)); })()"""
        self.assertNotIn(page.run("(c => c)(getComputedStyle(document.documentElement).getPropertyValue('--cell'))"),
                         page.run(lit), "what is read is not painted as what is not")
        self.picture("strip-light")
        page.dark(True)
        page.wait("strip.rate !== null || talk.abort === null")
        self.picture("strip-dark")
        page.dark(False)
        page.run("document.getElementById('strip-view').focus()")
        page.key("ArrowRight")
        page.key("ArrowRight")
        self.assertIn("Layer 1:", page.run("document.getElementById('strip-view').getAttribute('aria-label')"))
        page.key("Home")
        self.assertIn("Layer 0:", page.run("document.getElementById('strip-text').textContent"))
        page.key("Escape")
        self.assertEqual(page.run("strip.at"), -1)
        page.wait(IDLE)
        page.wait("strip.layers.every(l => l.weights === 0)")  # what is not read any more fades
        self.assertEqual(page.run("document.getElementById('strip-text').textContent"), "Nothing is read now")
        asks, begin = page.run("[strip.asks, performance.now()]")
        page.wait("strip.asks >= %d" % (asks + 10))
        self.assertGreater(page.run("performance.now()") - begin, 900, "ten times a second at most")
        page.run("document.getElementById('strip-button').click()")
        before = page.run("strip.asks")
        page.frames(30)
        self.assertLessEqual(page.run("strip.asks") - before, 1)
        # what the test itself reads from the canvas is warned of, too
        self.assertFalse([e for e in page.errors if "400" not in e and "willReadFrequently" not in e], page.errors)

    def test_strip_of_experts(self):  # [V14]
        if OTHER_MODEL:
            self.skipTest("of the tiny model of experts")
        path = FOLDER / "experts.gguf"
        subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", path, "1", "moe"], check=True)
        server = Server("-c", 2048, "--logit-bias", "2=-100", "--api-key", "sk-strip", model=path)
        page = browser.Page(420, 800)
        try:
            page.open(server.address)
            page.run("document.getElementById('strip-button').click()")
            page.wait("document.getElementById('strip-text').textContent.startsWith('A key is needed')")
            page.run("document.getElementById('key').value = 'sk-strip'")
            page.run("talk.settings = {max_tokens: 1500, temperature: 0}; settings()")
            page.wait("strip.asks > 1")   # with the key
            page.run("document.getElementById('message').focus()")
            page.type("x")
            page.key("Enter")
            page.wait("strip.layers.length === 2 && strip.layers.every(l => l.experts.some(e => e > 0.5))")
            self.assertEqual(page.run("strip.layers.map(l => l.experts.length)"), [8, 8])
            self.assertGreater(page.run("document.getElementById('strip-view').clientHeight"), 60)
            self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 420, "nothing is wider than a phone")
            if PICTURES:
                page.picture(pathlib.Path(PICTURES) / "strip-experts.png")
            page.run("talk.abort && talk.abort.abort()")
        finally:
            page.close()
            server.stop()


if __name__ == "__main__":
    if browser.find() is None:
        print("skipped: no Chromium; scripts/setup --chromium installs one, TINFER_CHROMIUM names one")
        sys.exit(77)
    unittest.main()
