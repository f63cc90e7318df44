// SPDX-License-Identifier: MIT
// The panel at the right: what is pinned, or, with nothing pinned, the answers most people come for.

const details = {};

details.pairs = rows => el('table', {}, el('tbody', {}, rows.filter(Boolean).map(([k, v]) => el('tr', {}, el('td', {}, k), el('td', {}, v)))));
details.link = (text, action) => el('button', {class: 'link', onclick: action}, text.length > 200 ? text.slice(0, 200) + '…' : text);
details.go = (tab, change = {}) => () => { Object.assign(app.state, {table: false}); for (const [k, v] of Object.entries(change)) app.state[k] = v; app.setTab(tab); app.changed(); };
details.tensorLink = t => details.link(t.label, () => app.setPin({kind: 'tensor', tensor: t.id}));
details.addFilter = word => () => app.setFilter([...app.state.filter.split(/\s+/).filter(w => w && w.split(':')[0] !== word.split(':')[0]), word].join(' '));
details.bars = (items, most) => items.map(([label, value, text, action]) => el('div', {class: 'bar-row'}, action ? details.link(label, action) : el('span', {title: label}, label),
    el('span', {class: 'bar'}, el('i', {style: {width: `${Math.min(100, 100 * value / most)}%`}})), el('span', {}, text)));

details.render = () => {
    const panel = document.getElementById('details'), {pin} = app.state, build = pin && details[pin.kind];
    const kept = panel.scrollTop, same = panel.shown === JSON.stringify(pin);
    if (!build) panel.replaceChildren(el('div', {class: 'top'}, el('h2', {}, app.state.selection || app.state.filter ? 'Findings in the selection' : 'Findings')), ...details.findings());
    else {
        const [title, ...rest] = build(pin);
        panel.replaceChildren(el('div', {class: 'top'}, el('h2', {}, title), el('button', {title: 'Back to the findings (Esc)', 'aria-label': 'Close details', onclick: () => app.setPin(null)}, '✕')), ...rest);
    }
    panel.scrollTop = same ? kept : 0;
    panel.shown = JSON.stringify(pin);
};

