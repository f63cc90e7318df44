// SPDX-License-Identifier: MIT
// The panel at the right: the pinned item, or if nothing is pinned, the most common findings.

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
            {class: 'bar-row', title: label},
            action ? details.link(label, action) : el('span', {}, label),
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
                el(
                    'h2',
                    {},
                    `Findings${app.state.tab === 'beside' ? ' of trace a' : ''}` +
                        `${app.state.selection || app.state.filter ? ' in the selection' : ''}: ${phases.text()}`
                ),
                details.foldButton()
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
                el('span', {class: 'grow'}),
                el(
                    'button',
                    {title: 'A link to what is pinned here', onclick: event => app.copyLink(event.target)},
                    'Link'
                ),
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

/** Hides and shows the panel. */
details.foldButton = () =>
    el(
        'button',
        {
            id: 'fold',
            title: 'Hide the panel (I)',
            'aria-label': 'Hide the findings',
            onclick: () => app.setFolded(true)
        },
        'Hide'
    );

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
            roofline.eventAbove(i) && ['above the roof', 'from a cache, or done in a neighbouring step’s time'],
            e.status[i] && ['status', ['ok', 'cancelled', 'failed'][e.status[i]] ?? e.status[i]]
        ]),
        el(
            'div',
            {class: 'chips'},
            el('button', {title: 'Only this step (Z)', onclick: () => timeline.zoomTo(i)}, 'Zoom to it'),
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
            value = tensor ? null : step.plan?.valueOf.get(o.ref - VALUE_REF),
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
                        (kind === 'range'
                            ? ''
                            : kind === 'token'
                              ? `token ${app.model.tokenText(r.tag[k])}: `
                              : `${kind} ${r.tag[k]}: `) +
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
            run.ids?.[0] >= 0 && [run.tokens > 1 ? 'token ids' : 'token id', details.tokens(run)],
            ['takes', formatTime(run.end - run.begin)],
            ['in kernels', formatShare(kernels / Math.max(1, run.end - run.begin))],
            ['steps', formatCount(run.ev1 - run.ev0)],
            ['threads', run.threads],
            ['KV slots in use', `${run.cells} of ${run.extent}`],
            ['weights read', formatBytes(run.observed)],
            run.expected > 0 && [
                'the graph needs',
                run.expected === run.observed ? 'exactly as many' : formatBytes(run.expected)
            ],
            run.dropped > 0 && ['dropped', run.dropped],
            !run.complete && ['end', 'not in the file'],
            run.rolledBack && ['rolled back', 'yes'],
            sample && [
                'sampled',
                (sample.token >= 0 ? `token ${model.tokenText(sample.token)}` : 'hidden') +
                    (sample.probability === 1 ? ', the only choice left' : `, p = ${sample.probability.toFixed(3)}`) +
                    `, in ${formatTime(sample.duration)}`
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
        ),
        el('h3', {}, 'What it read'),
        ...details.readBy(at)
    ];
};
details.tokens = run => {
    const most = 64,
        ids = [...run.ids.slice(0, most)];
    return (
        ids.map(id => app.model.tokenText(id)).join(' ') +
        (run.ids.length > most ? ` and ${run.ids.length - most} more` : '')
    );
};
/** What a run read of weights and caches: a line a layer, in the order of layers, which opens to its tensors. */
details.readBy = at => {
    const {trace, steps} = app.model,
        run = trace.runs[at],
        e = trace.events,
        bytes = new Map(),
        layers = new Map();
    for (let i = run.ev0; i < run.ev1; ++i) {
        if (e.run[i] !== at) continue;
        steps[e.step[i]].operands.forEach((o, which) => {
            if (o.ref >= VALUE_REF || !(o.mode & READS) || o.kind === ELIDED) return;
            bytes.set(o.ref, (bytes.get(o.ref) ?? 0) + operandBytes(app.model, steps[e.step[i]], i, which));
        });
    }
    for (const [id, n] of bytes) {
        const t = trace.tensors[id];
        if (t && n > 0) layers.set(t.layer, [...(layers.get(t.layer) ?? []), [t, n]]);
    }
    const most = Math.max(1, ...[...layers.values()].map(list => list.reduce((sum, [, n]) => sum + n, 0)));
    if (!layers.size) return [el('div', {class: 'quiet'}, 'Its events are not in the trace.')];
    return [...layers]
        .sort(([a], [b]) => a - b)
        .map(([layer, list]) => {
            const sum = list.reduce((s, [, n]) => s + n, 0);
            return el(
                'details',
                {class: 'read'},
                el(
                    'summary',
                    {class: 'bar-row'},
                    el('span', {}, layer < 0 ? 'outside of layers' : `layer ${layer}`),
                    el('span', {class: 'bar'}, el('i', {style: {width: `${(100 * sum) / most}%`}})),
                    el('span', {}, formatBytes(sum))
                ),
                list
                    .sort(([a], [b]) => a.id - b.id)
                    .map(([t, n]) =>
                        el('div', {}, details.tensorLink(t), el('span', {class: 'quiet'}, `  ${formatBytes(n)}`))
                    )
            );
        });
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
            macs > 0 && [
                'arithmetic',
                `${(macs / time).toFixed(1)} GMAC/s, ${(macs / sum(sums.stepStreamed)).toFixed(2)} a byte`
            ],
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
