// SPDX-License-Identifier: MIT
// Tensors: every tensor of the registry, sortable; only visible rows exist as elements.

const tensors = {
    id: 'tensors',
    title: 'Tensors',
    html: true,
    sort: 'time',
    down: true,
    top: 0,
    onlyWeights: false,
    cursor: 0,
    rowHeight: 26
};
app.tabs.push(tensors);
tensors.load = () => {
    tensors.cursor = 0;
    tensors.sparks = new Map();
};
tensors.recolour = () => {
    tensors.sparks = new Map();
};

tensors.columns = [
    {key: 'name', title: 'tensor', text: true, value: t => t.label, show: t => t.label},
    {
        key: 'time',
        title: 'time',
        value: (t, s) => s.time[t.id],
        show: (t, s) => (s.time[t.id] ? formatTime(s.time[t.id]) : '–')
    },
    {
        key: 'share',
        title: 'share',
        value: (t, s) => s.time[t.id],
        show: (t, s) => (s.time[t.id] ? formatShare(s.time[t.id] / app.sums.time) : '–')
    },
    {
        key: 'perRun',
        title: 'in a run',
        value: (t, s) => s.perRun[t.id],
        show: (t, s) => (s.perRun[t.id] > 1 ? `${s.perRun[t.id]} ×` : s.perRun[t.id] || '–')
    },
    {key: 'bytes', title: 'bytes read', value: (t, s) => s.bytes[t.id], show: (t, s) => formatBytes(s.bytes[t.id])},
    {
        key: 'rate',
        title: 'GB/s',
        value: (t, s) => (s.time[t.id] ? s.bytes[t.id] / s.time[t.id] : 0),
        show: (t, s) => (s.time[t.id] ? (s.bytes[t.id] / s.time[t.id]).toFixed(1) : '–')
    },
    {
        key: 'type',
        title: 'type',
        text: true,
        value: t => t.typeName,
        show: t => (t.cls ? (CLASS_NAMES[t.cls] ?? '') : t.typeName)
    },
    {key: 'shape', title: 'shape', text: true, value: t => t.ne[0] * t.ne[1] * t.ne[2], show: t => t.shape},
    {key: 'layer', title: 'layer', value: t => t.layer, show: t => (t.layer < 0 ? '' : t.layer)},
    {key: 'size', title: 'size', value: t => t.bytes, show: t => formatBytes(t.bytes)},
    {key: 'reads', title: 'reads', value: (t, s) => s.reads[t.id], show: (t, s) => formatCount(s.reads[t.id])},
    {
        key: 'written',
        title: 'written',
        value: (t, s) => s.written[t.id],
        show: (t, s) => (s.written[t.id] ? formatBytes(s.written[t.id]) : '–')
    },
    {key: 'runs', title: 'runs', value: (t, s) => s.runs[t.id], show: (t, s) => formatCount(s.runs[t.id])},
    {
        key: 'first',
        title: 'first',
        value: (t, s) => s.first[t.id],
        show: (t, s) =>
            s.first[t.id] === NONE32
                ? 'never'
                : formatTime(app.model.trace.events.begin[s.first[t.id]] - app.model.begin)
    }
];

tensors.toolbar = () => [
    el(
        'label',
        {},
        'Show',
        el(
            'select',
            {
                'aria-label': 'Show',
                onchange: event => {
                    tensors.top = Number(event.target.value);
                    app.render();
                }
            },
            [
                [0, 'all'],
                [10, 'top 10'],
                [25, 'top 25'],
                [100, 'top 100']
            ].map(([v, text]) => el('option', {value: v, selected: v === tensors.top}, text))
        )
    ),
    el(
        'label',
        {},
        el('input', {
            type: 'checkbox',
            checked: tensors.onlyWeights,
            onchange: event => {
                tensors.onlyWeights = event.target.checked;
                app.render();
            }
        }),
        'weights only'
    ),
    el(
        'button',
        {
            onclick: () => {
                tensors.unused = !tensors.unused;
                app.render();
            },
            'aria-pressed': String(!!tensors.unused)
        },
        tensors.unused ? 'Show read ones too' : 'Never read'
    ),
    el('span', {class: 'quiet', id: 'tensor-count'}),
    el('span', {class: 'grow'}),
    el('button', {id: 'copy-csv', onclick: () => tensors.copy()}, 'Copy as CSV')
];

