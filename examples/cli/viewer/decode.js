// SPDX-License-Identifier: MIT
// Bytes to columns. Two ways in, one result: a .tntrace file dropped on the page (docs/tracing.md, "The file"), or what
// `tinfer trace view` put into the page: the file's blocks without EVENTS, and the events packed (see unpackEvents).
// No page is needed here; every count is checked against the bytes that are there.

const BLOCK = {strings: 1, session: 2, files: 3, tensors: 4, plan: 5, run: 6, events: 7, runEnd: 8, sample: 9, mark: 10,
    pages: 11, drops: 14};
const NONE16 = 0xffff, NONE32 = 0xffffffff, VALUE_REF = 0x80000000;

const crcTables = (() => {
    const tables = [new Uint32Array(256)];
    for (let i = 0; i < 256; ++i) {
        let c = i;
        for (let bit = 0; bit < 8; ++bit) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1;
        tables[0][i] = c;
    }
    for (let t = 1; t < 4; ++t) {
        tables.push(new Uint32Array(256));
        for (let i = 0; i < 256; ++i) tables[t][i] = (tables[t - 1][i] >>> 8) ^ tables[0][tables[t - 1][i] & 255];
    }
    return tables;
})();

/** CRC-32C of bytes [from, to), four at a time. */
function crc32c(bytes, from, to) {
    const [t0, t1, t2, t3] = crcTables;
    let c = 0xffffffff, i = from;
    for (; i + 4 <= to; i += 4) {
        c ^= bytes[i] | bytes[i + 1] << 8 | bytes[i + 2] << 16 | bytes[i + 3] << 24;
        c = t3[c & 255] ^ t2[c >>> 8 & 255] ^ t1[c >>> 16 & 255] ^ t0[c >>> 24];
    }
    for (; i < to; ++i) c = (c >>> 8) ^ t0[(c ^ bytes[i]) & 255];
    return (c ^ 0xffffffff) >>> 0;
}

/** Little-endian reader of one block; u64 as a number, exact below 2^53. */
class Fields {
    constructor(view, at, end) { this.view = view; this.at = at; this.end = end; }
    need(n) { if (this.at + n > this.end) throw new Error('a block ends before its records'); }
    u8() { this.need(1); return this.view.getUint8(this.at++); }
    u16() { this.need(2); const v = this.view.getUint16(this.at, true); this.at += 2; return v; }
    u32() { this.need(4); const v = this.view.getUint32(this.at, true); this.at += 4; return v; }
    i32() { this.need(4); const v = this.view.getInt32(this.at, true); this.at += 4; return v; }
    f32() { this.need(4); const v = this.view.getFloat32(this.at, true); this.at += 4; return v; }
    u64() { const low = this.u32(); return low + this.u32() * 4294967296; }
    hex(n) { let s = ''; for (let i = 0; i < n; ++i) s += this.u8().toString(16).padStart(2, '0'); return s; }
    skip(n) { this.need(n); this.at += n; }
}

