// SPDX-License-Identifier: MIT
// The parts of the viewer that need no page, in Node: decoding, sums, pyramids, filter, and what they do with files
// that lie.
//
// usage: node modules_test.js FOLDER-OF-VIEWER TRACE...
'use strict';
const assert = require('assert');
const fs = require('fs');
const vm = require('vm');

const [folder, ...files] = process.argv.slice(2);
const parts = ['decode', 'decode_events', 'model', 'noise', 'lod', 'filter']
    .map(name => fs.readFileSync(`${folder}/${name}.js`, 'utf8'));
const names = `crc32c readTrace buildModel parseFilter compileFilter aggregate tensorSums groupSteps expertPicks
    expertOverlap expertCacheCurve buildPyramid lanePixels heatExtents heatAccumulate overviewBins lowerBound
    operandBytes spreadOf compareLayers interruptions`.split(/\s+/);
const v = vm.runInThisContext(`(() => { ${parts.join('\n')}\n return {${names.join(',')}}; })()`);
const buffer = bytes => bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
const [example, dense, experts, hostile] = files.map(file => fs.readFileSync(file));

function whole(bytes) {
    const model = v.buildModel(v.readTrace(buffer(bytes)));
    const masks = v.compileFilter([], model), sums = v.aggregate(model, masks, -Infinity, Infinity);
    return {model, masks, sums, tensors: v.tensorSums(model, masks, sums)};
}

/** Everything that is drawn from, on a small grid. */
function exercise(bytes) {
    const {model, masks, sums} = whole(bytes), {trace} = model, e = trace.events;
    const end = Float64Array.from(e.begin, (t, i) => t + e.duration[i]),
        pyramid = v.buildPyramid(e.begin, end, new Uint8Array(e.count), e.count);
    const out = {cover: new Float32Array(64), busy: new Float32Array(64), best: new Float32Array(64),
                 colour: new Uint8Array(64)};
    v.lanePixels(pyramid, model.begin, model.end, 64, out);
    v.overviewBins(model, 64);
    v.groupSteps(model, sums, s => s.opName);
    const picks = v.expertPicks(model, masks, sums);
    if (picks) { v.expertOverlap(picks); v.expertCacheCurve(picks); }
    const rows = 50, high = Math.max(1, ...trace.tensors.map(t => t.place + t.bytes));
    for (const axis of [{byFile: true, rows, low: 0, scale: rows / high},
                        {byFile: false, rowOf: trace.tensors.map((_, i) => i % rows)}]) {
        const r = trace.ranges;
        const job = {
            ...v.heatExtents(model, axis), rows, columns: 20, byTime: true, t0: model.begin, t1: model.end, run0: 0,
            run1: 1, reuse: false, stepMask: masks.steps, runMask: masks.runs, step: e.step, begin: e.begin,
            run: e.run, firstRange: e.firstRange, endRange: e.endRange, rangeOperand: r.operand, rangeOffset: r.offset,
            rangeLength: r.length, rangePieces: r.pieces, rangeStride: r.stride, cells: new Float64Array(rows * 20),
            last: new Float64Array(rows).fill(-1), state: new Float64Array(1)};
        v.heatAccumulate(job, 0, e.count);
        if (axis.byFile) model.heat = job.cells;
    }
    return model;
}

// what stands out of the noise: one layer of those that do the same; a step that was interrupted, and no layer for it
assert.deepStrictEqual(v.spreadOf([5, 1, 9, 3]), {median: 5, spread: 6, least: 1});
{
    const {model, masks, sums} = whole(dense), decodes = Uint8Array.from(model.trace.runs, r => r.tokens === 1);
    const ofDecodes = () => {
        masks.runs = decodes;
        const own = v.aggregate(model, masks, -Infinity, Infinity);
        return [v.compareLayers(model, masks, own), v.interruptions(model, masks, own)];
    };
    let [layers, pauses] = ofDecodes();
    assert.deepStrictEqual([layers.runs, layers.slow.map(row => row.key), pauses], [6, [13], []]);
    assert.ok(Math.abs(layers.slow[0].ratio - 1.5) < 0.05);
    assert.ok(layers.rows[0].key === 'head' || layers.rows[0].key === 13);
    const e = model.trace.events,
          at = model.stepEvents.find(i => model.steps[e.step[i]].layer === 2 && decodes[e.run[i]]);
    e.duration[at] += 5e6;
    [layers, pauses] = ofDecodes();
    assert.deepStrictEqual([layers.slow.map(row => row.key), pauses.map(p => p.event)], [[13], [at]]);
}

// the worked example of the format
assert.strictEqual(v.crc32c(Buffer.from('123456789'), 0, 9), 0xe3069283);
const small = v.readTrace(buffer(example));
assert.deepStrictEqual(small.marks, [{time: 1500, text: 'blk.0.attn_q.weight'}]);
assert.deepStrictEqual([small.header.level, small.header.session, small.problems],
                       [1, '000102030405060708090a0b0c0d0e0f', []]);

