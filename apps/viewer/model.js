// SPDX-License-Identifier: MIT
// Queries on a trace: steps with their tensors, sums over a selection, coverage, findings. Pure functions over typed
// arrays, independent of the page.

const FLAG = {filtered: 16, midSession: 32};
const CLASS_NAMES = ['weight', 'K cache', 'V cache', 'state', 'adapter', 'input', 'output', 'constant'];
const READS = 1,
    WRITES = 2,
    DYNAMIC = 2,
    ELIDED = 3,
    STACKED = 8,
    SCRATCH = 1; // of an operand's flags

/** Trace to model: {trace, steps, name(kind, number), stepEvents, …}. */
function buildModel(trace) {
    const names = Object.create(null);
    for (const key of Object.keys(trace.session)) {
        const match = /^(op|part|phase|role|layout|type)\.(\d+)$/.exec(key);
        if (match) (names[match[1]] ??= [])[match[2]] = trace.session[key];
    }
    const name = (kind, number) => names[kind]?.[number] ?? `${kind} ${number}`;
    const bases = [0]; // the files of one model are concatenated
    for (const t of trace.tensors)
        if (t.file !== NONE16 && t.offset >= 0)
            bases[t.file + 1] = Math.max(bases[t.file + 1] ?? 0, t.offset + t.bytes);
    for (let i = 1; i < bases.length; ++i) bases[i] = bases[i - 1] + (bases[i] ?? 0);
    for (const t of trace.tensors) {
        t.place = t.offset < 0 ? -1 : (bases[t.file] ?? 0) + t.offset; // in all files together
        t.roleName = names.role?.[t.role] ?? (t.role ? `role ${t.role}` : 'other');
        t.typeName = name('type', t.type);
        t.shape = t.ne.slice(0, Math.max(1, t.dims)).join(' × ');
        t.label = t.name || '(no name)';
    }
    const steps = [];
    for (const plan of trace.plans)
        for (const step of plan.steps) {
            const operands = plan.operands.slice(step.firstOperand, step.firstOperand + step.operands);
            const tensors = [
                ...new Set(operands.filter(o => o.ref < VALUE_REF && o.ref < trace.tensors.length).map(o => o.ref))
            ];
            steps.push({
                index: steps.length,
                number: step.number,
                planId: plan.id,
                plan,
                op: step.op,
                opName: name('op', step.op),
                layer: step.layer,
                part: step.part,
                partName: name('part', step.part),
                kernel: step.kernel,
                operands,
                tensors,
                weights: tensors.filter(
                    t => trace.tensors[t].cls === 0 && operands.some(o => o.ref === t && o.kind !== ELIDED)
                ),
                flags: step.flags,
                bytes: step.bytes,
                macs: step.macs > 1e19 ? NaN : step.macs,
                tokens: plan.tokens,
                nodes: plan.stepNodes
                    .slice(step.firstNode, step.firstNode + step.nodes)
                    .map(n => plan.nodes[n]?.name ?? '')
            });
        }
    steps.push({
        index: steps.length,
        number: 0,
        planId: -1,
        plan: null,
        op: 0,
        opName: 'unresolved',
        layer: -1,
        part: 0,
        partName: 'none',
        kernel: 'unresolved',
        operands: [],
        tensors: [],
        weights: [],
        flags: 0,
        bytes: 0,
        macs: NaN,
        tokens: 0,
        nodes: []
    });
    for (const step of steps) {
        const weights = step.weights.map(t => trace.tensors[t].roleName);
        step.label = step.opName + (weights.length ? ` ${weights.join(' + ')}` : '');
        step.brief = weights.join(' + ') || step.opName;
        // products of block formats are of integers; everything else computes in float32
        step.int8 = step.weights.some(
            t => trace.tensors[t].dims > 1 && !/^(F|BF)\d+$/i.test(trace.tensors[t].typeName)
        );
        step.place = step.layer < 0 ? step.partName : `layer ${step.layer} ${step.partName}`;
    }
    const model = {trace, steps, names, name};
    const shown = id => (trace.pieces.has(id) ? `${id} “${trace.pieces.get(id)}”` : String(id));
    model.tokenText = id => (id < 0 ? 'hidden' : shown(id));
    const e = trace.events;
    model.begin = trace.runs.length ? Math.min(trace.runs[0].begin, e.count ? e.begin[0] : Infinity) : 0;
    model.end = model.begin + 1;
    for (const run of trace.runs) model.end = Math.max(model.end, run.end);
    for (const mark of trace.marks) model.end = Math.max(model.end, mark.time);
    if (e.count) model.end = Math.max(model.end, e.begin[e.count - 1] + e.duration[e.count - 1]);
    // not Math.max(...): lists may be long
    const most = (list, of) => list.reduce((m, item) => Math.max(m, of(item)), -1);
    model.layers =
        1 +
        Math.max(
            most(trace.tensors, t => t.layer),
            most(steps, s => s.layer)
        );
    model.threads = Math.max(
        0,
        most(trace.runs, r => r.threads)
    );
    model.hasSpans = trace.spans.count > 0;
    indexSteps(model);
    model.coverage = coverage(model);
    model.parts = [...new Set(steps.slice(0, -1).map(s => s.part))].sort((a, b) => a - b);
    model.partOfRole = new Map(); // for roles that no step reads, see partOf
    for (const step of steps)
        for (const t of step.weights) {
            const role = trace.tensors[t].roleName;
            if (!model.partOfRole.has(role) || step.part < model.partOfRole.get(role))
                model.partOfRole.set(role, step.part);
        }
    return model;
}

