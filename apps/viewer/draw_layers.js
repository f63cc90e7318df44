// SPDX-License-Identifier: MIT
// Layers: one row a layer, one column a part (or a role of weights); a weight of the file that was never read is shown
// as MISSING. It is an HTML table, so it needs no separate table view.

const layers = {id: 'layers', title: 'Layers', columns: 'part', value: 'time', html: true};
app.tabs.push(layers);
layers.load = () => {};
layers.recolour = () => {};

layers.toolbar = () => {
    const pick = (label, key, items) =>
        choice(label, items, layers[key], value => {
            layers[key] = value;
            app.render();
        });
    return [
        pick('Cells', 'value', [
            ['time', 'time'],
            ['share', 'share of time'],
            ['bytes', 'bytes'],
            ['rate', 'GB/s'],
            ['wait', 'threads waiting']
        ]),
        pick('Columns', 'columns', [
            ['part', 'parts'],
            ['role', 'weights']
        ]),
        el('span', {class: 'legend', id: 'layers-legend'}),
        el('span', {class: 'grow'}),
        el('span', {class: 'quiet'}, app.perRunText())
    ];
};

/** {rows, columns, cell(row, column)}: sums per layer and column, and what is missing there. */
layers.matrix = () => {
    const {model, sums} = app,
        {trace, steps} = model,
        byRole = layers.columns === 'role',
        cells = new Map(),
        columns = [],
        rows = new Set();
    const cell = (row, column) => {
        const key = row + '/' + column;
        if (!columns.includes(column)) columns.push(column);
        rows.add(row);
        if (!cells.has(key))
            cells.set(key, {row, column, time: 0, bytes: 0, wait: 0, span: 0, count: 0, missing: 0, weights: 0});
        return cells.get(key);
    };
    if (byRole) {
        for (const t of trace.tensors)
            if (t.cls === 0) {
                const c = cell(t.layer, t.roleName);
                c.time += app.tensorSums.time[t.id];
                c.bytes += app.tensorSums.bytes[t.id];
                c.count += app.tensorSums.reads[t.id];
            }
    } else {
        const order = model.parts.map(p => model.name('part', p));
        steps.forEach((step, i) => {
            if (i === steps.length - 1) return;
            const c = cell(step.layer, step.partName);
            c.time += sums.stepTime[i];
            c.bytes += sums.stepBytes[i];
            c.wait += sums.stepWait[i];
            c.span += sums.stepSpan[i];
            c.count += sums.stepCount[i];
        });
        columns.sort((a, b) => order.indexOf(a) - order.indexOf(b));
    }
    if (!model.coverage.filtered)
        for (const t of trace.tensors)
            if (t.cls === 0) {
                const c = cell(t.layer, byRole ? t.roleName : partOf(model, t));
                ++c.weights;
                if (!model.coverage.read[t.id]) ++c.missing;
            }
    return {rows: [...rows].sort((a, b) => a - b), columns, cell: (r, c) => cells.get(r + '/' + c)};
};

layers.number = cell => {
    const runs = Math.max(1, app.sums.runs.size);
    switch (layers.value) {
        case 'time':
            return [cell.time / runs, formatTime(cell.time / runs)];
        case 'share':
            return [cell.time / app.sums.time, formatShare(cell.time / app.sums.time)];
        case 'bytes':
            return [cell.bytes / runs, formatBytes(cell.bytes / runs)];
        case 'rate':
            return [cell.time ? cell.bytes / cell.time : 0, formatRate(cell.bytes, cell.time)];
        default:
            return [cell.span ? cell.wait / cell.span : 0, cell.span ? formatShare(cell.wait / cell.span) : '–'];
    }
};