tensors.list = () => {
    const {model, masks, tensorSums: s} = app,
        column = tensors.columns.find(c => c.key === tensors.sort),
        sign = tensors.down ? -1 : 1;
    let list = model.trace.tensors.filter(
        t =>
            masks.tensors[t.id] &&
            (!tensors.onlyWeights || t.cls === 0) &&
            (!tensors.unused || s.first[t.id] === NONE32)
    );
    const keys = new Map(list.map(t => [t, column.value(t, s)]));
    list.sort((a, b) => {
        const x = keys.get(a),
            y = keys.get(b);
        return (typeof x === 'string' ? x.localeCompare(y, undefined, {numeric: true}) : x - y) * sign || a.id - b.id;
    });
    if (tensors.top) list = list.slice(0, tensors.top);
    return list;
};

/** Bytes read per run by the steps of a tensor, for the sparkline. */
tensors.spark = t => {
    if (tensors.sparks.has(t.id)) return tensors.sparks.get(t.id);
    const {model, masks, sums} = app,
        e = model.trace.events,
        runs = model.trace.runs.length,
        n = Math.min(60, Math.max(1, runs));
    const bins = new Float64Array(n);
    model.steps.forEach((step, s) => {
        if (!masks.steps[s] || !step.tensors.includes(t.id)) return;
        step.operands.forEach((o, which) => {
            if (o.ref !== t.id || !(o.mode & READS)) return;
            for (let k = model.stepFirst[s]; k < model.stepFirst[s + 1]; ++k) {
                const i = model.stepEvents[k];
                if (i >= sums.first && i < sums.last && e.run[i] < runs)
                    bins[Math.floor((e.run[i] / runs) * n)] += operandBytes(model, step, i, which);
            }
        });
    });
    tensors.sparks.set(t.id, bins);
    return bins;
};

