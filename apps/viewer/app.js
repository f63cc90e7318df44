// SPDX-License-Identifier: MIT
// The page: loads the trace, synchronizes tabs, filter, selection and details, and passes pointer and key events to the
// active tab.

const $ = id => document.getElementById(id);

app.view = () => app.state.view ?? [app.model.begin, app.model.end];
app.perRunText = () => `mean of ${formatCount(app.sums.runs.size)} run${app.sums.runs.size === 1 ? '' : 's'}`;
app.tab = () => app.tabs.find(t => t.id === app.state.tab) ?? app.tabs[0];

/** Schedules one redraw in the next frame. */
app.render = () => {
    if (app.frame || !app.model) return;
    app.frame = requestAnimationFrame(() => {
        app.frame = 0;
        app.draw();
    });
};
app.draw = () => {
    const tab = app.tab(),
        stage = $('stage'),
        asTable = app.state.table && tab.table;
    const bar = `${tab.id}/${asTable}/${app.barVersion}`;
    if (app.bar !== bar) {
        app.bar = bar;
        const toggle =
            tab.table && !tab.html
                ? el(
                      'button',
                      {
                          'aria-pressed': String(!!asTable),
                          title: 'The same as a table (T)',
                          onclick: () => app.setTable(!app.state.table)
                      },
                      asTable ? 'Picture' : 'Table'
                  )
                : null;
        $('toolbar').replaceChildren(...tab.toolbar(), ...(toggle ? [toggle] : []), ...app.saveButtons(tab));
    }
    $('table').hidden = !asTable;
    stage.hidden = !!asTable;
    if (asTable) app.drawTable(tab.table());
    else if (tab.html) tab.render(stage);
    else {
        if (stage.tab !== tab.id) {
            const canvas = el('canvas', {
                tabIndex: 0,
                role: 'img',
                'aria-label': `${tab.title}. Press T for the same as a table.`
            });
            stage.replaceChildren(canvas);
            stage.tab = tab.id;
            app.listen(canvas, tab);
        }
        tab.draw(stage.querySelector('canvas'));
    }
    if (tab.html) stage.tab = tab.id;
    app.drawOverview();
    app.drawStatus();
    clearTimeout(app.fragmentTimer); // browsers limit the rate of address changes
    app.fragmentTimer = setTimeout(writeFragment, 200);
};
app.drawTable = table => {
    const box = $('table'),
        top = box.scrollTop;
    box.replaceChildren(
        table.note ? el('div', {class: 'quiet', style: {padding: '4px 12px'}}, table.note) : '',
        el(
            'table',
            {class: 'grid', style: {width: '100%'}},
            el(
                'thead',
                {},
                el(
                    'tr',
                    {},
                    table.columns.map(c =>
                        el('th', {scope: 'col', class: c.startsWith('*') ? 'text' : null}, c.replace(/^\*/, ''))
                    )
                )
            ),
            el(
                'tbody',
                {},
                table.rows.map(row =>
                    el(
                        'tr',
                        {
                            tabIndex: 0,
                            onclick: row.pick,
                            onkeydown: event => {
                                if (event.key === 'Enter') row.pick();
                            }
                        },
                        row.cells.map((cell, i) =>
                            el('td', {class: table.columns[i].startsWith('*') ? 'text' : null}, String(cell))
                        )
                    )
                )
            )
        )
    );
    box.scrollTop = top;
};

/** What every tab can do: its picture as a file. */
app.saveButtons = tab => {
    if (tab.id === 'tensors' || tab.id === 'beside') return [];
    const button = kind => {
        const title = `Save this picture as ${kind.toUpperCase()}`;
        return el('button', {id: `save-${kind}`, title, onclick: () => saving.save(kind)}, kind.toUpperCase());
    };
    return [el('span', {class: 'save'}, button('svg'), button('png'))];
};