layers.render = stage => {
    const {model} = app,
        m = layers.matrix(),
        scroll = el('div', {class: 'scroll'});
    if (!m.rows.length) {
        stage.replaceChildren(el('div', {class: 'note'}, el('b', {}, 'No steps and no weights in this trace')));
        return;
    }
    const inLayers = m.rows.filter(r => r >= 0);
    const values = m.rows
        .flatMap(r => m.columns.map(c => m.cell(r, c)).filter(c => c?.count))
        .map(c => [layers.number(c)[0], c.row]);
    // rows outside the layers (embedding, head) would dominate the scale
    const most = values.filter(([, row]) => row >= 0 || !inLayers.length).reduce((m, [v]) => Math.max(m, v), 1e-12);
    const total = row =>
        m.columns.reduce(
            (sum, c) => {
                const cell = m.cell(row, c);
                return cell
                    ? {
                          time: sum.time + cell.time,
                          bytes: sum.bytes + cell.bytes,
                          wait: sum.wait + cell.wait,
                          span: sum.span + cell.span,
                          count: sum.count + cell.count
                      }
                    : sum;
            },
            {time: 0, bytes: 0, wait: 0, span: 0, count: 0}
        );
    const totals = new Map(m.rows.map(r => [r, total(r)])),
        totalMost = Math.max(1e-12, ...inLayers.map(r => layers.number(totals.get(r))[0]));
    const slowest = app.layers?.slow[0]?.key ?? null; // where one exceeds the noise
    const body = m.rows.map(row => {
        const [value, text] = layers.number(totals.get(row)),
            cells = m.columns.map(column => {
                const cell = m.cell(row, column);
                if (!cell || (!cell.count && !cell.missing)) return el('td', {class: 'none'});
                if (cell.missing && cell.missing === cell.weights && !cell.count)
                    return el(
                        'td',
                        {
                            class: 'missing',
                            tabIndex: -1,
                            title: `${cell.missing} weights of layer ${row} were never read`,
                            onclick: () => app.setPin({kind: 'layer', layer: row})
                        },
                        'MISSING'
                    );
                const [v, label] = layers.number(cell),
                    colour = rampColour(v / most);
                const ink = inkOn(colour),
                    td = el(
                        'td',
                        {
                            tabIndex: -1,
                            class: cell.missing ? 'missing' : null,
                            style: cell.missing ? {} : {background: `rgb(${colour.join(' ')})`, color: ink},
                            title: cell.missing
                                ? `${cell.missing} of ${cell.weights} weights were never read`
                                : (row < 0 ? '' : `layer ${row} `) +
                                  `${column}: ${formatTime(cell.time)}, ${formatBytes(cell.bytes)}, ` +
                                  `${formatCount(cell.count)} steps`,
                            onclick: () =>
                                app.setPin(
                                    row < 0
                                        ? {kind: 'part', part: column, layer: row}
                                        : {kind: 'layer', layer: row, part: column}
                                )
                        },
                        cell.missing ? `${cell.missing} MISSING` : label
                    );
                return td;
            });
        return el(
            'tr',
            {class: row === slowest && layers.value === 'time' ? 'slowest' : null},
            el('th', {scope: 'row'}, row < 0 ? 'model' : row),
            el(
                'td',
                {class: 'total'},
                row < 0 ? [] : el('i', {style: {width: `${Math.max(0, (50 * value) / totalMost)}px`}}),
                totals.get(row).count ? text : '–',
                row === slowest && layers.value === 'time' ? ' · slowest' : ''
            ),
            cells
        );
    });
    scroll.append(
        el(
            'table',
            {class: 'layers'},
            el(
                'thead',
                {},
                el(
                    'tr',
                    {},
                    el('th', {scope: 'col'}, 'layer'),
                    el('th', {scope: 'col'}, 'sum'),
                    m.columns.map(c => el('th', {scope: 'col'}, c))
                )
            ),
            el('tbody', {}, body)
        )
    );
    scroll.addEventListener('keydown', event => {
        const cell = event.target.closest('td'),
            moves = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
        if (cell && event.key === 'Enter') {
            cell.click();
            return;
        }
        if (!cell || !moves) return;
        const rows = [...scroll.querySelectorAll('tbody tr')],
            r = rows.indexOf(cell.parentElement) + moves[0],
            c = [...cell.parentElement.cells].indexOf(cell) + moves[1];
        const next = rows[r]?.cells[c];
        if ((next?.tabIndex === -1 && next.tagName === 'TD') || next?.tabIndex === 0) {
            cell.tabIndex = -1;
            next.tabIndex = 0;
            next.focus();
            event.preventDefault();
            event.stopPropagation();
        }
    });
    const firstCell = scroll.querySelector('td[tabindex]');
    if (firstCell) firstCell.tabIndex = 0;
    const at = stage.querySelector('.scroll');
    const [top, left] = at ? [at.scrollTop, at.scrollLeft] : [0, 0];
    stage.replaceChildren(scroll);
    scroll.scrollTop = top;
    scroll.scrollLeft = left;
    const format = {
        time: formatTime,
        share: formatShare,
        bytes: formatBytes,
        rate: v => `${v.toFixed(1)} GB/s`,
        wait: formatShare
    }[layers.value];
    document
        .getElementById('layers-legend')
        ?.replaceChildren(
            rampLegend('0', format(most)),
            model.coverage.missing.length && !model.coverage.filtered
                ? el('b', {style: {color: 'var(--bad)'}}, `${model.coverage.missing.length} weights MISSING`)
                : model.coverage.filtered
                  ? 'filtered trace: missing weights are not known'
                  : `all ${model.coverage.weights} weights read`
        );
};
