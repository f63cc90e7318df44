// SPDX-License-Identifier: MIT
// The panel at the right: what is pinned, or, with nothing pinned, the answers most people come for.

const details = {};

details.pairs = rows =>
    el(
        'table',
        {},
        el(
            'tbody',
            {},
            rows.filter(Boolean).map(([k, v]) => el('tr', {}, el('td', {}, k), el('td', {}, v)))
        )
    );
details.link = (text, action) =>
    el('button', {class: 'link', onclick: action}, text.length > 200 ? text.slice(0, 200) + '…' : text);
details.go =
    (tab, change = {}) =>
    () => {
        Object.assign(app.state, {table: false});
        for (const [k, v] of Object.entries(change)) app.state[k] = v;
        app.setTab(tab);
        app.changed();
    };
details.tensorLink = t => details.link(t.label, () => app.setPin({kind: 'tensor', tensor: t.id}));
details.addFilter = word => () =>
    app.setFilter(
        [...app.state.filter.split(/\s+/).filter(w => w && w.split(':')[0] !== word.split(':')[0]), word].join(' ')
    );
details.bars = (items, most) =>
    items.map(([label, value, text, action]) =>
        el(
            'div',
            {class: 'bar-row'},
            action ? details.link(label, action) : el('span', {title: label}, label),
            el('span', {class: 'bar'}, el('i', {style: {width: `${Math.min(100, (100 * value) / most)}%`}})),
            el('span', {}, text)
        )
    );

details.render = () => {
    const panel = document.getElementById('details'),
        {pin} = app.state,
        build = pin && details[pin.kind];
    const kept = panel.scrollTop,
        same = panel.shown === JSON.stringify(pin);
    if (!build)
        panel.replaceChildren(
            el(
                'div',
                {class: 'top'},
                el('h2', {}, app.state.selection || app.state.filter ? 'Findings in the selection' : 'Findings')
            ),
            ...details.findings()
        );
    else {
        const [title, ...rest] = build(pin);
        panel.replaceChildren(
            el(
                'div',
                {class: 'top'},
                el('h2', {}, title),
                el(
                    'button',
                    {
                        title: 'Back to the findings (Esc)',
                        'aria-label': 'Close details',
                        onclick: () => app.setPin(null)
                    },
                    '✕'
                )
            ),
            ...rest
        );
    }
    panel.scrollTop = same ? kept : 0;
    panel.shown = JSON.stringify(pin);
};