details.event = ({event: i}) => {
    const {trace, steps, stepFirst, stepEvents} = app.model, e = trace.events, step = steps[e.step[i]], run = trace.runs[e.run[i]], count = stepFirst[step.index + 1] - stepFirst[step.index];
    let sum = 0;
    for (let k = stepFirst[step.index]; k < stepFirst[step.index + 1]; ++k) sum += e.duration[stepEvents[k]];
    const threads = [];
    for (let k = e.firstSpan[i]; k < e.firstSpan[i + 1]; ++k) threads.push([`thread ${k - e.firstSpan[i]}`, trace.spans.busy[k], formatShare(e.duration[i] ? trace.spans.busy[k] / e.duration[i] : 0), null]);
    const macs = step.macs > 0 ? step.macs / Math.max(1, e.duration[i]) : 0;
    return [step.label, details.pairs([['where', `${step.place}, step ${step.number}`], ['kernel', el('span', {class: 'mono'}, step.kernel)],
        run && ['run', details.link(`${app.model.name('phase', run.phase)} ${run.decode}`, () => app.setPin({kind: 'run', run: e.run[i]}))],
        ['begins', formatTime(e.begin[i] - app.model.begin)], ['takes', `${formatTime(e.duration[i])}`], count > 1 && ['mean of this step', `${formatTime(sum / count)} in ${formatCount(count)} runs`],
        ['bytes', `${formatBytes(e.bytes[i])}, ${formatRate(e.bytes[i], e.duration[i])}`], macs && ['arithmetic', `${macs.toFixed(1)} GMAC/s`],
        e.status[i] && ['status', ['ok', 'cancelled', 'failed'][e.status[i]] ?? e.status[i]]]),
    el('div', {class: 'chips'}, el('button', {onclick: () => timeline.sameStep(-1)}, '[ earlier'), el('button', {onclick: () => timeline.sameStep(1)}, 'later ]'),
        el('button', {onclick: details.go('graph', {pin: {kind: 'group', label: step.label, steps: [step.index], node: details.nodeOf(step)}})}, 'In the graph'),
        step.layer >= 0 ? el('button', {onclick: details.go('layers', {pin: {kind: 'layer', layer: step.layer}})}, `Layer ${step.layer}`) : null),
    threads.length ? el('h3', {}, 'Threads, share busy') : null, ...details.bars(threads, Math.max(1, e.duration[i])),
    step.nodes.length > 1 ? el('h3', {}, 'Fused of') : null, step.nodes.length > 1 ? el('div', {}, step.nodes.join(', ')) : null,
    el('h3', {}, 'Reads and writes'), ...details.operands(step, i)].filter(Boolean);
};
details.nodeOf = step => { if (step.plan) { graph.plan = app.model.trace.plans.indexOf(step.plan); graph.picture = layoutGraph(app.model, step.plan); graph.key_ = step.plan; graph.zoom = 0; } return graph.picture?.nodes.find(n => n.steps.includes(step.index))?.order; };
details.operands = (step, i) => {
    const {trace} = app.model, e = trace.events, r = trace.ranges;
    return step.operands.map((o, which) => {
        const tensor = o.ref < VALUE_REF ? trace.tensors[o.ref] : null, value = tensor ? null : step.plan?.values[o.ref - VALUE_REF], ranges = [];
        for (let k = e.firstRange[i]; k < e.firstRange[i + 1]; ++k) if (r.operand[k] === which) ranges.push(k);
        const mode = ['', 'reads', 'writes', 'reads and writes'][o.mode] ?? '', kind = tensor ? (tensor.flags & STACKED ? 'expert' : tensor.roleName === 'token_embd' ? 'token' : 'range') : 'range';
        return el('div', {class: 'operand'}, el('span', {class: 'mode'}, o.kind === ELIDED ? 'fused away' : `${mode} ${formatBytes(operandBytes(app.model, step, i, which))}${o.passes > 1 ? ` × ${o.passes} passes` : ''}`),
            tensor ? details.tensorLink(tensor) : el('span', {class: 'quiet'}, value?.name || 'value'),
            ...ranges.slice(0, 12).map(k => el('div', {class: 'quiet mono'}, `${kind === 'range' ? '' : `${kind} ${r.tag[k]}: `}${formatCount(r.offset[k])} + ${formatCount(r.length[k])}${r.pieces[k] > 1 ? ` × ${r.pieces[k]}, ${formatCount(r.stride[k])} apart` : ''}`)),
            ranges.length > 12 ? el('div', {class: 'quiet'}, `and ${ranges.length - 12} more`) : null);
    });
};

details.run = ({run: at}) => {
    const {model} = app, run = model.trace.runs[at], sample = model.trace.samples.find(s => s.run === run.run), e = model.trace.events;
    let kernels = 0;
    for (let i = run.ev0; i < run.ev1; ++i) if (e.run[i] === at) kernels += e.duration[i];
    return [`${model.name('phase', run.phase)} ${run.decode}`, details.pairs([['run', run.run], ['tokens', run.tokens], run.position >= 0 && ['position', run.position], run.token >= 0 && ['token id', run.token],
        ['takes', formatTime(run.end - run.begin)], ['in kernels', formatShare(kernels / Math.max(1, run.end - run.begin))], ['steps', formatCount(run.ev1 - run.ev0)],
        ['threads', run.threads], ['cells in use', `${run.cells} of ${run.extent}`], ['weights read', formatBytes(run.observed)],
        run.expected > 0 && ['expected', run.expected === run.observed ? 'the same' : formatBytes(run.expected)], run.dropped > 0 && ['dropped', run.dropped],
        !run.complete && ['end', 'not in the file'], run.rolledBack && ['rolled back', 'yes'], sample && ['sampled', `${sample.token >= 0 ? `token ${sample.token}` : 'hidden'}, p = ${sample.probability.toFixed(3)}, ${formatTime(sample.duration)}`]]),
    el('div', {class: 'chips'}, el('button', {onclick: () => app.setSelection([run.begin, run.end])}, 'Select'), el('button', {onclick: () => { app.setView([run.begin, run.end]); app.setTab('timeline'); }}, 'Show'),
        el('button', {onclick: details.addFilter(`run:${run.run}`)}, 'Filter'))];
};