/** Which events each step has: eventsOf.slice(first[s], first[s+1]) in order of time. */
function indexSteps(model) {
    const e = model.trace.events,
        first = new Uint32Array(model.steps.length + 2);
    for (let i = 0; i < e.count; ++i) ++first[e.step[i] + 1];
    for (let s = 0; s <= model.steps.length; ++s) first[s + 1] += first[s];
    const next = first.slice(),
        list = new Uint32Array(e.count);
    for (let i = 0; i < e.count; ++i) list[next[e.step[i]]++] = i;
    model.stepFirst = first;
    model.stepEvents = list;
}

/** First event that begins at or after a time. */
function lowerBound(begin, count, time) {
    let low = 0,
        high = count;
    while (low < high) {
        const middle = (low + high) >>> 1;
        if (begin[middle] < time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/** Sums over the events from a to b that pass the masks. */
function aggregate(model, masks, from, to) {
    const {trace, steps} = model,
        e = trace.events,
        r = trace.ranges,
        s = trace.spans,
        nSteps = steps.length;
    const a = lowerBound(e.begin, e.count, from),
        b = lowerBound(e.begin, e.count, to);
    const sums = {
        first: a,
        last: b,
        count: 0,
        time: 0,
        bytes: 0,
        wait: 0,
        span: 0,
        stepCount: new Uint32Array(nSteps),
        stepTime: new Float64Array(nSteps),
        stepBytes: new Float64Array(nSteps),
        stepStreamed: new Float64Array(nSteps),
        stepWait: new Float64Array(nSteps),
        stepSpan: new Float64Array(nSteps),
        stepMax: new Float64Array(nSteps),
        threadBusy: new Float64Array(Math.max(1, model.threads)),
        threadTime: new Float64Array(Math.max(1, model.threads)),
        runs: new Set()
    };
    for (let i = a; i < b; ++i) {
        const step = e.step[i],
            run = e.run[i];
        if (!masks.steps[step] || (run < masks.runs.length && !masks.runs[run])) continue;
        const d = e.duration[i];
        ++sums.stepCount[step];
        sums.stepTime[step] += d;
        sums.stepBytes[step] += e.bytes[i];
        sums.stepStreamed[step] += e.bytes[i] + rereads(model, steps[step], i);
        if (d > sums.stepMax[step]) sums.stepMax[step] = d;
        const s0 = e.firstSpan[i],
            s1 = e.firstSpan[i + 1];
        for (let k = s0; k < s1; ++k) {
            sums.stepWait[step] += Math.max(0, d - s.busy[k]);
            sums.stepSpan[step] += d;
            if (k - s0 < sums.threadBusy.length) {
                sums.threadBusy[k - s0] += s.busy[k];
                sums.threadTime[k - s0] += d;
            }
        }
        sums.runs.add(run);
    }
    for (let i = 0; i < nSteps; ++i) {
        sums.count += sums.stepCount[i];
        sums.time += sums.stepTime[i];
        sums.bytes += sums.stepBytes[i];
        sums.wait += sums.stepWait[i];
        sums.span += sums.stepSpan[i];
    }
    return sums;
}

const rangeBytes = (r, k) => r.length[k] * (r.pieces[k] || 1);

/** What one event's operand touches in bytes, from the step (whole, fixed range) or the event's ranges. */
function operandBytes(model, step, i, which) {
    const operand = step.operands[which],
        r = model.trace.ranges,
        e = model.trace.events;
    if (operand.kind === ELIDED) return 0;
    if (operand.kind === 1) return operand.length * (operand.count || 1);
    if (operand.kind === DYNAMIC) {
        let sum = 0;
        for (let k = e.firstRange[i]; k < e.endRange[i]; ++k) if (r.operand[k] === which) sum += rangeBytes(r, k);
        return sum;
    }
    return operand.ref < VALUE_REF
        ? (model.trace.tensors[operand.ref]?.bytes ?? 0)
        : (step.plan.valueOf.get(operand.ref - VALUE_REF)?.bytes ?? 0);
}

/** Per tensor: reads, writes, bytes, streamed bytes, time of the steps that read it (shared out by bytes), first and
    last event, runs that touch it, most reads in one run. */
function tensorSums(model, masks, sums) {
    const {trace, steps} = model,
        n = trace.tensors.length,
        e = trace.events;
    const f64 = () => new Float64Array(n),
        u32 = () => new Uint32Array(n);
    const out = {
        reads: u32(),
        writes: u32(),
        bytes: f64(),
        written: f64(),
        streamed: f64(),
        time: f64(),
        runs: u32(),
        first: u32().fill(NONE32),
        last: u32(),
        perRun: u32()
    };
    const lastRun = new Float64Array(n).fill(-1),
        inRun = new Uint32Array(n);
    const plan = steps.map(step => {
        const list = [];
        step.operands.forEach((o, which) => {
            if (o.ref < n && o.kind !== ELIDED)
                list.push({
                    which,
                    tensor: o.ref,
                    mode: o.mode,
                    passes: o.passes || 1,
                    fixed: o.kind === DYNAMIC ? -1 : operandBytes(model, step, 0, which)
                });
        });
        return list;
    });
    for (let i = sums.first; i < sums.last; ++i) {
        const s = e.step[i],
            run = e.run[i];
        if (!masks.steps[s] || (run < masks.runs.length && !masks.runs[run])) continue;
        const list = plan[s];
        let total = 0;
        for (const item of list) {
            item.now = item.fixed >= 0 ? item.fixed : operandBytes(model, steps[s], i, item.which);
            if (item.mode & READS) total += item.now;
        }
        for (const item of list) {
            const t = item.tensor;
            if (lastRun[t] !== run) {
                lastRun[t] = run;
                inRun[t] = 0;
                ++out.runs[t];
            }
            if (item.mode & READS) {
                ++out.reads[t];
                out.bytes[t] += item.now;
                out.streamed[t] += item.now * item.passes;
                if (total) out.time[t] += (e.duration[i] * item.now) / total;
                inRun[t] += item.passes;
                if (inRun[t] > out.perRun[t]) out.perRun[t] = inRun[t];
            }
            if (item.mode & WRITES) {
                ++out.writes[t];
                out.written[t] += item.now;
            }
            if (out.first[t] === NONE32) out.first[t] = i;
            out.last[t] = i;
        }
    }
    return out;
}

/** Sums by a key of steps: Map key → {key, label, time, bytes, count, wait, span, macs, steps}. */
function groupSteps(model, sums, keyOf, labelOf = key => String(key)) {
    const groups = new Map();
    model.steps.forEach((step, i) => {
        if (!sums.stepCount[i]) return;
        const key = keyOf(step);
        let g = groups.get(key);
        if (!g)
            groups.set(
                key,
                (g = {
                    key,
                    label: labelOf(key, step),
                    time: 0,
                    bytes: 0,
                    streamed: 0,
                    count: 0,
                    wait: 0,
                    span: 0,
                    macs: 0,
                    int8Macs: 0,
                    part: step.part,
                    steps: []
                })
            );
        g.time += sums.stepTime[i];
        g.bytes += sums.stepBytes[i];
        g.streamed += sums.stepStreamed[i];
        g.count += sums.stepCount[i];
        g.wait += sums.stepWait[i];
        g.span += sums.stepSpan[i];
        g.macs += (step.macs || 0) * sums.stepCount[i];
        if (step.int8) g.int8Macs += (step.macs || 0) * sums.stepCount[i];
        g.steps.push(i);
    });
    return [...groups.values()];
}

/** Which weights of the file no event read, and whether runs read what they should. */
function coverage(model) {
    const {trace, steps} = model,
        read = new Uint8Array(trace.tensors.length);
    steps.forEach((step, i) => {
        if (model.stepFirst[i + 1] === model.stepFirst[i]) return;
        for (const o of step.operands) if (o.ref < read.length && o.mode & READS && o.kind !== ELIDED) read[o.ref] = 1;
    });
    const weights = trace.tensors.filter(t => t.cls === 0),
        missing = weights.filter(t => !read[t.id]);
    let difference = 0,
        checked = 0;
    for (const run of trace.runs)
        if (run.complete && run.expected) {
            ++checked;
            difference += Math.abs(run.expected - run.observed);
        }
    return {
        read,
        weights: weights.length,
        missing,
        difference,
        checked,
        filtered: (trace.header.flags & FLAG.filtered) !== 0
    };
}

/** Stacked expert tensors: per layer the first one an event chooses from; what was picked, run by run. */
function expertPicks(model, masks, sums) {
    const {trace, steps} = model,
        e = trace.events,
        r = trace.ranges;
    const stacked = steps.map(step =>
        step.operands.findIndex(
            o => o.ref < trace.tensors.length && o.kind === DYNAMIC && trace.tensors[o.ref].flags & STACKED
        )
    );
    const chosen = new Map(); // layer → its representative tensor
    steps.forEach((step, i) => {
        if (stacked[i] >= 0 && !chosen.has(step.layer)) chosen.set(step.layer, step.operands[stacked[i]].ref);
    });
    if (!chosen.size) return null;
    let experts = 0,
        slice = 0;
    for (const [layer] of chosen)
        for (const t of trace.tensors)
            if (t.layer === layer && t.flags & STACKED) {
                experts = Math.max(experts, Math.min(t.ne[2], 4096)); // no model has more
                slice += t.slice;
            }
    const layers = [...chosen.keys()].sort((a, b) => a - b),
        row = new Map(layers.map((l, i) => [l, i]));
    const counts = new Float64Array(layers.length * experts),
        tokens = new Float64Array(layers.length),
        all = new Float64Array(layers.length); // picks
    let each = 0; // picks per token
    const picks = layers.map(() => []); // per layer: [{run, tokens, experts}]
    for (let i = sums.first; i < sums.last; ++i) {
        const s = e.step[i],
            which = stacked[s];
        if (which < 0 || !masks.steps[s] || !masks.runs[e.run[i]]) continue;
        const step = steps[s];
        if (chosen.get(step.layer) !== step.operands[which].ref) continue;
        const at = row.get(step.layer),
            list = [];
        let picked = 0;
        for (let k = e.firstRange[i]; k < e.endRange[i]; ++k) {
            if (r.operand[k] !== which || r.tag[k] >= experts) continue;
            counts[at * experts + r.tag[k]] += r.weight[k] || 1;
            picked += r.weight[k] || 1;
            list.push(r.tag[k]);
        }
        all[at] += picked;
        each = Math.max(each, Math.round(picked / (step.tokens || 1)));
        picks[at].push({run: e.run[i], tokens: step.tokens, experts: list});
    }
    // Every token picks the same number of experts, but after the last attention only tokens with an output remain; the
    // plan's number of tokens is that of the other layers.
    for (let at = 0; at < layers.length; ++at) tokens[at] = all[at] / Math.max(1, each);
    return {experts, layers, counts, tokens, picks, sliceBytes: slice / chosen.size};
}

/** Mean share of a token's experts that the token before it had too, per layer; and over the runs. */
function expertOverlap(picks) {
    const perLayer = [],
        perRun = new Map();
    for (const list of picks.picks) {
        let sum = 0,
            n = 0;
        for (let i = 1; i < list.length; ++i) {
            if (list[i].tokens !== 1 || list[i - 1].tokens !== 1 || !list[i].experts.length) continue;
            const before = new Set(list[i - 1].experts);
            const share = list[i].experts.filter(x => before.has(x)).length / list[i].experts.length;
            sum += share;
            ++n;
            const of = perRun.get(list[i].run) ?? [0, 0];
            perRun.set(list[i].run, [of[0] + share, of[1] + 1]);
        }
        perLayer.push(n ? sum / n : NaN);
    }
    return {perLayer, perRun: [...perRun].map(([run, [sum, n]]) => ({run, share: sum / n}))};
}

/** Hit rate of an LRU cache of n experts per layer, for n from 0 to all of them. */
function expertCacheCurve(picks) {
    const hits = new Float64Array(picks.experts + 1);
    let total = 0;
    for (const list of picks.picks) {
        const stack = [];
        for (const {experts} of list)
            for (const x of experts) {
                const at = stack.indexOf(x);
                ++total;
                if (at >= 0) {
                    ++hits[at + 1];
                    stack.splice(at, 1);
                }
                stack.unshift(x);
            }
    }
    for (let i = 1; i < hits.length; ++i) hits[i] += hits[i - 1];
    return total ? Array.from(hits, h => h / total) : [];
}

/** The part of a layer that a weight belongs to: by the steps that read it, else by its name. */
function partOf(model, tensor) {
    const known = model.partOfRole.get(tensor.roleName);
    if (known !== undefined) return model.name('part', known);
    const role = tensor.roleName;
    return /^attn.*norm/.test(role)
        ? 'attn_norm'
        : /^ffn.*norm/.test(role)
          ? 'ffn_norm'
          : /^attn_out/.test(role)
            ? 'attn_out'
            : /gate_inp/.test(role)
              ? 'router'
              : /_exps$/.test(role)
                ? 'experts'
                : /shexp/.test(role)
                  ? 'shared_expert'
                  : /^ffn/.test(role)
                    ? 'ffn'
                    : /^attn/.test(role)
                      ? 'attn'
                      : /^(token|pos)/.test(role)
                        ? 'embed'
                        : /^output/.test(role)
                          ? 'head'
                          : 'none';
}