details.event = ({event: i}) => {
    const {trace, steps, stepFirst, stepEvents} = app.model,
        e = trace.events,
        step = steps[e.step[i]],
        run = trace.runs[e.run[i]],
        count = stepFirst[step.index + 1] - stepFirst[step.index];
    let sum = 0;
    for (let k = stepFirst[step.index]; k < stepFirst[step.index + 1]; ++k) sum += e.duration[stepEvents[k]];
    const threads = [];
    for (let k = e.firstSpan[i]; k < e.firstSpan[i + 1]; ++k)
        threads.push([
            `thread ${k - e.firstSpan[i]}`,
            trace.spans.busy[k],
            formatShare(e.duration[i] ? trace.spans.busy[k] / e.duration[i] : 0),
            null
        ]);
    const macs = step.macs > 0 ? step.macs / Math.max(1, e.duration[i]) : 0;
    return [
        step.label,
        details.pairs([
            ['where', `${step.place}, step ${step.number}`],
            ['kernel', el('span', {class: 'mono'}, step.kernel)],
            run && [
                'run',
                details.link(`${app.model.name('phase', run.phase)} ${run.decode}`, () =>
                    app.setPin({kind: 'run', run: e.run[i]})
                )
            ],
            ['begins', formatTime(e.begin[i] - app.model.begin)],
            ['takes', `${formatTime(e.duration[i])}`],
            count > 1 && ['mean of this step', `${formatTime(sum / count)} in ${formatCount(count)} runs`],
            ['bytes', `${formatBytes(e.bytes[i])}, ${formatRate(e.bytes[i], e.duration[i])}`],
            macs && ['arithmetic', `${macs.toFixed(1)} GMAC/s`],
            e.status[i] && ['status', ['ok', 'cancelled', 'failed'][e.status[i]] ?? e.status[i]]
        ]),
        el(
            'div',
            {class: 'chips'},
            el('button', {onclick: () => timeline.sameStep(-1)}, '[ earlier'),
            el('button', {onclick: () => timeline.sameStep(1)}, 'later ]'),
            el(
                'button',
                {
                    onclick: details.go('graph', {
                        pin: {kind: 'group', label: step.label, steps: [step.index], node: details.nodeOf(step)}
                    })
                },
                'In the graph'
            ),
            step.layer >= 0
                ? el(
                      'button',
                      {onclick: details.go('layers', {pin: {kind: 'layer', layer: step.layer}})},
                      `Layer ${step.layer}`
                  )
                : null
        ),
        threads.length ? el('h3', {}, 'Threads, share busy') : null,
        ...details.bars(threads, Math.max(1, e.duration[i])),
        step.nodes.length > 1 ? el('h3', {}, 'Fused of') : null,
        step.nodes.length > 1 ? el('div', {}, step.nodes.join(', ')) : null,
        el('h3', {}, 'Reads and writes'),
        ...details.operands(step, i)
    ].filter(Boolean);
};
details.nodeOf = step => {
    if (step.plan) {
        graph.plan = app.model.trace.plans.indexOf(step.plan);
        graph.picture = layoutGraph(app.model, step.plan);
        graph.key_ = step.plan;
        graph.zoom = 0;
    }
    return graph.picture?.nodes.find(n => n.steps.includes(step.index))?.order;
};
details.operands = (step, i) => {
    const {trace} = app.model,
        e = trace.events,
        r = trace.ranges;
    return step.operands.map((o, which) => {
        const tensor = o.ref < VALUE_REF ? trace.tensors[o.ref] : null,
            value = tensor ? null : step.plan?.values[o.ref - VALUE_REF],
            ranges = [];
        for (let k = e.firstRange[i]; k < e.endRange[i]; ++k) if (r.operand[k] === which) ranges.push(k);
        const mode = ['', 'reads', 'writes', 'reads and writes'][o.mode] ?? '',
            kind = tensor
                ? tensor.flags & STACKED
                    ? 'expert'
                    : tensor.roleName === 'token_embd'
                      ? 'token'
                      : 'range'
                : 'range';
        return el(
            'div',
            {class: 'operand'},
            el(
                'span',
                {class: 'mode'},
                o.kind === ELIDED
                    ? 'fused away'
                    : `${mode} ${formatBytes(operandBytes(app.model, step, i, which))}` +
                          (o.passes > 1 ? ` × ${o.passes} passes` : '')
            ),
            tensor ? details.tensorLink(tensor) : el('span', {class: 'quiet'}, value?.name || 'value'),
            ...ranges
                .slice(0, 12)
                .map(k =>
                    el(
                        'div',
                        {class: 'quiet mono'},
                        (kind === 'range' ? '' : `${kind} ${r.tag[k]}: `) +
                            `${formatCount(r.offset[k])} + ${formatCount(r.length[k])}` +
                            (r.pieces[k] > 1 ? ` × ${r.pieces[k]}, ${formatCount(r.stride[k])} apart` : '')
                    )
                ),
            ranges.length > 12 ? el('div', {class: 'quiet'}, `and ${ranges.length - 12} more`) : null
        );
    });
};

