// SPDX-License-Identifier: MIT
// What stands out of a trace's own noise: medians over runs with their spread, layers against those that do the same,
// interruptions; bytes that are walked again. Pure functions, independent of the page.

/** The median and the distance between the quartiles, as `tinfer trace diff` takes them; and the least. */
function spreadOf(values) {
    const list = Float64Array.from(values).sort(),
        n = list.length;
    return n
        ? {median: list[n >> 1], spread: list[Math.floor((n * 3) / 4)] - list[n >> 2], least: list[0]}
        : {median: 0, spread: 0, least: 0};
}

/** Of fewer runs a median says nothing about an interruption. */
const LEAST_RUNS = 3;

/** Time in each run of the selection by a key of steps: [{key, steps, times}], times by place among the runs. */
function timesByRun(model, masks, sums, keyOf) {
    const e = model.trace.events,
        runs = [...sums.runs].filter(run => run < model.trace.runs.length).sort((a, b) => a - b),
        place = new Int32Array(model.trace.runs.length + 1).fill(-1),
        groupOf = new Int32Array(model.steps.length).fill(-1),
        places = new Map(),
        groups = [];
    runs.forEach((run, i) => {
        place[run] = i;
    });
    model.steps.forEach((step, s) => {
        const key = sums.stepCount[s] ? keyOf(step) : null;
        if (key === null) return;
        if (!places.has(key)) {
            places.set(key, groups.length);
            groups.push({key, steps: [], times: new Float64Array(runs.length)});
        }
        groupOf[s] = places.get(key);
        groups[groupOf[s]].steps.push(s);
    });
    for (let i = sums.first; i < sums.last; ++i) {
        const group = groupOf[e.step[i]],
            at = place[Math.min(e.run[i], place.length - 1)];
        if (group >= 0 && at >= 0 && masks.steps[e.step[i]]) groups[group].times[at] += e.duration[i];
    }
    return groups;
}

/** What a layer does: its kernels and static bytes, in order. */
function layerForms(model, sums) {
    const forms = new Map();
    model.steps.forEach((step, s) => {
        if (step.layer < 0 || !sums.stepCount[s]) return;
        const list = forms.get(step.layer) ?? [];
        if (!list.length || list.plan === step.planId) {
            list.plan = step.planId;
            list.push(`${step.kernel} ${step.bytes}`);
        }
        forms.set(step.layer, list);
    });
    return new Map([...forms].map(([layer, list]) => [layer, list.join('\n')]));
}

/** Layers and what is in none (head, embedding), with the median of their time in a run; and the layers that take
    longer than those that do the same, by more than three times the spread over the runs. */
function compareLayers(model, masks, sums) {
    const forms = layerForms(model, sums),
        rows = timesByRun(model, masks, sums, step => (step.layer < 0 ? step.partName : step.layer)),
        families = new Map();
    for (const row of rows) {
        Object.assign(row, spreadOf(row.times.filter(t => t > 0)));
        row.isLayer = typeof row.key === 'number';
        if (!row.isLayer) continue;
        const form = forms.get(row.key);
        families.set(form, [...(families.get(form) ?? []), row]);
    }
    const runs = rows.length ? rows[0].times.length : 0;
    let noise = 0;
    for (const family of families.values()) {
        if (family.length < 3) continue;
        const usual = Float64Array.from({length: runs}, (_, run) => spreadOf(family.map(row => row.times[run])).median);
        for (const row of family) {
            const ratio = spreadOf([...row.times].map((t, run) => t / usual[run]).filter(x => x > 0 && x < Infinity));
            row.alike = family.length;
            row.ratio = ratio.median;
            row.ratioSpread = ratio.spread;
        }
        const usualSpread = spreadOf(family.map(row => row.ratioSpread)).median;
        noise = Math.max(noise, usualSpread);
        for (const row of family) row.usualSpread = usualSpread;
        for (const row of family)
            row.stands = row.ratio - 1 > Math.max(3 * Math.max(row.ratioSpread, usualSpread), 0.02);
    }
    const layers = rows.filter(row => row.isLayer),
        enough = runs >= LEAST_RUNS;
    return {
        runs,
        enough,
        noise,
        rows: rows.sort((a, b) => b.median - a.median),
        median: spreadOf(layers.map(row => row.median)).median,
        layers,
        // differs by more than the noise, but its own runs do not agree on it
        doubtful: layers
            .filter(row => !row.stands && row.ratio - 1 > Math.max(3 * row.usualSpread, 0.02))
            .sort((a, b) => b.ratio - a.ratio),
        slow: enough ? layers.filter(row => row.stands).sort((a, b) => b.ratio - a.ratio) : []
    };
}