app.listen = (canvas, tab) => {
    const at = event => {
        const box = canvas.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener('pointerdown', event => {
        if (event.button) return;
        canvas.focus();
        canvas.setPointerCapture(event.pointerId);
        tab.pointer('down', event, ...at(event));
    });
    canvas.addEventListener('pointermove', event => tab.pointer('move', event, ...at(event)));
    canvas.addEventListener('pointerup', event => {
        if (!event.button) tab.pointer('up', event, ...at(event));
    });
    canvas.addEventListener('pointerleave', event => showTip(event, null));
    canvas.addEventListener('dblclick', event => tab.pointer('double', event, ...at(event)));
    canvas.addEventListener(
        'wheel',
        event => {
            event.preventDefault();
            showTip(event, null);
            tab.wheel?.(event, ...at(event));
        },
        {passive: false}
    );
};

app.drawOverview = () => {
    const box = $('overview'),
        canvas = box.querySelector('canvas'),
        width = box.clientWidth,
        height = box.clientHeight,
        g = fitCanvas(canvas, width, height),
        {model, state} = app;
    const left = 84,
        w = width - left - 14,
        runs = model.trace.runs,
        x = t => left + ((t - model.begin) / (model.end - model.begin)) * w;
    if (!app.overview || app.overview.length !== Math.max(1, w)) app.overview = overviewBins(model, Math.max(1, w));
    const most = Math.max(...app.overview),
        top = 8,
        base = height - 16;
    g.fillStyle = themeColour('quiet');
    g.textAlign = 'right';
    g.fillText(most ? formatRate(most, 1) : '', left - 10, top + 6);
    g.fillText('session', left - 10, base + 6);
    g.textAlign = 'left';
    g.fillStyle = themeColour('accent');
    g.globalAlpha = 0.55;
    if (most)
        for (let i = 0; i < w; ++i) {
            const h = (app.overview[i] / most) * (base - top);
            if (h > 0) g.fillRect(left + i, base - h, 1, h);
        }
    g.globalAlpha = 1;
    let lastX = -1;
    runs.forEach((run, i) => {
        const a = Math.floor(x(run.begin)),
            b = Math.max(a + 1, Math.floor(x(run.end)));
        if (b <= lastX) return;
        g.fillStyle = app.masks.runs[i]
            ? (PHASE_COLOURS[model.name('phase', run.phase)] ?? '#8a8f98')
            : themeColour('line');
        g.fillRect(Math.max(a, lastX), base + 3, Math.max(1, b - Math.max(a, lastX) - (b - a > 4 ? 1 : 0)), 6);
        lastX = b;
    });
    for (const mark of [...model.trace.marks, ...state.marks.map(time => ({time}))]) {
        g.fillStyle = themeColour('warn');
        g.fillRect(x(mark.time), top, 1.5, base - top + 9);
    }
    if (state.selection) {
        const [a, b] = state.selection.map(x);
        g.fillStyle = themeColour('accent');
        g.globalAlpha = 0.18;
        g.fillRect(a, 0, Math.max(1, b - a), height);
        g.globalAlpha = 1;
        g.fillRect(a, 0, 1.5, height);
        g.fillRect(b - 1.5, 0, 1.5, height);
    }
    const [v0, v1] = app.view();
    if (v0 > model.begin || v1 < model.end) {
        g.strokeStyle = themeColour('text');
        g.lineWidth = 1.4;
        g.strokeRect(
            Math.max(left, x(v0)),
            3,
            Math.max(2, Math.min(left + w, x(v1)) - Math.max(left, x(v0))),
            height - 6
        );
    }
    app.overviewTime = px =>
        Math.max(model.begin, Math.min(model.end, model.begin + ((px - left) / w) * (model.end - model.begin)));
};

app.drawStatus = () => {
    const {sums, state, model} = app,
        [a, b] = state.selection ?? [-Infinity, Infinity];
    let runTime = 0; // of the same runs as all that stands beside it
    for (const run of sums.runs) {
        const {begin, end} = model.trace.runs[run] ?? {begin: 0, end: 0};
        runTime += Math.max(0, Math.min(end, b) - Math.max(begin, a));
    }
    const pair = (value, name) => [el('b', {}, value), ` ${name}  ·  `];
    $('status').replaceChildren(
        ...[
            pair(phases.text(), ''),
            pair(
                formatTime(runTime),
                `in ${formatCount(sums.runs.size)} run${sums.runs.size === 1 ? '' : 's'}, ` +
                    (state.selection ? 'selected' : 'whole session')
            ),
            pair(formatCount(sums.count), 'kernels'),
            pair(formatBytes(sums.bytes), 'moved'),
            pair(formatRate(sums.bytes, sums.time), 'in kernels'),
            [el('b', {}, sums.count ? formatTime(sums.time / sums.count) : '–'), ' a kernel, mean']
        ].flat()
    );
};