details.run = ({run: at}) => {
    const {model} = app,
        run = model.trace.runs[at],
        sample = model.trace.samples.find(s => s.run === run.run),
        e = model.trace.events;
    let kernels = 0;
    for (let i = run.ev0; i < run.ev1; ++i) if (e.run[i] === at) kernels += e.duration[i];
    return [
        `${model.name('phase', run.phase)} ${run.decode}`,
        details.pairs([
            ['run', run.run],
            ['tokens', run.tokens],
            run.position >= 0 && ['position', run.position],
            run.token >= 0 && ['token id', run.token],
            ['takes', formatTime(run.end - run.begin)],
            ['in kernels', formatShare(kernels / Math.max(1, run.end - run.begin))],
            ['steps', formatCount(run.ev1 - run.ev0)],
            ['threads', run.threads],
            ['cells in use', `${run.cells} of ${run.extent}`],
            ['weights read', formatBytes(run.observed)],
            run.expected > 0 && ['expected', run.expected === run.observed ? 'the same' : formatBytes(run.expected)],
            run.dropped > 0 && ['dropped', run.dropped],
            !run.complete && ['end', 'not in the file'],
            run.rolledBack && ['rolled back', 'yes'],
            sample && [
                'sampled',
                (sample.token >= 0 ? `token ${sample.token}` : 'hidden') +
                    `, p = ${sample.probability.toFixed(3)}, ${formatTime(sample.duration)}`
            ]
        ]),
        el(
            'div',
            {class: 'chips'},
            el('button', {onclick: () => app.setSelection([run.begin, run.end])}, 'Select'),
            el(
                'button',
                {
                    onclick: () => {
                        app.setView([run.begin, run.end]);
                        app.setTab('timeline');
                    }
                },
                'Show'
            ),
            el('button', {onclick: details.addFilter(`run:${run.run}`)}, 'Filter')
        )
    ];
};

details.group = ({label, steps: list}) => {
    const {model, sums} = app,
        {trace} = model,
        sum = array => list.reduce((s, i) => s + array[i], 0),
        time = sum(sums.stepTime),
        bytes = sum(sums.stepBytes),
        count = sum(sums.stepCount),
        first = model.steps[list[0]];
    const macs = list.reduce((s, i) => s + (model.steps[i].macs || 0) * sums.stepCount[i], 0),
        weights = [...new Set(list.flatMap(i => model.steps[i].tensors))];
    const slow = list
        .filter(i => sums.stepCount[i])
        .map(i => [i, sums.stepTime[i] / sums.stepCount[i]])
        .sort((a, b) => b[1] - a[1])
        .slice(0, 8);
    return [
        label,
        details.pairs([
            ['time', `${formatTime(time)} (${formatShare(time / sums.time)})`],
            ['steps', formatCount(count)],
            count > 0 && ['mean', formatTime(time / count)],
            ['bytes', formatBytes(bytes)],
            ['rate', formatRate(bytes, time)],
            macs > 0 && ['arithmetic', `${(macs / time).toFixed(1)} GMAC/s, ${(macs / bytes).toFixed(2)} a byte`],
            sum(sums.stepSpan) > 0 && ['threads wait', formatShare(sum(sums.stepWait) / sum(sums.stepSpan))],
            ['kernels', el('span', {class: 'mono'}, [...new Set(list.map(i => model.steps[i].kernel))].join(', '))]
        ]),
        el(
            'div',
            {class: 'chips'},
            el('button', {onclick: details.addFilter(`op:${first.opName}`)}, `Filter op ${first.opName}`),
            el(
                'button',
                {
                    onclick: () => {
                        const i = model.stepEvents[model.stepFirst[slow[0]?.[0] ?? list[0]]];
                        if (i !== undefined) {
                            app.setTab('timeline');
                            timeline.pinEvent(i);
                        }
                    }
                },
                'In the timeline'
            )
        ),
        slow.length > 1 ? el('h3', {}, 'Slowest of them, mean') : null,
        ...details.bars(
            slow.map(([i, mean]) => [
                model.steps[i].place,
                mean,
                formatTime(mean),
                () => {
                    app.setTab('timeline');
                    timeline.pinEvent(model.stepEvents[model.stepFirst[i]]);
                }
            ]),
            slow[0]?.[1] ?? 1
        ),
        first.nodes.length > 1 ? el('h3', {}, 'Fused of') : null,
        first.nodes.length > 1 ? el('div', {}, first.nodes.join(', ')) : null,
        weights.length ? el('h3', {}, 'Tensors') : null,
        ...weights.slice(0, 40).map(t => el('div', {}, details.tensorLink(trace.tensors[t]))),
        weights.length > 40 ? el('div', {class: 'quiet'}, `and ${weights.length - 40} more`) : null
    ].filter(Boolean);
};

