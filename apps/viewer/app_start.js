// SPDX-License-Identifier: MIT
// Keys, help, and the start of the page.

app.help = () => {
    const rows = [
        ['1 … 7', 'the tabs'],
        ['/', 'filter box'],
        ['W S, wheel', 'zoom at the pointer'],
        ['A D, drag', 'move'],
        ['Shift + drag', 'select time'],
        ['F', 'fit selection or pinned step'],
        ['Z, double click', 'one step alone'],
        ['P', 'the next phase'],
        ['I', 'hide or show the findings'],
        ['0', 'whole session, all rows'],
        ['← →', 'step before, after (timeline); next item elsewhere'],
        ['[ ]', 'the same step in the run before, after'],
        ['M', 'mark at the pointer'],
        ['heat map', 'drag selects, the wheel zooms rows, dragging on names filters'],
        ['T', 'the picture as a table'],
        ['O', 'open a file'],
        ['Esc', 'unpin, then clear the selection']
    ];
    const filters = [
        ['layer:5  layer:3-7,9', 'layers; layer:none for what is in none'],
        ['part:ffn  op:mul_mat  kernel:*gemv*', 'steps'],
        ['tensor:*down*  role:attn_?  type:Q6_K', 'steps that touch such tensors'],
        ['phase:decode  run:3-10  token:7', 'runs; token is a position'],
        ['-part:attn', 'a minus turns a word round'],
        ['down', 'a word alone looks everywhere']
    ];
    const table = list =>
        el(
            'table',
            {},
            el(
                'tbody',
                {},
                list.map(([k, v]) => el('tr', {}, el('td', {}, el('code', {}, k)), el('td', {}, v)))
            )
        );
    $('help').replaceChildren(
        el('h2', {}, 'Keys'),
        table(rows),
        el('h2', {style: {'margin-top': '14px'}}, 'Filter: all words must hold'),
        table(filters),
        el('h2', {style: {'margin-top': '14px'}}, 'Words and units'),
        table([
            ['attn', 'attention: queries, keys, values and their products'],
            ['ffn', 'feed-forward network: two or three large products of each layer'],
            ['head', 'the product with the vocabulary behind the last layer'],
            ['KiB, MiB, GiB', 'sizes: 1,024 of the unit before'],
            ['GB/s, GMAC/s', 'a thousand million bytes, or multiply-adds, a second'],
            ['share', 'of the summed time of the steps in sight']
        ]),
        el('p', {}, el('button', {class: 'primary', onclick: () => $('help').close()}, 'Close'))
    );
    $('help').showModal();
};

app.key = event => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === 'Escape') {
        if (event.target === $('filter')) {
            event.target.blur();
            $('panel').focus();
        } else if (!$('drop').hidden && app.model) $('drop').hidden = true;
        else if (app.state.pin) app.setPin(null);
        else if (app.state.selection) app.setSelection(null);
        return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || $('help').open) return;
    if (event.key === 'o') {
        $('file').click();
        return;
    }
    if (!app.model) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key,
        number = Number(key);
    if (event.target.getAttribute('role') === 'tab' && (key === 'ArrowLeft' || key === 'ArrowRight')) {
        const list = [...$('tabs').children],
            next = list[(list.indexOf(event.target) + (key === 'ArrowRight' ? 1 : list.length - 1)) % list.length];
        app.setTab(next.dataset.tab);
        next.focus();
    } else if (number >= 1 && number <= app.tabs.length) app.setTab(app.tabs[number - 1].id);
    else if (key === '/') $('filter').focus();
    else if (key === '?') app.help();
    else if (key === 'p') phases.next(1);
    else if (key === 'i') app.setFolded(!app.state.folded);
    else if (event.target.closest('#phases') && key.startsWith('Arrow'))
        phases.next(key === 'ArrowRight' || key === 'ArrowDown' ? 1 : -1);
    else if (key === 't' && app.tab().table && !app.tab().html) app.setTable(!app.state.table);
    else if (
        (event.target.closest('.rows, table, button, aside') && key.startsWith('Arrow')) ||
        (event.target === $('overview') && app.overviewKey(key))
    )
        return;
    else if (!app.tab().key?.(key)) {
        if (!timeline.lanes.length || !['[', ']'].includes(key)) return;
        timeline.key(key);
    }
    event.preventDefault();
};
/** Moves or grows the selection from the keyboard, a fiftieth of the session at a time. */
app.overviewKey = key => {
    const {begin, end} = app.model,
        step = (end - begin) / 50,
        [a, b] = app.state.selection ?? [begin, begin + step * 5];
    const to = {
        ArrowLeft: [a - step, b - step],
        ArrowRight: [a + step, b + step],
        ArrowUp: [a, b + step],
        ArrowDown: [a, Math.max(a + step, b - step)]
    }[key];
    if (to) app.setSelection([Math.max(begin, to[0]), Math.min(end, to[1])]);
    return !!to;
};

/** The chat page of the same server opens this page and hands a trace over. */
app.takeFromOpener = () => {
    if (!window.opener || !location.protocol.startsWith('http')) return;
    addEventListener('message', event => {
        if (event.origin !== location.origin || !(event.data?.trace instanceof ArrayBuffer)) return;
        $('drop').hidden = true;
        app.loadFile(new File([event.data.trace], String(event.data.name)));
    });
    window.opener.postMessage('viewer ready', location.origin);
};

