// SPDX-License-Identifier: MIT
// Changes of state: filter, selection, view, pin, tab, file, theme.

/** Filter or selection changed: recomputes all sums. */
app.changed = () => {
    const {model, state} = app,
        note = $('filter-note');
    let words = app.words ?? [];
    try {
        words = parseFilter(state.filter);
        note.textContent = '';
        $('filter').removeAttribute('aria-invalid');
    } catch (error) {
        note.textContent = error.message; // the filter before holds
        $('filter').setAttribute('aria-invalid', 'true');
    }
    app.words = words;
    const masks = compileFilter(words, model),
        phase = phases.choose(words, masks.runs),
        key = JSON.stringify([words.map(word => word.text), phase]);
    if (app.maskKey !== key || !app.masks) {
        if (phase !== null) model.trace.runs.forEach((run, i) => (masks.runs[i] &= run.phase === phase));
        app.masks = masks;
        app.maskKey = key;
        app.maskVersion = (app.maskVersion ?? 0) + 1;
        for (const tab of app.tabs) tab.recolour?.(model);
    }
    phases.draw();
    if ($('filter').value !== state.filter) $('filter').value = state.filter;
    const [from, to] = state.selection ?? [-Infinity, Infinity];
    app.sums = aggregate(model, app.masks, from, to);
    app.tensorSums = tensorSums(model, app.masks, app.sums);
    tensors.sparks = new Map();
    details.render();
    app.render();
};
app.setFilter = text => {
    app.state.filter = text;
    app.changed();
};
app.setSelection = (selection, quick = false) => {
    app.state.selection = selection && selection[1] > selection[0] ? selection : null;
    if (quick) app.render();
    else app.changed();
};
app.setView = ([t0, t1]) => {
    const {begin, end} = app.model,
        least = 20,
        span = Math.max(least, Math.min(t1 - t0, end - begin)),
        middle = (t0 + t1) / 2;
    let a = middle - span / 2;
    a = Math.max(begin, Math.min(end - span, a));
    app.state.view = span >= end - begin ? null : [a, a + span];
    app.render();
};
app.setPin = pin => {
    app.state.pin = pin;
    details.render();
    app.render();
};
app.setTable = on => {
    app.state.table = on;
    app.render();
};
app.setTab = id => {
    const titled = app.model && (id === 'beside') !== (app.state.tab === 'beside');
    app.state.tab = id;
    if (titled && app.sums) details.render(); // whose findings they are
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
    Object.assign(app, {
        model,
        masks: null,
        maskKey: null,
        words: null,
        overview: null,
        fileName,
        bar: null,
        barVersion: (app.barVersion ?? 0) + 1
    });
    const from = app.opened ? {} : readFragment();
    Object.assign(app.state, {
        filter: from.filter ?? '',
        phase: from.phase ?? '',
        folded: from.folded ?? app.state.folded,
        selection: from.selection ?? null,
        view: from.view ?? null,
        pin: null,
        marks: from.marks ?? [],
        table: from.table ?? false
    });
    app.opened = true;
    links.setTabs(from.tabs);
    app.masks = compileFilter([], model);
    for (const tab of app.tabs) tab.load(model);
    app.masks = null;
    $('drop').hidden = true;
    const name = trace.session.model || trace.files[0]?.name || fileName || 'trace',
        coverage = model.coverage,
        {header} = trace;
    $('model').textContent = name.slice(0, 300);
    $('model').title = [name, trace.session.architecture, trace.session.cpu, trace.session.isa, fileName]
        .filter(Boolean)
        .join(' · ')
        .slice(0, 600);
    document.title = `${name.slice(0, 80)} – tinfer trace`;
    const badge = (text, kind, title) => el('span', {class: `badge ${kind}`, title: title ?? ''}, text),
        e = trace.events.count,
        dropped = Math.max(
            header.dropped,
            trace.drops.reduce((s, d) => s + d.count, 0)
        );
    $('badges').replaceChildren(
        badge(`${formatCount(trace.runs.length)} runs`, ''),
        badge(`${formatCount(e)} events`, ''),
        coverage.filtered
            ? badge(
                  'coverage: filtered trace',
                  'warn',
                  `${formatCount(header.filtered)} events were filtered out while recording`
              )
            : coverage.missing.length
              ? badge(
                    `coverage: ${coverage.weights - coverage.missing.length} of ${coverage.weights} weights read`,
                    'bad',
                    'Layers shows what is missing'
                )
              : coverage.difference
                ? badge(
                      `coverage: ${formatBytes(coverage.difference)} differ`,
                      'bad',
                      'bytes read are not what the graph says should be read'
                  )
                : badge(
                      coverage.weights ? `coverage: all ${coverage.weights} weights read` : 'no weights listed',
                      coverage.weights ? 'good' : '',
                      coverage.checked
                          ? `${coverage.checked} runs read exactly the expected bytes`
                          : 'no expected bytes recorded'
                  ),
        badge(`${formatCount(dropped)} dropped`, dropped ? 'warn' : ''),
        ...(trace.problems.length
            ? [
                  badge(
                      `${trace.problems.length} note${trace.problems.length > 1 ? 's' : ''}`,
                      'warn',
                      trace.problems.join('\n').slice(0, 2000)
                  )
              ]
            : [])
    );
    app.setTab(
        app.tabs.some(t => t.id === from.tab)
            ? from.tab
            : app.tabs.some(t => t.id === app.state.tab)
              ? app.state.tab
              : 'timeline'
    );
    app.setFolded(app.state.folded);
    app.changed();
    app.state.pin = from.pin ? links.pin(from.pin) : null;
    if (app.state.pin) app.setPin(app.state.pin);
};
app.setFolded = on => {
    app.state.folded = on;
    document.body.classList.toggle('folded', on);
    if (app.sums) details.render();
    app.render();
};
/** A link that opens at the same place. */
app.copyLink = button => {
    writeFragment();
    links.copy(location.href, button);
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
    document.documentElement.dataset.theme =
        theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
    themeColours.clear();
    document.documentElement.style.colorScheme = document.documentElement.dataset.theme;
    app.barVersion = (app.barVersion ?? 0) + 1;
    app.render();
};
