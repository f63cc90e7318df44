// SPDX-License-Identifier: MIT
// The page: loads the trace, keeps tabs, filter, selection and details together, hands pointer and keys to the tab in
// front.

const $ = id => document.getElementById(id);

app.view = () => app.state.view ?? [app.model.begin, app.model.end];
app.perRunText = () => `mean of ${formatCount(app.sums.runs.size)} run${app.sums.runs.size === 1 ? '' : 's'}`;
app.tab = () => app.tabs.find(t => t.id === app.state.tab) ?? app.tabs[0];

/** Draws once, with the next frame. */
app.render = () => {
    if (app.frame || !app.model) return;
    app.frame = requestAnimationFrame(() => { app.frame = 0; app.draw(); });
};
app.draw = () => {
    const tab = app.tab(), stage = $('stage'), asTable = app.state.table && tab.table;
    const bar = `${tab.id}/${asTable}/${app.barVersion}`;
    if (app.bar !== bar) {
        app.bar = bar;
        const toggle = tab.table && !tab.html ? el('button', {'aria-pressed': String(!!asTable), title: 'The same as a table (T)', onclick: () => app.setTable(!app.state.table)}, asTable ? 'Picture' : 'Table') : null;
        $('toolbar').replaceChildren(...tab.toolbar(), ...(toggle ? [toggle] : []));
    }
    $('table').hidden = !asTable;
    stage.hidden = !!asTable;
    if (asTable) app.drawTable(tab.table());
    else if (tab.html) tab.render(stage);
    else {
        if (stage.tab !== tab.id) {
            const canvas = el('canvas', {tabIndex: 0, role: 'img', 'aria-label': `${tab.title}. Press T for the same as a table.`});
            stage.replaceChildren(canvas);
            stage.tab = tab.id;
            app.listen(canvas, tab);
        }
        tab.draw(stage.querySelector('canvas'));
    }
    if (tab.html) stage.tab = tab.id;
    app.drawOverview();
    app.drawStatus();
    clearTimeout(app.fragmentTimer);   // browsers count changes of the address
    app.fragmentTimer = setTimeout(writeFragment, 200);
};
app.drawTable = table => {
    const box = $('table'), top = box.scrollTop;
    box.replaceChildren(table.note ? el('div', {class: 'quiet', style: {padding: '4px 12px'}}, table.note) : '', el('table', {class: 'grid', style: {width: '100%'}},
        el('thead', {}, el('tr', {}, table.columns.map(c => el('th', {scope: 'col', class: c.startsWith('*') ? 'text' : null}, c.replace(/^\*/, ''))))),
        el('tbody', {}, table.rows.map(row => el('tr', {tabIndex: 0, onclick: row.pick, onkeydown: event => { if (event.key === 'Enter') row.pick(); }},
            row.cells.map((cell, i) => el('td', {class: table.columns[i].startsWith('*') ? 'text' : null}, String(cell))))))));
    box.scrollTop = top;
};

app.listen = (canvas, tab) => {
    const at = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener('pointerdown', event => { if (event.button) return; canvas.focus(); canvas.setPointerCapture(event.pointerId); tab.pointer('down', event, ...at(event)); });
    canvas.addEventListener('pointermove', event => tab.pointer('move', event, ...at(event)));
    canvas.addEventListener('pointerup', event => { if (!event.button) tab.pointer('up', event, ...at(event)); });
    canvas.addEventListener('pointerleave', event => showTip(event, null));
    canvas.addEventListener('dblclick', event => tab.pointer('double', event, ...at(event)));
    canvas.addEventListener('wheel', event => { event.preventDefault(); showTip(event, null); tab.wheel?.(event, ...at(event)); }, {passive: false});
};

