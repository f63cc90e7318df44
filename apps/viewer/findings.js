// SPDX-License-Identifier: MIT
// Common findings over one phase of the selection: what limits it, the slowest layer, interruptions, distribution of
// time, hot experts, repeated reads, waiting threads, unread weights.

details.folded = new Set(); // titles of findings whose body is hidden
details.findings = () => {
    const {model, sums, tensorSums: s} = app,
        {trace} = model,
        out = [],
        card = (title, ...body) =>
            out.push(
                el(
                    'details',
                    {
                        class: 'finding',
                        open: !details.folded.has(title),
                        ontoggle: event => details.folded[event.target.open ? 'delete' : 'add'](title)
                    },
                    el('summary', {}, el('h3', {}, title)),
                    el('div', {}, ...body)
                )
            );
    if (!sums.count)
        card(
            'Nothing here',
            trace.events.count ? 'No step passes the filter and lies in the selection.' : 'The trace has no events.'
        );
    if (model.coverage.missing.length && !model.coverage.filtered)
        card(
            'Never read',
            el(
                'strong',
                {style: {color: 'var(--bad)'}},
                `${model.coverage.missing.length} of ${model.coverage.weights} weights`
            ),
            el('div', {class: 'quiet'}, 'Nothing in this trace read them.'),
            ...model.coverage.missing.slice(0, 4).map(t => el('div', {}, details.tensorLink(t))),
            el('div', {class: 'chips'}, el('button', {onclick: details.go('layers')}, 'Show in layers'))
        );
    details.doubt(out);
    details.limits(card);
    details.slowest(card);
    details.paused(card);
    details.where(card);
    const p = experts.get();
    if (p?.tokensAll) {
        // Experts are counted per layer: equal indices in different layers are unrelated.
        const list = p.layers
                .flatMap((layer, l) =>
                    Array.from({length: p.experts}, (_, expert) => ({
                        layer,
                        expert,
                        share: p.tokens[l] ? p.counts[l * p.experts + expert] / p.tokens[l] : 0
                    }))
                )
                .sort((a, b) => b.share - a.share),
            even = p.used / p.experts,
            // more than chance makes of so many tokens (three deviations of a count with even routing)
            least = Math.max(1.5 * even, even + 3 * Math.sqrt((even * (1 - even)) / (p.tokensAll / p.layers.length))),
            hot = list.filter(x => x.share > least).length;
        let cold = 0;
        for (const v of p.counts) if (!v) ++cold;
        card(
            'Hot experts',
            el('strong', {}, hot ? `${formatCount(hot)} of ${formatCount(list.length)}` : 'None'),
            ` chosen by more than ${formatShare(least)} of tokens; even routing gives each ${formatShare(even)}`,
            ...details.bars(
                list
                    .slice(0, 5)
                    .map(x => [
                        `layer ${x.layer}, expert ${x.expert}`,
                        x.share,
                        formatShare(x.share),
                        () => app.setPin({kind: 'expert', layer: x.layer, expert: x.expert})
                    ]),
                list[0].share || 1
            ),
            el('div', {class: 'quiet'}, `${formatCount(cold)} of ${formatCount(p.counts.length)} were never chosen`),
            el('div', {class: 'chips'}, el('button', {onclick: details.go('experts')}, 'All experts'))
        );
    }
    details.twice(card);
    if (sums.span > 0) {
        const groups = groupSteps(model, sums, x => x.opName)
                .filter(g => g.span)
                .sort((a, b) => b.wait - a.wait),
            uneven = groups.filter(g => g.wait / g.span > 0.2).sort((a, b) => b.wait / b.span - a.wait / a.span);
        card(
            'Where threads wait',
            el('strong', {}, formatShare(sums.wait / sums.span)),
            ' of thread time inside steps is waiting. Of that:',
            ...details.bars(
                groups
                    .slice(0, 4)
                    .map(g => [
                        g.key,
                        g.wait,
                        formatShare(g.wait / sums.wait),
                        () => app.setPin({kind: 'group', label: g.key, steps: g.steps})
                    ]),
                groups[0]?.wait || 1
            ),
            el(
                'div',
                {class: 'quiet'},
                'busy: ' +
                    [...sums.threadBusy]
                        .map((b, t) => `thread ${t} ${formatShare(b / (sums.threadTime[t] || 1))}`)
                        .slice(0, 16)
                        .join(', ')
            ),
            uneven.length
                ? el(
                      'div',
                      {class: 'quiet'},
                      `more than 20 % waiting: ${uneven
                          .slice(0, 5)
                          .map(g => `${g.key} ${formatShare(g.wait / g.span)}`)
                          .join(', ')}`
                  )
                : null,
            trust(model, app.masks, sums).reasons.length
                ? el('div', {class: 'quiet'}, 'A thread that the system held up counts as busy.')
                : null
        );
    } else if (trace.events.count)
        card('Where threads wait', el('span', {class: 'quiet'}, 'Not recorded: tinfer trace record --level threads.'));
    const [first] = trace.runs,
        notes = [
            ...trace.problems.slice(0, 8),
            ...(first?.position > 0
                ? [
                      `The first run begins at position ${formatCount(first.position)}: what is before it was in the ` +
                          'cache already.'
                  ]
                : [])
        ];
    if (notes.length) card('About this file', ...notes.map(text => el('div', {}, text)));
    return out;
};
details.twice = card => {
    const {model, tensorSums: s, sums} = app,
        {trace} = model,
        weights = trace.tensors.filter(t => t.cls === 0 && s.perRun[t.id] > 1);
    if (!sums.count) return;
    const bySteps = [],
        byPasses = [];
    for (const t of weights) {
        const users = model.steps.filter(step => sums.stepCount[step.index] && step.weights.includes(t.id)),
            perPlan = new Map();
        for (const u of users) perPlan.set(u.planId, (perPlan.get(u.planId) ?? 0) + 1);
        (Math.max(0, ...perPlan.values()) > 1 ? bySteps : byPasses).push([t, [...new Set(users.map(u => u.opName))]]);
    }
    if (!weights.length) {
        card('Read twice', 'No weight is read more than once in a run.');
        return;
    }
    const extra = byPasses.reduce((sum, [t]) => sum + s.streamed[t.id] - s.bytes[t.id], 0),
        phases = [
            ...new Set(
                [...sums.runs]
                    .map(r => trace.runs[r])
                    .filter(r => r && trace.plans[r.plan]?.operands.some(o => o.passes > 1 && o.ref < VALUE_REF))
                    .map(r => model.name('phase', r.phase))
            )
        ];
    card(
        'Read twice',
        ...bySteps
            .slice(0, 4)
            .map(([t, ops]) =>
                el('div', {}, el('strong', {}, details.tensorLink(t)), ` by ${ops.join(' and ')} in every run`)
            ),
        byPasses.length
            ? el(
                  'div',
                  {},
                  bySteps.length ? 'Also ' : '',
                  el(
                      'strong',
                      {},
                      details.link(`${byPasses.length} weights`, () => {
                          tensors.sort = 'perRun';
                          tensors.down = true;
                          details.go('tensors')();
                      })
                  ),
                  ' are walked more than once inside a step' +
                      `${phases.length ? ` (${phases.join(', ')})` : ''}: ${formatBytes(extra)} again.`
              )
            : null
    );
};

