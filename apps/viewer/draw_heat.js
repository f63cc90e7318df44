// SPDX-License-Identifier: MIT
// Heat map: which bytes of the file were read, and when. Rows are file offsets or tensors, columns runs or time; unread
// bytes stay blank. A worker fills the bins; without workers the page does, in slices of 8 ms.

const heat = {
    id: 'heat',
    title: 'Heat map',
    rows: 'file',
    columns: 'time',
    mode: 'bytes',
    low: 0,
    high: 1,
    image: null,
    job: 0
};
app.tabs.push(heat);

heat.load = model => {
    heat.weights = model.trace.tensors.filter(t => t.place >= 0).sort((a, b) => a.place - b.place);
    heat.full = heat.weights.length
        ? [heat.weights[0].place, heat.weights.reduce((m, t) => Math.max(m, t.place + t.bytes), 0)]
        : [0, 1];
    heat.low = 0;
    heat.high = 1;
    heat.image = null;
    heat.worker?.terminate();
    heat.worker = null;
    heat.noWorker = false;
};
heat.recolour = () => {
    heat.image = null;
};

heat.toolbar = () => {
    const pick = (label, key, items) =>
        choice(label, items, heat[key], value => {
            heat[key] = value;
            heat.image = null;
            if (key === 'rows') {
                heat.low = 0;
                heat.high = 1;
            }
            app.render();
        });
    const noPages = !app.model.trace.pages.length;
    return [
        pick('Rows', 'rows', [
            ['file', 'file offset'],
            ['registry', 'tensors']
        ]),
        pick('Columns', 'columns', [
            ['time', 'time'],
            ['run', 'runs']
        ]),
        pick('Colour', 'mode', [
            ['bytes', 'bytes read'],
            ['reuse', 'since last touch'],
            ['cold', 'cold pages', noPages]
        ]),
        el('span', {class: 'legend', id: 'heat-legend'}),
        el('span', {class: 'grow'})
    ];
};

heat.gutter = 176;
heat.head = 26;
heat.axisRows = () => {
    const list = heat.rows === 'file' ? heat.weights : app.model.trace.tensors;
    const size = heat.rows === 'file' ? heat.full[1] - heat.full[0] : list.length;
    return list.map((t, i) => {
        const a = heat.rows === 'file' ? (t.place - heat.full[0]) / size : i / size;
        const b = heat.rows === 'file' ? (t.place + t.bytes - heat.full[0]) / size : (i + 1) / size;
        return {tensor: t, a: (a - heat.low) / (heat.high - heat.low), b: (b - heat.low) / (heat.high - heat.low)};
    });
};

/** The column boundaries: times, or indices of runs. */
heat.span = () => {
    const {model, state} = app,
        [t0, t1] = state.view && heat.columns === 'time' ? app.view() : [model.begin, model.end];
    return heat.columns === 'time'
        ? {byTime: true, t0, t1, run0: 0, run1: 1}
        : {byTime: false, t0: 0, t1: 1, run0: 0, run1: Math.max(1, model.trace.runs.length)};
};