tensors.render = stage => {
    const list = (tensors.rows = tensors.list()),
        h = tensors.rowHeight,
        kept = stage.querySelector('.scroll');
    document
        .getElementById('tensor-count')
        ?.replaceChildren(`${formatCount(list.length)} of ${formatCount(app.model.trace.tensors.length)} tensors`);
    const scroll = el('div', {
        class: 'scroll rows',
        tabIndex: 0,
        role: 'region',
        'aria-label': 'Tensors; arrow keys move, Enter shows details'
    });
    const head = el(
        'tr',
        {},
        tensors.columns.map(c =>
            el(
                'th',
                {
                    class: c.text ? 'text' : null,
                    scope: 'col',
                    'aria-sort': tensors.sort === c.key ? (tensors.down ? 'descending' : 'ascending') : null
                },
                el(
                    'button',
                    {
                        tabIndex: 0,
                        title:
                            c.key === 'perRun'
                                ? 'most reads of it in one run, passes counted'
                                : c.key === 'time'
                                  ? 'of steps that read it, shared out by bytes'
                                  : '',
                        onclick: () => {
                            tensors.down = tensors.sort === c.key ? !tensors.down : !c.text;
                            tensors.sort = c.key;
                            app.render();
                        }
                    },
                    c.title,
                    tensors.sort === c.key ? (tensors.down ? ' ↓' : ' ↑') : ''
                )
            )
        )
    );
    head.children[0].after(el('th', {scope: 'col'}, 'bytes by run'));
    const body = el('tbody'),
        table = el('table', {class: 'grid', style: {width: '100%'}}, el('thead', {}, head), body);
    scroll.append(table);
    const fill = () => {
        const from = Math.max(0, Math.floor(scroll.scrollTop / h) - 6),
            to = Math.min(list.length, from + Math.ceil((scroll.clientHeight || 600) / h) + 14);
        if (fill.from === from && fill.to === to) return;
        fill.from = from;
        fill.to = to;
        const pad = n =>
            el(
                'tr',
                {'aria-hidden': 'true'},
                el('td', {colSpan: tensors.columns.length + 1, style: {height: n + 'px', padding: 0, border: 0}})
            );
        body.replaceChildren(
            ...(from ? [pad(from * h)] : []),
            ...list.slice(from, to).map((t, k) => tensors.row(t, from + k)),
            ...(to < list.length ? [pad((list.length - to) * h)] : [])
        );
        for (const canvas of body.querySelectorAll('canvas'))
            drawSpark(canvas, tensors.spark(app.model.trace.tensors[canvas.tensor]));
    };
    scroll.addEventListener('scroll', fill);
    scroll.addEventListener('keydown', event => {
        const d = {ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9}[event.key];
        if (event.key === 'Enter' && event.target === scroll && list[tensors.cursor]) {
            app.setPin({kind: 'tensor', tensor: list[tensors.cursor].id});
            return;
        }
        if (!d || event.target !== scroll) return;
        event.preventDefault();
        event.stopPropagation();
        tensors.cursor = Math.max(0, Math.min(list.length - 1, tensors.cursor + d));
        const y = tensors.cursor * h;
        if (y < scroll.scrollTop) scroll.scrollTop = y;
        if (y + 2 * h > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = y + 2 * h - scroll.clientHeight;
        fill.from = -1;
        fill();
    });
    const top = kept && stage.tab === 'tensors' ? kept.scrollTop : 0,
        focused = kept === document.activeElement;
    stage.replaceChildren(scroll);
    stage.tab = 'tensors';
    scroll.scrollTop = top;
    if (focused) scroll.focus();
    fill();
};
tensors.row = (t, index) => {
    const s = app.tensorSums,
        pin = app.state.pin,
        marked = (pin?.kind === 'tensor' && pin.tensor === t.id) || index === tensors.cursor;
    const row = el(
        'tr',
        {
            class:
                [marked ? 'selected' : '', t.cls === 0 && !app.model.coverage.read[t.id] ? 'unused' : '']
                    .join(' ')
                    .trim() || null,
            onclick: () => {
                tensors.cursor = index;
                app.setPin({kind: 'tensor', tensor: t.id});
            }
        },
        tensors.columns.map(c =>
            el(
                'td',
                {class: c.text ? 'text' : null, title: c.key === 'name' ? t.label.slice(0, 500) : null},
                c.show(t, s)
            )
        )
    );
    row.children[0].after(el('td', {}, el('canvas', {tensor: t.id, 'aria-hidden': 'true'})));
    return row;
};
function drawSpark(canvas, bins) {
    const g = fitCanvas(canvas, 74, 18),
        most = Math.max(...bins);
    g.fillStyle = themeColour('accent');
    if (most)
        bins.forEach((v, i) => {
            const h = v ? Math.max(1, (v / most) * 16) : 0;
            g.fillRect((i * 74) / bins.length, 17 - h, Math.max(1, 74 / bins.length - 0.5), h);
        });
}

const csvCell = text => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
tensors.csv = () =>
    [
        tensors.columns.map(c => c.title),
        ...tensors.list().map(t =>
            tensors.columns.map(c => {
                const v =
                    c.key === 'shape'
                        ? t.ne.slice(0, t.dims).join('x')
                        : c.key === 'first' && c.value(t, app.tensorSums) === NONE32
                          ? ''
                          : c.value(t, app.tensorSums);
                return String(c.key === 'share' ? v / app.sums.time : v);
            })
        )
    ]
        .map(row => row.map(csvCell).join(','))
        .join('\n') + '\n';
tensors.copy = () => links.copy(tensors.csv(), document.getElementById('copy-csv'));
tensors.tableOf = most => {
    const list = tensors.list();
    return {
        columns: tensors.columns.map(c => (c.text ? '*' : '') + c.title),
        note: list.length > most ? `the first ${most} of ${list.length}` : '',
        rows: list.slice(0, most).map(t => ({
            cells: tensors.columns.map(c => c.show(t, app.tensorSums)),
            pick: () => app.setPin({kind: 'tensor', tensor: t.id})
        }))
    };
};
tensors.key = () => false;