/** Where times cannot be believed, that stands above all that is made of them. */
details.doubt = out => {
    const {reasons} = trust(app.model, app.masks, app.sums);
    if (!app.sums.count || !reasons.length) return;
    out.unshift(
        el(
            'div',
            {class: 'finding doubt', role: 'note'},
            el('strong', {}, 'The times of this trace say little: '),
            `${reasons.join('; ')}. The machine had other work, or too many threads for such small steps. Bytes are ` +
                'exact. Record again while it is idle, or with -t 1.'
        )
    );
};

/** Is it memory-bound? */
details.limits = card => {
    const shares = roofline.verdict(),
        known = 1 - shares.unknown;
    if (!app.sums.count) return;
    if (known < 0.01) {
        card(
            'Is it memory-bound?',
            el(
                'span',
                {class: 'quiet'},
                'The trace does not say what the machine can do: type its roofs in (tab Roofline); ' +
                    'tinfer trace record measures them.'
            )
        );
        return;
    }
    const answers = [
            ['memory', 'reading memory'],
            ['arithmetic', 'arithmetic'],
            ['overhead', 'neither: overhead']
        ],
        [top, text] = answers.reduce((best, item) => (shares[item[0]] > shares[best[0]] ? item : best));
    const {reach} = shares,
        doubtful = trust(app.model, app.masks, app.sums).reasons.length > 0,
        answer = doubtful ? 'Cannot tell' : top !== 'memory' ? 'No' : reach.memory < 0.25 ? 'In part' : 'Yes';
    card(
        'Is it memory-bound?',
        el('strong', {}, answer),
        `: ${formatShare(shares[top])} of kernel time (${phases.text()}) is bound by ${text}` +
            (top === 'overhead' ? '.' : `, at ${formatShare(reach[top])} of that roof.`) +
            (doubtful ? ' That time is mostly not the kernels’ own, see above.' : ''),
        ...details.bars(
            answers.map(([name, label]) => [label, shares[name], formatShare(shares[name]), details.go('roofline')]),
            1
        ),
        el(
            'div',
            {class: 'quiet'},
            (shares.above > 0
                ? `${formatShare(shares.above)} of the time is above a roof: read from a cache, or counted with a ` +
                      'neighbouring step. '
                : '') + `Overhead is what reaches less than ${formatShare(roofline.overhead)} of both roofs: ` +
                `${roofline.roofs.read.toFixed(1)} GB/s, ${roofline.roofs.macs.toFixed(0)} (int8) and ` +
                `${roofline.roofs.f32.toFixed(0)} (f32) GMAC/s.`
        )
    );
};

