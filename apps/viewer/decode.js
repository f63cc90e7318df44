// SPDX-License-Identifier: MIT
// Decodes traces into typed columns, either from a .tntrace file (docs/trace-file.md) dropped on the page, or from the
// data that `tinfer trace view` embedded: the file's blocks without EVENTS, and packed events (see unpackEvents).
// Independent of the page; every count is checked against the available bytes.

const BLOCK = {
    strings: 1,
    session: 2,
    files: 3,
    tensors: 4,
    plan: 5,
    run: 6,
    events: 7,
    runEnd: 8,
    sample: 9,
    mark: 10,
    pages: 11,
    hashes: 13,
    drops: 14,
    pieces: 17
};
const NONE16 = 0xffff,
    NONE32 = 0xffffffff,
    VALUE_REF = 0x80000000;

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
    let c = 0xffffffff,
        i = from;
    for (; i + 4 <= to; i += 4) {
        c ^= bytes[i] | (bytes[i + 1] << 8) | (bytes[i + 2] << 16) | (bytes[i + 3] << 24);
        c = t3[c & 255] ^ t2[(c >>> 8) & 255] ^ t1[(c >>> 16) & 255] ^ t0[c >>> 24];
    }
    for (; i < to; ++i) c = (c >>> 8) ^ t0[(c ^ bytes[i]) & 255];
    return (c ^ 0xffffffff) >>> 0;
}

/** Little-endian reader of one block; u64 as a number, exact below 2^53. */
class Fields {
    constructor(view, at, end) {
        this.view = view;
        this.at = at;
        this.end = end;
    }
    need(n) {
        if (this.at + n > this.end) throw new Error('a block ends before its records');
    }
    u8() {
        this.need(1);
        return this.view.getUint8(this.at++);
    }
    u16() {
        this.need(2);
        const v = this.view.getUint16(this.at, true);
        this.at += 2;
        return v;
    }
    u32() {
        this.need(4);
        const v = this.view.getUint32(this.at, true);
        this.at += 4;
        return v;
    }
    i32() {
        this.need(4);
        const v = this.view.getInt32(this.at, true);
        this.at += 4;
        return v;
    }
    f32() {
        this.need(4);
        const v = this.view.getFloat32(this.at, true);
        this.at += 4;
        return v;
    }
    u64() {
        const low = this.u32();
        return low + this.u32() * 4294967296;
    }
    hex(n) {
        let s = '';
        for (let i = 0; i < n; ++i) s += this.u8().toString(16).padStart(2, '0');
        return s;
    }
    skip(n) {
        this.need(n);
        this.at += n;
    }
}

/** Shows invisible and bidirectional control characters as numbers. */
function visible(text) {
    return text.replace(
        /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
        c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0')
    );
}

