// SPDX-License-Identifier: MIT
// Two traces side by side: what `tinfer trace diff` says of them. Plans, accesses, tokens and values of both, run by
// run; and times of groups of steps, where they differ by more than three times their spread.

/** What two models did differently: [{kind, text, event}], the first of each kind and how many there are. */
function traceDifferences(a, b) {
    const out = [],
        runs = Math.min(a.trace.runs.length, b.trace.runs.length),
        add = (kind, text, event = -1) => out.push({kind, text, event});
    const full = model => model.trace.session.full_fingerprint ?? '';
    if (a.trace.header.fingerprint !== b.trace.header.fingerprint || (full(a) && full(b) && full(a) !== full(b)))
        add('model', 'The traces are of different models');
    if (a.trace.runs.length !== b.trace.runs.length)
        add('runs', `${a.trace.runs.length} runs, the other ${b.trace.runs.length}`);
    const stepText = step => `${step.label} (${step.place}, step ${step.number})`;
    let kernels = 0,
        steps = 0,
        tokens = 0,
        accesses = 0;
    const seen = new Set(),
        stepsOf = model => {
            const of = new Map();
            for (const step of model.steps) {
                if (!of.has(step.planId)) of.set(step.planId, []);
                of.get(step.planId).push(step);
            }
            return of;
        },
        own = stepsOf(a),
        others = stepsOf(b);
    for (let r = 0; r < runs; ++r) {
        const x = a.trace.runs[r],
            y = b.trace.runs[r],
            p = a.trace.plans[x.plan],
            q = b.trace.plans[y.plan];
        if (x.position !== y.position || String(x.ids ?? '') !== String(y.ids ?? ''))
            if (++tokens === 1) add('tokens', `Run ${x.run}: other tokens or positions`, x.ev0);
        if (p && q && !seen.has(`${p.id}/${q.id}`)) {
            seen.add(`${p.id}/${q.id}`);
            if (p.hash !== q.hash) {
                const s = own.get(p.id) ?? [],
                    t = others.get(q.id) ?? [];
                if (s.length !== t.length && ++steps === 1)
                    add('plan', `Run ${x.run}: its plan has ${s.length} steps, the other ${t.length}`, x.ev0);
                for (let i = 0; i < Math.min(s.length, t.length); ++i)
                    if ((s[i].kernel !== t[i].kernel || s[i].opName !== t[i].opName) && ++kernels === 1)
                        add('kernel', `${stepText(s[i])}: ${s[i].kernel}, the other ${t[i].kernel}`, x.ev0 + i);
            }
        }
        const n = Math.min(x.ev1 - x.ev0, y.ev1 - y.ev0);
        if (x.ev1 - x.ev0 !== y.ev1 - y.ev0)
            add('events', `Run ${x.run}: ${x.ev1 - x.ev0} events, the other ${y.ev1 - y.ev0}`, x.ev0);
        for (let i = 0; i < n; ++i)
            if (!sameAccess(a, x.ev0 + i, b, y.ev0 + i) && ++accesses === 1)
                add('access', `${stepText(a.steps[a.trace.events.step[x.ev0 + i]])} touches other bytes`, x.ev0 + i);
    }
    const value = a.trace.hashes.findIndex(
        (x, i) =>
            x.event === b.trace.hashes[i]?.event &&
            x.operand === b.trace.hashes[i].operand &&
            x.hash !== b.trace.hashes[i].hash
    );
    if (value >= 0) add('value', `Event ${a.trace.hashes[value].event}: the first output that differs`);
    for (const [count, kind, text] of [
        [kernels, 'kernel', 'steps run by other kernels'],
        [accesses, 'access', 'events touch other bytes'],
        [tokens, 'tokens', 'runs with other tokens']
    ])
        if (count > 1) add(kind, `${formatCount(count)} ${text}`);
    return out;
}
function sameAccess(a, i, b, j) {
    const x = a.trace.events,
        y = b.trace.events,
        n = x.endRange[i] - x.firstRange[i];
    if (
        a.steps[x.step[i]].number !== b.steps[y.step[j]].number ||
        x.status[i] !== y.status[j] ||
        x.bytes[i] !== y.bytes[j] ||
        n !== y.endRange[j] - y.firstRange[j]
    )
        return false;
    for (let k = 0; k < n; ++k)
        for (const field of ['operand', 'tag', 'offset', 'length', 'stride', 'pieces', 'weight'])
            if (a.trace.ranges[field][x.firstRange[i] + k] !== b.trace.ranges[field][y.firstRange[j] + k]) return false;
    return true;
}

