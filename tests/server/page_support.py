# SPDX-License-Identifier: MIT
"""What the tests of the server's page share: one server and one window for the cases of a class. With --pictures FOLDER
and --model FILE they also take pictures; --long scrolls for longer."""
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
LONG = "--long" in sys.argv and not sys.argv.remove("--long")
from server_support import FOLDER, HERE, MODEL, TINFER, Server  # noqa: E402,F401  reads the arguments that are left

IDLE = "!talk.abort && !document.getElementById('send').hidden"
TEXTS = "[...document.querySelectorAll('.turn > .text')].map(e => e.textContent)"
STATUS = "document.getElementById('status-text').textContent"
ANSWERED = IDLE + " && shown().length === %d && shown().at(-1).finish && shown().at(-1).finish !== 'broken'"
def server(*more, **named):
    return Server("-c", 4096, "--logit-bias", "2=-100", "--seed", "1", *more, **named)


class PageTest(unittest.TestCase):
    """One server and one window; each case begins with a new conversation."""
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.server = server(*cls.arguments) if not OTHER_MODEL else Server("-c", 4096, "--seed", "1", *cls.arguments,
                                                                           model=OTHER_MODEL)
        cls.addClassCleanup(cls.server.stop)   # also where what follows fails
        cls.page = browser.Page(1200, 800)
        cls.addClassCleanup(cls.page.close)
        cls.page.open(cls.server.address)
        cls.page.wait("server.model && document.querySelector('script[src]')")

    def setUp(self):
        page = self.page
        page.errors.clear()
        page.requests.clear()
        page.size(1200, 800)
        page.run(
            "at('dialog').close(); startNew(); "
            "Object.assign(setup, emptySetup, {settings: {max_tokens: 24, temperature: 0}}); "
                 "drawSettings()")

    def tearDown(self):
        if self.page.run("Boolean(talk.abort)"):
            self.page.run("talk.abort.abort()")
        self.page.wait(IDLE)
        # What the tests themselves read from the canvas is warned of; a refused request is no mistake of the page.
        told = ("400", "willReadFrequently", "ERR_CONNECTION", "401", "ERR_INCOMPLETE", "ERR_EMPTY", "503")
        self.assertEqual([e for e in self.page.errors if not any(word in e for word in told)], [])
        inside = (self.server.address, "data:", "about:", "blob:")
        self.assertEqual([u for u in self.page.requests if not u.startswith(inside)], [])

    def picture(self, name):
        if PICTURES:
            self.page.frames(4)
            self.page.picture(pathlib.Path(PICTURES) / f"{name}.png")

    def say(self, text, n=None):
        self.page.run("document.getElementById('message').focus()")
        self.page.type(text)
        self.page.key("Enter")
        if n:
            self.page.wait(ANSWERED % n)

    def button(self, text, last=True):
        """Presses a button below a message."""
        self.page.run("[...document.querySelectorAll('.turn button')].filter(b => b.textContent === %r).at(%d).click()"
                      % (text, -1 if last else 0))


def main():
    if browser.find() is None:
        print("skipped: no Chromium; scripts/setup --chromium installs one, TINFER_CHROMIUM names one")
        sys.exit(77)
    unittest.main()
