#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer forecast and what tinfer trace reckons of storage, against the same sums made here.

usage: analysis_test.py path/to/tinfer [unittest arguments]
"""
import csv
import io
import json
import math
import subprocess
import unittest
import zipfile

from cli_support import FOLDER, MODEL, NO_EOG, TINFER, environment, golden_model, make_model, tinfer

try:
    import numpy
except ImportError:
    numpy = None

DENSE, MOE = str(FOLDER / "a-dense.tntrace"), str(FOLDER / "a-moe.tntrace")
MOE_MODEL = str(make_model("a-moe.gguf", 1, "moe"))
HEADER = "request_bytes,idle_bytes_per_s,saturated_bytes_per_s\n"


def trace(verb, path, *args, **kw):
    return tinfer("trace", verb, path, *args, **kw).decode()


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def curve(name, *points):
    path = FOLDER / name
    path.write_text(HEADER + "".join(f"{size},{idle},{busy}\n" for size, idle, busy in points))
    return path


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for path, model, extras in ((DENSE, MODEL, "pages"), (MOE, MOE_MODEL, "router")):
            tinfer("trace", "record", model, "-p", "once on a time", "-n", 12, "--temp", 0, *NO_EOG, "-t", 2, "-o",
                   path,
                   "--extras", extras, "--overwrite")


class Drafts(unittest.TestCase):
    def test_union_beside_what_verifications_touched(self):  # [J4]
        path = str(FOLDER / "verified.tntrace")
        tinfer("trace", "record", MOE_MODEL, "-p", "once on a time once on a time", "-n", 40, "--temp", 0, *NO_EOG,
               "--speculate", "ngram", "--grammar", 'root ::= "once on a time once on a time"', "--extras", "router",
               "-o", path, "--overwrite")
        sizes = ",".join(map(str, range(2, 17)))
        unions = json.loads(trace("experts", path, "--union", sizes, "--json"))["union"]
        checked = [u for u in unions if u["verified"] > 0]
        self.assertTrue(checked, unions)
        for u in checked:
            self.assertTrue(u["min"] <= u["verified_distinct"] <= u["max"], u)


class Npz(Recorded):
    def test_columns_are_those_of_the_csv(self):
        path = FOLDER / "t.npz"
        trace("export", DENSE, "--format", "npz", "-o", path)
        with zipfile.ZipFile(path) as archive:
            self.assertIsNone(archive.testzip())
            self.assertIn("event.npy", archive.namelist())
        if numpy is None:
            self.skipTest("no numpy: only the archive was looked at")
        arrays = numpy.load(path, allow_pickle=False)
        events = rows(trace("export", DENSE, "--format", "csv", "--events"))
        for name, column in (("event", "event"), ("event_run", "run"), ("event_decode", "decode"),
                             ("event_begin_ns", "t_begin_ns"),
                             ("event_end_ns", "t_end_ns"), ("event_bytes_read", "bytes_read"), ("event_macs", "macs")):
            self.assertEqual(arrays[name].tolist(), [int(e[column]) for e in events], name)
        for name in ("op", "part", "phase", "kernel"):
            texts = arrays[name + "_names"][arrays["event_" + name]]
            self.assertEqual([t.decode() for t in texts], [e[name] for e in events], name)
        self.assertEqual([65535 if n < 0 else n for n in arrays["event_layer"].tolist()],
                         [int(e["layer"]) for e in events])
        accesses = rows(trace("export", DENSE, "--format", "csv"))
        for name in ("event", "offset", "length", "stride", "count", "tag", "weight", "slot", "passes"):
            self.assertEqual(arrays["access_" + name].tolist(), [int(a[name]) for a in accesses], name)
        self.assertEqual([t.decode() for t in arrays["tensor_names"][arrays["access_tensor"]]],
                         [a["tensor"] for a in accesses])
        none = 2**64 - 1
        self.assertEqual([None if n == none else n for n in arrays["access_file_offset"].tolist()],
                         [int(a["file_offset"]) if a["file_offset"] else None for a in accesses])


class Storage(Recorded):
    def test_curves_that_are_none(self):
        for text in ("", "nonsense\n", HEADER, HEADER + "4096,1\n", HEADER + "4096,1,x\n", HEADER + "4096,0,1\n",
                     HEADER + "4096,1,1\n4096,1,1\n"):
            path = FOLDER / "bad.csv"
            path.write_text(text)
            trace("io", DENSE, "--disk", path, code=1)
            self.assertIn("bad.csv", tinfer.stderr)

    def test_requests_on_a_storage(self):
        path = curve("flat.csv", (4096, 1e6, 4e6))
        result = json.loads(trace("io", DENSE, "--disk", path, "--json"))
        self.assertAlmostEqual(result["storage"]["one_by_one_s"], result["bytes"] / 1e6, 9)
        self.assertAlmostEqual(result["storage"]["at_once_joined_s"], result["bytes"] / 4e6, 9)
        # between two points over the logarithm of the size
        path = curve("slope.csv", (4096, 1e6, 1e6), (65536, 5e6, 5e6))
        requests = json.loads(trace("io", DENSE, "--disk", path, "--json", "--limit", 0))
        expected = 0
        for request in requests["requests_list"]:
            share = min(max(math.log(request["length"] / 4096) / math.log(16), 0), 1)
            expected += request["length"] / (1e6 + share * 4e6)
        self.assertAlmostEqual(requests["storage"]["one_by_one_s"], expected, 9)

    def test_measured(self):
        big = FOLDER / "big.bin"
        big.write_bytes(bytes(8 << 20))
        out = FOLDER / "disk.csv"
        points = json.loads(trace("disk", big, "-o", out, "--seconds", 0.2, "--json"))["points"]
        self.assertEqual([p["request"] for p in points], [4096, 16384, 65536, 262144, 1048576, 4194304])
        for point in points:
            self.assertGreater(point["idle"], 0)
            self.assertGreater(point["saturated"], 0)
        json.loads(trace("io", DENSE, "--disk", out, "--json"))
        trace("disk", MODEL, code=1)   # too small
        tinfer("trace", "disk", code=2)

    def test_three_times_add_up(self):
        for run in json.loads(trace("cold", DENSE, "--json"))["runs"]:
            self.assertAlmostEqual(run["storage"] + run["page_faults"] + run["kernels"], run["wall"], 6)
            self.assertLessEqual(run["of_them_between"], run["kernels"])
            for part in ("storage", "page_faults", "kernels"):
                self.assertGreaterEqual(run[part], 0)

    def test_reuse_of_the_cache(self):
        # Every row of K and V is read again for each later token: its distance is what the cache holds by then.
        result = json.loads(trace("reuse", DENSE, "--class", "kv", "--phase", "decode", "--json"))
        self.assertGreater(result["touches"], result["cold_touches"])
        self.assertGreater(sum(bin["touches"] for bin in result["histogram"]), 0)


class Prefetch(Recorded):
    def routes(self):
        tokens = {}
        for row in rows(trace("export", MOE, "--format", "routes")):
            tokens.setdefault(int(row["token"]), {}).setdefault(int(row["layer"]),
                                                                []).append((int(row["expert"]), int(row["bytes"])))
        return [tokens[t] for t in sorted(tokens)]

    def simulate(self, path, *args):
        table = json.loads(trace("experts", MOE, "--prefetch", "--disk", path, "--json", *args))["prefetch"]
        return {row["read_ahead"]: row for row in table}

    def test_on_demand_is_a_cache_and_a_queue(self):  # [N21]
        rate, size = 1e7, 1
        result = self.simulate(curve("d.csv", (4096, rate, rate)), "--cache", size)["on_demand"]
        tokens, caches, hits, missed, read = self.routes(), {}, 0, 0, 0
        for i, token in enumerate(tokens):
            for layer, picks in sorted(token.items()):
                cache = caches.setdefault(layer, [])
                if i >= len(tokens) // 2:
                    hits += sum(expert in cache for expert, _ in picks)
                    missed += sum(expert not in cache for expert, _ in picks)
                    read += sum(size_of for expert, size_of in picks if expert not in cache)
                for expert, _ in picks:
                    if expert in cache:
                        cache.remove(expert)
                    cache.append(expert)
                    del cache[:-size]
        n = len(tokens) - len(tokens) // 2
        self.assertEqual((result["cached"], result["not_told"], result["in_time"], result["late"]),
                         (hits, missed, 0, 0))
        self.assertEqual(result["read_per_token"], read // n)
        self.assertAlmostEqual(result["stall"], 1e3 * read / rate / n, 6)
        self.assertAlmostEqual(result["token"], result["compute"] + result["stall"], 9)

    def test_the_oracle_hides_what_can_be_hidden(self):  # [N21]
        for rate in (1e5, 1e8, 1e15):
            result = self.simulate(curve("d.csv", (4096, rate, rate)))
            oracle, demand = result["oracle"], result["on_demand"]
            self.assertEqual(oracle["wasted_per_token"], 0)
            self.assertEqual(oracle["read_per_token"], demand["read_per_token"])   # without a cache
            self.assertLessEqual(oracle["stall"], demand["stall"] + 1e-9)
            for name, row in result.items():
                # Whoever reads ahead still reads all: no token is faster than its storage or its kernels.
                self.assertGreaterEqual(row["token"] + 1e-6, row["compute"])
                picks = row["cached"] + row["in_time"] + row["late"] + row["not_told"]
                self.assertEqual(picks, demand["cached"] + demand["not_told"], name)
        self.assertLess(demand["stall"], 1e-4)   # of the fastest
        self.assertGreater(oracle["in_time"], 0)

    def test_several_requests_go_at_the_saturated_rate(self):
        one = self.simulate(curve("d.csv", (4096, 1e6, 1e6)))["on_demand"]
        two = self.simulate(curve("d.csv", (4096, 1e6, 2e6)))["on_demand"]
        self.assertAlmostEqual(two["stall"], one["stall"] / 2, 9)   # each token misses its two experts together
        tinfer("trace", "experts", MOE, "--prefetch", code=2)


class Forecast(unittest.TestCase):
    ROOFS = ["--stream-gbps", 10, "--int8-gmacs", 100, "--f32-gmacs", 20]

    def forecast(self, model, *args, **kw):
        return json.loads(tinfer("forecast", model, *self.ROOFS, "-t", 2, "--isa", "reference", "--json", *args, **kw))

    def directory(self, model):
        return rows(tinfer("inspect", model, "--csv").decode())

    def test_a_dense_model_that_fits(self):  # [N23]
        tensors = self.directory(MODEL)
        tied = not any(t["name"] == "output.weight" for t in tensors)
        read = macs = 0
        for t in tensors:
            if t["role"] == "token_embd" and not tied:
                read += int(t["bytes"]) // int(t["ne1"])
                continue
            read += int(t["bytes"])
            if int(t["n_dims"]) > 1:
                macs += int(t["ne0"]) * int(t["ne1"])
        result = self.forecast(MODEL)
        self.assertEqual(result["bytes_per_token"], read)
        self.assertEqual(result["macs_per_token"], macs)
        self.assertEqual(result["fits"], True)
        self.assertEqual(result["generation_tps"], result["generation_best_tps"])
        if result["bound"] == "memory":
            self.assertAlmostEqual(result["generation_tps"], 0.86 * 10e9 / read, delta=1)
        self.assertEqual(result["samples"], None)
        # Tokens in the cache are read, too.
        deep = self.forecast(MODEL, "-d", 100)
        self.assertGreater(deep["bytes_per_token"], read)
        self.assertLess(deep["generation_tps"], result["generation_tps"])

    def test_a_dense_model_that_does_not_fit_is_read_for_every_token(self):  # [N23]
        whole = self.forecast(MODEL)
        ram = whole["context_bytes"] + whole["weight_bytes"] // 2
        paged = self.forecast(MODEL, "--ram", ram, "--disk-gbps", 0.001)
        self.assertEqual((paged["fits"], paged["bound"]), (False, "storage"))
        self.assertEqual(paged["storage_bytes_per_token"], paged["bytes_per_token"])
        self.assertAlmostEqual(1 / paged["generation_tps"], 1 / whole["generation_tps"] + paged["bytes_per_token"]
                               / 1e6, 6)
        self.assertGreater(paged["generation_best_tps"], paged["generation_tps"])
        disk = curve("d.csv", (4096, 5e5, 1e6))
        self.assertEqual(self.forecast(MODEL, "--ram", ram, "--disk", disk)["generation_tps"], paged["generation_tps"])
        self.assertEqual(self.forecast(MODEL, "--ram", "1T")["fits"], True)
        self.assertEqual(self.forecast(MODEL, "--ram", "0")["fits"], True)  # no limit, as for run
        tinfer("forecast", MODEL, *self.ROOFS, "--ram", "10K", code=1)
        self.assertIn("context alone", tinfer.stderr)
        for size in ("lots", "nan", "inf", "-1G", "0.5", "1e-5"):
            tinfer("forecast", MODEL, *self.ROOFS, "--ram", size, code=2)

    def test_a_stream_reads_two_matrices_more_than_do_not_fit(self):  # [N22]
        limit = sum(row["bytes"] for row in json.loads(tinfer("inspect", MODEL, "--placement", "--json"))) - 8192
        places = json.loads(tinfer("inspect", MODEL, "--placement", "--ram", limit, "--json"))
        streamed = [row["bytes"] for row in places if row["place"] == "streamed"]
        room = limit - sum(row["bytes"] for row in places if row["place"] == "read")
        told = self.forecast(MODEL, "--ram", self.forecast(MODEL)["context_bytes"] + limit, "--disk-gbps", 0.001)
        self.assertTrue(told["pages"])
        self.assertGreaterEqual(told["storage_bytes_per_token"], sum(streamed) - room + 2 * max(streamed))
        self.assertLessEqual(told["storage_bytes_per_token"], sum(streamed))
        self.assertAlmostEqual(told["generation_tps"] * told["storage_bytes_per_token"] / 1e6, 1, 6)

    def test_caches_of_codes_are_fewer_bytes_rotated_or_not(self):  # [N24]
        model = golden_model("llama-yarn")
        if model is None:
            self.skipTest("no golden data")
        weights = self.forecast(model)["bytes_per_token"]

        def cache_bytes(*options):
            return self.forecast(model, "-d", 128, "-c", 256, *options)["bytes_per_token"] - weights

        floats = cache_bytes()
        self.assertGreater(floats, 0)
        for name, of_32 in (("q8_0", 34), ("q4_0", 18)):
            for rotation in ("off", "on"):
                self.assertEqual(cache_bytes("--kv-type-k", name, "--kv-type-v", name, "--kv-rotation", rotation) * 64,
                                 floats * of_32)

    def test_experts_hit_as_far_as_they_fit(self):
        tensors = self.directory(MOE_MODEL)
        stacked = sum(int(t["bytes"]) for t in tensors if int(t["expert_count"] or 0) > 0)
        whole = self.forecast(MOE_MODEL)
        dense = whole["weight_bytes"] - stacked
        self.assertGreater(stacked, 0)
        self.assertLess(whole["bytes_per_token"], whole["weight_bytes"])
        half = self.forecast(MOE_MODEL, "--ram", whole["context_bytes"] + dense + stacked // 2, "--disk-gbps", 0.01)
        none = self.forecast(MOE_MODEL, "--ram", whole["context_bytes"] + dense + 1, "--disk-gbps", 0.01)
        self.assertLess(abs(half["storage_bytes_per_token"] - none["storage_bytes_per_token"] / 2), 4)
        self.assertGreater(half["generation_tps"], none["generation_tps"])

    def test_a_limit_is_told_by_the_choices_of_experts(self):  # [N30]
        model = golden_model("olmoe")
        if model is None:
            self.skipTest("no golden data")
        context = self.forecast(model)["context_bytes"]
        limit = 530000
        places = json.loads(tinfer("inspect", model, "--placement", "--ram", limit, "--json"))
        paged = sum(p["bytes"] for p in places if p["place"] == "paged")
        self.assertGreater(paged, 0)
        experts = sum(int(t["bytes"]) * 1.0 / int(t["expert_count"]) for t in self.directory(model)
                      if int(t["expert_count"] or 0) > 0)
        metadata = json.loads(tinfer("inspect", model, "--json"))["metadata"]
        n_used = metadata["olmoe.expert_used_count"]["value"]

        def told(*args):
            return self.forecast(model, "--ram", context + limit, "--disk-gbps", 0.01, *args)

        alike, stated = told(), told("--hit-rate", 0.75)
        self.assertEqual((alike["pages"], alike["choices"], stated["choices"]), (True, "uniform", "stated"))
        self.assertEqual(stated["hit_rate"], 0.75)
        self.assertLess(abs(stated["storage_bytes_per_token"] - experts * n_used / 4), 8)
        self.assertTrue(0 < alike["hit_rate"] < 1)
        # Reading takes as long as its bytes at the storage's rate, beside computing or after it.
        read = stated["storage_bytes_per_token"] / 1e7
        self.assertGreaterEqual(1 / stated["generation_tps"], read - 1e-9)
        self.assertGreaterEqual(stated["generation_best_tps"], stated["generation_tps"])
        # A profile whose picks are all of the same few experts: those stay.
        profile = FOLDER / "profile.json"
        tinfer("run", model, "--tokens", "5,6,7,8", "-n", 4, "--temp", 0, "--ram", limit, "--write-expert-profile",
               profile)
        layers = json.loads(profile.read_text())["experts"]
        self.assertTrue(all(sum(layer["picks"]) > 0 for layer in layers))
        for layer in layers:
            self.assertTrue(0 < layer["compared"] <= sum(layer["picks"]))
            self.assertLessEqual(layer["repeated"], layer["compared"])
            layer.update(picks=[100] * n_used + [0] * (len(layer["picks"]) - n_used), compared=0, repeated=0)
        profile.write_text(json.dumps({"experts": layers}))
        by_profile = told("--expert-profile", profile)
        self.assertEqual((by_profile["choices"], by_profile["hit_rate"]), ("profile", 1))
        self.assertEqual(by_profile["storage_bytes_per_token"], 0)
        # Of few picks chance makes some differ; of many they say what stays, and what is repeated is found.
        other_profile = FOLDER / "other.json"

        def hit_rate(times, picks=(9, 7, 6, 6, 5, 3), **repeats):
            other_profile.write_text(json.dumps({"experts": [
                {"layer": layer["layer"], "picks": [n * times for n in picks], **repeats} for layer in layers]}))
            return told("--expert-profile", other_profile)["hit_rate"]

        few, many, again = hit_rate(1), hit_rate(1000), hit_rate(1000, compared=1000, repeated=900)
        even = hit_rate(1000, picks=[6] * 6)
        self.assertTrue(0.8 * alike["hit_rate"] < even <= alike["hit_rate"], (even, alike))   # whole experts fit
        self.assertLess(abs(few - even), 0.02)
        self.assertEqual(few, hit_rate(1))
        self.assertGreater(many, few + 0.02)
        self.assertGreater(again, many + 0.02)
        one, other = (tinfer("run", model, "--tokens", "5,6,7,8", "-n", 4, "--temp", 0, "--ram", limit, *more)
                      for more in ((), ("--expert-profile", profile)))
        self.assertEqual(one, other)
        texts = {tinfer("run", model, "--tokens", "5,6,7,8,5,6,7,8", "-n", 24, "--temp", 0, *more) for more in (
            (), ("--ram", limit), ("--ram", limit, "--speculate", "ngram"), ("--ram", limit, "-t", 1))}
        self.assertEqual(len(texts), 1)   # drafts are verified under a limit, too
        # What was read is in a trace, beside what a cache would have missed.
        trace = FOLDER / "paged.tntrace"
        tinfer("trace", "record", model, "--tokens", "5", "-n", 12, "--temp", 0, "--ram", limit, "-o", trace)
        layers = json.loads(tinfer("trace", "experts", trace, "--json"))["layers"]
        self.assertTrue(any(layer["read"] > 0 for layer in layers))
        for layer in layers:
            self.assertAlmostEqual(layer["found"], 1 - layer["read"] / layer["picks"], 6)
        *_, measured = json.loads(tinfer("trace", "experts", trace, "--cache", 2, "--json"))["caches"]
        self.assertEqual(measured["policy"], "measured")
        self.assertEqual(measured["picks"] - measured["hits"], sum(layer["read"] for layer in layers))
        runs = json.loads(tinfer("trace", "cold", trace, "--json"))["runs"]
        asked = json.loads(tinfer("trace", "io", trace, "--json"))
        self.assertEqual(asked["read"]["bytes"], sum(run["read"] for run in runs))
        self.assertEqual(asked["read"]["bytes_ahead"], sum(run["read_ahead"] for run in runs))
        self.assertAlmostEqual(asked["read"]["waited_s"], sum(run["waited"] for run in runs) / 1e3, 6)
        self.assertTrue(all(run["waited"] <= run["wall"] for run in runs), runs)
        n_slices = asked["read"]["requests"] - asked["read"]["ahead"]
        self.assertEqual(n_slices, 3 * sum(layer["read"] for layer in layers))   # gate, up and down of an expert
        self.assertGreater(asked["bytes"], asked["read"]["bytes"])   # without a cache all weights would be asked for
        first = json.loads(tinfer("trace", "io", trace, "--token", 0, "--json"))["read"]
        self.assertEqual(first["bytes"], runs[0]["read"])
        self.assertIn(b"steps waited", tinfer("trace", "io", trace))
        self.assertIn(b"waited ms", tinfer("trace", "cold", trace))
        profile.write_text("{}")
        tinfer("run", model, "--tokens", "5", "-n", 1, "--ram", limit, "--expert-profile", profile, code=1)
        self.assertIn("is no profile of experts", tinfer.stderr)
        tinfer("forecast", model, "--ram", "1G", "--hit-rate", 2, code=2)

    def test_a_run_under_a_limit_tells_its_bound(self):  # [N22]
        model = golden_model("olmoe")
        if model is None:
            self.skipTest("no golden data")
        command = ("run", model, "--tokens", "5,6,7,8", "-n", 40, "--temp", 0)
        for limit, place in ((530000, "experts  "), (0, None)):
            told = json.loads(tinfer(*command, "--json", *(("--ram", limit) if limit else ())))
            self.assertEqual("paging" in told, place is not None)
            if place is None:
                continue
            paging = told["paging"]
            # The best cache finds no less and reads no more than this one has.
            self.assertTrue(0 < paging["hit_rate"] <= paging["best_hit_rate"] < 1)
            self.assertTrue(0 < paging["best_bytes_per_token"] <= paging["bytes_per_token"])
            self.assertTrue(0 < paging["bound_share"] <= 1)
            self.assertTrue(0 <= paging["waited_share"] < 1)
            tinfer(*command, "--ram", limit)
            for words in (place, "% found in memory", "bound  ", "% were reached"):
                self.assertIn(words, tinfer.stderr)

    def test_processes_on_one_file_under_a_limit_do_not_meet(self):  # [N22]
        model = golden_model("olmoe")
        if model is None:
            self.skipTest("no golden data")
        command = [str(a) for a in (TINFER, "run", model, "--tokens", "5,6,7,8", "--temp", 0, "--ram", 530000)]
        alone = tinfer(*command[1:], "-n", 8)
        with subprocess.Popen([*command, "-n", "60"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              env=environment()) as killed:
            killed.stdout.read(1)   # it is at work
            both = [subprocess.Popen([*command, "-n", "8"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                     env=environment()) for _ in range(2)]
            killed.kill()
            for one in both:
                self.assertEqual((one.communicate(timeout=60)[0], one.returncode), (alone, 0))

    def test_what_is_measured_and_text(self):  # [N23]
        text = tinfer("forecast", MODEL, "-t", 1).decode()
        for word in ("prompt", "generation", "bound by", "GMAC/s"):
            self.assertIn(word, text)

        def sampled(model, *args):
            return json.loads(tinfer("forecast", model, "-t", 1, "--prompt-tokens", 32, "--json", *args))

        # Of one layer and several, as much as the file has more: what a model has once counts once.
        for model in (MODEL, MOE_MODEL):
            told, roofs = sampled(model), self.forecast(model)
            for key in ("bytes_per_token", "macs_per_token", "weight_bytes"):
                self.assertEqual(told[key], roofs[key])
            token_embd = [t for t in self.directory(model) if t["role"] in ("token_embd", "output")]
            head = [t for t in token_embd if t["role"] == "output"] or token_embd
            work = {"token": told["bytes_per_token"],
                    "prompt": told["macs_per_token"] - int(head[0]["ne0"]) * int(head[0]["ne1"])}
            for kind, result in (("token", "generation_tps"), ("prompt", "prompt_tps")):
                one, several = told["samples"][kind]
                self.assertEqual((one["layers"], several["layers"]), (1, 2))
                self.assertGreater(several["work"], one["work"])
                per_work = max(several["seconds"] - one["seconds"], 0) / (several["work"] - one["work"])
                seconds = several["seconds"] + per_work * (work[kind] - several["work"])
                self.assertAlmostEqual(told[result] * seconds, 1, 6)
            # Both layers of this file are in the sample: it has what the file has.
            self.assertEqual(told["samples"]["prompt"][1]["work"], work["prompt"])
            self.assertLess(abs(told["samples"]["token"][1]["work"] / work["token"] - 1), 0.01)
        # Nothing stays behind in the folder for temporary files, and where there is none it is said.
        folder = FOLDER / "samples"
        folder.mkdir()
        tinfer("forecast", MODEL, "-t", 1, "--prompt-tokens", 8, env={"TMPDIR": str(folder)})
        self.assertEqual(list(folder.iterdir()), [])
        tinfer("forecast", MODEL, "-t", 1, env={"TMPDIR": str(FOLDER / "no-such-folder")}, code=1)
        self.assertIn("(TMPDIR): cannot be written", tinfer.stderr)
        self.assertIn("--stream-gbps", tinfer.stderr)

    def test_architectures_of_every_kind_have_a_sample(self):  # [N23]
        names = ("bloom", "deepseek2-lite", "dots1", "falcon-7b", "gemma3", "glm4moe", "gpt2", "gpt-oss-mxfp4", "jamba",
                 "kimi-linear", "llama-headdim", "phi3", "qwen3moe", "rwkv7")
        models = [model for model in map(golden_model, names) if model is not None]
        if not models:
            self.skipTest("no golden data")
        for model in models:
            with self.subTest(model=model.parent.name):
                result = json.loads(tinfer("forecast", model, "-t", 1, "--prompt-tokens", 8, "--json"))
                self.assertGreater(result["prompt_tps"], 0)
                self.assertGreater(result["generation_tps"], 0)

        tinfer("forecast", FOLDER / "absent.gguf", code=1)
        tinfer("forecast", code=2)


if __name__ == "__main__":
    unittest.main()
