#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws which weights of a model a trace has seen being read: layers by matrices, as SVG. With --kernel only what
kernels of that name read, which is what a hook in that one function would have seen.

usage: draw_layers.py path/to/tinfer trace.tntrace picture.svg [--kernel GLOB] [--title TEXT]
The pictures docs/pictures/trace-layers-hook.svg and trace-layers-all.svg are of a Q4_K_M file of TinyLlama's shape
(generate_model --shape 1.1b); --kernel '*q6_k*' makes the first one.
"""
import argparse
import csv
import fnmatch
import html
import io
import math
import subprocess

ORDER = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
CELL, GAP, LEFT, TOP = 22, 2, 92, 112
STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #1f2933 }
    .big { font-size: 15px; font-weight: 600 } .dim { fill: #5b6773 }
    .blank { fill: none; stroke: #b4bcc6; stroke-dasharray: 2 3 } .read { fill: #1f6fb2 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e7eb } .dim { fill: #9aa5b1 } .blank { stroke: #52606d } .read { fill: #4aa3df }
    }
"""


def command(*args):
    return subprocess.run(list(map(str, args)), check=True, stdout=subprocess.PIPE, text=True).stdout


def weights_of(tinfer, trace):
    """{(layer, role)} of every weight that the file has; layer -1: of none."""
    rows = csv.DictReader(io.StringIO(command(tinfer, "trace", "tensors", trace, "--limit", "0", "--csv")))
    return {place(row["tensor"]) for row in rows if row["class"] == "weight"}


def place(tensor):
    parts = tensor.split(".")
    return (int(parts[1]), parts[2]) if parts[0] == "blk" else (-1, parts[0])


def seen(tinfer, trace, kernel):
    """Bytes read of each weight in one decoded token, by kernels of this name."""
    table = command(tinfer, "trace", "export", trace, "--format", "csv", "--phase", "decode")
    rows = list(csv.DictReader(io.StringIO(table)))
    first = min(int(row["run"]) for row in rows)
    found = {}
    for row in rows:
        if int(row["run"]) != first or row["mode"] == "write" or not fnmatch.fnmatchcase(row["kernel"], kernel):
            continue
        if row["file_offset"]:
            where = place(row["tensor"])
            found[where] = found.get(where, 0) + int(row["length"]) * int(row["count"])
    return found


def draw(all_weights, found, title):
    layers = sorted({layer for layer, _ in all_weights if layer >= 0})
    roles = {role for layer, role in all_weights if layer >= 0}
    columns = [role for role in ORDER if role in roles] + sorted(roles - set(ORDER))
    others = sorted(role for layer, role in all_weights if layer < 0)
    step = CELL + GAP
    width, height = LEFT + step * len(columns) + 150, TOP + step * len(layers) + 46
    matrices = {role for layer, role in found if layer >= 0 and not role.endswith("norm")}
    n_layers, of = len({layer for layer, _ in found if layer >= 0}), sum(1 for r in columns if not r.endswith("norm"))
    summary = (f"{n_layers} of {len(layers)} layers, {len(matrices)} of {of} matrices; "
               f"{len(found)} of {len(all_weights)} tensors")
    top = max([*found.values(), 1])
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" height="{height}" role="img">',
           f"<title>{html.escape(title)}: {summary}</title><style>{STYLE}</style>",
           f'<text class="big" x="8" y="20">{html.escape(title)}</text><text class="dim" x="8" y="38">{summary}</text>']

    def cell(x, y, where):
        if where not in all_weights:
            return
        n = found.get(where, 0)
        shade = f'class="read" fill-opacity="{0.25 + 0.75 * math.sqrt(n / top):.2f}"' if n else 'class="blank"'
        label = f"{'.'.join(['blk', str(where[0])]) + '.' if where[0] >= 0 else ''}{where[1]}: {n} bytes"
        out.append(f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="2" {shade}>'
                   f"<title>{html.escape(label)}</title></rect>")

    for i, role in enumerate(columns):
        x = LEFT + step * i + CELL // 2 + 4
        out.append(f'<text transform="translate({x} {TOP - 6}) rotate(-38)">{html.escape(role)}</text>')
    for j, layer in enumerate(layers):
        y = TOP + step * j
        out.append(f'<text class="dim" x="{LEFT - 10}" y="{y + 15}" text-anchor="end">layer {layer}</text>')
        for i, role in enumerate(columns):
            cell(LEFT + step * i, y, (layer, role))
    for j, role in enumerate(others):
        x, y = LEFT + step * len(columns) + 22, TOP + step * j
        cell(x, y, (-1, role))
        out.append(f'<text x="{x + CELL + 6}" y="{y + 15}">{html.escape(role)}</text>')
    y = height - 24
    out.append(f'<rect x="{LEFT}" y="{y}" width="14" height="14" rx="2" class="read"/>'
               f'<text x="{LEFT + 20}" y="{y + 12}">read, darker: more bytes</text>')
    out.append(f'<rect x="{LEFT + 190}" y="{y}" width="14" height="14" rx="2" class="blank"/>'
               f'<text x="{LEFT + 210}" y="{y + 12}">not seen</text></svg>')
    return "\n".join(out) + "\n", summary


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tinfer")
    parser.add_argument("trace")
    parser.add_argument("picture")
    parser.add_argument("--kernel", default="*")
    parser.add_argument("--title", default="What one token read")
    args = parser.parse_args()
    picture, summary = draw(weights_of(args.tinfer, args.trace), seen(args.tinfer, args.trace, args.kernel), args.title)
    with open(args.picture, "w", encoding="utf-8") as out:
        out.write(picture)
    print(summary)


if __name__ == "__main__":
    main()