details.layer = ({layer, part}) => {
    const {model, sums} = app,
        {trace} = model,
        parts = groupSteps(model, sums, s => (s.layer === layer ? s.partName : '')).filter(g => g.key),
        time = parts.reduce((s, g) => s + g.time, 0);
    const groups = groupSteps(model, sums, s => (s.layer < 0 ? -1 : s.layer))
            .filter(g => g.key >= 0)
            .sort((a, b) => b.time - a.time),
        rank = groups.findIndex(g => g.key === layer) + 1,
        median = groups[groups.length >> 1]?.time;
    const weights = trace.tensors.filter(t => t.layer === layer && t.cls === 0);
    return [
        `Layer ${layer}${part ? `, ${part}` : ''}`,
        details.pairs([
            ['time', `${formatTime(time)} (${formatShare(time / sums.time)})`],
            rank > 0 && ['rank', `${rank} of ${groups.length} by time`],
            median > 0 && ['against the median layer', `${(time / median).toFixed(2)} ×`],
            ['bytes', formatBytes(parts.reduce((s, g) => s + g.bytes, 0))],
            ['weights', formatBytes(weights.reduce((s, t) => s + t.bytes, 0))]
        ]),
        el(
            'div',
            {class: 'chips'},
            el('button', {onclick: details.addFilter(`layer:${layer}`)}, 'Filter'),
            el('button', {onclick: details.go('tensors', {filter: `layer:${layer}`})}, 'Tensors')
        ),
        el('h3', {}, 'Parts'),
        ...details.bars(
            parts
                .sort((a, b) => b.time - a.time)
                .map(g => [
                    g.key,
                    g.time,
                    formatShare(g.time / time),
                    () => app.setPin({kind: 'group', label: `layer ${layer} ${g.key}`, steps: g.steps})
                ]),
            parts[0]?.time ?? 1
        ),
        el('h3', {}, 'Weights'),
        ...weights.map(t =>
            el(
                'div',
                {},
                details.tensorLink(t),
                model.coverage.read[t.id] ? '' : el('b', {style: {color: 'var(--bad)'}}, '  never read')
            )
        )
    ];
};
details.part = ({part, layer}) => {
    const list = app.model.steps
        .filter(s => s.partName === part && s.layer === layer && app.sums.stepCount[s.index])
        .map(s => s.index);
    return list.length
        ? details.group({label: part, steps: list})
        : [part, el('p', {class: 'quiet'}, 'No step of the selection belongs here.')];
};