details.group = ({label, steps: list}) => {
    const {model, sums} = app, {trace} = model, sum = array => list.reduce((s, i) => s + array[i], 0), time = sum(sums.stepTime), bytes = sum(sums.stepBytes), count = sum(sums.stepCount), first = model.steps[list[0]];
    const macs = list.reduce((s, i) => s + (model.steps[i].macs || 0) * sums.stepCount[i], 0), weights = [...new Set(list.flatMap(i => model.steps[i].tensors))];
    const slow = list.filter(i => sums.stepCount[i]).map(i => [i, sums.stepTime[i] / sums.stepCount[i]]).sort((a, b) => b[1] - a[1]).slice(0, 8);
    return [label, details.pairs([['time', `${formatTime(time)} (${formatShare(time / sums.time)})`], ['steps', formatCount(count)], count > 0 && ['mean', formatTime(time / count)], ['bytes', formatBytes(bytes)],
        ['rate', formatRate(bytes, time)], macs > 0 && ['arithmetic', `${(macs / time).toFixed(1)} GMAC/s, ${(macs / bytes).toFixed(2)} a byte`],
        sum(sums.stepSpan) > 0 && ['threads wait', formatShare(sum(sums.stepWait) / sum(sums.stepSpan))], ['kernels', el('span', {class: 'mono'}, [...new Set(list.map(i => model.steps[i].kernel))].join(', '))]]),
    el('div', {class: 'chips'}, el('button', {onclick: details.addFilter(`op:${first.opName}`)}, `Filter op ${first.opName}`), el('button', {onclick: () => { const i = model.stepEvents[model.stepFirst[slow[0]?.[0] ?? list[0]]]; if (i !== undefined) { app.setTab('timeline'); timeline.pinEvent(i); } }}, 'In the timeline')),
    slow.length > 1 ? el('h3', {}, 'Slowest of them, mean') : null, ...details.bars(slow.map(([i, mean]) => [model.steps[i].place, mean, formatTime(mean), () => { app.setTab('timeline'); timeline.pinEvent(model.stepEvents[model.stepFirst[i]]); }]), slow[0]?.[1] ?? 1),
    first.nodes.length > 1 ? el('h3', {}, 'Fused of') : null, first.nodes.length > 1 ? el('div', {}, first.nodes.join(', ')) : null,
    weights.length ? el('h3', {}, 'Tensors') : null, ...weights.slice(0, 40).map(t => el('div', {}, details.tensorLink(trace.tensors[t]))), weights.length > 40 ? el('div', {class: 'quiet'}, `and ${weights.length - 40} more`) : null].filter(Boolean);
};

details.layer = ({layer, part}) => {
    const {model, sums} = app, {trace} = model, parts = groupSteps(model, sums, s => s.layer === layer ? s.partName : '').filter(g => g.key), time = parts.reduce((s, g) => s + g.time, 0);
    const groups = groupSteps(model, sums, s => s.layer < 0 ? -1 : s.layer).filter(g => g.key >= 0).sort((a, b) => b.time - a.time), rank = groups.findIndex(g => g.key === layer) + 1, median = groups[groups.length >> 1]?.time;
    const weights = trace.tensors.filter(t => t.layer === layer && t.cls === 0);
    return [`Layer ${layer}${part ? `, ${part}` : ''}`, details.pairs([['time', `${formatTime(time)} (${formatShare(time / sums.time)})`], rank > 0 && ['rank', `${rank} of ${groups.length} by time`],
        median > 0 && ['against the median layer', `${(time / median).toFixed(2)} ×`], ['bytes', formatBytes(parts.reduce((s, g) => s + g.bytes, 0))], ['weights', formatBytes(weights.reduce((s, t) => s + t.bytes, 0))]]),
    el('div', {class: 'chips'}, el('button', {onclick: details.addFilter(`layer:${layer}`)}, 'Filter'), el('button', {onclick: details.go('tensors', {filter: `layer:${layer}`})}, 'Tensors')),
    el('h3', {}, 'Parts'), ...details.bars(parts.sort((a, b) => b.time - a.time).map(g => [g.key, g.time, formatShare(g.time / time), () => app.setPin({kind: 'group', label: `layer ${layer} ${g.key}`, steps: g.steps})]), parts[0]?.time ?? 1),
    el('h3', {}, 'Weights'), ...weights.map(t => el('div', {}, details.tensorLink(t), model.coverage.read[t.id] ? '' : el('b', {style: {color: 'var(--bad)'}}, '  never read')))];
};
details.part = ({part, layer}) => {
    const list = app.model.steps.filter(s => s.partName === part && s.layer === layer && app.sums.stepCount[s.index]).map(s => s.index);
    return list.length ? details.group({label: part, steps: list}) : [part, el('p', {class: 'quiet'}, 'No step of the selection belongs here.')];
};

