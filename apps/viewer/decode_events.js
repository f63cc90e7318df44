// SPDX-License-Identifier: MIT
// Decodes events into columns, from EVENTS blocks or from the form of view_pack.cpp, and assembles the trace.

function makeColumns(events, ranges, spans) {
    return {
        events: {
            count: events,
            begin: new Float64Array(events),
            duration: new Float64Array(events),
            step: new Uint32Array(events),
            run: new Uint32Array(events),
            bytes: new Float64Array(events),
            status: new Uint8Array(events),
            flags: new Uint8Array(events),
            firstRange: new Uint32Array(events),
            endRange: new Uint32Array(events), // events may share ranges
            firstSpan: new Uint32Array(events + 1)
        },
        ranges: {
            count: ranges,
            operand: new Uint16Array(ranges),
            flags: new Uint16Array(ranges),
            tag: new Uint32Array(ranges),
            offset: new Float64Array(ranges),
            length: new Float64Array(ranges),
            stride: new Float64Array(ranges),
            pieces: new Uint32Array(ranges),
            weight: new Uint32Array(ranges)
        },
        spans: {
            count: spans,
            start: new Uint32Array(spans),
            busy: new Uint32Array(spans),
            work: new Uint32Array(spans),
            cpu: new Uint16Array(spans),
            flags: new Uint16Array(spans)
        }
    };
}

/** EVENTS blocks of a file to columns. */
function readEvents(view, blocks, trace) {
    const heads = [];
    let events = 0,
        ranges = 0,
        spans = 0;
    for (const block of blocks) {
        if (block.type !== BLOCK.events || block.size < 40) continue;
        const f = new Fields(view, block.at, block.at + block.size);
        const h = {
            run: f.u64(),
            first: f.u64(),
            events: f.u32(),
            ranges: f.u32(),
            threads: f.u32(),
            eventBytes: f.u16(),
            rangeBytes: f.u16(),
            spanBytes: f.u16(),
            at: block.at + 40
        };
        const need = h.events * h.eventBytes + h.ranges * h.rangeBytes + h.events * h.threads * h.spanBytes;
        if (h.eventBytes < 32 || h.rangeBytes < 40 || (h.threads && h.spanBytes < 16) || need > block.size - 40) {
            trace.problems.push(`block ${block.sequence}: its events do not fit in it`);
            continue;
        }
        heads.push(h);
        events += h.events;
        ranges += h.ranges;
        spans += h.events * h.threads;
    }
    const columns = makeColumns(events, ranges, spans);
    const e = columns.events,
        r = columns.ranges,
        s = columns.spans;
    const u32 = at => view.getUint32(at, true),
        u64 = at => u32(at) + u32(at + 4) * 4294967296;
    let ei = 0,
        ri = 0,
        si = 0;
    for (const h of heads) {
        const run = trace.runOf.get(h.run) ?? NONE32;
        for (let i = 0, at = h.at; i < h.events; ++i, ++ei, at += h.eventBytes) {
            e.begin[ei] = u64(at);
            e.duration[ei] = u32(at + 8);
            e.step[ei] = u32(at + 12);
            e.run[ei] = run;
            e.firstRange[ei] = ri + Math.min(u32(at + 16), h.ranges);
            e.endRange[ei] = Math.min(e.firstRange[ei] + view.getUint16(at + 20, true), ri + h.ranges);
            e.status[ei] = view.getUint8(at + 22);
            e.flags[ei] = view.getUint8(at + 23);
            e.bytes[ei] = u64(at + 24);
            e.firstSpan[ei] = si + i * h.threads;
        }
        let at = h.at + h.events * h.eventBytes;
        for (let i = 0; i < h.ranges; ++i, ++ri, at += h.rangeBytes) {
            r.operand[ri] = view.getUint16(at, true);
            r.flags[ri] = view.getUint16(at + 2, true);
            r.tag[ri] = u32(at + 4);
            r.offset[ri] = u64(at + 8);
            r.length[ri] = u64(at + 16);
            r.stride[ri] = u64(at + 24);
            r.pieces[ri] = u32(at + 32);
            r.weight[ri] = u32(at + 36);
        }
        for (let i = 0; i < h.events * h.threads; ++i, ++si, at += h.spanBytes) {
            s.start[si] = u32(at);
            s.busy[si] = u32(at + 4);
            s.work[si] = u32(at + 8);
            s.cpu[si] = view.getUint16(at + 12, true);
            s.flags[si] = view.getUint16(at + 14, true);
        }
    }
    e.firstSpan[events] = si;
    return columns;
}

