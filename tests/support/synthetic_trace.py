#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes traces of models that were never run: the plan and the byte counts of real shapes, times from a simple machine
(a read rate, an arithmetic rate, noise from a seed), and faults put where a test looks for them.

usage: synthetic_trace.py KIND out.tntrace     KIND: example, dense, small, experts, hostile, hook, million
"""
import random
import struct
import sys

from trace_writer import (EVENT, EVENTS, FILES, NODE, NONE16, NONE32, NONE64, OPERAND, PIECES, PLAN, RANGE, RUN,
                          RUN_END, RUN_HEAD,
                          SAMPLE, SPAN, STEP, TENSOR, TENSORS, VALUE, TraceWriter, worked_example)

OPS = """none input alias get_rows rms_norm layer_norm quantize mul_mat mul_mat_id mul_mat_heads l2_norm add mul div
scale silu gelu relu tanh sigmoid clamp exp softplus softmax sum_rows copy concat rope_table rope relative_bias kv_write
attention causal_conv token_shift selective_scan wkv6 wkv7 delta_rule top_k moe_weights moe_sum keep_groups add_id
log_temperature segment_sum key_shift kv_copy_page kv_move rms_norm_quantize silu_mul silu_mul_quantize mul_mat_add
rope_kv_write""".split()
PARTS = "none embed attn_norm attn attn_out ffn_norm ffn router experts shared_expert state head pool".split()
PHASES = "prefill decode verify encode load warm_up maintenance".split()
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210)}
READ, WRITE, BOTH = 1, 2, 3
SCRATCH = 0x7FFFFFFE   # the value that stands for the scratch of a plan's steps


class Shape:
    """What a model is made of. slow_layer takes half as long again; hot_experts draw most of the routing."""

    def __init__(self, name, layers, n_embd, n_ff, heads, heads_kv, vocab, tied=False, weights="Q4_K", better="Q6_K",
                 experts=0, used=0, slow_layer=-1, hot_experts=()):
        self.name, self.layers, self.n_embd, self.n_ff = name, layers, n_embd, n_ff
        self.heads, self.heads_kv, self.vocab, self.tied = heads, heads_kv, vocab, tied
        self.weights, self.better, self.experts, self.used = weights, better, experts, used
        self.slow_layer, self.hot_experts = slow_layer, hot_experts
        self.kv = n_embd // heads * heads_kv


TINYLLAMA = Shape("TinyLlama 1.1B", 22, 2048, 5632, 32, 4, 32000, slow_layer=13)
SMOLLM2 = Shape("SmolLM2 135M Instruct", 30, 576, 1536, 9, 3, 49152, tied=True, weights="Q8_0", better="Q8_0",
                slow_layer=17)
EVEN = Shape("Even 1.1B", 22, 2048, 5632, 32, 4, 32000)
MIXTURE = Shape("Mixture 7B A1B", 16, 2048, 1024, 16, 16, 50304, experts=64, used=8, slow_layer=5, hot_experts=(7, 42))


class Model:
    """The registry: every tensor of the file in directory order, then the caches."""

    def __init__(self, shape, trace, rename=lambda name: name):
        self.shape, self.trace, self.rename = shape, trace, rename
        self.rows, self.of, self.size, self.offset = [], {}, {}, 8192 + 64 * shape.vocab // 4
        self.roles, self.scratch = [""], 0
        s = shape
        self.weight("token_embd", -1, s.weights, s.n_embd, s.vocab)
        if not s.tied:
            self.weight("output", -1, s.better, s.n_embd, s.vocab)
        self.weight("output_norm", -1, "F32", s.n_embd)
        for il in range(s.layers):
            some = il < s.layers // 8 or il >= s.layers * 7 // 8 or il % 3 == 2
            better = s.better if some else s.weights
            self.weight("attn_norm", il, "F32", s.n_embd)
            self.weight("attn_q", il, s.weights, s.n_embd, s.n_embd)
            self.weight("attn_k", il, s.weights, s.n_embd, s.kv)
            self.weight("attn_v", il, better, s.n_embd, s.kv)
            self.weight("attn_output", il, s.weights, s.n_embd, s.n_embd)
            self.weight("ffn_norm", il, "F32", s.n_embd)
            if s.experts:
                self.weight("ffn_gate_inp", il, "F32", s.n_embd, s.experts)
                for role, rows, columns in (("gate", s.n_embd, s.n_ff), ("up", s.n_embd, s.n_ff),
                                            ("down", s.n_ff, s.n_embd)):
                    self.weight(f"ffn_{role}_exps", il, better if role == "down" else s.weights, rows, columns,
                                s.experts)
            else:
                self.weight("ffn_gate", il, s.weights, s.n_embd, s.n_ff)
                self.weight("ffn_up", il, s.weights, s.n_embd, s.n_ff)
                self.weight("ffn_down", il, better, s.n_ff, s.n_embd)
        self.file_bytes = self.offset
        for il in range(s.layers):
            for kind, letter in ((1, "k"), (2, "v")):
                self.add(f"cache_{letter}.{il}", f"cache_{letter}", il, "F16", (s.kv, 2048), kind, False)

    def weight(self, role, layer, kind, *ne):
        self.add(f"blk.{layer}.{role}.weight" if layer >= 0 else f"{role}.weight", role, layer, kind, ne, 0, True)

    def add(self, name, role, layer, kind, ne, tensor_class, in_file):
        number, block, block_bytes = TYPES[kind]
        ne = tuple(ne) + (1,) * (4 - len(ne))
        row = ne[0] // block * block_bytes
        slice_bytes = row * ne[1] if ne[2] > 1 else 0
        total = row * ne[1] * ne[2] * ne[3]
        tied = self.shape.tied and role == "token_embd"
        flags = tied | (8 if slice_bytes else 0) | (0 if in_file else 4)
        if role not in self.roles:
            self.roles.append(role)
        tensor = len(self.rows)
        self.rows.append((tensor, self.trace.string(self.rename(name)), tensor_class, flags, layer & 0xFFFF,
                          self.roles.index(role), 0 if in_file else NONE16, number, sum(n > 1 for n in ne) or 1, 0, *ne,
                          total, self.offset if in_file else NONE64, row, slice_bytes, 0))
        self.of[role, layer] = tensor
        self.size[tensor] = (total, row, slice_bytes)
        if in_file:
            self.offset += (total + 31) // 32 * 32


class Plan:
    """Steps, operands, nodes and values of one decoder graph for n tokens; payload() is the block."""

    def __init__(self, model, number, n_tokens):
        self.model, self.number, self.n = model, number, n_tokens
        self.steps, self.operands, self.nodes, self.inputs, self.values, self.step_nodes = [], [], [], [], [], []
        self.dynamic = []   # per step: what ranges the event has, as (operand in step, what)
        self.seconds = []   # streamed bytes and MACs, for the clock
        self.build()

    def value(self, name, layer, bytes_, elided=False):
        number = 2 * len(self.values) + 5   # an id, not a place in the list
        self.values.append((number, self.model.trace.string(name), 0, layer & 0xFFFF, 1 if elided else 0,
                            max(1, bytes_ // 4), 1, 1, 1, bytes_))
        return number | 1 << 31

    def step(self, op, part, layer, reads, out, kernel, macs=0, nodes=None, dynamic=(), passes=1):
        """reads: tensor ids and values; out: name and bytes of the result, or a cache. dynamic: (read, kind) pairs."""
        string = self.model.trace.string
        first, static, streamed = len(self.operands), 0, 0
        result = out if isinstance(out, int) else self.value(out[0], layer, out[1])
        for slot, ref in enumerate([result, *reads]):
            is_dynamic = any(which == slot for which, _ in dynamic)
            is_value = ref >> 31
            size = self.values[((ref & 0x7FFFFFFF) - 5) // 2][9] if is_value else self.model.size[ref][0]
            if not is_dynamic:
                static += size
                streamed += size * (1 if is_value else passes)
            self.operands.append((ref, READ if slot else WRITE, 2 if is_dynamic else 0, 1 if is_value or not slot
                                  else passes,
                                  0, 0, 0, 0, slot, 0))
        has_scratch = self.model.scratch > 0 and op.startswith("mul_mat")
        if has_scratch:
            self.operands.append((SCRATCH | 1 << 31, BOTH, 0, 1, 0, 0, 0, 0, 1 + len(reads), 1))
        first_node, names = len(self.step_nodes), nodes or [op]
        for name in names:
            elided = name != names[-1]
            value = self.value(f"{name}-{layer}", layer, 4096, True) if elided else result
            self.nodes.append((string(f"{part}.{name}-{layer}"), OPS.index(name), layer & 0xFFFF, len(self.steps),
                               value, len(self.inputs), len(reads), PARTS.index(part), 0))
            self.inputs += reads
            self.step_nodes.append(len(self.nodes) - 1)
        self.steps.append((len(self.steps), OPS.index(op), layer & 0xFFFF, string(kernel), PARTS.index(part),
                           (len(names) > 1) | (2 if dynamic else 0), 1 + len(reads) + has_scratch,
                           first, first_node, len(names), 0,
                           max(1, static // 4096), NONE64 if dynamic and op == "mul_mat_id" else macs, static))
        self.dynamic.append(list(dynamic))
        self.seconds.append((static, streamed, macs))
        return result

    def build(self):
        m, s, n = self.model, self.model.shape, self.n
        form = "gemv" if n == 1 else "gemm"
        passes = 1 if n == 1 else (n + 15) // 16
        embd, kv_bytes, ff = 4 * s.n_embd * n, 4 * s.kv * n, 4 * s.n_ff * n
        kinds = {number: name.lower() for name, (number, *_) in TYPES.items()}

        def product(role, part, il, x, out_bytes, op="mul_mat", extra=()):
            tensor = m.of[role, il]
            row = m.rows[tensor]
            return self.step(op, part, il, [tensor, x, *extra], (role, out_bytes), f"{op}.{kinds[row[7]]}.{form}",
                             row[10] * row[11] * n, ["mul_mat", "add"] if op == "mul_mat_add" else None, passes=passes)

        tokens = self.value("tokens", -1, 4 * n)
        x = self.step("get_rows", "embed", -1, [m.of["token_embd", -1], tokens], ("embd", embd), "get_rows", 0,
                      dynamic=[(1, "rows")])
        table = self.step("rope_table", "embed", -1, [tokens], ("rope", 512 * n), "rope_table")
        for il in range(s.layers):
            h = self.step("rms_norm_quantize", "attn_norm", il, [x, m.of["attn_norm", il]], ("attn_norm", embd // 4),
                          "rms_norm_quantize", 0, ["rms_norm", "quantize"])
            q = product("attn_q", "attn", il, h, embd)
            k = product("attn_k", "attn", il, h, kv_bytes)
            v = product("attn_v", "attn", il, h, kv_bytes)
            q = self.step("rope", "attn", il, [q, table], ("q_rope", embd), "rope")
            self.step("rope_kv_write", "attn", il, [k, table], m.of["cache_k", il], "rope_kv_write", 0,
                      ["rope", "kv_write"],
                      [(0, "write")])
            self.step("kv_write", "attn", il, [v], m.of["cache_v", il], "kv_write", 0, None, [(0, "write")])
            a = self.step("attention", "attn", il, [q, m.of["cache_k", il], m.of["cache_v", il]], ("attention", embd),
                          "attention.f16", 0, None, [(2, "read"), (3, "read")])
            a = self.step("quantize", "attn_out", il, [a], ("attn_q8", embd // 4), "quantize")
            x = product("attn_output", "attn_out", il, a, embd, "mul_mat_add", [x])
            h = self.step("rms_norm_quantize", "ffn_norm", il, [x, m.of["ffn_norm", il]], ("ffn_norm", embd // 4),
                          "rms_norm_quantize", 0, ["rms_norm", "quantize"])
            if s.experts:
                router = product("ffn_gate_inp", "router", il, h, 4 * s.experts * n)
                picks = self.step("top_k", "router", il, [router], ("picks", 8 * s.used * n), "top_k")
                wide = ff * s.used
                outs = {}
                for role in ("gate", "up"):
                    outs[role] = self.expert_step(f"ffn_{role}_exps", il, [h, picks], wide, form)
                act = self.step("silu_mul_quantize", "experts", il, [outs["gate"], outs["up"]], ("act", wide // 4),
                                "silu_mul_quantize", 0, ["silu", "mul", "quantize"])
                down = self.expert_step("ffn_down_exps", il, [act, picks], embd * s.used, form)
                x = self.step("moe_sum", "experts", il, [down, picks, x], ("ffn_out", embd), "moe_sum", 0,
                              ["moe_sum", "add"])
            else:
                gate = product("ffn_gate", "ffn", il, h, ff)
                up = product("ffn_up", "ffn", il, h, ff)
                act = self.step("silu_mul_quantize", "ffn", il, [gate, up], ("act", ff // 4), "silu_mul_quantize", 0,
                                ["silu", "mul", "quantize"])
                x = product("ffn_down", "ffn", il, act, embd, "mul_mat_add", [x])
        h = self.step("rms_norm", "head", -1, [x, m.of["output_norm", -1]], ("norm", 4 * s.n_embd), "rms_norm")
        head = m.of.get(("output", -1), m.of["token_embd", -1])
        self.step("mul_mat", "head", -1, [head, h], ("logits", 4 * s.vocab), f"mul_mat.{kinds[m.rows[head][7]]}.gemv",
                  s.n_embd * s.vocab)
        if m.scratch:
            self.values.append((SCRATCH, m.trace.string("scratch"), 0, 0xFFFF, 0, m.scratch // 4, 1, 1, 1, m.scratch))

    def expert_step(self, role, il, reads, out_bytes, form):
        tensor = self.model.of[role, il]
        return self.step("mul_mat_id", "experts", il, [tensor, *reads], (role, out_bytes), f"mul_mat_id.q4_k.{form}", 0,
                         dynamic=[(1, "experts")])

    def payload(self, hash_byte):
        head = struct.pack("<8I16sHHHHII", self.number, len(self.steps), len(self.operands), len(self.nodes),
                           len(self.inputs), len(self.values), len(self.step_nodes), self.n, bytes([hash_byte]) * 16,
                           48, 40,
                           24, 56, self.model.trace.string("llama"), 0)
        return b"".join([head, *(STEP.pack(*s) for s in self.steps), *(OPERAND.pack(*o) for o in self.operands),
                         *(NODE.pack(*n) for n in self.nodes), struct.pack(f"<{len(self.inputs)}I", *self.inputs),
                         *(VALUE.pack(*v) for v in self.values),
                         struct.pack(f"<{len(self.step_nodes)}I", *self.step_nodes)])


class Session:
    """Runs plans on a clock of nanoseconds and writes their blocks. roofs: bytes and MACs a nanosecond. text: of a
    token. pause: (run, step, ns) takes so much longer. busy: in these runs every step takes five times as long.
    scratch: bytes of memory that products share, which is no traffic."""

    def __init__(self, shape, threads=2, seed=1, rename=lambda name: name, skip=None, level=2, roofs=(32.0, 180.0),
                 text=None, pause=None, busy=(), scratch=0):
        self.text, self.pause, self.pieces = text, pause, set()
        self.random, self.threads, self.time, self.run_number, self.position = random.Random(seed), threads, 0, 0, 0
        self.skip, self.roofs, self.level = skip, roofs, level
        self.trace = trace = TraceWriter(level=level, flags=2)
        self.model = model = Model(shape, trace, rename)
        self.busy, model.scratch = busy, scratch
        self.shape = shape
        pairs = [("library", "tinfer"), ("model", shape.name), ("architecture", "llama"), ("isa", "avx512vnni"),
                 ("cpu", "synthetic"), ("threads", str(threads)), ("page_size", "4096"),
                 ("read_gbps", f"{roofs[0]:g}"), ("int8_gmacs", f"{roofs[1]:g}"), ("f32_gmacs", f"{roofs[1] / 4:g}")]
        for prefix, names in (("op", OPS), ("part", PARTS), ("phase", PHASES), ("role", model.roles)):
            pairs += [(f"{prefix}.{i}", name) for i, name in enumerate(names)]
        pairs += [(f"type.{number}", name) for name, (number, *_) in TYPES.items()] + [("layout.0", "file")]
        trace.session_keys(pairs)
        trace.block(FILES, struct.pack("<IIQQ16s", trace.string(shape.name.lower().replace(" ", "-") + ".gguf"), 0,
                                       model.file_bytes, 8192, bytes(16)), 1, 40)
        trace.block(TENSORS, b"".join(TENSOR.pack(*row) for row in model.rows), len(model.rows), 96)
        self.plans = {}

    def plan(self, n_tokens):
        if n_tokens not in self.plans:
            plan = Plan(self.model, len(self.plans), n_tokens)
            payload = plan.payload(len(self.plans) + 1)
            self.trace.block(PLAN, payload, 1)
            self.plans[n_tokens] = plan
        return self.plans[n_tokens]

    def ranges(self, plan, step, ids, picks):
        """(range records, bytes): what the dynamic operands of a step touch in this run."""
        records, total, model = [], 0, self.model
        first = plan.steps[step][7]
        for which, kind in plan.dynamic[step]:
            tensor = plan.operands[first + which][0]
            _, row, slice_bytes = model.size[tensor]
            if kind == "rows":
                pieces = [(token, ids.count(token), token * row, row) for token in sorted(set(ids))]
            elif kind == "experts":
                layer = model.rows[tensor][4]
                pieces = [(expert, count, expert * slice_bytes, slice_bytes) for expert,
                          count in sorted(picks[layer].items())]
            elif kind == "write":
                pieces = [(0, plan.n, self.position * row, plan.n * row)]
            else:
                pieces = [(0, plan.n, 0, (self.position + plan.n) * row)]
            for tag, weight, offset, length in pieces:
                records.append((which, 0, tag, offset, length, 0, 1, weight))
                total += length
        return records, total

    def pick_experts(self, n_tokens):
        picks = []
        for layer in range(self.shape.layers):
            counts = {}
            for _ in range(n_tokens):
                chosen = {e for e in self.shape.hot_experts if self.random.random() < 0.8}
                while len(chosen) < self.shape.used:
                    chosen.add(int(self.random.random() ** 1.6 * self.shape.experts + layer * 5) % self.shape.experts)
                for expert in chosen:
                    counts[expert] = counts.get(expert, 0) + 1
            picks.append(counts)
        return picks

    def duration(self, plan, step, dynamic_bytes):
        static, streamed, macs = plan.seconds[step]
        bytes_ = streamed + dynamic_bytes
        time = 700 + max(bytes_ / (self.roofs[0] * 0.92), macs / (self.roofs[1] * 0.8))
        if plan.steps[step][1] == OPS.index("attention"):
            time = 700 + bytes_ / (self.roofs[0] * 0.35)
        if plan.steps[step][2] == self.shape.slow_layer:
            time *= 1.5
        return int(time * (1 + 0.06 * self.random.random() ** 2))

    def spans(self, plan, step, duration):
        """Thread 0 starts at once; the others wake late, and wait where a step's work does not divide (attention)."""
        out = []
        uneven = 0.45 if plan.steps[step][1] == OPS.index("attention") else 0.03
        for thread in range(self.threads):
            start = 0 if thread == 0 else min(duration // 4, 180 + int(self.random.random() * 120))
            busy = int((duration - start) * (1 if thread == 0 else 1 - uneven * (0.7 + 0.3 * self.random.random())))
            out.append((start, busy, max(1, plan.steps[step][11] // self.threads), thread, 0))
        return out

    def write_pieces(self, ids):
        new = sorted(set(ids) - self.pieces) if self.text else []
        self.pieces.update(new)
        texts = [(token, self.text(token).encode()) for token in new]
        if texts:
            self.trace.block(PIECES, b"".join(struct.pack("<iI", token, len(text)) + text + bytes(-len(text) % 4)
                                              for token, text in texts), len(texts))

    def run(self, n_tokens):
        plan, trace = self.plan(n_tokens), self.trace
        ids = [self.random.randrange(self.shape.vocab) if i else 1 for i in range(n_tokens)]
        picks = self.pick_experts(n_tokens) if self.shape.experts else []
        begin, first_event = self.time, trace.events
        decode = self.run_number
        head = RUN_HEAD.pack(self.run_number, begin, decode, 0, 0 if n_tokens > 1 else 1, 0, plan.number, self.threads,
                             1,
                             n_tokens, 1, first_event, self.position + n_tokens, 2048, 0)
        tokens = b"".join(struct.pack("<iiII", token, self.position + i, 0, i == n_tokens - 1) for i,
                          token in enumerate(ids))
        self.write_pieces(ids)
        trace.block(RUN, head + tokens, 1, 0, begin, self.run_number)
        events, ranges, spans, observed = [], [], [], 0
        for step in range(len(plan.steps)):
            records, dynamic_bytes = self.ranges(plan, step, ids, picks)
            duration = self.duration(plan, step, dynamic_bytes)
            if self.pause and self.pause[:2] == (self.run_number, step):
                duration += self.pause[2]
            if self.run_number in self.busy:
                duration *= 5
            self.time += 15 + self.random.randrange(10)
            if self.skip is None or not self.skip(plan, step):
                static = plan.steps[step][13]
                events.append((self.time, duration, step, len(ranges), len(records), 0, 0, static + dynamic_bytes))
                ranges += records
                if self.level == 2:
                    spans += self.spans(plan, step, duration)
                observed += static + dynamic_bytes
            self.time += duration
        payload = struct.pack("<QQIIIHHHHI", self.run_number, first_event, len(events), len(ranges),
                              self.threads if spans else 0, 32, 40, 16, 0, 0)
        payload += b"".join(EVENT.pack(*e) for e in events) + b"".join(RANGE.pack(*r) for r in ranges)
        payload += b"".join(SPAN.pack(*s) for s in spans)
        trace.block(EVENTS, payload, len(events), 0, begin, first_event)
        trace.events += len(events)
        end = self.time + 300
        trace.block(RUN_END, struct.pack("<QQIIQQQII", self.run_number, end, 0, len(events), 0, observed, observed, 0,
                                         0), 1,
                    56, begin, self.run_number)
        self.time = end + 20_000
        trace.block(SAMPLE, struct.pack("<QQQIifIII", self.run_number, end + 2000, 15_000, 0, ids[-1], 0.5, 40, 0, 1),
                    1, 48,
                    end + 2000)
        self.run_number += 1
        self.position += n_tokens


def dense(shape=TINYLLAMA, prompt=24, tokens=12, **options):
    session = Session(shape, **options)
    session.run(prompt)
    for i in range(tokens):
        if i == tokens // 2:
            session.trace.mark(session.time, "half way")
        session.run(1)
    return session.trace.close()


def experts(tokens=40):
    return dense(MIXTURE, 16, tokens, threads=4)


def hook():
    """What a hook of one function sees of the dense model: 10 layers and two matrices of each."""
    names = ("attn_q", "ffn_down")
    allowed = lambda plan, step: plan.steps[step][2] < 10 and any(
        plan.operands[plan.steps[step][7] + 1][0] == plan.model.of[role, plan.steps[step][2]] for role in names)
    return dense(skip=lambda plan, step: not allowed(plan, step), tokens=6)


HOSTILE = ['<script>document.title="owned"</script>', '"><img src=x onerror="document.title=\'owned\'">', "</script>{}",
           "a,b\n\"c\"", "\u202eright to left", "x" * 3000, "", "-->", "\u2028", "${1+1}`"]


def hostile():
    """A small model whose tensors, marks and kernels have names that try to be markup."""
    shape = Shape(HOSTILE[0], 2, 256, 512, 4, 2, 512, tied=True)
    names = iter(HOSTILE)
    session = Session(shape, rename=lambda name: next(names, name))
    session.trace.mark(0, HOSTILE[1])
    for n in (3, 1, 1):
        session.run(n)
    return session.trace.close()


def million(events=1_000_000):
    """A long generation of the dense model. Runs repeat those of a few, moved in time, so that this takes seconds."""
    session = Session(TINYLLAMA)
    session.run(24)
    blocks = []
    for _ in range(8):
        before, at, first = session.time, len(session.trace.parts), session.trace.events
        session.run(1)
        of_run = [raw for raw in session.trace.parts[at:]
                  if struct.unpack_from("<H", raw, 4)[0] in (RUN, EVENTS, RUN_END, SAMPLE)]
        blocks.append((before, session.time, first, of_run))
    per_run = len(session.plans[1].steps)
    trace = session.trace
    while trace.events < events:
        before, after, first, parts = blocks[session.run_number % len(blocks)]
        shift = session.time - before
        for raw in parts:
            kind, size, count = struct.unpack_from("<H2xII", raw, 4)
            data = bytearray(raw[56:56 + size])
            if kind == EVENTS:
                struct.pack_into("<QQ", data, 0, session.run_number, trace.events)
                times = struct.unpack_from("<" + "Q24x" * per_run, data, 40)
                for i, time in enumerate(times):
                    struct.pack_into("<Q", data, 40 + 32 * i, time + shift)
            elif kind == RUN:
                struct.pack_into("<QQI", data, 0, session.run_number, session.time, session.run_number)
                struct.pack_into("<Q", data, 40, trace.events)
                struct.pack_into("<i", data, 68, session.position)
            elif kind == RUN_END:
                struct.pack_into("<QQ", data, 0, session.run_number, struct.unpack_from("<Q", data, 8)[0] + shift)
            elif kind == SAMPLE:
                struct.pack_into("<QQ", data, 0, session.run_number, struct.unpack_from("<Q", data, 8)[0] + shift)
            trace.block(kind, data, count, struct.unpack_from("<I", raw, 40)[0], session.time,
                        trace.events if kind == EVENTS else session.run_number)
        trace.events += per_run
        session.time += after - before
        session.run_number += 1
        session.position += 1
    return trace.close()


def small():
    return dense(SMOLLM2, 32, 24)


KINDS = {"example": worked_example, "dense": dense, "small": small, "experts": experts, "hostile": hostile,
         "hook": hook,
         "million": million}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    with open(sys.argv[2], "wb") as out:
        out.write(KINDS[sys.argv[1]]())