/** Characters that hide, or turn the text around them, as their numbers. */
function visible(text) {
    return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

/** Where the sound blocks lie: {type, at, size, count, sequence, recordBytes}. Damage is skipped and said. */
function scanBlocks(bytes, view, from, problems) {
    const blocks = [];
    let at = from, bad = -1;
    while (at + 56 <= bytes.length) {
        if (view.getUint32(at, true) === 0x4b424e54 && view.getUint32(at + 52, true) === crc32c(bytes, at, at + 52)) {
            const size = view.getUint32(at + 8, true);
            if (at + 56 + size > bytes.length) { problems.push(`the file ends inside a block at ${at}`); return blocks; }
            if (bad >= 0) { problems.push(`skipped damaged bytes ${bad} to ${at}`); bad = -1; }
            if (view.getUint32(at + 48, true) === crc32c(bytes, at + 56, at + 56 + size))
                blocks.push({type: view.getUint16(at + 4, true), at: at + 56, size, count: view.getUint32(at + 12, true),
                    sequence: view.getUint32(at + 16, true), recordBytes: view.getUint32(at + 40, true)});
            else problems.push(`skipped a block with a wrong checksum at ${at}`);
            at += 56 + Math.ceil(size / 8) * 8;
        } else {
            if (bad < 0) bad = at;
            at += 8;
        }
    }
    if (bad >= 0) problems.push(`skipped damaged bytes ${bad} to ${bytes.length}`);
    return blocks;
}

function readHeader(bytes, view) {
    if (bytes.length < 128 || String.fromCharCode(...bytes.subarray(0, 8)) !== 'TNFTRACE') throw new Error('not a trace of tinfer');
    const f = new Fields(view, 8, 128);
    const header = {major: f.u16(), minor: f.u16()};
    if (header.major !== 1) throw new Error(`trace version ${header.major}.${header.minor} not supported`);
    if (view.getUint32(124, true) !== crc32c(bytes, 0, 124)) throw new Error('the header is damaged');
    f.skip(8);
    header.flags = f.u32(); header.wall = f.u64(); f.u64(); f.u32(); header.level = f.u32();
    header.session = f.hex(16); header.fingerprint = f.hex(16);
    f.u64(); header.events = f.u64(); header.dropped = f.u64(); header.filtered = f.u64();
    return header;
}

const recordCount = (block, fallback) => {
    const size = block.recordBytes || fallback;
    if (size < fallback) throw new Error('records are shorter than version 1.0 has them');
    return [Math.min(block.count, Math.floor(block.size / size)), size];
};

/** All blocks but EVENTS. */
function readSkeleton(view, bytes, blocks, header, problems) {
    const strings = [''], text = new TextDecoder();
    const trace = {header, problems, session: Object.create(null), files: [], tensors: [], plans: [], runs: [], samples: [],
        marks: [], pages: [], drops: []};
    const name = id => strings[id] ?? '';
    const runOf = new Map(), planOf = new Map();
    const layerOf = v => v === NONE16 ? -1 : v;
    const each = (block, size, read) => {
        const [n, step] = recordCount(block, size);
        for (let i = 0; i < n; ++i) read(new Fields(view, block.at + i * step, block.at + (i + 1) * step));
    };
    const readers = {
        [BLOCK.strings](block) {
            const f = new Fields(view, block.at, block.at + block.size);
            for (let i = 0; i < block.count; ++i) {
                const id = f.u32(), length = f.u32();
                f.need(length);
                if (id > 1 << 24) throw new Error('a string has an id that is too large');
                strings[id] = visible(text.decode(bytes.subarray(f.at, f.at + length)));
                f.at = Math.min(f.end, f.at + Math.ceil(length / 4) * 4);
            }
        },
        [BLOCK.session](block) { each(block, 8, f => { const key = name(f.u32()); trace.session[key] = name(f.u32()); }); },
        [BLOCK.files](block) {
            each(block, 40, f => trace.files.push({name: name(f.u32()), index: f.u32(), size: f.u64(), dataStart: f.u64()}));
        },
        [BLOCK.tensors](block) {
            each(block, 96, f => {
                const t = {id: f.u32(), name: name(f.u32()), cls: f.u8(), flags: f.u8(), layer: layerOf(f.u16()), role: f.u16(),
                    file: f.u16(), type: f.u32(), dims: f.u16(), layout: f.u16(), ne: [f.u64(), f.u64(), f.u64(), f.u64()],
                    bytes: f.u64(), offset: f.u64(), row: f.u64(), slice: f.u64()};
                if (t.offset > 1e18) t.offset = -1;
                if (t.id !== trace.tensors.length) throw new Error(`tensor ids are not dense at ${t.id}`);
                trace.tensors.push(t);
            });
        },
        [BLOCK.plan](block) {
            const plan = readPlan(new Fields(view, block.at, block.at + block.size), name, layerOf);
            planOf.set(plan.id, trace.plans.length);
            trace.plans.push(plan);
        },
        [BLOCK.run](block) {
            const f = new Fields(view, block.at, block.at + block.size);
            const run = {run: f.u64(), begin: f.u64(), decode: f.u32(), micro: f.u16(), phase: f.u8(), flags: f.u8(),
                plan: planOf.get(f.u32()) ?? -1, threads: f.u16(), sequences: f.u16(), tokens: f.u32(), outputs: f.u32(),
                firstEvent: f.u64(), cells: f.u32(), extent: f.u32(), end: -1, status: 0, complete: false, expected: 0,
                observed: 0, dropped: 0, events: 0, rolledBack: false, ev0: 0, ev1: 0, position: -1, token: -1};
            f.skip(8);
            if (run.tokens && f.at + 16 <= f.end) { run.token = f.i32(); run.position = f.i32(); }
            runOf.set(run.run, trace.runs.length);
            trace.runs.push(run);
        },
        [BLOCK.runEnd](block) {
            each(block, 56, f => {
                const run = trace.runs[runOf.get(f.u64()) ?? -1];
                if (!run) return;
                Object.assign(run, {end: f.u64(), status: f.u32(), events: f.u32(), dropped: f.u64(), expected: f.u64(),
                    observed: f.u64(), rolledBack: (f.u32() & 1) === 1, complete: true});
            });
        },
        [BLOCK.sample](block) {
            each(block, 48, f => trace.samples.push({run: f.u64(), time: f.u64(), duration: f.u64(), output: f.u32(),
                token: f.i32(), probability: f.f32(), left: f.u32(), sequence: f.u32()}));
        },
        [BLOCK.mark](block) { each(block, 16, f => trace.marks.push({time: f.u64(), text: name(f.u32())})); },
        [BLOCK.pages](block) {
            each(block, 32, f => trace.pages.push({event: f.u64(), operand: f.u16(), unknown: (f.u16() & 1) === 1, page: f.u32(),
                pages: f.u32(), resident: f.u32(), minor: f.u32(), major: f.u32()}));
        },
        [BLOCK.drops](block) {
            each(block, 32, f => trace.drops.push({from: f.u64(), to: f.u64(), first: f.u64(), count: f.u64()}));
        },
    };
    if (!(header.flags & 1)) problems.push('the file was not closed; what was flushed is here');
    let sequence = -1;
    for (const block of blocks) {
        if (sequence >= 0 && block.sequence !== sequence + 1 && !trace.gap) {
            trace.gap = true;
            problems.push(`blocks are missing before number ${block.sequence}`);
        }
        sequence = block.sequence;
        const read = readers[block.type];
        if (!read) continue;
        try { read(block); } catch (error) { problems.push(`block ${block.sequence}: ${error.message}`); }
    }
    trace.runOf = runOf;
    return trace;
}

function readPlan(f, name, layerOf) {
    const plan = {id: f.u32()};
    const counts = {steps: f.u32(), operands: f.u32(), nodes: f.u32(), inputs: f.u32(), values: f.u32(), stepNodes: f.u32()};
    plan.tokens = f.u32(); plan.hash = f.hex(16);
    const bytes = {steps: f.u16(), operands: f.u16(), nodes: f.u16(), values: f.u16(), inputs: 4, stepNodes: 4};
    plan.architecture = name(f.u32()); f.u32();
    const u64 = () => { const low = f.u32(); return low + f.u32() * 4294967296; };
    const readers = {
        steps: () => ({number: f.u32(), op: f.u16(), layer: layerOf(f.u16()), kernel: name(f.u32()), part: f.u8(), flags: f.u8(),
            operands: f.u16(), firstOperand: f.u32(), firstNode: f.u32(), nodes: f.u16(), reserved: f.u16(), work: f.u32(),
            macs: u64(), bytes: u64()}),
        operands: () => ({ref: f.u32(), mode: f.u8(), kind: f.u8(), passes: f.u16(), offset: u64(), length: u64(), stride: u64(),
            count: f.u32(), slot: f.u16(), flags: f.u16()}),
        nodes: () => ({name: name(f.u32()), op: f.u16(), layer: layerOf(f.u16()), step: f.u32(), value: f.u32(),
            firstInput: f.u32(), inputs: f.u16(), part: f.u8(), flags: f.u8()}),
        inputs: () => f.u32(),
        values: () => ({id: f.u32(), name: name(f.u32()), type: f.u32(), layer: layerOf(f.u16()), flags: f.u16(),
            ne: [u64(), u64(), u64(), u64()], bytes: u64()}),
        stepNodes: () => f.u32(),
    };
    for (const key of Object.keys(readers)) {
        if (bytes[key] * counts[key] > f.end - f.at) throw new Error(`a plan says more ${key} than it has`);
        plan[key] = [];
        for (let i = 0; i < counts[key]; ++i) {
            const next = f.at + bytes[key];
            plan[key].push(readers[key]());
            f.at = next;
        }
    }
    for (const step of plan.steps)
        if (step.firstOperand + step.operands > counts.operands || step.firstNode + step.nodes > counts.stepNodes)
            throw new Error(`step ${step.number} has operands or nodes that are not there`);
    return plan;
}

function makeColumns(events, ranges, spans) {
    return {
        events: {count: events, begin: new Float64Array(events), duration: new Float64Array(events), step: new Uint32Array(events),
            run: new Uint32Array(events), bytes: new Float64Array(events), status: new Uint8Array(events),
            flags: new Uint8Array(events), firstRange: new Uint32Array(events + 1), firstSpan: new Uint32Array(events + 1)},
        ranges: {count: ranges, operand: new Uint16Array(ranges), flags: new Uint16Array(ranges), tag: new Uint32Array(ranges),
            offset: new Float64Array(ranges), length: new Float64Array(ranges), stride: new Float64Array(ranges),
            pieces: new Uint32Array(ranges), weight: new Uint32Array(ranges)},
        spans: {count: spans, start: new Uint32Array(spans), busy: new Uint32Array(spans), work: new Uint32Array(spans),
            cpu: new Uint16Array(spans), flags: new Uint16Array(spans)},
    };
}

/** EVENTS blocks of a file to columns. */
function readEvents(view, blocks, trace) {
    const heads = [];
    let events = 0, ranges = 0, spans = 0;
    for (const block of blocks) {
        if (block.type !== BLOCK.events || block.size < 40) continue;
        const f = new Fields(view, block.at, block.at + block.size);
        const h = {run: f.u64(), first: f.u64(), events: f.u32(), ranges: f.u32(), threads: f.u32(), eventBytes: f.u16(),
            rangeBytes: f.u16(), spanBytes: f.u16(), at: block.at + 40};
        const need = h.events * h.eventBytes + h.ranges * h.rangeBytes + h.events * h.threads * h.spanBytes;
        if (h.eventBytes < 32 || h.rangeBytes < 40 || (h.threads && h.spanBytes < 16) || need > block.size - 40) {
            trace.problems.push(`block ${block.sequence}: its events do not fit in it`);
            continue;
        }
        heads.push(h);
        events += h.events; ranges += h.ranges; spans += h.events * h.threads;
    }
    const columns = makeColumns(events, ranges, spans);
    const e = columns.events, r = columns.ranges, s = columns.spans;
    const u32 = at => view.getUint32(at, true), u64 = at => u32(at) + u32(at + 4) * 4294967296;
    let ei = 0, ri = 0, si = 0;
    for (const h of heads) {
        const run = trace.runOf.get(h.run) ?? NONE32;
        for (let i = 0, at = h.at; i < h.events; ++i, ++ei, at += h.eventBytes) {
            e.begin[ei] = u64(at); e.duration[ei] = u32(at + 8); e.step[ei] = u32(at + 12); e.run[ei] = run;
            e.firstRange[ei] = ri + Math.min(u32(at + 16), h.ranges);
            e.status[ei] = view.getUint8(at + 22); e.flags[ei] = view.getUint8(at + 23); e.bytes[ei] = u64(at + 24);
            e.firstSpan[ei] = si + i * h.threads;
        }
        let at = h.at + h.events * h.eventBytes;
        for (let i = 0; i < h.ranges; ++i, ++ri, at += h.rangeBytes) {
            r.operand[ri] = view.getUint16(at, true); r.flags[ri] = view.getUint16(at + 2, true); r.tag[ri] = u32(at + 4);
            r.offset[ri] = u64(at + 8); r.length[ri] = u64(at + 16); r.stride[ri] = u64(at + 24);
            r.pieces[ri] = u32(at + 32); r.weight[ri] = u32(at + 36);
        }
        for (let i = 0; i < h.events * h.threads; ++i, ++si, at += h.spanBytes) {
            s.start[si] = u32(at); s.busy[si] = u32(at + 4); s.work[si] = u32(at + 8);
            s.cpu[si] = view.getUint16(at + 12, true); s.flags[si] = view.getUint16(at + 14, true);
        }
    }
    e.firstRange[events] = ri; e.firstSpan[events] = si;
    return columns;
}

/** What view.cpp packed: per block run, events, ranges, threads; per event begin, duration, step, a control number, then
    its ranges and spans; all as variable-length numbers, differences from what the same step had before. */
function unpackEvents(bytes, info, trace) {
    let at = 0;
    const number = () => {
        let value = 0, scale = 1, byte;
        do {
            if (at >= bytes.length) throw new Error('the packed events end too early');
            byte = bytes[at++];
            value += (byte & 127) * scale;
            scale *= 128;
        } while (byte & 128);
        return value;
    };
    const signed = () => { const v = number(); return v % 2 ? -(v + 1) / 2 : v / 2; };
    // the smallest event is four bytes, a range one, a span two: nothing is made that the bytes cannot fill
    if (info.events * 4 > bytes.length || info.ranges > bytes.length || info.spans * 2 > bytes.length)
        throw new Error('the packed events are fewer than the page says');
    const columns = makeColumns(info.events, info.ranges, info.spans);
    const e = columns.events, r = columns.ranges, s = columns.spans;
    const lastBytes = [], lastRanges = [], lastWork = [], lastStart = [], lastCpu = [];
    let ei = 0, ri = 0, si = 0, end = 0;
    while (at < bytes.length) {
        const run = trace.runOf.get(number()) ?? NONE32, count = number(), threads = number();
        let step = -1;
        if (ei + count > info.events || si + count * threads > info.spans) throw new Error('more packed events than the page says');
        for (let i = 0; i < count; ++i, ++ei) {
            const begin = end + signed(), duration = number();
            step += 1 + signed();
            const control = number(), n = Math.floor(control / 4);
            if (step < 0 || step > 1 << 24 || ri + n > info.ranges) throw new Error('a packed event is damaged');
            if (control & 2) { const both = number(); e.status[ei] = both & 255; e.flags[ei] = both >>> 8; }
            if (control & 1) lastBytes[step] = (lastBytes[step] ?? 0) + signed();
            e.begin[ei] = begin; e.duration[ei] = duration; e.step[ei] = step; e.run[ei] = run;
            e.bytes[ei] = lastBytes[step] ?? 0; e.firstRange[ei] = ri; e.firstSpan[ei] = si;
            end = begin + duration;
            const old = lastRanges[step] ??= [];
            for (let k = 0; k < n; ++k, ++ri) {
                const v = old[k] ??= [0, 0, 0, 0, 0, 0, 0, 0], mask = bytes[at++];
                for (let bit = 0; bit < 8; ++bit) if (mask >> bit & 1) v[bit] += signed();
                r.operand[ri] = v[0]; r.flags[ri] = v[1]; r.tag[ri] = v[2]; r.offset[ri] = v[3]; r.length[ri] = v[4];
                r.stride[ri] = v[5]; r.pieces[ri] = v[6]; r.weight[ri] = v[7];
            }
            const works = threads ? lastWork[step] ??= [] : null;
            for (let t = 0; t < threads; ++t, ++si) {
                const head = number(), half = Math.floor(head / 2);
                lastStart[t] = (lastStart[t] ?? 0) + (half % 2 ? -(half + 1) / 2 : half / 2);
                s.start[si] = lastStart[t];
                s.busy[si] = duration - lastStart[t] - signed();
                if (head % 2) { works[t] = (works[t] ?? 0) + signed(); lastCpu[t] = number(); s.flags[si] = number(); }
                s.work[si] = works[t] ?? 0; s.cpu[si] = lastCpu[t] ?? 0;
            }
        }
    }
    if (ei !== info.events || ri !== info.ranges || si !== info.spans) throw new Error('fewer packed events than the page says');
    e.firstRange[ei] = ri; e.firstSpan[ei] = si;
    return columns;
}

/** Steps of all plans get one number each, and whatever cannot be resolved the last one. */
function resolveEvents(trace, columns) {
    const e = columns.events;
    let total = 0;
    for (const plan of trace.plans) { plan.base = total; total += plan.steps.length; }
    trace.unresolved = total;
    let lost = 0, late = 0, lastRun = -1, previous = 0;
    for (let i = 0; i < e.count; ++i) {
        const run = trace.runs[e.run[i]], plan = run && trace.plans[run.plan];
        if (plan && e.step[i] < plan.steps.length) e.step[i] += plan.base;
        else { e.step[i] = total; ++lost; }
        if (run && e.run[i] !== lastRun) { lastRun = e.run[i]; if (!run.ev1) run.ev0 = i; }
        if (run) run.ev1 = i + 1;
        if (e.begin[i] < previous) { e.begin[i] = previous; ++late; }
        previous = e.begin[i];
        if (e.flags[i] & 1) {
            const next = i + 1 < e.count && e.run[i + 1] === e.run[i] ? e.begin[i + 1] : run ? run.end : -1;
            if (next > e.begin[i]) e.duration[i] = next - e.begin[i];
        }
    }
    if (lost) trace.problems.push(`${lost} events belong to no plan that is in the file`);
    if (late) trace.problems.push(`${late} events begin before the one before them; drawn at its time`);
    for (const run of trace.runs)
        if (run.end < 0) run.end = run.ev1 ? e.begin[run.ev1 - 1] + e.duration[run.ev1 - 1] : run.begin;
    return Object.assign(trace, columns);
}

/** A whole .tntrace file: ArrayBuffer to trace. */
function readTrace(buffer) {
    const bytes = new Uint8Array(buffer), view = new DataView(buffer), problems = [];
    const header = readHeader(bytes, view);
    const blocks = scanBlocks(bytes, view, 128, problems);
    const trace = readSkeleton(view, bytes, blocks, header, problems);
    return resolveEvents(trace, readEvents(view, blocks, trace));
}

/** What stands in the page: info (the JSON block) and the bytes of the base64 block. */
function readEmbedded(info, bytes) {
    if (info.view !== 1) throw new Error(`this page cannot read view data of version ${info.view}`);
    const skeleton = bytes.slice(0, info.skeleton), view = new DataView(skeleton.buffer), problems = [...(info.problems ?? [])];
    const header = readHeader(skeleton, view);
    const trace = readSkeleton(view, skeleton, scanBlocks(skeleton, view, 128, problems)
        .map((block, i) => ({...block, sequence: i})), header, problems);
    if (info.thinned) problems.push(info.thinned);
    return resolveEvents(trace, unpackEvents(bytes.subarray(info.skeleton), info, trace));
}

function fromBase64(text) {
    const clean = atob(text.trim()), bytes = new Uint8Array(clean.length);
    for (let i = 0; i < clean.length; ++i) bytes[i] = clean.charCodeAt(i);
    return bytes;
}
