#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts the parts of the viewer together into one page, and the page into a C++ source for `tinfer trace view`.

usage: assemble.py out.html [out.cpp]
Only the standard library; refuses a page that names another address, or is larger than 220 KB.
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = ["decode.js", "model.js", "lod.js", "filter.js", "app_state.js", "draw_timeline.js", "draw_heat.js", "draw_layers.js",
           "draw_tensors.js", "draw_experts.js", "draw_roofline.js", "draw_graph.js", "details.js", "app.js"]
LIMIT = 220 * 1024


def read(name):
    return (HERE / name).read_text(encoding="utf-8")


def script():
    return "\n".join(read(name) for name in SCRIPTS)


def page():
    """The page with @info@ and @data@ still in it."""
    text = read("page.html").replace("@style@", read("style.css")).replace("@script@", script())
    address = re.search(r"https?:|url\(|@import|\bsrc\s*=\s*[\"']?//", text)
    if address:
        sys.exit(f"assemble.py: the page names something outside of it: {address.group()}")
    if len(text.encode()) > LIMIT:
        sys.exit(f"assemble.py: the page has {len(text.encode())} bytes, more than {LIMIT}")
    if text.count("@info@") != 1 or text.count("@data@") != 1:
        sys.exit("assemble.py: the page needs @info@ and @data@ once each")
    return text


def literals(text):
    """As raw strings, short enough for every compiler."""
    lines, size = [[]], 0
    for line in text.splitlines(keepends=True):
        if size + len(line.encode()) > 12000:
            lines.append([])
            size = 0
        lines[-1].append(line)
        size += len(line.encode())
    return ",\n".join('    R"~~view~~(' + "".join(part) + ')~~view~~"' for part in lines)


def cpp(text):
    before, rest = text.split("@info@")
    between, after = rest.split("@data@")
    return f"""// SPDX-License-Identifier: MIT
// Made by assemble.py from the parts of the viewer.
#include "view_page.hpp"

namespace cli {{

namespace {{
constexpr std::string_view kBefore[] = {{
{literals(before)}}};
constexpr std::string_view kBetween[] = {{
{literals(between)}}};
constexpr std::string_view kAfter[] = {{
{literals(after)}}};
}}  // namespace

ViewPage view_page() {{ return {{kBefore, kBetween, kAfter}}; }}

}}  // namespace cli
"""


def write(path, text):
    path = pathlib.Path(path)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    whole = page()
    write(sys.argv[1], whole.replace("@info@", "").replace("@data@", ""))
    if len(sys.argv) == 3:
        write(sys.argv[2], cpp(whole))
