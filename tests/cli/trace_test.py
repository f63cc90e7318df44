#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer trace: every verb on recordings of tiny models, against what can be counted without it.

usage: trace_test.py path/to/tinfer [unittest arguments]
"""
import collections
import csv
import functools
import io
import json
import pathlib
import re
import shutil
import struct
import subprocess
import unittest

from cli_support import FOLDER, MODEL, NO_EOG, make_model, record, tinfer, trace, trace_json

DENSE = str(FOLDER / "dense.tntrace")
MOE_MODEL = str(make_model("moe.gguf", 1, "moe"))
MOE = str(FOLDER / "moe.tntrace")


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def router_inputs(path):
    """(run, layer, row) of every token that a router saw."""
    data, at, out = path.read_bytes(), 8, []
    assert data[:8] == b"TNVALUE1"
    while at < len(data):
        run, _, layer, width, n, _, _, length, _ = struct.unpack_from("<QIi4qII", data, at)
        at += 56 + (length + 7) // 8 * 8
        values = struct.unpack_from(f"<{width * n}f", data, at)
        out += [(run, layer, values[i * width:(i + 1) * width]) for i in range(n)]
        at += (4 * width * n + 7) // 8 * 8
    return out


@functools.cache
def router_of(model, layer):
    """Its rows, one for each expert."""
    entry = next(r for r in rows(tinfer("inspect", model, "--csv").decode())
                 if r["name"] == f"blk.{layer}.ffn_gate_inp.weight")
    width, n = int(entry["ne0"]), int(entry["ne1"])
    values = struct.unpack_from(f"<{width * n}f", pathlib.Path(model).read_bytes(), int(entry["file_offset"]))
    return [values[i * width:(i + 1) * width] for i in range(n)]


def best(router, row, n):
    scores = [sum(w * x for w, x in zip(weights, row)) for weights in router]
    return set(sorted(range(len(scores)), key=lambda e: -scores[e])[:n])


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        record(DENSE, MODEL, "--level", "threads", "--overwrite", "--check")
        record(MOE, MOE_MODEL, "--extras", "router,value_hash", "--overwrite")


class Record(Recorded):
    def test_output_is_that_of_run(self):
        ours = json.loads(record(FOLDER / "x.tntrace", MODEL, "--json", "--seed", 1, "--overwrite"))
        plain = json.loads(tinfer("run", MODEL, "-p", "once on a time", "-n", 6, "--temp", 0, *NO_EOG, "--json",
                                  "--seed", 1))
        for key in ("text", "tokens", "stop", "seed"):
            self.assertEqual(ours[key], plain[key])

    def test_wrong_usage_and_files_that_are_there(self):
        record(DENSE, MODEL, code=1)
        self.assertIn("is there already", tinfer.stderr)
        tinfer("trace", "record", MODEL, "-p", "a", code=2)
        tinfer("trace", "stats", code=2)
        tinfer("trace", "stats", FOLDER / "absent", code=2)
        tinfer("trace", "stats", MODEL, code=2)
        tinfer("trace", "nothing", code=2)
        tinfer("trace", "stats", DENSE, "--op", "nonsense", code=2)

    def test_filter_ring_and_levels(self):
        path = FOLDER / "part.tntrace"
        record(path, MODEL, "--filter", "layer:1 part:ffn", "--overwrite")
        events = rows(trace("export", path, "--format", "csv", "--events"))
        self.assertEqual({(e["layer"], e["part"]) for e in events}, {("1", "ffn")})
        self.assertEqual(trace_json("validate", path)["valid"], True)
        self.assertEqual(trace_json("stats", path)["coverage"]["status"], "not applicable")
        record(path, MODEL, "--mode", "ring", "--ring-size", "10K", "--overwrite")
        self.assertLess(trace_json("stats", path)["runs"], 6)
        self.assertEqual(trace_json("validate", path)["valid"], True)
        for mode in ("async", "sync"):
            record(path, MODEL, "--mode", mode, "--level", "counts", "--repeat", 2, "--overwrite")
            self.assertEqual(trace_json("stats", path)["runs"], 12)
            self.assertEqual(trace_json("validate", path)["valid"], True)
        tinfer("trace", "record", MODEL, "-p", "a", "-o", path, "--overwrite", "--filter", "color:red", code=2)


class Reports(Recorded):
    def test_stats(self):
        stats = trace_json("stats", DENSE, "--model", MODEL)
        self.assertEqual((stats["runs"], stats["phases"]), (6, {"decode": 5, "prefill": 1}))
        self.assertEqual(stats["coverage"]["status"], "complete")
        self.assertEqual(stats["coverage"]["difference_bytes"], 0)
        tensors = rows(tinfer("inspect", MODEL, "--csv").decode())
        self.assertEqual(stats["coverage"]["weights"], len(tensors))
        # A token reads every weight but the embedding, of which one row.
        sizes = {t["name"]: int(t["bytes"]) for t in tensors}
        row = sizes["token_embd.weight"] // int(next(t["ne1"] for t in tensors if t["name"] == "token_embd.weight"))
        self.assertEqual(stats["coverage"]["decode_weight_bytes"], sum(sizes.values()) - sizes["token_embd.weight"]
                         + row)
        self.assertRegex(trace("stats", DENSE), r"coverage +complete: (\d+)/\1 weights")
        by_op = {g["op"]: g for g in stats["groups"]}
        events = rows(trace("export", DENSE, "--format", "csv", "--events"))
        self.assertEqual(sum(g["calls"] for g in stats["groups"]), len(events))
        self.assertEqual(by_op["mul_mat"]["calls"], sum(e["op"] == "mul_mat" for e in events))
        for by in ("kernel", "layer", "part", "tensor", "role", "type", "layout", "phase", "thread"):
            self.assertTrue(trace_json("stats", DENSE, "--by", by)["groups"], by)
        self.assertEqual(len(trace_json("stats", DENSE, "--by", "thread")["groups"]), 2)

    def test_window(self):
        one, all_runs = (trace_json("stats", DENSE, "--phase", "decode", "--window", n) for n in (1, 5))
        self.assertEqual((one["windows"], all_runs["windows"]), (5, 1))
        self.assertLessEqual(one["max_bytes"], all_runs["min_bytes"])

    def test_layers(self):
        cells = trace_json("layers", DENSE)["cells"]
        self.assertEqual({c["status"] for c in cells if c["tensors"]}, {"ok"})
        self.assertIn("all seen", trace("layers", DENSE))
        # A recording of one layer misses the others, and says which.
        trace("cut", DENSE, "--layer", 0, "-o", FOLDER / "layer0.tntrace", "--overwrite")
        part = trace_json("layers", FOLDER / "layer0.tntrace", code=1)
        self.assertEqual({c["layer"] for c in part["cells"] if c["status"] == "MISSING"}, {None, 1})
        self.assertIn("MISSING", trace("layers", FOLDER / "layer0.tntrace", code=1))

    def test_tensors(self):
        listed = rows(trace("tensors", DENSE, "--csv"))
        directory = rows(tinfer("inspect", MODEL, "--csv").decode())
        self.assertEqual([t["tensor"] for t in listed if t["class"] == "weight"], [t["name"] for t in directory])
        self.assertEqual(rows(trace("tensors", DENSE, "--unused", "--csv")), [])
        self.assertEqual(rows(trace("tensors", DENSE, "--csv", "--limit", 3)), listed[:3])

    def test_show(self):
        self.assertEqual(len(rows(trace("show", DENSE, "--csv", "--limit", 20))), 20)
        self.assertEqual(len(trace("show", DENSE).splitlines()), 21)
        layer = rows(trace("show", DENSE, "--layer", 1, "--limit", 0, "--csv"))
        self.assertEqual({r["layer"] for r in layer}, {"1"})
        some = rows(trace("show", DENSE, "--tensor", "blk.*.ffn_down*", "--token", 2, "--limit", 0, "--csv"))
        self.assertEqual([r["tensor"] for r in some], ["blk.0.ffn_down.weight", "blk.1.ffn_down.weight"])

    def test_only_tables_are_cut(self):
        for verb, key in (("show", "accesses"), ("io", "requests_list")):
            every = rows(trace(verb, DENSE, "--csv", "--limit", 0))
            self.assertGreater(len(every), 20)
            self.assertEqual(rows(trace(verb, DENSE, "--csv")), every)
            self.assertEqual(len(trace_json(verb, DENSE)[key]), len(every))
            self.assertEqual(len(trace_json(verb, DENSE, "--limit", 7)[key]), 7)
        self.assertGreater(len(trace_json("show", DENSE, "--events")["events"]), 20)

    def test_what_is_not_there_is_said(self):
        trace("show", DENSE, "--layer", 99)
        self.assertIn("no event is selected; its layers are 0 to 1", tinfer.stderr)
        trace("stats", DENSE, "--run", "50-60")
        self.assertIn("no event is selected; its runs are 0 to 5", tinfer.stderr)
        trace("show", DENSE, "--layer", "1,99")
        self.assertNotIn("no event is selected", tinfer.stderr)
        trace("export", DENSE, code=2)
        self.assertIn("--format is needed", tinfer.stderr)
        record(DENSE, MODEL, code=1)
        self.assertIn("see --overwrite", tinfer.stderr)
        layers = {a["layer"] for a in trace_json("show", DENSE)["accesses"]}
        self.assertEqual(layers, {None, 0, 1})

    def test_roofline_and_cold(self):
        peaks = FOLDER / "peaks.json"
        peaks.write_text('{"gbps": 10, "gmacs": 100}')
        roofs = trace_json("roofline", DENSE, "--peaks", peaks)
        self.assertEqual({g["bound"] for g in roofs["groups"]} - {"memory", "compute", "overhead"}, set())
        down = next(g for g in roofs["groups"] if g["role"] == "ffn_down")
        self.assertAlmostEqual(down["mac_per_byte"], down["macs"] / down["bytes"])
        self.assertEqual(len(trace_json("cold", DENSE)["runs"]), 6)
        for run in trace_json("cold", DENSE)["runs"]:
            self.assertAlmostEqual((run["storage"] or 0) + (run["page_faults"] or 0) + run["kernels"], run["wall"], 6)


class Checks(Recorded):
    def test_validate(self):
        for path, model in ((DENSE, MODEL), (MOE, MOE_MODEL)):
            verdict = trace_json("validate", path, "--model", model)
            states = {r["rule"]: r["state"] for r in verdict["rules"]}
            self.assertEqual(list(states), [f"V{i}" for i in range(1, 20)])
            self.assertEqual([r for r, s in states.items() if s == "FAIL"], [])
            self.assertEqual(states["V11"], "ok" if path == MOE else "n/a")
            self.assertEqual([states[r] for r in ("V4", "V9", "V10", "V12", "V13", "V15")], ["ok"] * 6)
        trace("validate", DENSE, "--model", MOE_MODEL, code=3)
        trace("stats", DENSE, "--model", MOE_MODEL, code=3)

    def test_damage_is_found_and_recovered(self):
        data = bytearray(pathlib.Path(DENSE).read_bytes())
        data[len(data) // 2] ^= 1
        broken = FOLDER / "broken.tntrace"
        broken.write_bytes(data)
        verdict = trace_json("validate", broken, code=1)
        self.assertIn("V1", [r["rule"] for r in verdict["rules"] if r["state"] == "FAIL"])
        broken.write_bytes(pathlib.Path(DENSE).read_bytes()[:len(data) * 3 // 4])
        self.assertEqual(next(r for r in trace_json("validate", broken, code=1)["rules"] if r["rule"] == "V1")["state"],
                         "FAIL")
        whole = FOLDER / "whole.tntrace"
        report = json.loads(tinfer("trace", "recover", broken, "-o", whole, "--overwrite", "--json"))
        self.assertGreater(report["complete_runs"], 0)
        rules = {r["rule"]: r["state"] for r in trace_json("validate", whole, code=0)["rules"]}
        self.assertEqual((rules["V1"], rules["V2"], rules["V3"]), ("ok", "ok", "ok"))
        tinfer("trace", "recover", broken, "-o", whole, code=1)

    def test_hash_and_diff(self):
        again = FOLDER / "again.tntrace"
        record(again, MODEL, "--overwrite", threads=1)
        self.assertEqual(trace("hash", DENSE).split()[0], trace("hash", again).split()[0])
        self.assertTrue(trace_json("diff", DENSE, again)["equal"])
        other = FOLDER / "other.tntrace"
        record(other, MODEL, "--no-fuse", "--overwrite")
        self.assertNotEqual(trace("hash", DENSE).split()[0], trace("hash", other).split()[0])
        self.assertIn("plan", {d["kind"] for d in trace_json("diff", DENSE, other, code=1)["list"]})
        runs = trace("hash", DENSE, "--per-run").splitlines()
        self.assertEqual(len(runs), 7)

    def test_first_value_that_differs(self):  # [N10]
        data = bytearray(pathlib.Path(MOE_MODEL).read_bytes())
        tensors = rows(tinfer("inspect", MOE_MODEL, "--csv").decode())
        offset = next(int(t["file_offset"]) for t in tensors if t["name"] == "blk.1.attn_q.weight")
        data[offset + 2] ^= 0x10
        changed = FOLDER / "changed.gguf"
        changed.write_bytes(data)
        path = FOLDER / "changed.tntrace"
        record(path, changed, "--extras", "router,value_hash", "--overwrite")
        found = [d for d in trace_json("diff", MOE, path, code=1)["list"] if d["kind"] == "value"]
        self.assertEqual(len(found), 1)
        self.assertIn("1)", found[0]["text"])     # the node of layer 1 that reads it
        self.assertRegex(found[0]["text"], r"\((q|attn_q|Q|q_[a-z]+)[^)]*-1\)")

    def test_cut(self):
        part = FOLDER / "cut.tntrace"
        trace("cut", DENSE, "--run", "2-3", "-o", part, "--overwrite")
        self.assertEqual(trace_json("stats", part)["runs"], 2)
        self.assertEqual(trace_json("validate", part)["valid"], True)
        a, b = (rows(trace("export", p, "--format", "csv", "--run", "2-3")) for p in (DENSE, part))
        self.assertEqual(a, b)


class Reuse(Recorded):
    def test_a_dense_model_is_a_loop(self):  # [N15]
        # Five tokens read the same weights in the same order, but for rows of the embedding.
        args = ["--phase", "decode", "--class", "weight", "--tensor", "blk.*"]
        sizes = [int(t["bytes"]) for t in rows(tinfer("inspect", MODEL, "--csv").decode())
                 if t["name"].startswith("blk.")]
        total = sum(sizes)
        reuse = trace_json("reuse", DENSE, *args, "--cache", f"{total - 1},{total}", "--policy", "lru,opt")
        self.assertEqual(reuse["touches"], 5 * len(sizes))
        self.assertEqual((reuse["cold_touches"], reuse["cold_bytes"]), (len(sizes), total))
        self.assertEqual(sum(b["touches"] for b in reuse["histogram"]), 4 * len(sizes))
        self.assertGreaterEqual(reuse["quantiles"]["p10"], total - max(sizes))
        missed = {(c["cache"], c["policy"]): c["miss_ratio"] for c in reuse["caches"]}
        self.assertEqual(missed[total - 1, "lru"], 1)
        self.assertAlmostEqual(missed[total, "lru"], 1 / 5)
        self.assertAlmostEqual(missed[total, "opt"], 1 / 5)
        self.assertLess(missed[total - 1, "opt"], 0.5)

    def test_pages_and_requests(self):
        pages = trace_json("reuse", DENSE, "--unit", "page=4096", "--class", "weight")
        self.assertGreater(pages["touches"], 0)
        everything = trace_json("io", DENSE, "--limit", 0, "--phase", "decode")
        self.assertEqual(sum(r["length"] for r in everything["requests_list"]), everything["bytes"])
        cached = trace_json("io", DENSE, "--cache", "1G", "--phase", "decode")
        size = pathlib.Path(MODEL).stat().st_size
        self.assertLessEqual(cached["bytes"], size + 4096)
        self.assertLess(5 * cached["bytes"] * 0.9, everything["bytes"])
        self.assertEqual(sum(b["bytes"] for b in trace_json("io", DENSE, "--sizes")["sizes"]),
                         trace_json("io", DENSE)["bytes"])
        moved = trace_json("io", DENSE, "--phase", "decode", "--order", "trace", "--cost", "seek")
        self.assertLessEqual(moved["not_adjacent_in_trace_order"], moved["not_adjacent"])


class Experts(Recorded):
    def routes(self):
        return rows(trace("export", MOE, "--format", "routes"))

    def test_routes_and_counts(self):  # [N21]
        routes = self.routes()
        self.assertEqual(list(routes[0]), ["token", "layer", "slot", "expert", "weight", "bytes", "resident"])
        counts = collections.Counter((int(r["layer"]), int(r["expert"])) for r in routes)
        matrix = {(int(m["layer"]), int(m["expert"])): int(m["tokens"])
                  for m in rows(trace("experts", MOE, "--matrix", "--csv"))}
        self.assertEqual(matrix, dict(counts))
        per_token = collections.Counter((r["token"], r["layer"]) for r in routes)
        self.assertEqual(len(set(per_token.values())), 1)
        seen = set()
        for r in routes:
            self.assertEqual(r["resident"] == "1", (r["layer"], r["expert"]) in seen)
            seen.add((r["layer"], r["expert"]))
        plain = rows(trace("export", MOE, "--format", "experts"))
        self.assertEqual([(r["layer"], r["expert"]) for r in routes], [(r["layer"], r["expert"]) for r in plain])

    def test_union_and_predictors(self):
        routes = self.routes()
        tokens = collections.defaultdict(lambda: collections.defaultdict(set))
        for r in routes:
            tokens[int(r["layer"])][int(r["token"])].add(r["expert"])
        sizes = [len(layer[t] | layer[t + 1]) for layer in tokens.values() for t in sorted(layer)[:-1]]
        pair = trace_json("experts", MOE, "--union", "1,2")["union"]
        self.assertAlmostEqual(pair[1]["mean_distinct"], sum(sizes) / len(sizes))
        self.assertEqual(pair[0]["of_separate"], 1)
        told = {p["predictor"]: p for p in trace_json("experts", MOE, "--predict")["predictors"]}
        self.assertEqual(told["oracle"]["accuracy"], 1)
        self.assertLessEqual({"oracle", "frequency", "layer_before", "token_before"}, set(told))

    def test_routers_are_asked_for_the_input_of_the_layer_before(self):
        t, inputs = FOLDER / "routers.tntrace", FOLDER / "routers.values"
        record(t, MOE_MODEL, "--router-inputs", inputs, "--overwrite")
        recorded = router_inputs(inputs)
        routes = collections.defaultdict(dict)
        for r in rows(trace("export", t, "--format", "routes")):
            routes[int(r["token"])].setdefault(int(r["layer"]), set()).add(int(r["expert"]))
        rows_of = {layer: [row for run, il, row in recorded if il == layer]
                   for layer in sorted({il for _, il, _ in recorded})}
        self.assertEqual([len(values) for values in rows_of.values()],
                         [sum(il in layers for layers in routes.values()) for il in rows_of])
        self.assertGreater(len(rows_of), 1)
        # Counted from the end, rows of a layer are those of the tokens that it has routed.
        second = sorted(routes)[len(routes) // 2:]
        told = right = 0
        for back, token in enumerate(reversed(second), 1):
            for before, layer in zip(rows_of, list(rows_of)[1:]):
                if layer not in routes[token]:   # of a prompt the last token alone goes through the last layer
                    continue
                chosen = best(router_of(MOE_MODEL, layer), rows_of[before][-back], 2)
                told += 2
                right += len(chosen & routes[token][layer])
                self.assertEqual(best(router_of(MOE_MODEL, layer), rows_of[layer][-back], 2), routes[token][layer])
        found = trace_json("experts", t, "--predict", "--router-inputs", inputs, "--model", MOE_MODEL)
        lines = {p["predictor"]: p for p in found["predictors"]}
        self.assertEqual((lines["stale_router"]["told"], lines["stale_router"]["right"]), (told, right))
        self.assertEqual(lines["own_router"]["accuracy"], 1)
        self.assertNotIn("stale_router", {p["predictor"] for p in trace_json("experts", t, "--predict")["predictors"]})
        disk = FOLDER / "flat.csv"
        disk.write_text("request_bytes,idle_bytes_per_s,saturated_bytes_per_s\n4096,1e9,1e9\n")
        found = trace_json("experts", t, "--prefetch", "--disk", disk, "--router-inputs", inputs, "--model", MOE_MODEL)
        lines = {p["read_ahead"] for p in found["prefetch"]}
        self.assertIn("stale_router", lines)
        self.assertNotIn("own_router", lines)
        trace("experts", t, "--predict", "--router-inputs", inputs, code=2)
        trace("experts", t, "--predict", "--router-inputs", inputs, "--model", MODEL, code=3)
        trace("experts", t, "--predict", "--router-inputs", MODEL, "--model", MOE_MODEL, code=1)
        self.assertIn("no file of captured values", tinfer.stderr)
        record(FOLDER / "y.tntrace", MOE_MODEL, "--router-inputs", inputs, code=1)
        self.assertIn("is there already", tinfer.stderr)

    def test_cache(self):
        n = trace_json("experts", MOE)["layers"][0]["experts"]
        caches = {(c["cache"], c["policy"]): c for c in trace_json("experts", MOE, "--cache", f"1,{n}")["caches"]}
        distinct = sum(layer["touched"] for layer in trace_json("experts", MOE)["layers"])
        full = caches[n, "lru"]
        self.assertEqual(full["picks"] - full["hits"], distinct)     # only the first touch of each misses
        self.assertLessEqual(caches[1, "lru"]["hits"], caches[1, "opt"]["hits"])

    def test_dense_models_have_none(self):
        trace("experts", DENSE, code=1)
        self.assertIn("no experts", tinfer.stderr)


class Exports(Recorded):
    def test_csv_and_flat_records_agree(self):  # [X4] [X5]
        accesses = rows(trace("export", DENSE, "--format", "csv"))
        flat = FOLDER / "flat"
        trace("export", DENSE, "--format", "flat128", "-o", flat)
        data = flat.read_bytes()
        records = [struct.unpack("<4Q3I2H4B3I64s", data[i:i + 128]) for i in range(0, len(data), 128)]
        expected = []
        for a in accesses:
            for k in range(int(a["count"])):
                expected.append((int(a["t_begin_ns"]), int(a["offset"]) + k * int(a["stride"]), int(a["length"]),
                                 int(a["event"]), int(a["tensor_id"]),
                                 int(a["layer"]), a["tensor"]))
        self.assertEqual([(r[0], r[3], r[2], r[5], r[6], r[7], r[16].rstrip(b"\0").decode()) for r in records],
                         expected)
        self.assertEqual({a["mode"] for a in accesses}, {"read", "write"})

    def test_ranges_lie_in_the_file(self):
        directory = {int(t["index"]): t for t in rows(tinfer("inspect", MODEL, "--csv").decode())}
        n = 0
        for a in rows(trace("export", DENSE, "--format", "csv")):
            if a["file"] == "":
                continue
            tensor = directory[int(a["tensor_id"])]
            self.assertEqual(tensor["name"], a["tensor"])
            self.assertEqual(int(tensor["file_offset"]) + int(a["offset"]), int(a["file_offset"]))
            self.assertLessEqual(int(a["file_offset"]) + int(a["length"]), int(tensor["file_end"]))
            n += 1
        self.assertGreater(n, 100)

    def test_chrome(self):
        events = json.loads(trace("export", DENSE, "--format", "chrome"))["traceEvents"]
        slices = [e for e in events if e["ph"] == "X"]
        self.assertEqual({e["tid"] for e in slices}, {0, 1, 2})
        n_events = trace_json("stats", DENSE)["events"]
        self.assertEqual(sum(e["tid"] == 1 for e in slices), n_events)
        open_ends = []   # properly nested on the track of steps
        for e in (e for e in slices if e["tid"] == 0):
            begin, end = round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            if open_ends:
                self.assertLessEqual(end, open_ends[-1])
            open_ends.append(end)

    def test_perfetto(self):
        data = tinfer("trace", "export", DENSE, "--format", "perfetto")

        def fields(data):
            def varint(at):
                value = shift = 0
                while True:
                    value |= (data[at] & 127) << shift
                    shift += 7
                    at += 1
                    if data[at - 1] < 128:
                        return value, at
            at = 0
            while at < len(data):
                key, at = varint(at)
                if key & 7 == 0:
                    value, at = varint(at)
                elif key & 7 == 1:
                    value, at = struct.unpack("<d", data[at:at + 8])[0], at + 8
                else:
                    assert key & 7 == 2
                    n, at = varint(at)
                    value, at = data[at:at + n], at + n
                yield key >> 3, value
        depth, names, n_begin, last = collections.Counter(), {}, 0, 0
        for number, packet in fields(data):
            self.assertEqual(number, 1)
            packet = dict(fields(packet))
            self.assertEqual(packet[10], 1)
            if 60 in packet:
                track = dict(fields(packet[60]))
                names[track[1]] = track.get(2)
                continue
            self.assertGreaterEqual(packet[8], last)
            last = packet[8]
            event = dict(fields(packet[11]))
            self.assertIn(event[11], names)
            depth[event[11]] += {1: 1, 2: -1}.get(event[9], 0)
            self.assertGreaterEqual(depth[event[11]], 0)
            n_begin += event[9] == 1 and names[event[11]] == b"thread 0"
        self.assertEqual(set(depth.values()), {0})
        self.assertEqual(n_begin, trace_json("stats", DENSE)["events"])

    def test_dot(self):  # [G12] [X15]
        collapsed, full = (trace("export", DENSE, "--format", "dot", *args) for args in ([], ["--full"]))
        self.assertTrue(collapsed.startswith("digraph"))
        self.assertLessEqual(collapsed.count("[label="), full.count("[label="))
        folder = FOLDER / "dots"
        trace("export", DENSE, "--format", "dot", "--dot-dir", folder)
        self.assertEqual(len(rows((folder / "index.csv").read_text())), 6)
        if shutil.which("dot"):
            for text in (collapsed, full, trace("export", DENSE, "--format", "dot", "--steps", "--no-weights")):
                done = subprocess.run(["dot", "-Tplain"], input=text.encode(), capture_output=True)
                self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_requests(self):
        requests = rows(trace("export", DENSE, "--format", "io"))
        log = trace("export", DENSE, "--format", "fio").splitlines()
        self.assertEqual(log[:3], ["fio version 2 iolog", "tiny.gguf add", "tiny.gguf open"])
        self.assertEqual(log[-1], "tiny.gguf close")
        self.assertEqual([line.split()[2:] for line in log[3:-1]], [[r["offset"], r["length"]] for r in requests])
        objects = rows(trace("export", DENSE, "--format", "cachesim"))
        self.assertEqual(sum(int(o["size"]) for o in objects), sum(int(r["length"]) for r in requests))
        trace("export", DENSE, "--format", "nonsense", code=2)


if __name__ == "__main__":
    unittest.main()