app.drawOverview = () => {
    const box = $('overview'), canvas = box.querySelector('canvas'), width = box.clientWidth, height = box.clientHeight, g = fitCanvas(canvas, width, height), {model, state} = app;
    const left = 84, w = width - left - 14, runs = model.trace.runs, x = t => left + (t - model.begin) / (model.end - model.begin) * w;
    if (!app.overview || app.overview.length !== Math.max(1, w)) app.overview = overviewBins(model, Math.max(1, w));
    const most = Math.max(...app.overview), top = 8, base = height - 16;
    g.fillStyle = themeColour('quiet');
    g.textAlign = 'right';
    g.fillText(most ? `${most.toFixed(0)} GB/s` : '', left - 10, top + 6);
    g.fillText('session', left - 10, base + 6);
    g.textAlign = 'left';
    g.fillStyle = themeColour('accent');
    g.globalAlpha = 0.55;
    if (most) for (let i = 0; i < w; ++i) { const h = app.overview[i] / most * (base - top); if (h > 0) g.fillRect(left + i, base - h, 1, h); }
    g.globalAlpha = 1;
    let lastX = -1;
    runs.forEach((run, i) => {
        const a = Math.floor(x(run.begin)), b = Math.max(a + 1, Math.floor(x(run.end)));
        if (b <= lastX) return;
        g.fillStyle = app.masks.runs[i] ? PHASE_COLOURS[model.name('phase', run.phase)] ?? '#8a8f98' : themeColour('line');
        g.fillRect(Math.max(a, lastX), base + 3, Math.max(1, b - Math.max(a, lastX) - (b - a > 4 ? 1 : 0)), 6);
        lastX = b;
    });
    for (const mark of [...model.trace.marks, ...state.marks.map(time => ({time}))]) { g.fillStyle = themeColour('warn'); g.fillRect(x(mark.time), top, 1.5, base - top + 9); }
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
        g.strokeRect(Math.max(left, x(v0)), 3, Math.max(2, Math.min(left + w, x(v1)) - Math.max(left, x(v0))), height - 6);
    }
    app.overviewTime = px => Math.max(model.begin, Math.min(model.end, model.begin + (px - left) / w * (model.end - model.begin)));
};

app.drawStatus = () => {
    const {sums, state, model} = app, [a, b] = state.selection ?? [model.begin, model.end];
    const pair = (value, name) => [el('b', {}, value), ` ${name}  ·  `];
    $('status').replaceChildren(...[pair(formatTime(b - a), state.selection ? 'selected' : 'whole session'), pair(formatCount(sums.count), 'kernels'), pair(formatBytes(sums.bytes), 'moved'),
        pair(formatRate(sums.bytes, sums.time), 'in kernels'), [el('b', {}, sums.count ? formatTime(sums.time / sums.count) : '–'), ' a kernel, mean']].flat());
};

/** Filter or selection changed: everything that is summed is summed again. */
app.changed = () => {
    const {model, state} = app, note = $('filter-note');
    if (app.maskText !== state.filter || !app.masks) {
        try {
            app.masks = compileFilter(parseFilter(state.filter), model);
            note.textContent = '';
            $('filter').removeAttribute('aria-invalid');
        } catch (error) {
            note.textContent = error.message;
            $('filter').setAttribute('aria-invalid', 'true');
            app.masks ??= compileFilter([], model);
        }
        app.maskText = state.filter;
        app.maskVersion = (app.maskVersion ?? 0) + 1;
        for (const tab of app.tabs) tab.recolour?.(model);
    }
    if ($('filter').value !== state.filter) $('filter').value = state.filter;
    const [from, to] = state.selection ?? [-Infinity, Infinity];
    app.sums = aggregate(model, app.masks, from, to);
    app.tensorSums = tensorSums(model, app.masks, app.sums);
    tensors.sparks = new Map();
    details.render();
    app.render();
};
app.setFilter = text => { app.state.filter = text; app.changed(); };
app.setSelection = (selection, quick = false) => { app.state.selection = selection && selection[1] > selection[0] ? selection : null; if (quick) app.render(); else app.changed(); };
app.setView = ([t0, t1]) => {
    const {begin, end} = app.model, least = 20, span = Math.max(least, Math.min(t1 - t0, end - begin)), middle = (t0 + t1) / 2;
    let a = middle - span / 2;
    a = Math.max(begin, Math.min(end - span, a));
    app.state.view = span >= end - begin ? null : [a, a + span];
    app.render();
};
app.setPin = pin => { app.state.pin = pin; details.render(); app.render(); };
app.setTable = on => { app.state.table = on; app.render(); };
app.setTab = id => {
    app.state.tab = id;
    for (const button of $('tabs').children) {
        const on = button.dataset.tab === id;
        button.setAttribute('aria-selected', String(on));
        button.tabIndex = on ? 0 : -1;
    }
    $('panel').setAttribute('aria-labelledby', 'tab-' + id);
    $('panel').setAttribute('aria-label', app.tab().title);
    $('tip').hidden = true;
    app.render();
};