/** Finds the valid blocks: {type, at, size, count, sequence, recordBytes}. Damage is skipped and reported. */
function scanBlocks(bytes, view, from, problems) {
    const blocks = [];
    let at = from,
        bad = -1;
    while (at + 56 <= bytes.length) {
        if (view.getUint32(at, true) === 0x4b424e54 && view.getUint32(at + 52, true) === crc32c(bytes, at, at + 52)) {
            const size = view.getUint32(at + 8, true);
            if (at + 56 + size > bytes.length) {
                problems.push(`the file ends inside a block at ${at}`);
                return blocks;
            }
            if (bad >= 0) {
                problems.push(`skipped damaged bytes ${bad} to ${at}`);
                bad = -1;
            }
            if (view.getUint32(at + 48, true) === crc32c(bytes, at + 56, at + 56 + size))
                blocks.push({
                    type: view.getUint16(at + 4, true),
                    at: at + 56,
                    size,
                    count: view.getUint32(at + 12, true),
                    sequence: view.getUint32(at + 16, true),
                    recordBytes: view.getUint32(at + 40, true)
                });
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
    if (bytes.length < 128 || String.fromCharCode(...bytes.subarray(0, 8)) !== 'TNFTRACE')
        throw new Error('not a trace of tinfer');
    const f = new Fields(view, 8, 128);
    const header = {major: f.u16(), minor: f.u16()};
    if (header.major !== 1) throw new Error(`trace version ${header.major}.${header.minor} not supported`);
    if (view.getUint32(124, true) !== crc32c(bytes, 0, 124)) throw new Error('the header is damaged');
    f.skip(8);
    header.flags = f.u32();
    header.wall = f.u64();
    f.u64();
    f.u32();
    header.level = f.u32();
    header.session = f.hex(16);
    header.fingerprint = f.hex(16);
    f.u64();
    header.events = f.u64();
    header.dropped = f.u64();
    header.filtered = f.u64();
    return header;
}

const recordCount = (block, fallback) => {
    const size = block.recordBytes || fallback;
    if (size < fallback) throw new Error('records are shorter than version 1.0 has them');
    return [Math.min(block.count, Math.floor(block.size / size)), size];
};

/** Ids of the tokens of a run. */
function tokenIds(view, at, n) {
    const ids = new Int32Array(n);
    for (let i = 0; i < n; ++i) ids[i] = view.getInt32(at + 16 * i, true);
    return ids;
}

/** Decodes all blocks except EVENTS. */
function readSkeleton(view, bytes, blocks, header, problems) {
    const strings = [''],
        text = new TextDecoder();
    const trace = {
        header,
        problems,
        session: Object.create(null),
        files: [],
        tensors: [],
        plans: [],
        runs: [],
        samples: [],
        marks: [],
        pages: [],
        hashes: [],
        drops: [],
        pieces: new Map()
    };
    const name = id => strings[id] ?? '';
    const runOf = new Map(),
        planOf = new Map();
    const layerOf = v => (v === NONE16 ? -1 : v);
    const each = (block, size, read) => {
        const [n, step] = recordCount(block, size);
        for (let i = 0; i < n; ++i) read(new Fields(view, block.at + i * step, block.at + (i + 1) * step));
    };
    const readers = {
        [BLOCK.strings](block) {
            const f = new Fields(view, block.at, block.at + block.size);
            for (let i = 0; i < block.count; ++i) {
                const id = f.u32(),
                    length = f.u32();
                f.need(length);
                if (id > 1 << 24) throw new Error('a string has an id that is too large');
                strings[id] = visible(text.decode(bytes.subarray(f.at, f.at + length)));
                f.at = Math.min(f.end, f.at + Math.ceil(length / 4) * 4);
            }
        },
        [BLOCK.session](block) {
            each(block, 8, f => {
                const key = name(f.u32());
                trace.session[key] = name(f.u32());
            });
        },
        [BLOCK.files](block) {
            each(block, 40, f =>
                trace.files.push({name: name(f.u32()), index: f.u32(), size: f.u64(), dataStart: f.u64()})
            );
        },
        [BLOCK.tensors](block) {
            each(block, 96, f => {
                const t = {
                    id: f.u32(),
                    name: name(f.u32()),
                    cls: f.u8(),
                    flags: f.u8(),
                    layer: layerOf(f.u16()),
                    role: f.u16(),
                    file: f.u16(),
                    type: f.u32(),
                    dims: f.u16(),
                    layout: f.u16(),
                    ne: [f.u64(), f.u64(), f.u64(), f.u64()],
                    bytes: f.u64(),
                    offset: f.u64(),
                    row: f.u64(),
                    slice: f.u64()
                };
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
            const run = {
                run: f.u64(),
                begin: f.u64(),
                decode: f.u32(),
                micro: f.u16(),
                phase: f.u8(),
                flags: f.u8(),
                plan: planOf.get(f.u32()) ?? -1,
                threads: f.u16(),
                sequences: f.u16(),
                tokens: f.u32(),
                outputs: f.u32(),
                firstEvent: f.u64(),
                cells: f.u32(),
                extent: f.u32(),
                end: -1,
                status: 0,
                complete: false,
                expected: 0,
                observed: 0,
                dropped: 0,
                events: 0,
                rolledBack: false,
                ev0: 0,
                ev1: 0,
                position: -1,
                token: -1,
                ids: null
            };
            f.skip(8);
            if (run.tokens && f.at + 16 <= f.end) {
                run.token = f.i32();
                run.position = f.i32();
                run.ids = tokenIds(view, f.at - 8, Math.min(run.tokens, Math.floor((f.end - f.at + 8) / 16)));
            }
            runOf.set(run.run, trace.runs.length);
            trace.runs.push(run);
        },
        [BLOCK.runEnd](block) {
            each(block, 56, f => {
                const run = trace.runs[runOf.get(f.u64()) ?? -1];
                if (!run) return;
                Object.assign(run, {
                    end: f.u64(),
                    status: f.u32(),
                    events: f.u32(),
                    dropped: f.u64(),
                    expected: f.u64(),
                    observed: f.u64(),
                    rolledBack: (f.u32() & 1) === 1,
                    complete: true
                });
            });
        },
        [BLOCK.sample](block) {
            each(block, 48, f =>
                trace.samples.push({
                    run: f.u64(),
                    time: f.u64(),
                    duration: f.u64(),
                    output: f.u32(),
                    token: f.i32(),
                    probability: f.f32(),
                    left: f.u32(),
                    sequence: f.u32()
                })
            );
        },
        [BLOCK.mark](block) {
            each(block, 16, f => trace.marks.push({time: f.u64(), text: name(f.u32())}));
        },
        [BLOCK.pages](block) {
            each(block, 32, f =>
                trace.pages.push({
                    event: f.u64(),
                    operand: f.u16(),
                    unknown: (f.u16() & 1) === 1,
                    page: f.u32(),
                    pages: f.u32(),
                    resident: f.u32(),
                    minor: f.u32(),
                    major: f.u32()
                })
            );
        },
        [BLOCK.hashes](block) {
            each(block, 24, f => trace.hashes.push({event: f.u64(), operand: f.u32(), kind: f.u32(), hash: f.hex(8)}));
        },
        [BLOCK.pieces](block) {
            const f = new Fields(view, block.at, block.at + block.size);
            for (let i = 0; i < block.count; ++i) {
                const id = f.i32(),
                    length = f.u32();
                f.need(length);
                trace.pieces.set(id, visible(text.decode(bytes.subarray(f.at, f.at + length))));
                f.at = Math.min(f.end, f.at + Math.ceil(length / 4) * 4);
            }
        },
        [BLOCK.drops](block) {
            each(block, 32, f => trace.drops.push({from: f.u64(), to: f.u64(), first: f.u64(), count: f.u64()}));
        }
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
        try {
            read(block);
        } catch (error) {
            problems.push(`block ${block.sequence}: ${error.message}`);
        }
    }
    trace.runOf = runOf;
    return trace;
}

function readPlan(f, name, layerOf) {
    const plan = {id: f.u32()};
    const counts = {
        steps: f.u32(),
        operands: f.u32(),
        nodes: f.u32(),
        inputs: f.u32(),
        values: f.u32(),
        stepNodes: f.u32()
    };
    plan.tokens = f.u32();
    plan.hash = f.hex(16);
    const bytes = {steps: f.u16(), operands: f.u16(), nodes: f.u16(), values: f.u16(), inputs: 4, stepNodes: 4};
    plan.architecture = name(f.u32());
    f.u32();
    const u64 = () => {
        const low = f.u32();
        return low + f.u32() * 4294967296;
    };
    const readers = {
        steps: () => ({
            number: f.u32(),
            op: f.u16(),
            layer: layerOf(f.u16()),
            kernel: name(f.u32()),
            part: f.u8(),
            flags: f.u8(),
            operands: f.u16(),
            firstOperand: f.u32(),
            firstNode: f.u32(),
            nodes: f.u16(),
            reserved: f.u16(),
            work: f.u32(),
            macs: u64(),
            bytes: u64()
        }),
        operands: () => ({
            ref: f.u32(),
            mode: f.u8(),
            kind: f.u8(),
            passes: f.u16(),
            offset: u64(),
            length: u64(),
            stride: u64(),
            count: f.u32(),
            slot: f.u16(),
            flags: f.u16()
        }),
        nodes: () => ({
            name: name(f.u32()),
            op: f.u16(),
            layer: layerOf(f.u16()),
            step: f.u32(),
            value: f.u32(),
            firstInput: f.u32(),
            inputs: f.u16(),
            part: f.u8(),
            flags: f.u8()
        }),
        inputs: () => f.u32(),
        values: () => ({
            id: f.u32(),
            name: name(f.u32()),
            type: f.u32(),
            layer: layerOf(f.u16()),
            flags: f.u16(),
            ne: [u64(), u64(), u64(), u64()],
            bytes: u64()
        }),
        stepNodes: () => f.u32()
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
    plan.valueOf = new Map(plan.values.map(value => [value.id, value]));
    for (const step of plan.steps)
        if (step.firstOperand + step.operands > counts.operands || step.firstNode + step.nodes > counts.stepNodes)
            throw new Error(`step ${step.number} has operands or nodes that are not there`);
    return plan;
}