/** Durations of single steps by phase, part and op: Map "decode ffn mul_mat" → {median, spread, count}, in ns. */
function groupTimes(model) {
    const e = model.trace.events,
        groups = new Map();
    for (let i = 0; i < e.count; ++i) {
        const step = model.steps[e.step[i]],
            run = model.trace.runs[e.run[i]];
        if (!run) continue;
        const key = `${model.name('phase', run.phase)} ${step.partName} ${step.opName}`;
        let list = groups.get(key);
        if (!list) groups.set(key, (list = []));
        list.push(e.duration[i]);
    }
    return new Map([...groups].map(([key, list]) => [key, {...spreadOf(list), count: list.length}]));
}
/** [{group, a, b, spread, ratio, differs}]: groups of both traces, those that differ first. */
function compareTimes(a, b) {
    const of = groupTimes(a),
        others = groupTimes(b),
        rows = [];
    for (const [group, x] of of) {
        const y = others.get(group);
        if (!y || x.count < 4 || !(x.median > 0)) continue;
        const spread = Math.max(x.spread, y.spread);
        rows.push({
            group,
            a: x.median,
            b: y.median,
            spread,
            ratio: y.median / x.median,
            time: x.median * x.count,
            differs: Math.abs(x.median - y.median) > 3 * spread
        });
    }
    return rows.sort((x, y) => y.differs - x.differs || y.time - x.time);
}

const beside = {id: 'beside', title: 'Compare', html: true, other: null, name: ''};
beside.load = () => {
    beside.found = null;
    if (beside.other) besideLanes.load(app.model, beside.other);
};
beside.recolour = () => {};
beside.toolbar = () => [
    el('span', {}, el('b', {}, 'a '), app.fileName || 'this trace'),
    el('span', {}, el('b', {}, 'b '), beside.name),
    el('span', {class: 'grow'}),
    el('button', {onclick: () => $('file-beside').click()}, 'Another…')
];
/** Takes a second trace; its tab appears. */
beside.take = (trace, name, quiet = false) => {
    beside.other = buildModel(trace);
    beside.name = name;
    beside.found = null;
    besideLanes.load(app.model, beside.other);
    if (!app.tabs.includes(beside)) app.tabs.push(beside);
    app.drawTabs();
    app.barVersion = (app.barVersion ?? 0) + 1;
    if (!quiet) app.setTab('beside');
};
beside.takeFile = async file => {
    try {
        beside.take(readTrace(await file.arrayBuffer()), file.name);
    } catch (error) {
        $('status').textContent = `${file.name.slice(0, 200)}: ${error.message}`;
    }
};

