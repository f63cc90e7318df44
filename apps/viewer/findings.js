// SPDX-License-Identifier: MIT
// Common findings over the selection: slowest layer, distribution of time, hot experts, repeated reads, waiting
// threads, unread weights.

details.findings = () => {
    const {model, sums, tensorSums: s} = app,
        {trace} = model,
        out = [],
        card = (title, ...body) => out.push(el('div', {class: 'finding'}, el('h3', {}, title), ...body));
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
    const byLayer = groupSteps(model, sums, x => x.layer)
        .filter(g => g.key >= 0 && g.time > 0)
        .sort((a, b) => b.time - a.time);
    if (byLayer.length > 1) {
        const median = byLayer[byLayer.length >> 1].time,
            top = byLayer[0],
            ratio = top.time / median;
        card(
            'Slowest layer',
            el(
                'strong',
                {},
                details.link(`Layer ${top.key}`, () => app.setPin({kind: 'layer', layer: top.key}))
            ),
            ` takes ${ratio.toFixed(2)} × the median layer, ${formatShare(top.time / sums.time)} of kernel time.`,
            ...details.bars(
                byLayer
                    .slice(0, 4)
                    .map(g => [
                        `layer ${g.key}`,
                        g.time,
                        formatShare(g.time / sums.time),
                        () => app.setPin({kind: 'layer', layer: g.key})
                    ]),
                top.time
            ),
            details.pause(top, byLayer),
            el('div', {class: 'chips'}, el('button', {onclick: details.go('layers')}, 'All layers'))
        );
    }
    const kinds = groupSteps(model, sums, x =>
        x.weights.length ? x.weights.map(t => trace.tensors[t].roleName).join(' + ') : x.opName
    )
        .filter(g => g.time > 0)
        .sort((a, b) => b.time - a.time);
    if (kinds.length) {
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
                `${formatRate(sums.bytes, sums.time)} in kernels` +
                    (whole ? `; kernels are ${formatShare(sums.time / runTime)} of the runs` : '')
            )
        );
    }
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
            hot = list.filter(x => x.share > 1.5 * even).length;
        let cold = 0;
        for (const v of p.counts) if (!v) ++cold;
        card(
            'Hot experts',
            el('strong', {}, hot ? `${formatCount(hot)} of ${formatCount(list.length)}` : 'None'),
            ` chosen by more than ${formatShare(1.5 * even)} of tokens; even routing gives each ${formatShare(even)}`,
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
            sums.wait > 0.5 * sums.span
                ? el(
                      'div',
                      {class: 'quiet'},
                      'So much means steps too small for so many threads, or a machine that had other work. Then ' +
                          'times of single steps and layers say little; bytes are exact.'
                  )
                : null
        );
    } else if (trace.events.count)
        card('Where threads wait', el('span', {class: 'quiet'}, 'Not recorded: tinfer trace record --level threads.'));
    if (trace.problems.length) card('About this file', ...trace.problems.slice(0, 8).map(text => el('div', {}, text)));
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

/** If a single step takes much of a group's time, the cause is probably the system: say so. */
details.pause = (group, groups) => {
    const {model, sums} = app,
        e = model.trace.events;
    const longest = group.steps.reduce((best, s) => (sums.stepMax[s] > sums.stepMax[best] ? s : best), group.steps[0]);
    if (group.count < 2 * group.steps.length || sums.stepMax[longest] < 0.2 * group.time) return null;
    const own = model.stepEvents.subarray(model.stepFirst[longest], model.stepFirst[longest + 1]);
    const i = own.find(k => k >= sums.first && k < sums.last && e.duration[k] === sums.stepMax[longest]);
    if (i === undefined) return null;
    const rest = groups
        .map(g => ({key: g.key, time: g.time - Math.max(...g.steps.map(s => sums.stepMax[s]))}))
        .sort((a, b) => b.time - a.time);
    return el(
        'div',
        {class: 'quiet'},
        `${formatShare(e.duration[i] / group.time)} of it is `,
        details.link('one step', () => {
            app.setTab('timeline');
            timeline.pinEvent(i);
        }),
        `, ${formatTime(e.duration[i])} long: was it interrupted? Without the longest step of each layer, layer ` +
            `${rest[0].key} is slowest, ${(rest[0].time / rest[rest.length >> 1].time).toFixed(2)} × the median.`
    );
};