/** Layers and the head by the median of their time in a run; a layer is named only where it exceeds the noise. */
details.slowest = card => {
    const c = (app.layers = compareLayers(app.model, app.masks, app.sums)),
        top = c.slow[0],
        name = row => (row.isLayer ? `layer ${row.key}` : row.key),
        pin = row => () =>
            app.setPin(
                row.isLayer ? {kind: 'layer', layer: row.key} : {kind: 'group', label: row.key, steps: row.steps}
            ),
        head = c.rows.find(row => row.key === 'head');
    if (c.layers.length < 2) return;
    const noise = `± ${formatShare(Math.max(c.noise, 0.001))}`,
        reasons = trust(app.model, app.masks, app.sums).reasons,
        [doubtful] = c.doubtful;
    card(
        'Slowest layer',
        ...(c.enough && reasons.length
            ? [el('strong', {}, 'Cannot tell'), ': the times of this trace say little, see above.']
            : top
            ? [
                  el('strong', {}, details.link(`Layer ${top.key}`, pin(top))),
                  ` takes ${top.ratio.toFixed(2)} × the median of the ${top.alike} layers that do the same ` +
                      `(${c.runs} runs, noise ${noise})` +
                      (c.slow.length > 1 ? `; so do ${c.slow.length - 1} more, less.` : '.')
              ]
            : c.enough && doubtful
              ? [
                    el('strong', {}, 'Cannot tell'),
                    `: layer ${doubtful.key} takes ${doubtful.ratio.toFixed(2)} × the median of those that do the ` +
                        `same, but its own runs differ by ± ${formatShare(doubtful.ratioSpread)}.`
                ]
              : c.enough
                ? [
                      el('strong', {}, 'No layer'),
                      ` stands out: those that do the same differ by no more than the noise, ${noise}.`
                  ]
                : [
                      `${c.runs} run${c.runs === 1 ? '' : 's'} of ${phases.text()} cannot tell a slow layer from an ` +
                          `interruption: it takes ${LEAST_RUNS}.`
                  ]),
        ...details.bars(
            c.rows.slice(0, 5).map(row => [name(row), row.median, formatTime(row.median), pin(row)]),
            c.rows[0].median || 1
        ),
        el(
            'div',
            {class: 'quiet'},
            `Median time in a run; the least: ${name(c.rows[0])} ${formatTime(c.rows[0].least)}`,
            head && c.median > 0 ? `; the head takes ${(head.median / c.median).toFixed(1)} × the median layer.` : '.'
        ),
        el('div', {class: 'chips'}, el('button', {onclick: details.go('layers')}, 'All layers'))
    );
};

/** Single steps whose time has a cause outside of the program. */
details.paused = card => {
    const list = interruptions(app.model, app.masks, app.sums);
    if (!list.length) return;
    const lost = list.reduce((sum, item) => sum + item.extra, 0),
        e = app.model.trace.events;
    card(
        'Interruptions',
        el('strong', {}, formatCount(list.length)),
        ` step${list.length > 1 ? 's' : ''} took far longer than in other runs: ${formatTime(lost)} in all ` +
            `(${formatShare(lost / app.sums.time)}). Other programs or the system, not the model.`,
        ...details.bars(
            list.slice(0, 4).map(({event, extra}) => {
                const step = app.model.steps[e.step[event]];
                return [
                    `${step.layer < 0 ? step.partName : `layer ${step.layer}`} ${step.opName}`,
                    extra,
                    formatTime(e.duration[event]),
                    () => {
                        app.setTab('timeline');
                        timeline.pinEvent(event);
                    }
                ];
            }),
            list[0].extra
        )
    );
};

/** Kinds of steps by their summed time, as all tabs show it. */
details.where = card => {
    const {model, sums} = app,
        {trace} = model,
        kinds = groupSteps(model, sums, x => x.brief)
            .filter(kind => kind.time > 0)
            .sort((a, b) => b.time - a.time);
    if (!kinds.length) return;
    let runTime = 0;
    for (const run of sums.runs) if (trace.runs[run]) runTime += trace.runs[run].end - trace.runs[run].begin;
    const whole = !app.state.filter && !app.state.selection && runTime > 0;
    card(
        'Where the time goes',
        ...details.bars(
            kinds
                .slice(0, 6)
                .map(g => [
                    g.key,
                    g.time,
                    formatShare(g.time / sums.time),
                    () => app.setPin({kind: 'group', label: g.key, steps: g.steps})
                ]),
            kinds[0].time
        ),
        el(
            'div',
            {class: 'quiet'},
            `Of the time of all steps together; ${formatRate(sums.bytes, sums.time)} in kernels` +
                (whole ? `; kernels are ${formatShare(sums.time / runTime)} of the runs` : '')
        )
    );
};