details.tensor = ({tensor: id}) => {
    const {model, sums, tensorSums: s} = app,
        t = model.trace.tensors[id],
        e = model.trace.events,
        users = model.steps.filter(step => step.tensors.includes(id) && sums.stepCount[step.index]);
    const ops = [...new Set(users.map(u => `${u.opName} (${u.place})`))],
        gap = details.distance(id);
    return [
        t.label,
        details.pairs([
            ['kind', CLASS_NAMES[t.cls] ?? t.cls],
            ['type', t.typeName],
            ['shape', t.shape],
            ['size', `${formatBytes(t.bytes)} (${formatCount(t.bytes)} bytes)`],
            t.offset >= 0 && [
                'in the file',
                `${app.model.trace.files[t.file]?.name ?? ''} at ${formatCount(t.offset)}`
            ],
            t.slice > 0 && ['one expert', formatBytes(t.slice)],
            t.flags & 2 && ['layout', `re-packed: ${model.name('layout', t.layout)}`],
            t.flags & 1 && ['tied', 'embedding and head are this one tensor'],
            ['read', `${formatCount(s.reads[id])} times, ${formatBytes(s.bytes[id])}`],
            s.streamed[id] > s.bytes[id] && [
                'streamed',
                `${formatBytes(s.streamed[id])}: kernels walk it more than once`
            ],
            s.writes[id] > 0 && ['written', `${formatCount(s.writes[id])} times, ${formatBytes(s.written[id])}`],
            s.perRun[id] > 1 && ['most in a run', `${s.perRun[id]} times`],
            s.time[id] > 0 && ['time', `${formatTime(s.time[id])} (${formatShare(s.time[id] / sums.time)})`],
            s.time[id] > 0 && ['rate', formatRate(s.bytes[id], s.time[id])],
            gap > 0 && ['between two touches', `${formatBytes(gap)} of other reads`],
            s.first[id] !== NONE32 && [
                'first touch',
                details.link(formatTime(e.begin[s.first[id]] - model.begin), () => {
                    app.setTab('timeline');
                    timeline.pinEvent(s.first[id]);
                })
            ],
            s.first[id] !== NONE32 && [
                'last touch',
                details.link(formatTime(e.begin[s.last[id]] - model.begin), () => {
                    app.setTab('timeline');
                    timeline.pinEvent(s.last[id]);
                })
            ]
        ]),
        s.first[id] === NONE32
            ? el(
                  'p',
                  {},
                  el(
                      'b',
                      {style: {color: 'var(--bad)'}},
                      model.coverage.read[id] ? 'Not touched in the selection.' : 'Never read in this trace.'
                  )
              )
            : null,
        el(
            'div',
            {class: 'chips'},
            t.name && !/[\s,]/.test(t.name) && t.name.length < 200
                ? el('button', {onclick: details.addFilter(`tensor:${t.name}`)}, 'Filter')
                : null,
            el('button', {onclick: details.go('tensors')}, 'In the table'),
            el('button', {onclick: details.go('heat')}, 'In the heat map')
        ),
        ops.length ? el('h3', {}, 'Touched by') : null,
        ...users.slice(0, 24).map(u =>
            el(
                'div',
                {},
                details.link(`${u.opName}, ${u.place}${u.tokens > 1 ? `, ${u.tokens} tokens` : ''}`, () =>
                    app.setPin({kind: 'group', label: u.label, steps: [u.index]})
                )
            )
        )
    ].filter(Boolean);
};
/** Bytes read by others between the last two touches of a tensor. */
details.distance = id => {
    const s = app.tensorSums,
        e = app.model.trace.events,
        stop = s.last[id];
    if (s.first[id] === NONE32 || s.first[id] === stop || !app.model.byteSums) return 0;
    for (let i = stop - 1; i >= s.first[id]; --i)
        if (app.model.steps[e.step[i]].tensors.includes(id))
            return app.model.byteSums[stop] - app.model.byteSums[i + 1];
    return 0;
};

details.expert = ({layer, expert}) => {
    const p = experts.get();
    if (!p) return [`Expert ${expert}`];
    const l = p.layers.indexOf(layer),
        n = p.counts[l * p.experts + expert],
        everywhere = p.layers
            .map((x, i) => [x, p.counts[i * p.experts + expert] / Math.max(1, p.tokens[i])])
            .sort((a, b) => b[1] - a[1]);
    const hot = Array.from({length: p.experts}, (_, x) => [x, p.counts[l * p.experts + x] / Math.max(1, p.tokens[l])])
        .sort((a, b) => b[1] - a[1])
        .slice(0, 8);
    return [
        `Layer ${layer}, expert ${expert}`,
        details.pairs([
            ['chosen', `${formatCount(n)} times`],
            ['by', `${formatShare(n / p.tokens[l])} of ${formatCount(p.tokens[l])} tokens`],
            ['even routing', formatShare(p.used / p.experts)],
            ['its weights', formatBytes(p.sliceBytes)],
            ['kept from token to token', formatShare(p.overlap.perLayer[l])]
        ]),
        el('h3', {}, `Hottest of layer ${layer}`),
        ...details.bars(
            hot.map(([x, v]) => [
                `expert ${x}`,
                v,
                formatShare(v),
                () => app.setPin({kind: 'expert', layer, expert: x})
            ]),
            hot[0]?.[1] || 1
        ),
        el('h3', {}, `Expert ${expert} in other layers`),
        ...details.bars(
            everywhere
                .slice(0, 10)
                .map(([x, v]) => [
                    `layer ${x}`,
                    v,
                    formatShare(v),
                    () => app.setPin({kind: 'expert', layer: x, expert})
                ]),
            everywhere[0]?.[1] || 1
        )
    ];
};
