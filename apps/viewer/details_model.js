// SPDX-License-Identifier: MIT
// The panel at the right for a pinned layer, part, tensor or expert.

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
/** Reuse distance: bytes of other tensors read between the last two touches of a tensor. */
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
        n = p.counts[l * p.experts + expert];
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
        )
    ];
};