details.tensor = ({tensor: id}) => {
    const {model, sums, tensorSums: s} = app, t = model.trace.tensors[id], e = model.trace.events, users = model.steps.filter(step => step.tensors.includes(id) && sums.stepCount[step.index]);
    const ops = [...new Set(users.map(u => `${u.opName} (${u.place})`))], gap = details.distance(id);
    return [t.label, details.pairs([['kind', CLASS_NAMES[t.cls] ?? t.cls], ['type', t.typeName], ['shape', t.shape], ['size', `${formatBytes(t.bytes)} (${formatCount(t.bytes)} bytes)`],
        t.offset >= 0 && ['in the file', `${app.model.trace.files[t.file]?.name ?? ''} at ${formatCount(t.offset)}`], t.slice > 0 && ['one expert', formatBytes(t.slice)], t.flags & 2 && ['layout', `re-packed: ${model.name('layout', t.layout)}`],
        t.flags & 1 && ['tied', 'embedding and head are this one tensor'], ['read', `${formatCount(s.reads[id])} times, ${formatBytes(s.bytes[id])}`], s.streamed[id] > s.bytes[id] && ['streamed', `${formatBytes(s.streamed[id])}: kernels walk it more than once`],
        s.writes[id] > 0 && ['written', `${formatCount(s.writes[id])} times, ${formatBytes(s.written[id])}`], s.perRun[id] > 1 && ['most in a run', `${s.perRun[id]} times`], s.time[id] > 0 && ['time', `${formatTime(s.time[id])} (${formatShare(s.time[id] / sums.time)})`],
        s.time[id] > 0 && ['rate', formatRate(s.bytes[id], s.time[id])], gap > 0 && ['between two touches', `${formatBytes(gap)} of other reads`],
        s.first[id] !== NONE32 && ['first touch', details.link(formatTime(e.begin[s.first[id]] - model.begin), () => { app.setTab('timeline'); timeline.pinEvent(s.first[id]); })],
        s.first[id] !== NONE32 && ['last touch', details.link(formatTime(e.begin[s.last[id]] - model.begin), () => { app.setTab('timeline'); timeline.pinEvent(s.last[id]); })]]),
    s.first[id] === NONE32 ? el('p', {}, el('b', {style: {color: 'var(--bad)'}}, model.coverage.read[id] ? 'Not touched in the selection.' : 'Never read in this trace.')) : null,
    el('div', {class: 'chips'}, t.name && !/[\s,]/.test(t.name) && t.name.length < 200 ? el('button', {onclick: details.addFilter(`tensor:${t.name}`)}, 'Filter') : null, el('button', {onclick: details.go('tensors')}, 'In the table'), el('button', {onclick: details.go('heat')}, 'In the heat map')),
    ops.length ? el('h3', {}, 'Touched by') : null, ...users.slice(0, 24).map(u => el('div', {}, details.link(`${u.opName}, ${u.place}${u.tokens > 1 ? `, ${u.tokens} tokens` : ''}`, () => app.setPin({kind: 'group', label: u.label, steps: [u.index]}))))].filter(Boolean);
};
/** Bytes read by others between the last two touches of a tensor. */
details.distance = id => {
    const s = app.tensorSums, e = app.model.trace.events, stop = s.last[id];
    if (s.first[id] === NONE32 || s.first[id] === stop || !app.model.byteSums) return 0;
    for (let i = stop - 1; i >= s.first[id]; --i) if (app.model.steps[e.step[i]].tensors.includes(id)) return app.model.byteSums[stop] - app.model.byteSums[i + 1];
    return 0;
};