heat.request = (width, height) => {
    const {model, masks} = app,
        trace = model.trace,
        e = trace.events,
        r = trace.ranges,
        span = heat.span();
    const columns = Math.max(1, span.byTime ? Math.floor(width / 2) : Math.min(trace.runs.length, width)),
        rows = Math.max(1, Math.floor(height));
    const key = [
        columns,
        rows,
        heat.rows,
        heat.columns,
        heat.mode,
        heat.low,
        heat.high,
        span.t0,
        span.t1,
        app.maskVersion
    ].join();
    if (heat.image?.key === key || heat.pending === key) return;
    heat.pending = key;
    const range = heat.full[1] - heat.full[0];
    const axis =
        heat.rows === 'file'
            ? {
                  byFile: true,
                  rows,
                  low: heat.full[0] + heat.low * range,
                  scale: rows / ((heat.high - heat.low) * range),
                  mask: masks.tensors
              }
            : {
                  byFile: false,
                  mask: masks.tensors,
                  rowOf: trace.tensors.map((t, i) =>
                      Math.floor((((i + 0.5) / trace.tensors.length - heat.low) / (heat.high - heat.low)) * rows)
                  )
              };
    const spread = axis.byFile
        ? null
        : heat.axisRows().map(({a, b}) => [Math.max(0, Math.floor(a * rows)), Math.min(rows, Math.ceil(b * rows))]);
    const finish = cells => {
        if (heat.pending !== key) return;
        if (spread) {
            // a tensor's row fills its band
            const wide = new Float64Array(cells.length);
            spread.forEach(([a, b], i) => {
                const from = axis.rowOf[i];
                if (from < 0 || from >= rows) return;
                for (let y = a; y < b; ++y)
                    for (let x = 0; x < columns; ++x)
                        wide[y * columns + x] = Math.max(wide[y * columns + x], cells[from * columns + x]);
            });
            cells = wide;
        }
        heat.pending = null;
        heat.image = paintHeat(key, cells, columns, rows);
        app.render();
    };
    if (heat.mode === 'cold') {
        finish(coldCells(axis, span, rows, columns));
        return;
    }
    const job = Object.assign(heatExtents(model, axis), span, {
        rows,
        columns,
        reuse: heat.mode === 'reuse',
        stepMask: masks.steps,
        runMask: masks.runs
    });
    const data = {
        step: e.step,
        begin: e.begin,
        run: e.run,
        firstRange: e.firstRange,
        endRange: e.endRange,
        rangeOperand: r.operand,
        rangeOffset: r.offset,
        rangeLength: r.length,
        rangePieces: r.pieces,
        rangeStride: r.stride
    };
    const id = ++heat.job;
    if (!heat.worker && !heat.noWorker) {
        try {
            const text =
                `"use strict";\n${heatAccumulate}\nlet data = null;\nonmessage = ({data: m}) => {\n` +
                '    if (m.data) { data = m.data; return; }\n' +
                '    const job = Object.assign({}, data, m.job, {\n' +
                '        cells: new Float64Array(m.job.rows * m.job.columns),\n' +
                '        last: new Float64Array(m.job.rows).fill(-1), state: new Float64Array(1)});\n' +
                '    heatAccumulate(job, 0, job.step.length);\n' +
                '    postMessage({id: m.id, cells: job.cells}, [job.cells.buffer]);\n};';
            heat.worker = new Worker(URL.createObjectURL(new Blob([text], {type: 'text/javascript'})));
            heat.worker.postMessage({data});
            heat.worker.onerror = () => {
                heat.worker = null;
                heat.noWorker = true;
                heat.pending = null;
                app.render();
            };
        } catch {
            heat.worker = null;
            heat.noWorker = true;
        }
    }
    if (heat.worker) {
        heat.worker.onmessage = ({data: m}) => {
            if (m.id === heat.job) finish(m.cells);
        };
        heat.worker.postMessage({id, job});
        return;
    }
    Object.assign(job, data, {
        cells: new Float64Array(rows * columns),
        last: new Float64Array(rows).fill(-1),
        state: new Float64Array(1)
    });
    let at = 0;
    const slice = () => {
        if (id !== heat.job) return;
        const until = performance.now() + 8;
        while (at < e.count && performance.now() < until) {
            const to = Math.min(e.count, at + 2000);
            heatAccumulate(job, at, to);
            at = to;
        }
        if (at < e.count) setTimeout(slice);
        else finish(job.cells);
    };
    slice();
};

/** Pages that were not in memory before a step, over the tensors they belong to. */
function coldCells(axis, span, rows, columns) {
    const {trace, steps} = app.model,
        cells = new Float64Array(rows * columns);
    for (const p of trace.pages) {
        const run = trace.runs.findIndex(r => p.event >= r.firstEvent && p.event < r.firstEvent + (r.ev1 - r.ev0));
        if (run < 0 || p.unknown) continue;
        const i = trace.runs[run].ev0 + p.event - trace.runs[run].firstEvent,
            t = trace.tensors[steps[trace.events.step[i]].operands[p.operand]?.ref];
        if (!t || (axis.byFile && t.place < 0)) continue;
        const x = Math.floor(
            span.byTime
                ? ((trace.events.begin[i] - span.t0) / (span.t1 - span.t0)) * columns
                : ((run - span.run0) / (span.run1 - span.run0)) * columns
        );
        if (x < 0 || x >= columns) continue;
        const a = axis.byFile ? Math.floor((t.place - axis.low) * axis.scale) : axis.rowOf[t.id];
        const b = axis.byFile ? Math.max(a + 1, Math.ceil((t.place + t.bytes - axis.low) * axis.scale)) : a + 1;
        for (let y = Math.max(0, a); y < Math.min(rows, b); ++y)
            cells[y * columns + x] += ((p.pages - p.resident) * p.page) / (b - a);
    }
    return cells;
}