app.load = (trace, fileName) => {
    const model = buildModel(trace);
    Object.assign(app, {model, masks: null, maskText: null, overview: null, fileName, bar: null, barVersion: (app.barVersion ?? 0) + 1});
    const from = app.opened ? {} : readFragment();
    Object.assign(app.state, {filter: from.filter ?? '', selection: from.selection ?? null, view: from.view ?? null, pin: null, marks: from.marks ?? [], table: from.table ?? false});
    app.opened = true;
    app.masks = compileFilter([], model);
    for (const tab of app.tabs) tab.load(model);
    app.masks = null;
    $('drop').hidden = true;
    const name = trace.session.model || trace.files[0]?.name || fileName || 'trace', coverage = model.coverage, {header} = trace;
    $('model').textContent = name.slice(0, 300);
    $('model').title = [name, trace.session.architecture, trace.session.cpu, trace.session.isa, fileName].filter(Boolean).join(' · ').slice(0, 600);
    document.title = `${name.slice(0, 80)} – tinfer trace`;
    const badge = (text, kind, title) => el('span', {class: `badge ${kind}`, title: title ?? ''}, text), e = trace.events.count, dropped = Math.max(header.dropped, trace.drops.reduce((s, d) => s + d.count, 0));
    $('badges').replaceChildren(badge(`${formatCount(trace.runs.length)} runs`, ''), badge(`${formatCount(e)} events`, ''),
        coverage.filtered ? badge('coverage: filtered trace', 'warn', `${formatCount(header.filtered)} events were filtered out while recording`)
            : coverage.missing.length ? badge(`coverage: ${coverage.weights - coverage.missing.length} of ${coverage.weights} weights read`, 'bad', 'Layers shows what is missing')
            : coverage.difference ? badge(`coverage: ${formatBytes(coverage.difference)} differ`, 'bad', 'bytes read are not what the graph says should be read')
            : badge(coverage.weights ? `coverage: all ${coverage.weights} weights read` : 'no weights listed', coverage.weights ? 'good' : '', coverage.checked ? `${coverage.checked} runs read exactly the expected bytes` : 'no expected bytes recorded'),
        badge(`${formatCount(dropped)} dropped`, dropped ? 'warn' : ''), ...(trace.problems.length ? [badge(`${trace.problems.length} note${trace.problems.length > 1 ? 's' : ''}`, 'warn', trace.problems.join('\n').slice(0, 2000))] : []));
    app.setTab(app.tabs.some(t => t.id === from.tab) ? from.tab : app.tabs.some(t => t.id === app.state.tab) ? app.state.tab : 'timeline');
    app.changed();
};

app.loadFile = async file => {
    try {
        app.load(readTrace(await file.arrayBuffer()), file.name);
    } catch (error) {
        $('drop').hidden = false;
        $('drop-error').textContent = `${file.name.slice(0, 200)}: ${error.message}`;
    }
};

app.setTheme = theme => {
    document.documentElement.dataset.theme = theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
    themeColours.clear();
    document.documentElement.style.colorScheme = document.documentElement.dataset.theme;
    app.barVersion = (app.barVersion ?? 0) + 1;
    app.render();
};

app.help = () => {
    const rows = [['1 … 7', 'the tabs'], ['/', 'filter box'], ['W S, wheel', 'zoom at the pointer'], ['A D, drag', 'move'], ['Shift + drag', 'select time'], ['F', 'fit selection or pinned step'],
        ['0', 'whole session, all rows'], ['← →', 'step before, after (timeline); next item elsewhere'], ['[ ]', 'the same step in the run before, after'], ['M', 'mark at the pointer'],
        ['heat map', 'drag selects, the wheel zooms rows, dragging on names filters'], ['T', 'the picture as a table'], ['O', 'open a file'], ['Esc', 'unpin, then clear the selection']];
    const filters = [['layer:5  layer:3-7,9', 'layers; layer:none for what is in none'], ['part:ffn  op:mul_mat  kernel:*gemv*', 'steps'], ['tensor:*down*  role:attn_?  type:Q6_K', 'steps that touch such tensors'],
        ['phase:decode  run:3-10  token:7', 'runs; token is a position'], ['-part:attn', 'a minus turns a word round'], ['down', 'a word alone looks everywhere']];
    const table = list => el('table', {}, el('tbody', {}, list.map(([k, v]) => el('tr', {}, el('td', {}, el('code', {}, k)), el('td', {}, v)))));
    $('help').replaceChildren(el('h2', {}, 'Keys'), table(rows), el('h2', {style: {'margin-top': '14px'}}, 'Filter: all words must hold'), table(filters), el('p', {}, el('button', {class: 'primary', onclick: () => $('help').close()}, 'Close')));
    $('help').showModal();
};