// every weight is read once a run, and what the heat map holds is what the sums say
{
    const {model, sums, tensors} = whole(dense), runs = model.trace.runs.length;
    for (const t of model.trace.tensors) {
        if (t.cls !== 0) continue;
        assert.strictEqual(tensors.reads[t.id], runs, t.name);
        if (t.roleName !== 'token_embd') assert.strictEqual(tensors.bytes[t.id], runs * t.bytes, t.name);
    }
    assert.strictEqual(sums.count, runs * 334);
    assert.strictEqual(model.coverage.missing.length, 0);
    const heat = exercise(dense).heat.reduce((a, b) => a + b, 0),
        read = model.trace.tensors.reduce((a, t) => a + (t.cls === 0 ? tensors.bytes[t.id] : 0), 0);
    assert.ok(Math.abs(heat - read) < 1e-6 * read, `${heat} of ${read}`);
    const slowest = v.groupSteps(model, sums, s => s.layer).filter(g => g.key >= 0).sort((a, b) => b.time - a.time)[0];
    assert.strictEqual(slowest.key, 13);
    // values are known by their id, which is not their place in the list: what a step touches adds up to its own count
    let compared = 0;
    for (const step of model.steps) {
        if (!step.operands.length || step.operands.some(o => o.kind === 2)) continue;
        const sum = step.operands.reduce((a, _, which) => a + v.operandBytes(model, step, 0, which), 0);
        assert.strictEqual(sum, step.bytes, step.label);
        ++compared;
    }
    assert.ok(compared > 300);
}

// a pyramid keeps time; a lane's pixels hold it all at any width
{
    const n = 5000, begin = Float64Array.from({length: n}, (_, i) => 10 * i), end = begin.map(t => t + 7);
    const pyramid = v.buildPyramid(begin, end, Uint8Array.from({length: n}, (_, i) => i < 3000 ? 1 : 2), n);
    for (const width of [10, 100, 977]) {
        const out = {cover: new Float32Array(width), busy: new Float32Array(width), best: new Float32Array(width),
                     colour: new Uint8Array(width)};
        v.lanePixels(pyramid, 0, 10 * n, width, out);
        assert.ok(Math.abs(out.cover.reduce((a, b) => a + b, 0) - 0.7 * width) < 0.01 * width);
        assert.deepStrictEqual([out.colour[0], out.colour[width - 1]], [1, 2]);
    }
}

// experts: five for every token in turn, a cache of as many holds them, one of fewer (they go round) none
{
    const picks = {experts: 8,
                   picks: [Array.from({length: 10}, (_, i) => ({run: i, tokens: 1, experts: [0, 1, 2, 3, 4]}))]};
    assert.deepStrictEqual(v.expertCacheCurve(picks), [0, 0, 0, 0, 0, 0.9, 0.9, 0.9, 0.9]);
    assert.deepStrictEqual(v.expertOverlap(picks).perLayer, [1]);
    const {model, masks, sums} = whole(experts), real = v.expertPicks(model, masks, sums);
    assert.strictEqual(real.counts.reduce((a, b) => a + b, 0), real.tokens.reduce((a, b) => a + b, 0) * 8);
    // A layer that sees fewer tokens than its plan, as the last one of a prompt, has as many as it routed.
    const before = [...real.tokens], last = real.layers[real.layers.length - 1];
    for (const step of model.steps) if (step.layer === last) step.tokens *= 4;
    assert.deepStrictEqual([...v.expertPicks(model, masks, sums).tokens], before);
}

// the filter
assert.throws(() => v.parseFilter('lair:5'), /no key "lair"/);
assert.throws(() => v.parseFilter('layer:'), /needs a value/);
assert.throws(() => v.parseFilter('run:a-b'), /no number/);
assert.deepStrictEqual([3, 4, 7, 8, 9].map(v.parseFilter('layer:4-7,9')[0].test), [false, true, true, false, true]);
assert.ok(v.parseFilter('tensor:blk.?.ffn_*')[0].test('blk.3.ffn_up.weight')
          && !v.parseFilter('tensor:blk.?.ffn_*')[0].test('blk.13.ffn_up'));

// files that lie: any bytes give an error or a model that can be drawn from, soon and in little memory
{
    let seed = 12345;
    const random = n => (seed = (Math.imul(seed, 1103515245) + 12345) >>> 0) % n;
    let errors = 0, drawn = 0, told = 0;
    for (let round = 0; round < 400; ++round) {
        const bytes = Buffer.from(hostile), blocks = [];
        const length = at => 56 + Math.ceil(bytes.readUInt32LE(at + 8) / 8) * 8;
        for (let at = 128; at + 56 <= bytes.length; at += length(at)) blocks.push(at);
        for (let k = 1 + random(4); k > 0; --k) {   // a field becomes something else, and the checksum agrees
            const at = blocks[random(blocks.length)], size = bytes.readUInt32LE(at + 8),
                where = at + 56 + random(Math.max(1, size / 4 | 0)) * 4;
            if (where + 4 > at + 56 + size) continue;
            bytes.writeUInt32LE([0, 1, 0xffffffff, 0x7fffffff, 0x80000000, 65535, random(2 ** 32)][random(7)], where);
            bytes.writeUInt32LE(v.crc32c(bytes, at + 56, at + 56 + size), at + 48);
        }
        if (round % 5 === 0) bytes.fill(random(256), random(bytes.length), random(bytes.length));
        const cut = round % 7 === 0 ? bytes.subarray(0, random(bytes.length)) : bytes, start = Date.now();
        try { told += exercise(Buffer.from(cut)).trace.problems.length > 0; ++drawn; } catch (error) {
            ++errors;
            assert.ok(error instanceof Error && !(error instanceof RangeError) && !(error instanceof TypeError)
                      && !(error instanceof ReferenceError), error.stack);
        }
        assert.ok(Date.now() - start < 20000, `round ${round} takes too long`);
    }
    assert.ok(drawn > 200 && told > 100, `${drawn} drawn, ${told} of them with a note, ${errors} refused`);
    assert.ok(process.memoryUsage().heapUsed < 1e9);
}
console.log('ok');