/** The other trace of a page that has two. */
app.takeSecond = () => {
    if (!$('view-info-2')) return;
    const data = JSON.parse($('view-info-2').textContent);
    const {tab} = readFragment();
    beside.take(
        readEmbedded(data, fromBase64($('view-data-2').textContent)),
        data.file ?? '',
        tab !== undefined && tab !== 'beside'
    );
    $('view-data-2').remove();
};

app.drawTabs = () => {
    $('tabs').replaceChildren(
        ...app.tabs.map((tab, i) => {
            const button = el(
                'button',
                {
                    role: 'tab',
                    id: 'tab-' + tab.id,
                    'aria-controls': 'panel',
                    title: `${tab.title} (${i + 1})`,
                    'aria-selected': String(tab.id === app.state.tab),
                    onclick: () => app.setTab(tab.id)
                },
                tab.title
            );
            button.dataset.tab = tab.id;
            return button;
        })
    );
};

app.start = () => {
    app.setTheme(null);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => app.setTheme(app.theme));
    $('theme').addEventListener('click', () => {
        app.theme = isDark() ? 'light' : 'dark';
        app.setTheme(app.theme);
    });
    const order = ['timeline', 'heat', 'layers', 'tensors', 'experts', 'roofline', 'graph'];
    app.tabs.sort((a, b) => order.indexOf(a.id) - order.indexOf(b.id));
    app.state.folded = innerWidth <= 700; // the picture first; a link or a press opens it
    app.drawTabs();
    let timer = 0;
    $('filter').addEventListener('input', event => {
        clearTimeout(timer);
        timer = setTimeout(() => app.model && app.setFilter(event.target.value), 120);
    });
    document.addEventListener('keydown', app.key);
    document.querySelector('.keys').addEventListener('click', app.help);
    for (const id of ['open', 'choose']) $(id).addEventListener('click', () => $('file').click());
    $('compare').addEventListener('click', () => $('file-beside').click());
    $('file-beside').addEventListener('change', event => {
        if (event.target.files[0] && app.model) beside.takeFile(event.target.files[0]);
        event.target.value = '';
    });
    $('unfold').addEventListener('click', () => app.setFolded(false));
    $('link').addEventListener('click', event => app.copyLink(event.target));
    $('file').addEventListener('change', event => {
        if (event.target.files[0]) app.loadFile(event.target.files[0]);
        event.target.value = '';
    });
    addEventListener('dragover', event => {
        event.preventDefault();
        $('drop').hidden = false;
        $('drop').classList.add('over');
    });
    addEventListener('dragleave', event => {
        if (!event.relatedTarget) {
            $('drop').classList.remove('over');
            $('drop').hidden = !!app.model;
        }
    });
    addEventListener('drop', event => {
        event.preventDefault();
        $('drop').classList.remove('over');
        $('drop').hidden = !!app.model;
        if (event.dataTransfer.files[0]) app.loadFile(event.dataTransfer.files[0]);
    });
    const overview = $('overview');
    let from = null;
    overview.addEventListener('pointerdown', event => {
        if (!app.model) return;
        overview.setPointerCapture(event.pointerId);
        from = app.overviewTime(event.offsetX);
    });
    overview.addEventListener('pointermove', event => {
        if (from === null) return;
        const to = app.overviewTime(event.clientX - overview.getBoundingClientRect().left);
        app.setSelection([Math.min(from, to), Math.max(from, to)], true);
    });
    overview.addEventListener('pointerup', event => {
        if (from === null) return;
        const to = app.overviewTime(event.clientX - overview.getBoundingClientRect().left),
            little = Math.abs(to - from) < (app.model.end - app.model.begin) / 400;
        app.setSelection(little ? null : [Math.min(from, to), Math.max(from, to)]);
        if (!little && app.state.tab === 'timeline') app.setView([Math.min(from, to), Math.max(from, to)]);
        from = null;
    });
    overview.addEventListener('dblclick', () => {
        app.setSelection(null);
        app.setView([app.model.begin, app.model.end]);
    });
    new ResizeObserver(() => app.render()).observe($('stage'));
    addEventListener('resize', () => app.render());
    addEventListener('hashchange', () => {
        if (!app.model) return;
        const from = readFragment();
        Object.assign(app.state, {
            filter: from.filter,
            phase: from.phase,
            selection: from.selection,
            view: from.view,
            marks: from.marks,
            table: from.table
        });
        links.setTabs(from.tabs);
        app.barVersion = (app.barVersion ?? 0) + 1;
        app.setTab(app.tabs.some(t => t.id === from.tab) ? from.tab : app.state.tab);
        app.changed();
        app.setPin(links.pin(from.pin));
    });
    const info = $('view-info').textContent.trim();
    if (!info) {
        $('drop').hidden = false;
        app.takeFromOpener();
        return;
    }
    try {
        const data = JSON.parse(info);
        app.load(readEmbedded(data, fromBase64($('view-data').textContent)), data.file ?? '');
        $('view-data').remove();
        app.takeSecond();
    } catch (error) {
        $('drop').hidden = false;
        $('drop-error').textContent = `The trace in this page cannot be read: ${error.message}`;
    }
};
app.start();