details.expert = ({layer, expert}) => {
    const p = experts.get();
    if (!p) return [`Expert ${expert}`];
    const l = p.layers.indexOf(layer), n = p.counts[l * p.experts + expert], everywhere = p.layers.map((x, i) => [x, p.counts[i * p.experts + expert] / Math.max(1, p.tokens[i])]).sort((a, b) => b[1] - a[1]);
    const hot = Array.from({length: p.experts}, (_, x) => [x, p.counts[l * p.experts + x] / Math.max(1, p.tokens[l])]).sort((a, b) => b[1] - a[1]).slice(0, 8);
    return [`Layer ${layer}, expert ${expert}`, details.pairs([['chosen', `${formatCount(n)} times`], ['by', `${formatShare(n / p.tokens[l])} of ${formatCount(p.tokens[l])} tokens`], ['even routing', formatShare(p.used / p.experts)],
        ['its weights', formatBytes(p.sliceBytes)], ['kept from token to token', formatShare(p.overlap.perLayer[l])]]),
    el('h3', {}, `Hottest of layer ${layer}`), ...details.bars(hot.map(([x, v]) => [`expert ${x}`, v, formatShare(v), () => app.setPin({kind: 'expert', layer, expert: x})]), hot[0]?.[1] || 1),
    el('h3', {}, `Expert ${expert} in other layers`), ...details.bars(everywhere.slice(0, 10).map(([x, v]) => [`layer ${x}`, v, formatShare(v), () => app.setPin({kind: 'expert', layer: x, expert})]), everywhere[0]?.[1] || 1)];
};

