#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Takes pictures of every tab of a page that `tinfer trace view` wrote.

usage: pictures.py page.html FOLDER [tab...] [--dark] [--view FROM-TO]     times in nanoseconds, for the timeline
Pictures have few colours; with the package pillow installed they are stored so, at a third of the size.
"""
import pathlib
import sys

sys.dont_write_bytecode = True
import browser

TABS = ["timeline", "heat", "layers", "tensors", "experts", "roofline", "graph"]


def shrink(path):
    try:
        from PIL import Image
    except ImportError:
        return
    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main(arguments):
    dark = "--dark" in arguments
    view = arguments.pop(arguments.index("--view") + 1) if "--view" in arguments else None
    page_path, folder, *tabs = [a for a in arguments if not a.startswith("--")]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with browser.Page(1280, 760, dark) as page:
        page.open(pathlib.Path(page_path).resolve().as_uri())
        page.wait("document.querySelector('#status').textContent.includes('kernels')")
        for tab in tabs or TABS:
            if tab == "timeline" and view:
                page.run(f"location.hash = '#tab=timeline&view={view}'")
            page.run(f"document.getElementById('tab-{tab}').click()")
            page.frames(5)
            if tab == "heat":
                page.wait("document.getElementById('heat-legend').textContent")
                page.frames(3)
            path = folder / f"trace-{tab}.png"
            page.picture(path)
            shrink(path)
        if page.errors:
            sys.exit("\n".join(page.errors))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1:])
