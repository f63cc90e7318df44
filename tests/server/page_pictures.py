#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Takes the pictures of the server's page in docs/pictures: look at them after a change.

usage: pictures.py path/to/tinfer MODEL FOLDER
With the package pillow installed they are stored in few colours, at a third of the size.
"""
import json
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "viewer"))
import browser
from pictures import shrink  # of the viewer

QUESTION = "Write a list of three things that a small language model is good for, and one line of Python."
SETUP = "Object.assign(setup, emptySetup, {settings: {max_tokens: 110, temperature: 0}, seed: '1'}); drawSettings()"


def picture(page, path, width, height, dark=False, touch=False):
    page.dark(dark)
    page.size(width, height, touch=touch)
    page.frames(8)
    page.picture(path)
    shrink(path)


def main(tinfer, model, folder):
    folder = pathlib.Path(folder)
    server = subprocess.Popen([tinfer, "serve", model, "--port", "0", "-c", "2048", "--receipts"],
                              stdout=subprocess.PIPE)
    try:
        with browser.Page(1400, 900) as page:
            page.open(json.loads(server.stdout.readline())["address"])
            page.wait("server.model && markdown.isLoaded")
            page.run(SETUP)
            page.run("setup.scores = true; input.value = %s; at('form').requestSubmit()" % json.dumps(QUESTION))
            page.wait("!talk.abort && shown().length === 2", timeout=300)
            page.run("showSide('talks-panel', true); shown()[1].showsBytes = true; "
                     "touch(shown()[1]); draw(true)")
            picture(page, folder / "chat-bytes.png", 1400, 900)
            page.run("Object.assign(shown()[1], {showsBytes: false, showsScores: true}); touch(shown()[1]); "
                     "showSide('talks-panel', false); draw(true)")
            page.size(800, 760)
            page.run("document.querySelectorAll('.token')[9].focus()")
            picture(page, folder / "chat-probabilities.png", 800, 760, dark=True)
            page.run("hideToken(); shown()[1].showsScores = false; touch(shown()[1]); draw(true)")
            picture(page, folder / "chat-phone.png", 390, 844, touch=True)
            if page.errors:
                sys.exit("\n".join(page.errors))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