/** The answers: slowest layer, where time goes, hot experts, what is read twice, where threads wait, what nobody read. */
details.findings = () => {
    const {model, sums, tensorSums: s} = app, {trace} = model, out = [], card = (title, ...body) => out.push(el('div', {class: 'finding'}, el('h3', {}, title), ...body));
    if (!sums.count) card('Nothing here', trace.events.count ? 'No step passes the filter and lies in the selection.' : 'The trace has no events.');
    if (model.coverage.missing.length && !model.coverage.filtered) card('Never read', el('strong', {style: {color: 'var(--bad)'}}, `${model.coverage.missing.length} of ${model.coverage.weights} weights`), el('div', {class: 'quiet'}, 'Nothing in this trace read them.'),
        ...model.coverage.missing.slice(0, 4).map(t => el('div', {}, details.tensorLink(t))), el('div', {class: 'chips'}, el('button', {onclick: details.go('layers')}, 'Show in layers')));
    const byLayer = groupSteps(model, sums, x => x.layer).filter(g => g.key >= 0 && g.time > 0).sort((a, b) => b.time - a.time);
    if (byLayer.length > 1) {
        const median = byLayer[byLayer.length >> 1].time, top = byLayer[0], ratio = top.time / median;
        card('Slowest layer', el('strong', {}, details.link(`Layer ${top.key}`, () => app.setPin({kind: 'layer', layer: top.key}))), ` takes ${ratio.toFixed(2)} × the median layer, ${formatShare(top.time / sums.time)} of kernel time.`,
            ...details.bars(byLayer.slice(0, 4).map(g => [`layer ${g.key}`, g.time, formatShare(g.time / sums.time), () => app.setPin({kind: 'layer', layer: g.key})]), top.time), el('div', {class: 'chips'}, el('button', {onclick: details.go('layers')}, 'All layers')));
    }
    const kinds = groupSteps(model, sums, x => x.weights.length ? x.weights.map(t => trace.tensors[t].roleName).join(' + ') : x.opName).filter(g => g.time > 0).sort((a, b) => b.time - a.time);
    if (kinds.length) {
        let runTime = 0;
        for (const run of sums.runs) if (trace.runs[run]) runTime += trace.runs[run].end - trace.runs[run].begin;
        const whole = !app.state.filter && !app.state.selection && runTime > 0;
        card('Where the time goes', ...details.bars(kinds.slice(0, 6).map(g => [g.key, g.time, formatShare(g.time / sums.time), () => app.setPin({kind: 'group', label: g.key, steps: g.steps})]), kinds[0].time),
            el('div', {class: 'quiet'}, `${formatRate(sums.bytes, sums.time)} in kernels${whole ? `; kernels are ${formatShare(sums.time / runTime)} of the runs` : ''}`));
    }
    const p = experts.get();
    if (p?.tokensAll) {
        const list = Array.from({length: p.experts}, (_, x) => [x, p.total[x] / p.tokensAll]).sort((a, b) => b[1] - a[1]), even = p.used / p.experts;
        let cold = 0;
        for (const v of p.counts) if (!v) ++cold;
        card('Hot experts', el('strong', {}, list.slice(0, 3).filter(x => x[1] > 1.5 * even).map(x => x[0]).join(', ') || 'None stands out'), ` (even routing: ${formatShare(even)} of tokens each)`,
            ...details.bars(list.slice(0, 5).map(([x, v]) => [`expert ${x}, all layers`, v, formatShare(v), () => { const l = p.layers.reduce((best, _, i) => p.counts[i * p.experts + x] > p.counts[best * p.experts + x] ? i : best, 0); app.setPin({kind: 'expert', layer: p.layers[l], expert: x}); }]), list[0][1] || 1),
            el('div', {class: 'quiet'}, `${formatCount(cold)} of ${formatCount(p.counts.length)} were never chosen`), el('div', {class: 'chips'}, el('button', {onclick: details.go('experts')}, 'All experts')));
    }
    details.twice(card);
    if (sums.span > 0) {
        const groups = groupSteps(model, sums, x => x.opName).filter(g => g.span).sort((a, b) => b.wait - a.wait), uneven = groups.filter(g => g.wait / g.span > 0.2);
        card('Where threads wait', el('strong', {}, formatShare(sums.wait / sums.span)), ' of thread time inside steps is waiting.', ...details.bars(groups.slice(0, 4).map(g => [`${g.key} (waits ${formatShare(g.wait / g.span)})`, g.wait, formatShare(g.wait / sums.wait), () => app.setPin({kind: 'group', label: g.key, steps: g.steps})]), groups[0]?.wait || 1),
            el('div', {class: 'quiet'}, 'busy: ' + [...sums.threadBusy].map((b, t) => `thread ${t} ${formatShare(b / (sums.threadTime[t] || 1))}`).slice(0, 16).join(', ')), uneven.length ? el('div', {class: 'quiet'}, `more than 20 % waiting: ${uneven.slice(0, 5).map(g => g.key).join(', ')}`) : null);
    } else if (trace.events.count) card('Where threads wait', el('span', {class: 'quiet'}, 'Not recorded: tinfer trace record --level threads.'));
    if (trace.problems.length) card('About this file', ...trace.problems.slice(0, 8).map(text => el('div', {}, text)));
    return out;
};
details.twice = card => {
    const {model, tensorSums: s, sums} = app, {trace} = model, weights = trace.tensors.filter(t => t.cls === 0 && s.perRun[t.id] > 1);
    if (!sums.count) return;
    const bySteps = [], byPasses = [];
    for (const t of weights) {
        const users = model.steps.filter(step => sums.stepCount[step.index] && step.weights.includes(t.id)), perPlan = new Map();
        for (const u of users) perPlan.set(u.planId, (perPlan.get(u.planId) ?? 0) + 1);
        (Math.max(0, ...perPlan.values()) > 1 ? bySteps : byPasses).push([t, [...new Set(users.map(u => u.opName))]]);
    }
    if (!weights.length) { card('Read twice', 'No weight is read more than once in a run.'); return; }
    const extra = byPasses.reduce((sum, [t]) => sum + s.streamed[t.id] - s.bytes[t.id], 0), phases = [...new Set([...sums.runs].map(r => trace.runs[r]).filter(r => r && trace.plans[r.plan]?.operands.some(o => o.passes > 1 && o.ref < VALUE_REF)).map(r => model.name('phase', r.phase)))];
    card('Read twice', ...bySteps.slice(0, 4).map(([t, ops]) => el('div', {}, el('strong', {}, details.tensorLink(t)), ` by ${ops.join(' and ')} in every run`)),
        byPasses.length ? el('div', {}, bySteps.length ? 'Also ' : '', el('strong', {}, details.link(`${byPasses.length} weights`, () => { tensors.sort = 'perRun'; tensors.down = true; details.go('tensors')(); })), ` are walked more than once inside a step${phases.length ? ` (${phases.join(', ')})` : ''}: ${formatBytes(extra)} again.`) : null);
};
