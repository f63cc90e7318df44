#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which bytes of the model's file does a decoded token read? This test reads trace and GGUF file by itself, from the
pages on their formats alone, and compares every byte with what the directory and the token say, fused and not; then
asks `tinfer trace validate`. On models made on the spot, on golden ones (TINFER_GOLDEN) and on SmolLM2 (models/).

usage: bytes_test.py path/to/tinfer [unittest arguments]
"""
import json
import os
import pathlib
import struct
import unittest

from cli_support import FOLDER, HERE, MODEL, NO_EOG, make_model, tinfer

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
SMOLLM2 = HERE.parent.parent / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
GOLDEN = os.environ.get("TINFER_GOLDEN")
TOKEN_EMBD, STACKED = "token_embd.weight", "_exps."


class Gguf:
    """The directory of a file: where the bytes of each tensor lie."""

    def __init__(self, path):
        self.data, self.at = pathlib.Path(path).read_bytes(), 8
        n_tensors, n_keys = self.take("QQ")
        self.metadata = {}
        self.raw = {}   # bytes of each entry
        for _ in range(n_keys):
            begin, key = self.at, self.text()
            self.metadata[key] = self.value(*self.take("I"))
            self.raw[key] = self.data[begin:self.at]
        self.end_of_keys = self.at
        self.tensors = []   # name, dimensions, type, offset in the data
        for _ in range(n_tensors):
            name, (n_dims,) = self.text(), self.take("I")
            self.tensors.append((name, self.take("Q" * n_dims), *self.take("IQ")))
        alignment = self.metadata.get("general.alignment", 32)
        self.data_start = (self.at + alignment - 1) // alignment * alignment
        self.end_of_directory, self.alignment = self.at, alignment

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def text(self):
        (length,) = self.take("Q")
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            of, n = self.take("IQ")
            return [self.value(of) for _ in range(n)]
        return self.take(SCALARS[kind])[0]


class Trace:
    """Blocks of a .tntrace file: tensors, plans, runs with tokens, events with ranges, choices of routers."""

    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        assert data[:12] == b"TNFTRACE\1\0\0\0", path
        self.strings, self.tensors, self.plans, self.runs = {0: ""}, {}, {}, {}
        self.events, self.routes, self.ends = {}, {}, {}
        at = 128
        while at < len(data):
            magic, kind, size, records = struct.unpack_from("<4sH2xII", data, at)
            assert magic == b"TNBK", at
            body = data[at + 56:at + 56 + size]
            {1: self.read_strings, 4: self.read_tensors, 5: self.read_plan, 6: self.read_run, 7: self.read_events,
             8: self.read_end, 12: self.read_routes}.get(kind, lambda *_: None)(body, records)
            at += 56 + (size + 7) // 8 * 8

    def read_strings(self, body, n):
        at = 0
        for _ in range(n):
            number, length = struct.unpack_from("<II", body, at)
            self.strings[number] = body[at + 8:at + 8 + length].decode()
            at += 8 + (length + 3) // 4 * 4

    def read_tensors(self, body, n):
        for at in range(0, 96 * n, 96):
            number, name, kind = struct.unpack_from("<IIB", body, at)
            size, offset, row, part = struct.unpack_from("<4Q", body, at + 56)
            self.tensors[number] = {"name": self.strings[name], "weight": kind == 0, "bytes": size, "offset": offset,
                                    "row": row, "slice": part}

    def read_plan(self, body, _):
        plan, n_steps, n_operands = struct.unpack_from("<3I", body)
        steps = [struct.unpack_from("<IHHIBBHIIHHI", body, 64 + 48 * i) for i in range(n_steps)]
        first = 64 + 48 * n_steps
        self.plans[plan] = steps, [struct.unpack_from("<IBBHQQQIHH", body, first + 40 * i) for i in range(n_operands)]

    def read_run(self, body, _):
        run, _, _, _, phase, _, plan, _, _, n_tokens = struct.unpack_from("<QQIHBBIHHI", body)
        self.runs[run] = phase, plan, [struct.unpack_from("<iiII", body, 64 + 16 * i) for i in range(n_tokens)]

    def read_events(self, body, _):
        run, _, n, n_ranges = struct.unpack_from("<QQII", body)
        ranges = [struct.unpack_from("<HHIQQQII", body, 40 + 32 * n + 40 * i) for i in range(n_ranges)]
        for i in range(n):
            _, _, step, first, count, status, _, _ = struct.unpack_from("<QIIIHBBQ", body, 40 + 32 * i)
            self.events.setdefault(run, []).append((step, status, ranges[first:first + count]))

    def read_end(self, body, n):
        for at in range(0, 56 * n, 56):
            run, _, _, _, _, expected, observed = struct.unpack_from("<QQIIQQQ", body, at)
            self.ends[run] = expected, observed

    def read_routes(self, body, n):
        at = 0
        for _ in range(n):
            event, tokens, k, _ = struct.unpack_from("<QIHH", body, at)
            self.routes[event] = [struct.unpack_from("<HHf", body, at + 16 + 8 * i) for i in range(tokens * k)]
            at += 16 + 8 * tokens * k

    def reads(self, run):
        """{(tensor, role of the operand): intervals} of the weights that a run has read, by slots of steps."""
        found = {}
        steps, operands = self.plans[self.runs[run][1]]
        for step, status, ranges in self.events[run]:
            assert status == 0
            first, count = steps[step][7], steps[step][6]
            used = operands[first:first + count]
            for i, (ref, mode, kind, _, offset, length, stride, n, slot, flags) in enumerate(used):
                if ref >> 31 or not mode & 1 or kind == 3 or flags & 1 or not self.tensors[ref]["weight"]:
                    continue
                pieces = [(offset, length, stride, n)] if kind == 1 else [r[3:7] for r in ranges if r[0] == i]
                if kind == 0:
                    pieces = [(0, self.tensors[ref]["bytes"], 0, 1)]
                for begin, size, gap, times in pieces:
                    found.setdefault(ref, []).extend((begin + k * gap, begin + k * gap + size) for k in range(times))
        return {ref: merged(list_) for ref, list_ in found.items()}


def merged(intervals):
    out = []
    for begin, end in sorted(intervals):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((begin, end))
    return out


def with_vocabulary(source, path):
    """A copy of a model with a vocabulary of as many tokens as it has rows."""
    model = Gguf(source)
    n = next(dims[1] for name, dims, *_ in model.tensors if name == TOKEN_EMBD)

    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def array(kind, values):
        return struct.pack("<IIQ", 9, kind, n) + b"".join(values)
    pieces = ["<unk>", "<s>", "</s>", "\u2581", *map(chr, range(ord("!"), ord("~")))][:n]
    pieces += [f"piece{i}" for i in range(len(pieces), n)]
    keys = {"model": struct.pack("<I", 8) + text("llama"), "tokens": array(8, map(text, pieces)),
            "scores": array(6, [struct.pack("<f", -i) for i in range(n)]),
            "token_type": array(5, [struct.pack("<i", 3 if 0 < i < 3 else 2 if i == 0 else 1) for i in range(n)]),
            "unknown_token_id": struct.pack("<II", 4, 0), "bos_token_id": struct.pack("<II", 4, 1),
            "eos_token_id": struct.pack("<II", 4, 2)}
    entries = [entry for key, entry in model.raw.items() if not key.startswith("tokenizer.")]
    entries += [text("tokenizer.ggml." + key) + value for key, value in keys.items()]
    head = (model.data[:16] + struct.pack("<Q", len(entries)) + b"".join(entries)
            + model.data[model.end_of_keys:model.end_of_directory])
    path.write_bytes(head + b"\0" * (-len(head) % model.alignment) + model.data[model.data_start:])
    return path


class Bytes(unittest.TestCase):
    def check(self, model, n=4):
        files = []
        for fuse in ([], ["--no-fuse"]):
            t = FOLDER / "bytes.tntrace"
            tinfer("trace", "record", model, "-p", "once on a time", "-n", n, "--temp", 0, *NO_EOG,
                   "--extras", "router", "-o", t, "--overwrite", *fuse)
            files.append(self.check_trace(Gguf(model), Trace(t)))
            verdict = json.loads(tinfer("trace", "validate", t, "--model", model, "--json"))
            self.assertTrue(verdict["valid"])
            states = {rule["rule"]: rule["state"] for rule in verdict["rules"]}
            self.assertEqual({states[rule] for rule in ("V9", "V10", "V13", "V14", "V15", "V17")}, {"ok"})
        self.assertEqual(*files)   # fused or not: the same bytes of the file

    def check_trace(self, model, trace):
        """The intervals of the file that each decode run has read."""
        directory = {name: (model.data_start + offset, dims) for name, dims, _, offset in model.tensors}
        weights = {number: t for number, t in trace.tensors.items() if t["weight"]}
        self.assertEqual([t["name"] for t in weights.values()], [name for name, *_ in model.tensors])
        for t in weights.values():
            self.assertEqual(t["offset"], directory[t["name"]][0], t["name"])
        first_event, decodes, files = 0, 0, []
        for run, (phase, plan, tokens) in sorted(trace.runs.items()):
            events = range(first_event, first_event + len(trace.events[run]))
            first_event = events.stop
            self.assertEqual([step for step, *_ in trace.events[run]], list(range(len(trace.plans[plan][0]))))
            if len(tokens) != 1:
                continue
            decodes += 1
            reads = trace.reads(run)
            tied = "output.weight" not in directory
            chosen = {}   # by layer: experts of the token
            for event in events:
                if event in trace.routes:
                    chosen[trace.plans[plan][0][event - events.start][2]] = {pick[0] for pick in trace.routes[event]}
            total = 0
            for number, t in weights.items():
                whole = [(0, t["bytes"])]
                expected = whole
                if t["name"] == TOKEN_EMBD and not tied:
                    expected = [(tokens[0][0] * t["row"], (tokens[0][0] + 1) * t["row"])]
                elif t["name"] == "position_embd.weight":
                    expected = [(tokens[0][1] * t["row"], (tokens[0][1] + 1) * t["row"])]
                elif STACKED in t["name"]:
                    layer = int(t["name"].split(".")[1])
                    expected = merged((e * t["slice"], (e + 1) * t["slice"]) for e in chosen[layer])
                    self.assertLess(len(chosen[layer]), t["bytes"] // t["slice"])
                self.assertEqual(reads.get(number), expected, t["name"])
                total += sum(end - begin for begin, end in expected)
            # Looked up, and in the head.
            row = sum(t["row"] for t in weights.values() if t["name"] == TOKEN_EMBD and tied)
            self.assertEqual(trace.ends[run], (total + row, total + row))
            files.append(merged((weights[n]["offset"] + a, weights[n]["offset"] + b)
                                for n, pieces in reads.items() for a, b in pieces))
        self.assertGreater(decodes, 2)
        return files

    def test_dense_and_experts(self):  # [X1]
        self.check(MODEL)
        self.check(make_model("bytes-moe.gguf", 1, "moe"))
        self.check(make_model("bytes-biases.gguf", 1, "gpt2"))

    @unittest.skipUnless(GOLDEN, "needs TINFER_GOLDEN")
    def test_golden(self):  # [golden]
        for name in ("llama", "qwen3moe", "gemma2", "deepseek2-groups"):
            with self.subTest(name):
                model = pathlib.Path(GOLDEN) / "models" / name / "model.gguf"
                self.check(with_vocabulary(model, FOLDER / f"{name}.gguf"))

    @unittest.skipUnless(SMOLLM2.exists(), "needs SmolLM2 in models/")
    def test_smollm2(self):  # [model]
        self.check(SMOLLM2)


if __name__ == "__main__":
    unittest.main()
