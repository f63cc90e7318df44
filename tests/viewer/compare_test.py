#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page of `tinfer replay --compare --html` in a headless Chromium: text, table, chart, keys and details show the
comparison, hostile texts stay text, nothing is on the console and no request leaves the page. First argument: the
program; then `--pictures FOLDER`. Exits with 77 where there is no Chromium.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TINFER = sys.argv.pop(1)
PICTURES = None
if "--pictures" in sys.argv:
    at = sys.argv.index("--pictures")
    PICTURES = pathlib.Path(sys.argv[at + 1])
    del sys.argv[at:at + 2]
ROOT = pathlib.Path(__file__).resolve().parents[2]
import browser

WORK = tempfile.TemporaryDirectory(prefix="tinfer-compare-")
FOLDER = pathlib.Path(WORK.name)
HOSTILE = '</script><img src=x onerror="document.title=1">\n<b>&amp;'


def make_page():
    """(page, its data) of one tiny model with two caches; one token of the data has a hostile text."""
    model, receipt, page = FOLDER / "tiny.gguf", FOLDER / "r.json", FOLDER / "page.html"
    subprocess.run([sys.executable, ROOT / "tests/support/tiny_model.py", model], check=True)
    run = [TINFER, "--quiet", "run", model, "-p", "once on a time", "-n", "40", "--seed", "3", "--temp", "2",
           "--logit-bias", "2=-1e9"]
    subprocess.run([*run, "--receipt", receipt], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([TINFER, "replay", receipt, "--compare", "--kv-type-k", "bf16", "--kv-type-v", "bf16", "--html",
                    page],
                   check=True, stdout=subprocess.DEVNULL)
    text = page.read_text()
    found = re.search(r'(<script type="application/json" id="comparison">)(.*?)(</script>)', text, re.S)
    data = json.loads(found[2])
    data["tokens"][1]["text"] = HOSTILE
    data["tokens"][2]["b"]["choice"] = data["tokens"][2]["a"]["choice"] + 1
    data["first_parted"] = 2
    packed = json.dumps(data).replace("<", "\\u003c")
    page.write_text(text[:found.start(2)] + packed + text[found.end(2):])
    return page, data


class Compare(browser.PageTest):
    @classmethod
    def setUpClass(cls):
        cls.file, cls.data = make_page()
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.page.open(self.file.as_uri())

    def run_in_page(self, script):
        return self.page.run(script)

    def test_N26_text_table_and_details_show_the_comparison(self):  # [N26]
        n = len(self.data["tokens"])
        self.assertEqual(self.run_in_page("document.querySelectorAll('#text button').length"), n)
        self.assertIn("Token 2", self.run_in_page("document.getElementById('details').textContent"))   # where they part
        self.assertEqual(self.run_in_page("document.querySelectorAll('#text img').length"), 0)
        self.assertEqual(self.run_in_page("document.querySelectorAll('#text button')[1].textContent"), HOSTILE)
        self.assertEqual(self.run_in_page("document.querySelectorAll('#text button.parted').length"),
                         sum(t["a"]["choice"] != t["b"]["choice"] for t in self.data["tokens"]))
        self.run_in_page("document.querySelectorAll('#tabs button')[1].click()")
        self.assertEqual(self.run_in_page("document.querySelectorAll('#table tbody tr').length"), n)
        self.run_in_page("[...document.querySelectorAll('#table th button')].at(-1).click()")
        first = self.run_in_page("document.querySelector('#table tbody tr td:last-child').textContent")
        self.assertAlmostEqual(float(first), max(t["kl"] for t in self.data["tokens"]), places=4)

    def test_N26_keys_and_clicks_choose_tokens(self):  # [N26]
        key = "dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"
        title = "document.querySelector('#details h2').textContent"
        self.run_in_page(key % "ArrowRight")
        self.assertIn("Token 3", self.run_in_page(title))
        self.run_in_page(key % "p")
        self.assertIn("Token 2", self.run_in_page(title))
        self.run_in_page("document.querySelectorAll('#text button')[5].click()")
        self.assertIn("Token 5", self.run_in_page(title))
        self.run_in_page(key % "t")
        self.assertFalse(self.run_in_page("document.getElementById('table').hidden"))
        self.assertTrue(self.run_in_page("document.querySelector('#table "
                                         "tr[data-token=\"5\"]').classList.contains('selected')"))
        self.run_in_page("(() => { const s = document.getElementById('colour'); s.value = 'b'; s.dispatchEvent(new "
                         "Event('change')); })()")
        self.run_in_page("document.getElementById('theme').click()")
        ink = self.run_in_page("(() => { const c = document.querySelector('#chart canvas'); const d = new "
                               "Uint32Array(c.getContext('2d')"
                               ".getImageData(0, 0, c.width, c.height).data.buffer); return new Set(d).size; })()")
        self.assertGreater(ink, 3)


if __name__ == "__main__":
    if browser.find() is None:
        print("no Chromium here: set TINFER_CHROMIUM to its path")
        sys.exit(77)
    unittest.main()
