#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[P5] The documentation site, as scripts/site builds it without a warning: every public header, class and option has
its place, every link of every page leads somewhere, nothing is fetched when a page is read, and a browser shows the
first page in light and dark, wide and narrow, without an error.

usage: site_test.py tinfer_program
"""
import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

ROOT, PROGRAM = pathlib.Path(__file__).resolve().parents[2], pathlib.Path(sys.argv[1]).resolve()


class Page(html.parser.HTMLParser):
    """The ids and links of a page, and what a browser fetches for it."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.fetched = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.update(values[key] for key in ("id", "name") if values.get(key))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in ("script", "img", "iframe") and values.get("src"):
            self.fetched.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.fetched.append(values["href"])


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = PROGRAM.parent.parent / "site"
        done = subprocess.run([sys.executable, ROOT / "scripts/site", "--program", PROGRAM, "--output", folder],
                              capture_output=True, text=True)
        if done.returncode == 77:
            print("skipped:", done.stderr)
            sys.exit(77)
        assert done.returncode == 0, done.stderr
        cls.html = folder / "html"
        cls.pages = {path: Page(path) for path in sorted(cls.html.rglob("*.html")) if "_static" not in path.parts}

    def test_links_lead_somewhere(self):
        self.assertGreater(len(self.pages), 60)
        for path, page in self.pages.items():
            for link in page.links:
                url = urllib.parse.urlsplit(link)
                if url.scheme in ("http", "https", "mailto"):
                    continue
                target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
                with self.subTest(page=path.relative_to(self.html), link=link):
                    self.assertTrue(target.is_file())
                    if url.fragment and target in self.pages:
                        self.assertIn(urllib.parse.unquote(url.fragment), self.pages[target].ids | {""})

    def test_nothing_is_fetched_from_elsewhere(self):
        for path, page in self.pages.items():
            for link in page.fetched:
                self.assertFalse(urllib.parse.urlsplit(link).netloc, (path, link))

    def test_the_reference_is_whole(self):
        text = {path.relative_to(self.html).as_posix(): path.read_text(encoding="utf-8") for path in self.pages}
        parts = re.findall(r'#include "tinfer/(\w+)\.hpp"', (ROOT / "include/tinfer/tinfer.hpp").read_text())
        self.assertGreater(len(parts), 15)
        for part in parts:
            page = text[f"reference/cpp/{part}.html"]
            header = (ROOT / f"include/tinfer/{part}.hpp").read_text(encoding="utf-8")
            for name in re.findall(r"^(?:class|struct) (?:TINFER_API )?(\w+)[^;]*\{", header, re.M):
                self.assertIn(name, page, part)
        functions = re.findall(r"^TINFER_C_API .*?\b(tinfer_\w+)\(", (ROOT / "include/tinfer.h").read_text(), re.M)
        self.assertGreater(len(functions), 30)
        for name in functions:
            self.assertIn(name, text["reference/c.html"])
        for name in ("LLM", "Context", "Observer", "Engine"):
            self.assertIn(f"tinfer.{name}", text["reference/python/tinfer/index.html"])
        for option in ("--temp", "--grammar", "--prompt-cache"):
            self.assertIn(option, text["reference/program/run.html"])
        self.assertTrue((self.html / "searchindex.js").is_file())

    def test_a_browser_shows_it(self):
        if shutil.which("chromium") is None:
            self.skipTest("no chromium here")
        with tempfile.TemporaryDirectory() as folder:
            for width in (1400, 500):
                picture = pathlib.Path(folder) / f"{width}.png"
                shown = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu",
                                        "--enable-logging=stderr", f"--user-data-dir={folder}/profile",
                                        f"--window-size={width},900",
                                        f"--screenshot={picture}", f"file://{self.html}/index.html"],
                                       capture_output=True, text=True, timeout=120)
                self.assertGreater(picture.stat().st_size, 20_000)
                self.assertNotRegex(shown.stderr, r"CONSOLE.*(?:rror|Refused)")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