/** What view_pack.cpp packed, as view.hpp says: per block its ranges, then its events with their spans; all as
    variable-length numbers, differences from what was there before. */
function unpackEvents(bytes, info, trace) {
    let at = 0;
    const number = () => {
        let byte = bytes[at++];
        if (byte < 128) return byte;
        let value = byte & 127;
        for (let shift = 7; shift < 28; shift += 7) {
            byte = bytes[at++];
            value |= (byte & 127) << shift;
            if (byte < 128) return value;
        }
        for (let scale = 2 ** 28; ; scale *= 128) {
            if (at >= bytes.length) throw new Error('the packed events end too early');
            byte = bytes[at++];
            value += (byte & 127) * scale;
            if (byte < 128) return value;
        }
    };
    const signed = () => {
        const v = number();
        return v % 2 ? -(v + 1) / 2 : v / 2;
    };
    // an event takes at least two bytes, a range one, a span two: counts beyond that are damaged
    if (info.events * 2 > bytes.length || info.ranges > bytes.length || info.spans * 2 > bytes.length)
        throw new Error('the packed events are fewer than the page says');
    const columns = makeColumns(info.events, info.ranges, info.spans);
    const e = columns.events,
        r = columns.ranges,
        s = columns.spans;
    const lastBytes = [],
        lastRanges = [],
        lastFirst = [],
        lastCount = [],
        lastWork = [],
        lastStart = [],
        lastCpu = [];
    let ei = 0,
        r0 = 0,
        si = 0,
        end = 0;
    while (at < bytes.length) {
        const run = trace.runOf.get(number()) ?? NONE32,
            count = number(),
            threads = number(),
            ranges = number();
        if (ei + count > info.events || si + count * threads > info.spans || r0 + ranges > info.ranges)
            throw new Error('more packed events than the page says');
        for (let k = 0, ri = r0; k < ranges; ++k, ++ri) {
            const v = (lastRanges[k] ??= [0, 0, 0, 0, 0, 0, 0, 0]),
                mask = bytes[at++];
            for (let bit = 0; bit < 8; ++bit) if ((mask >> bit) & 1) v[bit] += signed();
            r.operand[ri] = v[0];
            r.flags[ri] = v[1];
            r.tag[ri] = v[2];
            r.offset[ri] = v[3];
            r.length[ri] = v[4];
            r.stride[ri] = v[5];
            r.pieces[ri] = v[6];
            r.weight[ri] = v[7];
        }
        const growth = new Map();
        let step = -1,
            furthest = 0;
        for (let i = 0; i < count; ++i, ++ei) {
            const control = number(),
                begin = end + (control & 8 ? signed() : 0),
                duration = number();
            step += 1 + (control & 4 ? signed() : 0);
            if (!(step >= 0 && step <= 1 << 24)) throw new Error('a packed event is damaged');
            if (control & 2) {
                const both = number();
                e.status[ei] = both & 255;
                e.flags[ei] = both >>> 8;
            }
            if (control & 16) {
                lastCount[step] = number();
                lastFirst[step] = lastCount[step] ? furthest + signed() : 0;
            }
            const first = lastFirst[step] ?? 0,
                n = lastCount[step] ?? 0;
            if (first < 0 || first + n > ranges) throw new Error('a packed event is damaged');
            const grown = (n ? growth.get(first) ?? 0 : 0) + (control & 1 ? signed() : 0);
            if (n) growth.set(first, grown);
            lastBytes[step] = (lastBytes[step] ?? 0) + grown;
            furthest = Math.max(furthest, first + n);
            e.begin[ei] = begin;
            e.duration[ei] = duration;
            e.step[ei] = step;
            e.run[ei] = run;
            e.bytes[ei] = lastBytes[step];
            e.firstRange[ei] = r0 + first;
            e.endRange[ei] = r0 + first + n;
            e.firstSpan[ei] = si;
            end = begin + duration;
            const works = threads ? (lastWork[step] ??= []) : null;
            for (let t = 0; t < threads; ++t, ++si) {
                const head = number(),
                    quarter = Math.floor(head / 4);
                lastStart[t] = (lastStart[t] ?? 0) + (quarter % 2 ? -(quarter + 1) / 2 : quarter / 2);
                s.start[si] = lastStart[t];
                s.busy[si] = duration - lastStart[t] - signed();
                if (head & 1) works[t] = (works[t] ?? 0) + signed();
                if (head & 2) {
                    lastCpu[t] = number();
                    s.flags[si] = number();
                }
                s.work[si] = works[t] ?? 0;
                s.cpu[si] = lastCpu[t] ?? 0;
            }
        }
        r0 += ranges;
    }
    if (ei !== info.events || r0 !== info.ranges || si !== info.spans)
        throw new Error('fewer packed events than the page says');
    e.firstSpan[ei] = si;
    return columns;
}

