#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page that `tinfer trace view` writes, without a browser: nothing in it leaves it, hostile names are escaped, and
what is packed in it, unpacked here by the description in apps/tinfer/trace/view.hpp, is the trace. First argument: the
program. """
import base64
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

TINFER = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import synthetic_trace as synthetic
from trace_writer import EVENT, EVENTS, RANGE, SPAN

WORK = tempfile.TemporaryDirectory(prefix="tinfer-view-")
FOLDER = pathlib.Path(WORK.name)


def view(data, *options, name="t.tntrace", code=0):
    """(page, what stands on stderr) for the bytes of a trace, or for none."""
    out = FOLDER / "page.html"
    command = [TINFER, "trace", "view", *options, "-o", out]
    if data is not None:
        (FOLDER / name).write_bytes(data)
        command.insert(3, FOLDER / name)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != code:
        raise AssertionError(f"exit {done.returncode}: {done.stderr}")
    return (out.read_text(encoding="utf-8") if code in (0, 3) else ""), done.stderr


def embedded(page):
    """(the JSON block, the bytes)"""
    info = re.search(r'<script type="application/json" id="view-info">([^<]*)</script>', page).group(1)
    data = re.search(r'<script type="application/octet-stream" id="view-data">([^<]*)</script>', page).group(1)
    return (json.loads(info) if info else None), base64.b64decode(data, validate=True)


def blocks(data, at=128):
    while at + 56 <= len(data):
        kind, size = struct.unpack_from("<H2xI", data, at + 4)
        yield kind, data[at + 56:at + 56 + size]
        at += 56 + (size + 7) // 8 * 8


def file_events(data):
    """[(run, events as tuples with their ranges and spans)] from EVENTS blocks."""
    out = []
    for kind, body in blocks(data):
        if kind != EVENTS:
            continue
        run, _, n, n_ranges, threads = struct.unpack_from("<QQIII", body)
        ranges = [RANGE.unpack_from(body, 40 + 32 * n + 40 * i) for i in range(n_ranges)]
        spans = [SPAN.unpack_from(body, 40 + 32 * n + 40 * n_ranges + 16 * i) for i in range(n * threads)]
        events = []
        for i in range(n):
            begin, duration, step, first, count, status, flags, size = EVENT.unpack_from(body, 40 + 32 * i)
            events.append((begin, duration, step, status | flags << 8, size, ranges[first:first + count],
                           spans[i * threads:(i + 1) * threads]))
        out.append((run, events))
    return out


def packed_events(data):
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(value=None):
        value = number() if value is None else value
        return value >> 1 ^ -(value & 1)

    out, end, sizes, places, ranges, work, begins, cpus = [], 0, {}, {}, [], {}, {}, {}
    while at < len(data):
        run, n, threads, n_ranges = number(), number(), number(), number()
        ranges += [[0] * 8 for _ in range(n_ranges - len(ranges))]
        for fields in ranges[:n_ranges]:
            mask = data[at]
            at += 1
            for bit in range(8):
                if mask >> bit & 1:
                    fields[bit] += signed()
        events, step, furthest, growth = [], -1, 0, {}
        for _ in range(n):
            control = number()
            begin = end + (signed() if control & 8 else 0)
            duration = number()
            end = begin + duration
            step += 1 + (signed() if control & 4 else 0)
            status = number() if control & 2 else 0
            if control & 16:
                count = number()
                places[step] = (furthest + signed() if count else 0, count)
            first, count = places.get(step, (0, 0))
            grown = (growth.get(first, 0) if count else 0) + (0 if not control & 1 else signed())
            if count:
                growth[first] = grown
            sizes[step] = sizes.get(step, 0) + grown
            furthest = max(furthest, first + count)
            spans = []
            for t in range(threads):
                head = number()
                begins[t] = begins.get(t, 0) + signed(head >> 2)
                busy, flags = duration - begins[t] - signed(), 0
                if head & 1:
                    work[step, t] = work.get((step, t), 0) + signed()
                if head & 2:
                    cpus[t], flags = number(), number()
                spans.append((begins[t], busy, work.get((step, t), 0), cpus.get(t, 0), flags))
            own = [tuple(fields) for fields in ranges[first:first + count]]
            events.append((begin, duration, step, status, sizes[step], own, spans))
        out.append((run, events))
    return out


class Page(unittest.TestCase):
    def check(self, data):
        page, _ = view(data)
        info, inside = embedded(page)
        self.assertEqual(packed_events(inside[info["skeleton"]:]), file_events(data))
        self.assertEqual([b for b in blocks(inside[:info["skeleton"]])], [b for b in blocks(data) if b[0] != EVENTS])
        self.assertEqual(inside[:128], data[:128])
        self.assertEqual(info["problems"], [])
        return info, inside

    def test_dense(self):
        info, inside = self.check(synthetic.dense(synthetic.SMOLLM2, 8, 40))
        self.assertLessEqual((len(inside) - info["skeleton"]) / info["events"], 12)   # bytes, two threads among them

    def test_experts(self):
        self.check(synthetic.dense(synthetic.MIXTURE, 4, 6, threads=3))

    def test_without_threads(self):
        info, inside = self.check(synthetic.dense(synthetic.SMOLLM2, 8, 20, level=1))
        self.assertEqual(info["spans"], 0)
        self.assertLessEqual((len(inside) - info["skeleton"]) / info["events"], 8)

    def test_example_without_events(self):
        info, _ = self.check(synthetic.worked_example())
        self.assertEqual(info["events"], 0)

    def test_hostile_names(self):
        page, _ = view(synthetic.hostile(), name="<b>&\"'.tntrace")
        plain, _ = view(synthetic.dense(synthetic.SMOLLM2, 1, 1))
        self.assertEqual(len(re.findall("<", page)), len(re.findall("<", plain)))   # none came from the trace
        self.assertEqual(embedded(page)[0]["file"], "<b>&\"'.tntrace")

    def test_nothing_leaves_the_page(self):
        page, _ = view(None)
        self.assertIn("default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
                      "worker-src blob:", " ".join(page.split()))
        # Pictures that are saved have their own bytes, point into themselves, and name the language they are in.
        local = page
        for own in ("href=\"${image.toDataURL('image/png')}\"", "image.src = `data:", "url(#",
                    "http://www.w3.org/2000/svg"):
            local = local.replace(own, "")
        self.assertIsNone(re.search(r"https?:|@import|url\(|\bsrc\s*=|(?:href|action)\s*=\s*[\"'](?!data:,)", local))
        for word in ("fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "importScripts", "innerHTML",
                     "insertAdjacentHTML", "document.write", "eval("):
            self.assertNotIn(word, page)
        self.assertLess(len(page.encode()), 230_000)   # with comparing, zooming and saving pictures
        self.assertEqual(embedded(page), (None, b""))

    def test_thinned(self):
        data = synthetic.dense(synthetic.SMOLLM2, 4, 9)
        whole = file_events(data)
        per_run = len(whole[0][1])
        info, inside = embedded(view(data, "--max-events", str(4 * per_run))[0])
        self.assertEqual(packed_events(inside[info["skeleton"]:]), [whole[0], whole[1], whole[8], whole[9]])
        self.assertIn(f"thinned: {4 * per_run} of {10 * per_run} events", info["thinned"])
        info, inside = embedded(view(data, "--max-events", "1000", "--detail", "3-5")[0])
        self.assertEqual(packed_events(inside[info["skeleton"]:]), whole[3:6])

    def test_damage_is_said(self):
        data = bytearray(synthetic.dense(synthetic.SMOLLM2, 2, 3))
        at, sizes = 128, []
        while at + 56 <= len(data):
            kind, size = struct.unpack_from("<H2xI", data, at + 4)
            sizes.append((kind, at))
            at += 56 + (size + 7) // 8 * 8
        second = [at for kind, at in sizes if kind == EVENTS][1]
        end = next(at for _, at in sizes if at > second)
        data[second + 56 + 100] ^= 1
        info, inside = embedded(view(bytes(data), code=3)[0])
        self.assertEqual(info["problems"], [f"skipped bytes {second} to {end}: a events block whose checksum is wrong"])
        self.assertEqual([run for run, _ in packed_events(inside[info["skeleton"]:])], [0, 2, 3])
        data[second] ^= 1
        info, _ = embedded(view(bytes(data), code=3)[0])
        self.assertEqual(info["problems"],
                         [f"skipped bytes {second} to {end}: no block header"])
        info, _ = embedded(view(bytes(data[:second + 200]), code=3)[0])
        self.assertEqual(len(info["problems"]), 1)

    def test_refused(self):
        for data, message in ((b"GGUF" + bytes(300), "no trace"),
                              (b"TNFTRACE\2\0\0\0" + synthetic.worked_example()[12:], "version 2.0 not supported"),
                              (synthetic.worked_example()[:40] + b"x" + synthetic.worked_example()[41:],
                               "header is damaged")):
            code = subprocess.run([TINFER, "trace", "view", self.put(data), "-o", FOLDER / "no.html"],
                                  capture_output=True, text=True)
            self.assertEqual(code.returncode, 2)
            self.assertIn(message, code.stderr)
            self.assertFalse((FOLDER / "no.html").exists())

    def put(self, data):
        (FOLDER / "x.tntrace").write_bytes(data)
        return FOLDER / "x.tntrace"


if __name__ == "__main__":
    unittest.main()