/** Steps that took far longer than the same step of other runs: [{event, usual, extra}], the longest first. What the
    model does is the same in each run, so the cause lies outside of it. */
function interruptions(model, masks, sums) {
    const e = model.trace.events,
        list = [],
        least = 20_000; // ns: shorter ones are no time slice of anything else
    model.steps.forEach((_, s) => {
        if (sums.stepCount[s] < 2 * LEAST_RUNS || sums.stepMax[s] < least) return;
        const own = [...model.stepEvents.subarray(model.stepFirst[s], model.stepFirst[s + 1])].filter(
                i => i >= sums.first && i < sums.last && masks.runs[e.run[i]]
            ),
            {median, spread} = spreadOf(own.map(i => e.duration[i])),
            most = median + Math.max(10 * spread, median, least);
        for (const i of own)
            if (e.duration[i] > most) list.push({event: i, usual: median, extra: e.duration[i] - median});
    });
    return list.sort((a, b) => b.extra - a.extra);
}

/** How far times can be believed: `beyond`, the share of time above what the same steps take in the faster quarter of
    their runs; `waiting`, the share of threads' time; `reasons`, where that is more than half. Too few runs have the
    reasons of the whole trace. */
function trust(model, masks, sums) {
    if (sums.trust) return sums.trust;
    sums.trust = measureTrust(model, masks, sums);
    const all = model.trace.runs.length;
    if (!sums.trust.reasons.length && sums.runs.size < LEAST_RUNS && sums.runs.size < all) {
        const open = {steps: new Uint8Array(model.steps.length).fill(1), runs: new Uint8Array(all).fill(1)};
        model.trust ??= measureTrust(model, open, aggregate(model, open, -Infinity, Infinity));
        sums.trust.reasons = model.trust.reasons.map(text => `in the whole trace ${text}`);
    }
    return sums.trust;
}
function measureTrust(model, masks, sums) {
    const e = model.trace.events;
    let usual = 0,
        known = 0; // time of steps whose runs are enough to tell
    model.steps.forEach((_, s) => {
        if (!sums.stepCount[s]) return;
        const own = Float64Array.from(
            model.stepEvents
                .subarray(model.stepFirst[s], model.stepFirst[s + 1])
                .filter(i => i >= sums.first && i < sums.last && (masks.runs[e.run[i]] ?? 1)),
            i => e.duration[i]
        ).sort();
        if (own.length < LEAST_RUNS) return;
        usual += own[own.length >> 2] * own.length;
        known += sums.stepTime[s];
    });
    const beyond = known > 0 ? 1 - usual / known : 0,
        waiting = sums.span > 0 ? sums.wait / sums.span : 0,
        percent = x => `${Math.round(100 * x)} %`,
        reasons = [];
    if (beyond > 0.5)
        reasons.push(`${percent(beyond)} of the time is above what the same steps take when nothing interrupts them`);
    if (waiting > 0.5) reasons.push(`threads wait for ${percent(waiting)} of their time`);
    return {beyond, waiting, reasons};
}

/** Bytes that an event walks again: operands in several passes, or read and written. Scratch is no memory traffic that
    a roof knows: it stays in the caches. `tinfer trace roofline` counts the same. */
function rereads(model, step, i) {
    step.again ??= step.operands.flatMap((o, which) => {
        if (o.flags & SCRATCH) return [];
        const times = (o.passes || 1) * (o.mode === 3 ? 2 : 1) - 1;
        return times > 0 && o.kind !== ELIDED
            ? [{which, times, fixed: o.kind === DYNAMIC ? -1 : operandBytes(model, step, i, which)}]
            : [];
    });
    let sum = 0;
    for (const {which, times, fixed} of step.again)
        sum += times * (fixed >= 0 ? fixed : operandBytes(model, step, i, which));
    return sum;
}