/** Numbers the steps of all plans consecutively; unresolved ones get the last number. */
function resolveEvents(trace, columns) {
    const e = columns.events;
    let total = 0;
    for (const plan of trace.plans) {
        plan.base = total;
        total += plan.steps.length;
    }
    trace.unresolved = total;
    let lost = 0,
        late = 0,
        lastRun = -1,
        previous = 0;
    for (let i = 0; i < e.count; ++i) {
        const run = trace.runs[e.run[i]],
            plan = run && trace.plans[run.plan];
        if (plan && e.step[i] < plan.steps.length) e.step[i] += plan.base;
        else {
            e.step[i] = total;
            ++lost;
        }
        if (run && e.run[i] !== lastRun) {
            lastRun = e.run[i];
            if (!run.ev1) run.ev0 = i;
        }
        if (run) run.ev1 = i + 1;
        if (e.begin[i] < previous) {
            e.begin[i] = previous;
            ++late;
        }
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
    const bytes = new Uint8Array(buffer),
        view = new DataView(buffer),
        problems = [];
    const header = readHeader(bytes, view);
    const blocks = scanBlocks(bytes, view, 128, problems);
    const trace = readSkeleton(view, bytes, blocks, header, problems);
    return resolveEvents(trace, readEvents(view, blocks, trace));
}

/** Data embedded in the page: info (the JSON block) and the bytes of the base64 block. */
function readEmbedded(info, bytes) {
    if (info.view !== 2) throw new Error(`this page cannot read view data of version ${info.view}`);
    const skeleton = bytes.slice(0, info.skeleton),
        view = new DataView(skeleton.buffer),
        problems = [...(info.problems ?? [])];
    const header = readHeader(skeleton, view);
    const trace = readSkeleton(
        view,
        skeleton,
        scanBlocks(skeleton, view, 128, problems).map((block, i) => ({...block, sequence: i})),
        header,
        problems
    );
    if (info.thinned) problems.push(info.thinned);
    return resolveEvents(trace, unpackEvents(bytes.subarray(info.skeleton), info, trace));
}

function fromBase64(text) {
    const clean = atob(text.trim()),
        bytes = new Uint8Array(clean.length);
    for (let i = 0; i < clean.length; ++i) bytes[i] = clean.charCodeAt(i);
    return bytes;
}
