#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the analyses of tinfer trace say of traces whose answers are known beforehand: written here with chosen times,
bytes and faults, and reckoned once more by the definitions of docs/tracing.md alone.

usage: questions_test.py path/to/tinfer [unittest arguments]
"""
import csv
import hashlib
import io
import json
import pathlib
import struct
import sys
import unittest

from cli_support import FOLDER, tinfer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import synthetic_trace as synthetic
from trace_writer import EVENT, EVENTS, PLAN, RANGE, RUN, SPAN

PAGES = 11
SMALL = synthetic.Shape("Small", 3, 256, 512, 4, 2, 512, tied=True)
MIXED = synthetic.Shape("Mixed", 5, 256, 256, 4, 4, 512, experts=32, used=4)


def saved(name, data):
    path = FOLDER / name
    path.write_bytes(data)
    return path


def ask(verb, path, *args):
    return json.loads(tinfer("trace", verb, path, *args, "--json"))


def blocks(data, at=128):
    while at + 56 <= len(data):
        kind, size = struct.unpack_from("<H2xI", data, at + 4)
        yield kind, data[at + 56:at + 56 + size]
        at += 56 + (size + 7) // 8 * 8


def events_of(data):
    """[(run, begin, duration, step, status, ranges, spans)]"""
    for kind, body in blocks(data):
        if kind != EVENTS:
            continue
        run, _, n, n_ranges, threads = struct.unpack_from("<QQIII", body)
        ranges = [body[40 + 32 * n + 40 * i:][:40] for i in range(n_ranges)]
        spans = [SPAN.unpack_from(body, 40 + 32 * n + 40 * n_ranges + 16 * i) for i in range(n * threads)]
        for i in range(n):
            begin, duration, step, first, count, status, _, _ = EVENT.unpack_from(body, 40 + 32 * i)
            yield run, begin, duration, step, status, ranges[first:first + count], spans[i * threads:(i + 1) * threads]


class Reuse(unittest.TestCase):
    """Of random accesses, counted anew for every touch: quadratic, and sure."""
    PATH = None

    @classmethod
    def setUpClass(cls):
        cls.PATH = saved("random.tntrace", synthetic.dense(MIXED, 3, 5, threads=1, level=1))
        text = tinfer("trace", "export", cls.PATH, "--format", "cachesim").decode()
        cls.touches = [(row["object"], int(row["size"])) for row in csv.DictReader(io.StringIO(text))]
        cls.sizes = dict(cls.touches)

    def distances(self):
        last, out = {}, []
        for i, (unit, _) in enumerate(self.touches):
            if unit in last:
                between = {u for u, _ in self.touches[last[unit] + 1:i]} - {unit}
                out.append(sum(self.sizes[u] for u in between))
            last[unit] = i
        return out

    def test_distances(self):
        told = ask("reuse", self.PATH, "--class", "weight")
        distances = sorted(self.distances())
        self.assertGreater(len(set(distances)), 100)
        self.assertEqual(told["touches"], len(self.touches))
        self.assertEqual(told["cold_touches"], len(self.sizes))
        self.assertEqual(told["cold_bytes"], sum(self.sizes.values()))
        for line in told["histogram"]:
            self.assertEqual(line["touches"], sum(line["from"] <= d < line["below"] for d in distances))
        self.assertEqual(sum(line["touches"] for line in told["histogram"]), len(distances))
        for name, value in told["quantiles"].items():
            self.assertIn(value, distances)
            below = sum(d < value for d in distances) / len(distances)
            upto = sum(d <= value for d in distances) / len(distances)
            self.assertLessEqual(below, float(name[1:]) / 100 + 1 / len(distances))
            self.assertGreaterEqual(upto, float(name[1:]) / 100 - 1 / len(distances))

    def missed(self, capacity, policy):
        """A cache of whole units: one that is larger than it is read past it."""
        held, missed = [], 0
        coming = {}
        for i, (unit, _) in enumerate(self.touches):
            coming.setdefault(unit, []).append(i)
        for i, (unit, size) in enumerate(self.touches):
            coming[unit].pop(0)
            if unit in held:
                if policy in ("lru", "mru"):
                    held.remove(unit)
                    held.append(unit)
                continue
            missed += size
            if size > capacity:
                continue
            while sum(self.sizes[u] for u in held) + size > capacity:
                if policy == "mru":
                    held.pop()
                else:
                    held.pop(0)
            held.append(unit)
        return missed

    def test_caches(self):
        total = sum(self.sizes.values())
        for share in (0.1, 0.5, 0.9):
            capacity = int(total * share)
            told = ask("reuse", self.PATH, "--class", "weight", "--cache", capacity, "--policy", "lru,mru,fifo,opt")
            missed = {line["policy"]: line["missed"] for line in told["caches"]}
            for policy in ("lru", "mru", "fifo"):
                self.assertEqual(missed[policy], self.missed(capacity, policy), (share, policy))
            self.assertLessEqual(missed["opt"], min(missed.values()))
            self.assertGreaterEqual(missed["opt"], total)


class Cold(unittest.TestCase):
    """Every event takes 100 µs; what is added to some is known by cause."""

    def trace(self):
        session = synthetic.Session(SMALL, threads=1, level=1)
        extra, pages = {}, []
        session.duration = lambda plan, step, _: 100_000 + extra.get((session.run_number, step), 0)
        plans = {n: session.plan(n) for n in (1, 4)}

        def weighs(plan, step):
            first, count = plan.steps[step][7], plan.steps[step][6]
            return next((o for o in range(count) if plan.operands[first + o][0] < 1 << 31), None)

        first_event, n_events = 0, len(plans[4].steps)
        # Run 0: layer 0 waits for the storage, 1 ms each; layer 1 is as large and warm. The embedding is like no other.
        for step, record in enumerate(plans[4].steps):
            if record[2] == 0 and weighs(plans[4], step) is not None:
                extra[0, step] = 1_000_000
                pages.append((first_event + step, weighs(plans[4], step), 0, 4096, 10, 2, 0, 0))
        extra[0, 0] = 5_000_000
        pages.append((first_event, 1, 0, 4096, 10, 0, 0, 3))
        first_event += n_events
        # Run 1: four faults on pages that were there, 50 µs each. Run 2 is warm. Run 3: four of both, and 2 ms.
        step = next(s for s in range(len(plans[1].steps)) if weighs(plans[1], s) is not None)
        extra[1, step], extra[3, step] = 200_000, 2_000_000
        one = len(plans[1].steps)
        pages.append((first_event + step, weighs(plans[1], step), 0, 4096, 10, 10, 4, 0))
        pages.append((first_event + 2 * one + step, weighs(plans[1], step), 0, 4096, 10, 6, 4, 4))
        self.n_cold = sum(run == 0 for run, _ in extra) - 1
        for n in (4, 1, 1, 1):
            session.run(n)
        session.trace.block(PAGES, b"".join(struct.pack("<QHHIIIII", *p) for p in sorted(pages)), len(pages), 32)
        return session.trace.close()

    def test_storage_and_faults_are_told_apart(self):
        runs = ask("cold", saved("cold.tntrace", self.trace()))["runs"]
        self.assertEqual(len(runs), 4)
        storage = [0.0, 0.0, 0.0, 2.0 - 0.2]
        faults = [0.0, 0.2, 0.0, 0.2]
        storage[0] = 1.0 * self.n_cold
        for run, in_storage, in_faults in zip(runs, storage, faults):
            self.assertAlmostEqual(run["storage"], in_storage, 9)
            self.assertAlmostEqual(run["page_faults"], in_faults, 9)
            self.assertAlmostEqual(run["storage"] + run["page_faults"] + run["kernels"], run["wall"], 9)
        self.assertGreater(self.n_cold, 4)
        self.assertAlmostEqual(runs[0]["of_them_unknown"], 5.1, 9)   # the embedding: said, and counted as kernels
        self.assertEqual([run["of_them_unknown"] for run in runs[1:]], [0, 0, 0])
        self.assertEqual(runs[3]["not_resident"], 4 * 4096)


class Sums(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data = synthetic.dense(SMALL, 4, 6, threads=3)
        cls.path = saved("sums.tntrace", cls.data)

    def test_threads(self):
        groups = ask("stats", self.path, "--by", "thread")["groups"]
        busy, wait, uneven = [0] * 3, [0] * 3, 0
        for _, _, duration, _, _, _, spans in events_of(self.data):
            for t, span in enumerate(spans):
                busy[t] += span[1]
                wait[t] += duration - span[1]
            uneven += sum(duration - span[1] for span in spans) > 0.2 * 3 * duration
        self.assertEqual(len(groups), 3)
        for group in groups:
            t = int(group["thread"])
            self.assertAlmostEqual(group["busy"], busy[t] / 1e6, 6)
            self.assertAlmostEqual(group["wait"], wait[t] / 1e6, 6)
        self.assertEqual(ask("stats", self.path, "--by", "thread")["steps_with_over_20_percent_wait"], uneven)

    def test_the_cache_grows_by_a_row_a_token(self):
        # 2 heads of 64 values of K or V in F16 are a row; n tokens in it are n rows of every layer.
        rows = {}
        for run in range(7):
            for group in ask("stats", self.path, "--by", "role", "--class", "kv", "--run", str(run))["groups"]:
                rows[run, group["role"]] = group["read"], group["written"]
        row = rows[1, "cache_k"][1] // SMALL.layers
        self.assertGreater(row, 0)
        for role in ("cache_k", "cache_v"):
            self.assertEqual(rows[0, role], (SMALL.layers * 4 * row, SMALL.layers * 4 * row))
            for run in range(1, 7):
                self.assertEqual(rows[run, role], (SMALL.layers * (4 + run) * row, SMALL.layers * row))

    def test_requests_and_when_they_are_needed(self):
        lead = ask("io", self.path, "--lead", "--phase", "decode", "--limit", "0")
        self.assertEqual(sum(r["length"] for r in lead["requests_list"]), lead["bytes"])
        begin, read, rate = lead["requests_list"][0]["time"], 0, 0.0
        for request in lead["requests_list"]:
            read += request["length"]
            self.assertEqual(request["cumulative"], read)
            if request["time"] > begin:
                rate = max(rate, read / (request["time"] - begin) / 1e6)
        self.assertAlmostEqual(lead["needed_gbps"] / rate, 1, 6)
        # From the end of the event before, or from the begin of the run.
        ends = {}
        for kind, body in blocks(self.data):
            if kind == RUN:
                run, begin = struct.unpack_from("<QQ", body)
                ends[run] = [begin]
        for run, begin, duration, *_ in events_of(self.data):
            ends[run].append(begin + duration)
        for request in lead["requests_list"]:
            time = round(request["time"] * 1e6)
            before = max(end for end in ends[request["run"]] if end <= time)
            self.assertAlmostEqual(request["lead"], (time - before) / 1e6, 6)

    def test_the_hash_of_contents_by_its_definition(self):
        runs, plans, events = {}, {}, {}
        for kind, body in blocks(self.data):
            if kind == PLAN:
                plans[struct.unpack_from("<I", body)[0]] = body[32:48]
            elif kind == RUN:
                number, _, _, _, phase, _, plan, _, _, n = struct.unpack_from("<QQIHBBIHHI", body)
                tokens = [struct.unpack_from("<iiII", body, 64 + 16 * i) for i in range(n)]
                runs[number] = phase, tokens, plan
        for run, _, _, step, status, ranges, _ in events_of(self.data):
            events.setdefault(run, []).append((step, status, ranges))
        has_ids = self.data[20] & 2 != 0
        digest = hashlib.sha256(bytes([has_ids]))
        for number in sorted(runs):
            phase, tokens, plan = runs[number]
            digest.update(struct.pack("<BI", phase, len(tokens)))
            for token, position, _, _ in tokens:
                digest.update(struct.pack("<i", position) + (struct.pack("<i", token) if has_ids else b""))
            digest.update(plans[plan])
            for step, status, ranges in events[number]:
                digest.update(struct.pack("<IBI", step, status, len(ranges)) + b"".join(ranges))
        self.assertEqual(tinfer("trace", "hash", self.path).decode().split()[0], digest.hexdigest())

    def test_ranges_that_events_share_are_ranges(self):
        """The same trace whose lists of ranges are written once says the same in every respect."""
        shared = bytearray()
        out = synthetic.Session(SMALL, threads=3)
        block = out.trace.block

        def share(kind, payload, count, *rest):
            if kind == EVENTS:
                run, first, n, n_ranges, threads = struct.unpack_from("<QQIII", payload)
                known, kept, events = {}, b"", b""
                for i in range(n):
                    record = list(EVENT.unpack_from(payload, 40 + 32 * i))
                    own = payload[40 + 32 * n + 40 * record[3]:][:40 * record[4]]
                    if own not in known:
                        known[own] = len(kept) // 40
                        kept += own
                    record[3] = known[own] if record[4] else 0
                    events += EVENT.pack(*record)
                shared.append(len(kept) // 40 < n_ranges)
                payload = (struct.pack("<QQIII", run, first, n, len(kept) // 40, threads) + payload[28:40] + events +
                           kept + payload[40 + 32 * n + 40 * n_ranges:])
            return block(kind, payload, count, *rest)

        out.trace.block = share
        out.run(4)
        for i in range(6):
            if i == 3:
                out.trace.mark(out.time, "half way")
            out.run(1)
        path = saved("shared.tntrace", out.trace.close())
        self.assertTrue(all(shared))
        for verb, *options in (["show", "--json"], ["stats", "--json"], ["layers", "--json"], ["tensors", "--json"],
                               ["reuse", "--json"], ["io", "--json"], ["hash"], ["validate"],
                               ["export", "--format", "csv"], ["export", "--format", "flat128"]):
            one, other = (tinfer("trace", verb, p, *options, code=int(verb == "validate")) for p in (self.path, path))
            self.assertEqual(one.replace(b"sums.tntrace", b"shared.tntrace"), other, verb)
        for name, source in (("cut-a", self.path), ("cut-b", path)):
            tinfer("trace", "cut", source, "--run", "2-4", "--layer", "0-1", "-o", FOLDER / name)
        self.assertEqual(*(tinfer("trace", "export", FOLDER / name, "--format", "csv") for name in ("cut-a", "cut-b")))
        self.assertLess((FOLDER / "cut-b").stat().st_size, (FOLDER / "cut-a").stat().st_size)


class Hostile(unittest.TestCase):
    """What a file may say that no run does: refused or answered soon, in little memory."""

    def crafted(self, name, change):
        session = synthetic.Session(SMALL, threads=1, level=1)
        block = session.trace.block
        session.trace.block = lambda kind, payload, *rest: block(
            kind, change(bytes(payload)) if kind == EVENTS else payload, *rest)
        session.run(1)
        return saved(name, session.trace.close())

    def test_ranges_without_number(self):
        def change(payload):
            run, first, n, n_ranges = struct.unpack_from("<QQII", payload)
            payload = bytearray(payload)
            for i in range(n_ranges):
                struct.pack_into("<QQQI", payload, 40 + 32 * n + 40 * i + 8, 0, 1, 1, 0xFFFFFFFF)
            return bytes(payload)

        path = self.crafted("pieces.tntrace", change)
        for verb, *options in (["io"], ["reuse"], ["cold"],
                               ["stats", "--window", "2"], ["export", "--format", "flat128"]):
            tinfer("trace", verb, path, *options, code=1)
            self.assertIn("do not lie in its", tinfer.stderr)
        self.assertIn(b"FAIL", tinfer("trace", "validate", path, code=1))

    def test_one_long_list_for_all_events(self):
        def change(payload):
            run, first, n, n_ranges, threads = struct.unpack_from("<QQIII", payload)
            events = [list(EVENT.unpack_from(payload, 40 + 32 * i)) for i in range(n)]
            event = next(e for e in events if e[4])
            piece = payload[40 + 32 * n + 40 * event[3]:][:40]
            event[3:5] = 0, 60000
            return (struct.pack("<QQIII", run, first, 1000, 60000, 0) + payload[28:40] + EVENT.pack(*event) * 1000 +
                    piece * 60000)

        path = self.crafted("shared-list.tntrace", change)
        self.assertIn("more shared ranges", tinfer("trace", "validate", path, code=1).decode())
        self.assertEqual(ask("stats", path, "--allow-damage")["events"], 0)


if __name__ == "__main__":
    unittest.main()