function paintHeat(key, cells, columns, rows) {
    let most = 0,
        least = Infinity;
    for (const v of cells)
        if (v > 0) {
            if (v > most) most = v;
            if (v < least) least = v;
        }
    if (most > 0) least = Math.max(least, most / 1e5);
    const canvas = document.createElement('canvas');
    canvas.width = columns;
    canvas.height = rows;
    const g = canvas.getContext('2d'),
        image = g.createImageData(columns, rows),
        lut = Array.from({length: 256}, (_, i) => rampColour(i / 255));
    const scale = most > least ? 1 / Math.log(most / least) : 0;
    for (let i = 0; i < cells.length; ++i) {
        if (!(cells[i] > 0)) continue;
        const c = lut[Math.round(255 * (scale ? Math.max(0, Math.log(cells[i] / least) * scale) : 1))];
        image.data[4 * i] = c[0];
        image.data[4 * i + 1] = c[1];
        image.data[4 * i + 2] = c[2];
        image.data[4 * i + 3] = 255;
    }
    g.putImageData(image, 0, 0);
    return {key, canvas, cells, columns, rows, most, least, dark: isDark()};
}

heat.draw = canvas => {
    const stage = canvas.parentElement,
        width = stage.clientWidth,
        height = stage.clientHeight,
        g = fitCanvas(canvas, width, height);
    const left = heat.gutter,
        top = heat.head,
        w = Math.max(10, width - left - 8),
        h = Math.max(10, height - top - 6);
    if (heat.image && heat.image.dark !== isDark()) heat.image = null;
    heat.box = {left, top, w, h};
    heat.request(w, h);
    g.fillStyle = themeColour('surface');
    g.fillRect(left, top, w, h);
    if (heat.image) {
        g.imageSmoothingEnabled = false;
        g.drawImage(heat.image.canvas, left, top, w, h);
        const unit =
            heat.mode === 'cold' ? 'bytes not resident' : heat.mode === 'reuse' ? 'since the last touch' : 'in a cell';
        document
            .getElementById('heat-legend')
            ?.replaceChildren(
                heat.image.most
                    ? rampLegend(
                          formatBytes(heat.image.least),
                          `${formatBytes(heat.image.most)} ${unit}`,
                          heat.mode === 'reuse' ? 'first touch or none' : 'not read'
                      )
                    : 'nothing was read'
            );
    }
    g.fillStyle = themeColour('bg'); // boundaries of layers and runs, if there is room
    g.globalAlpha = 0.45;
    let before = null;
    for (const {tensor: t, a} of heat.axisRows()) {
        if (before && (t.layer !== before.layer || t.cls !== before.cls) && a > 0 && a < 1)
            g.fillRect(left, Math.round(top + a * h), w, 1);
        before = t;
    }
    const runs = app.model.trace.runs;
    if (heat.columns === 'run' ? runs.length < w / 5 : runs.length < w / 12)
        for (const run of runs) {
            const x = left + heat.columnOf(run.begin) * w;
            if (x > left + 1 && x < left + w) g.fillRect(Math.round(x), top, 1, h);
        }
    g.globalAlpha = 1;
    drawHeatAxes(g, left, top, w, h);
    const {selection} = app.state,
        band = heat.drag?.moved ? heat.drag : null;
    if (selection && !band) {
        const [a, b] = selection.map(t => left + heat.columnOf(t) * w);
        g.strokeStyle = themeColour('accent');
        g.lineWidth = 2;
        g.strokeRect(Math.max(left, a), top, Math.min(left + w, b) - Math.max(left, a), h);
    }
    if (band) {
        g.fillStyle = themeColour('accent');
        g.globalAlpha = 0.25;
        if (band.names) g.fillRect(0, Math.min(band.y, band.nowY), left, Math.abs(band.nowY - band.y));
        else g.fillRect(Math.min(band.x, band.nowX), top, Math.abs(band.nowX - band.x), h);
        g.globalAlpha = 1;
    }
};

