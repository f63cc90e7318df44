// SPDX-License-Identifier: MIT
// Changes of state: filter, selection, view, pin, tab, file, theme.

/** Filter or selection changed: recomputes all sums. */
app.changed = () => {
    const {model, state} = app,
        note = $('filter-note');
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
    Object.assign(app, {
        model,
        masks: null,
        maskText: null,
        overview: null,
        fileName,
        bar: null,
        barVersion: (app.barVersion ?? 0) + 1
    });
    const from = app.opened ? {} : readFragment();
    Object.assign(app.state, {
        filter: from.filter ?? '',
        selection: from.selection ?? null,
        view: from.view ?? null,
        pin: null,
        marks: from.marks ?? [],
        table: from.table ?? false
    });
    app.opened = true;
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
    document.documentElement.dataset.theme =
        theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
    themeColours.clear();
    document.documentElement.style.colorScheme = document.documentElement.dataset.theme;
    app.barVersion = (app.barVersion ?? 0) + 1;
    app.render();
};