app.key = event => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === 'Escape') {
        if (event.target === $('filter')) { event.target.blur(); $('panel').focus(); }
        else if (!$('drop').hidden && app.model) $('drop').hidden = true;
        else if (app.state.pin) app.setPin(null);
        else if (app.state.selection) app.setSelection(null);
        return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || $('help').open) return;
    if (event.key === 'o') { $('file').click(); return; }
    if (!app.model) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key, number = Number(key);
    if (event.target.getAttribute('role') === 'tab' && (key === 'ArrowLeft' || key === 'ArrowRight')) {
        const list = [...$('tabs').children], next = list[(list.indexOf(event.target) + (key === 'ArrowRight' ? 1 : list.length - 1)) % list.length];
        app.setTab(next.dataset.tab);
        next.focus();
    } else if (number >= 1 && number <= app.tabs.length) app.setTab(app.tabs[number - 1].id);
    else if (key === '/') $('filter').focus();
    else if (key === '?') app.help();
    else if (key === 't' && app.tab().table && !app.tab().html) app.setTable(!app.state.table);
    else if (event.target.closest('.rows, table, button, aside') && key.startsWith('Arrow') || event.target === $('overview') && app.overviewKey(key)) return;
    else if (!app.tab().key?.(key)) {
        if (!timeline.lanes.length || !['[', ']'].includes(key)) return;
        timeline.key(key);
    }
    event.preventDefault();
};
/** Moves or grows the selection from the keyboard, a fiftieth of the session at a time. */
app.overviewKey = key => {
    const {begin, end} = app.model, step = (end - begin) / 50, [a, b] = app.state.selection ?? [begin, begin + step * 5];
    const to = {ArrowLeft: [a - step, b - step], ArrowRight: [a + step, b + step], ArrowUp: [a, b + step], ArrowDown: [a, Math.max(a + step, b - step)]}[key];
    if (to) app.setSelection([Math.max(begin, to[0]), Math.min(end, to[1])]);
    return !!to;
};

app.start = () => {
    app.setTheme(null);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => app.setTheme(app.theme));
    $('theme').addEventListener('click', () => { app.theme = isDark() ? 'light' : 'dark'; app.setTheme(app.theme); });
    const order = ['timeline', 'heat', 'layers', 'tensors', 'experts', 'roofline', 'graph'];
    app.tabs.sort((a, b) => order.indexOf(a.id) - order.indexOf(b.id));
    $('tabs').replaceChildren(...app.tabs.map((tab, i) => {
        const button = el('button', {role: 'tab', id: 'tab-' + tab.id, 'aria-controls': 'panel', title: `${tab.title} (${i + 1})`, onclick: () => app.setTab(tab.id)}, tab.title);
        button.dataset.tab = tab.id;
        return button;
    }));
    let timer = 0;
    $('filter').addEventListener('input', event => { clearTimeout(timer); timer = setTimeout(() => app.model && app.setFilter(event.target.value), 120); });
    document.addEventListener('keydown', app.key);
    document.querySelector('.keys').addEventListener('click', app.help);
    for (const id of ['open', 'choose']) $(id).addEventListener('click', () => $('file').click());
    $('file').addEventListener('change', event => { if (event.target.files[0]) app.loadFile(event.target.files[0]); event.target.value = ''; });
    addEventListener('dragover', event => { event.preventDefault(); $('drop').hidden = false; $('drop').classList.add('over'); });
    addEventListener('dragleave', event => { if (!event.relatedTarget) { $('drop').classList.remove('over'); $('drop').hidden = !!app.model; } });
    addEventListener('drop', event => { event.preventDefault(); $('drop').classList.remove('over'); $('drop').hidden = !!app.model; if (event.dataTransfer.files[0]) app.loadFile(event.dataTransfer.files[0]); });
    const overview = $('overview');
    let from = null;
    overview.addEventListener('pointerdown', event => { if (!app.model) return; overview.setPointerCapture(event.pointerId); from = app.overviewTime(event.offsetX); });
    overview.addEventListener('pointermove', event => {
        if (from === null) return;
        const to = app.overviewTime(event.clientX - overview.getBoundingClientRect().left);
        app.setSelection([Math.min(from, to), Math.max(from, to)], true);
    });
    overview.addEventListener('pointerup', event => {
        if (from === null) return;
        const to = app.overviewTime(event.clientX - overview.getBoundingClientRect().left), little = Math.abs(to - from) < (app.model.end - app.model.begin) / 400;
        app.setSelection(little ? null : [Math.min(from, to), Math.max(from, to)]);
        if (!little && app.state.tab === 'timeline') app.setView([Math.min(from, to), Math.max(from, to)]);
        from = null;
    });
    overview.addEventListener('dblclick', () => { app.setSelection(null); app.setView([app.model.begin, app.model.end]); });
    new ResizeObserver(() => app.render()).observe($('stage'));
    addEventListener('resize', () => app.render());
    addEventListener('hashchange', () => {
        if (!app.model) return;
        const from = readFragment();
        Object.assign(app.state, {filter: from.filter, selection: from.selection, view: from.view, marks: from.marks, table: from.table});
        app.setTab(app.tabs.some(t => t.id === from.tab) ? from.tab : app.state.tab);
        app.changed();
    });
    const info = $('view-info').textContent.trim();
    if (!info) { $('drop').hidden = false; return; }
    try {
        const data = JSON.parse(info);
        app.load(readEmbedded(data, fromBase64($('view-data').textContent)), data.file ?? '');
        $('view-data').remove();
    } catch (error) {
        $('drop').hidden = false;
        $('drop-error').textContent = `The trace in this page cannot be read: ${error.message}`;
    }
};
app.start();