beside.summary = model => {
    const {trace} = model,
        all = new Map();
    for (const run of trace.runs) {
        const name = model.name('phase', run.phase);
        all.set(name, [...(all.get(name) ?? []), run.end - run.begin]);
    }
    return [
        ['model', (trace.session.model || trace.files[0]?.name || '').slice(0, 100)],
        ['kernels', trace.session.isa ?? ''],
        ['threads', trace.session.threads ?? ''],
        ['runs', formatCount(trace.runs.length)],
        ['events', formatCount(trace.events.count)],
        ['prompt', beside.prompt(model).slice(0, 400) || '–'],
        ...[...all].map(([name, times]) => {
            const {median, spread} = spreadOf(times);
            return [`${name}, median`, `${formatTime(median)} ± ${formatTime(spread / 2)} (${times.length})`];
        })
    ];
};
/** What a person gave to a model: the text of the tokens of its prompts; ids where the trace carries no text. */
beside.prompt = ({trace}) => {
    const ids = [];
    for (const run of trace.runs) {
        if (run.tokens > 1) ids.push(...(run.ids ?? []));
        else if (ids.length) break;
    }
    if (!ids.length || ids.some(id => id < 0)) return '';
    return ids.every(id => trace.pieces.has(id))
        ? ids.map(id => trace.pieces.get(id)).join('')
        : `tokens ${ids.slice(0, 64).join(' ')}${ids.length > 64 ? ' …' : ''}`;
};
/** b against a, phase by phase: the median of the time in kernels of a run. */
beside.whole = (a, b) => {
    const medians = model => {
        const of = new Map();
        for (const run of model.trace.runs) {
            const name = model.name('phase', run.phase);
            of.set(name, [...(of.get(name) ?? []), run.end - run.begin]);
        }
        return of;
    };
    const others = medians(b);
    return [...medians(a)].flatMap(([name, times]) => {
        const y = others.get(name);
        if (!y) return [];
        const ratio = spreadOf(y).median / spreadOf(times).median;
        if (!(ratio > 0)) return [];
        return [
            ratio >= 1
                ? `${name}: a run of b takes ${ratio.toFixed(2)} × as long as one of a.`
                : `${name}: a run of a takes ${(1 / ratio).toFixed(2)} × as long as one of b.`
        ];
    });
};
beside.render = stage => {
    const kept = stage.querySelector('.beside')?.scrollTop ?? 0,
        a = app.model,
        b = beside.other;
    beside.found ??= {differences: traceDifferences(a, b), times: compareTimes(a, b)};
    const {differences, times} = beside.found,
        most = Math.max(1, ...times.slice(0, 200).map(row => Math.max(row.a, row.b))),
        bar = (value, name) =>
            el(
                'div',
                {class: 'pair-row'},
                el('span', {class: 'quiet'}, name),
                el('span', {class: 'bar'}, el('i', {style: {width: `${(100 * value) / most}%`}})),
                el('span', {}, formatTime(value))
            ),
        n = times.filter(row => row.differs).length;
    const left = beside.summary(a),
        right = new Map(beside.summary(b)),
        names = [...new Set([...left.map(([key]) => key), ...right.keys()])],
        of = new Map(left);
    const box = el(
        'div',
        {class: 'scroll beside', tabIndex: 0},
        el(
            'table',
            {class: 'grid'},
            el(
                'thead',
                {},
                el(
                    'tr',
                    {},
                    ['', 'a', 'b'].map(text => el('th', {class: 'text', scope: 'col'}, text))
                )
            ),
            el(
                'tbody',
                {},
                names.map(key =>
                    el(
                        'tr',
                        {},
                        [key, of.get(key) ?? '–', right.get(key) ?? '–'].map(v => el('td', {class: 'text'}, v))
                    )
                )
            )
        ),
        besideLanes.count() ? besideLanes.make(a, b) : null,
        el('h3', {}, 'What was done'),
        differences.length
            ? differences.map(({text, event}) =>
                  el(
                      'div',
                      {},
                      event >= 0
                          ? details.link(text, () => {
                                app.setTab('timeline');
                                timeline.pinEvent(event);
                            })
                          : text
                  )
              )
            : el('div', {}, 'The same: equal steps touched equal bytes.'),
        el('h3', {}, 'How long it took'),
        beside.whole(a, b).map(text => el('div', {}, text)),
        el(
            'div',
            {class: 'quiet'},
            n
                ? `${n} of ${times.length} groups of steps differ by more than three times their spread.`
                : `None of ${times.length} groups of steps differs by more than three times its spread.`
        ),
        times
            .slice(0, 200)
            .map(row =>
                el(
                    'div',
                    {class: row.differs ? 'differs' : 'alike'},
                    el('div', {}, row.group, el(row.differs ? 'b' : 'span', {}, `  × ${row.ratio.toFixed(2)}`)),
                    bar(row.a, 'a'),
                    bar(row.b, 'b')
                )
            )
    );
    stage.replaceChildren(box);
    if (besideLanes.count()) besideLanes.draw();
    box.scrollTop = kept;
};
