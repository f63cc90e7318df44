# SPDX-License-Identifier: MIT
"""What the tests of the viewer share: pages of synthetic traces in one window, and how it is driven. First argument of
each test: the program; then `--pictures FOLDER` to keep pictures."""
import json
import pathlib
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
sys.path.insert(0, str(ROOT / "tests/support"))
import browser
import synthetic_trace as synthetic

WORK = tempfile.TemporaryDirectory(prefix="tinfer-viewer-")
FOLDER = pathlib.Path(WORK.name)
TABS = ["timeline", "heat", "layers", "tensors", "experts", "roofline", "graph"]
KINDS = {"dense": synthetic.dense, "experts": lambda: synthetic.experts(12), "hostile": synthetic.hostile,
         "hook": synthetic.hook,
         "million": synthetic.million,
         "even": lambda: synthetic.dense(synthetic.EVEN, seed=3),
         "paused": lambda: synthetic.dense(synthetic.EVEN, seed=4, pause=(7, 152, 9_000_000)),
         "scratch": lambda: synthetic.dense(synthetic.EVEN, seed=5, scratch=217_088),
         "busy": lambda: synthetic.dense(synthetic.EVEN, seed=6, busy=(2, 3, 4, 5, 6, 7, 8)),
         "text": lambda: synthetic.dense(synthetic.SMOLLM2, 3, 4, text=lambda token: f" <i>t{token}</i>"),
         "other": lambda: synthetic.dense(seed=2, roofs=(16.0, 180.0))}

# How many colours a canvas has, and how many of its pixels are not its most frequent one.
INK = """(() => {
    const canvas = document.querySelector('#stage > canvas'), seen = new Map();
    const copy = document.createElement('canvas');
    copy.width = canvas.width;
    copy.height = canvas.height;
    const context = copy.getContext('2d', {willReadFrequently: true});
    context.drawImage(canvas, 0, 0);
    const data = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    for (let i = 0; i < data.length; i += 7) seen.set(data[i], (seen.get(data[i]) ?? 0) + 1);
    return [seen.size, 1 - Math.max(...seen.values()) / Math.ceil(data.length / 7)];
})()"""


def trace(kind):
    path = FOLDER / f"{kind}.tntrace"
    if not path.exists():
        path.write_bytes(KINDS[kind]())
    return path


def page_of(kind):
    path = FOLDER / f"{kind}.html"
    if not path.exists():
        subprocess.run([TINFER, "trace", "view", trace(kind), "-o", path], check=True)
    return path.as_uri()


class ViewerCase(browser.PageTest):
    inside = ("file:", "blob:", "data:")

    def tearDown(self):
        super().tearDown()
        files = {url.split("#")[0] for url in self.page.requests if url.startswith("file:")}
        self.assertLessEqual(files, {(FOLDER / f"{kind}.html").as_uri() for kind in (*KINDS, "empty")})   # pages alone

    def open(self, kind, fragment=""):
        self.page.open("about:blank")
        self.page.open(page_of(kind) + fragment)
        self.page.wait("document.querySelector('#status').textContent.includes('kernels')")
        self.page.frames(3)

    def text(self, selector):
        return self.page.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def tab(self, name):
        self.page.run(f"document.getElementById('tab-{name}').click()")
        self.page.frames(3)
        if name == "heat":   # a worker counts
            self.page.wait("/in a cell|nothing/.test(document.getElementById('heat-legend').textContent)", 20)
            self.page.frames(3)

    def filter(self, text):
        self.page.run("(() => { const box = document.getElementById('filter'); box.focus(); box.select(); })()")
        if text:
            self.page.type(text)
        else:
            self.page.run("(() => { const box = document.getElementById('filter'); box.value = ''; "
                          "box.dispatchEvent(new Event('input')); })()")
        self.page.run("new Promise(done => setTimeout(done, 200))")
        self.page.frames(3)

    def kernels(self):
        return int(self.page.run(r"document.querySelector('#status').textContent.replace(/\u202f/g, '').match(/(\d+) "
                                 r"kernels/)[1]"))

    def picture(self, name):
        if PICTURES:
            PICTURES.mkdir(parents=True, exist_ok=True)
            self.page.picture(PICTURES / f"{name}.png")


def main():
    if not browser.find():
        print("no Chromium (scripts/setup --chromium): skipped")
        sys.exit(77)
    unittest.main()