/** 0 … 1 across the columns, for a time. */
heat.columnOf = t => {
    const {model} = app,
        span = heat.span();
    if (span.byTime) return (t - span.t0) / (span.t1 - span.t0);
    const runs = model.trace.runs,
        i = runs.findIndex(r => r.end > t);
    if (i < 0) return 1;
    return (i + Math.max(0, Math.min(1, (t - runs[i].begin) / Math.max(1, runs[i].end - runs[i].begin)))) / runs.length;
};

function drawHeatAxes(g, left, top, w, h) {
    const {model} = app,
        rows = heat.axisRows().filter(r => r.b > 0 && r.a < 1);
    let lastLabel = -Infinity,
        lastLayer = NaN;
    g.textAlign = 'right';
    for (const {tensor: t, a, b} of rows) {
        const y0 = top + Math.max(0, a) * h,
            y1 = top + Math.min(1, b) * h,
            missing = t.cls === 0 && !model.coverage.read[t.id];
        if (missing && y1 - y0 > 0.6) {
            g.fillStyle = themeColour('bad');
            g.fillRect(left - 5, y0, 4, Math.max(1, y1 - y0));
        }
        if (t.layer !== lastLayer && y0 > top) {
            g.fillStyle = themeColour('line');
            g.fillRect(left - 6, Math.round(y0), 4, 1);
        }
        lastLayer = t.layer;
        if (y1 - y0 > 12 && y0 >= lastLabel) {
            g.fillStyle = missing ? themeColour('bad') : themeColour('text');
            g.fillText(fitText(g, t.label.replace(/\.weight$/, ''), left - 16), left - 8, (y0 + y1) / 2);
            lastLabel = y1;
        }
    }
    // layer names, if there is no room for tensor names
    const bands = new Map();
    for (const {tensor: t, a, b} of rows) {
        const band = bands.get(t.layer + '/' + t.cls) ?? {a, b, layer: t.layer, cls: t.cls, single: false};
        band.a = Math.min(band.a, a);
        band.b = Math.max(band.b, b);
        band.single ||= (Math.min(1, b) - Math.max(0, a)) * h > 12;
        bands.set(t.layer + '/' + t.cls, band);
    }
    let last = -Infinity;
    for (const band of [...bands.values()].sort((x, y) => x.a - y.a)) {
        if (band.single || band.layer < 0) continue;
        const y = top + ((Math.max(0, band.a) + Math.min(1, band.b)) / 2) * h;
        if (y - last < 14 || band.b - band.a > 0.5) continue;
        g.fillStyle = themeColour('quiet');
        g.fillText(`${band.cls ? (CLASS_NAMES[band.cls] ?? '') : 'layer'} ${band.layer}`, left - 10, y);
        last = y;
    }
    g.textAlign = 'center';
    g.fillStyle = themeColour('quiet');
    const span = heat.span();
    if (span.byTime) {
        const step = niceStep(span.t1 - span.t0, w / 90);
        const first = Math.ceil((span.t0 - model.begin) / step);
        for (let n = 0; n < 200 && (first + n) * step < span.t1 - model.begin; ++n) {
            const t = (first + n) * step;
            const x = left + ((t + model.begin - span.t0) / (span.t1 - span.t0)) * w;
            if (x > left + 20 && x < left + w - 20) g.fillText(axisTime(t, step, span.t1 - model.begin), x, 12);
        }
    } else {
        const runs = model.trace.runs,
            step = Math.max(1, niceStep(runs.length, w / 70));
        for (let i = 0; i < runs.length; i += Math.round(step)) {
            const x = left + ((i + 0.5) / runs.length) * w;
            if (x < left + w - 14)
                g.fillText(
                    runs[i].tokens > 1 && runs.length < 60
                        ? `${model.name('phase', runs[i].phase)}`
                        : String(runs[i].decode),
                    x,
                    12
                );
        }
        g.textAlign = 'right';
        g.fillText('run', left - 10, 12);
    }
    g.textAlign = 'left';
}
