// SPDX-License-Identifier: MIT
// Heat map: pointer, wheel, keys, and its table.

heat.at = (x, y) => {
    const {left, top, w, h} = heat.box ?? {},
        fy = (y - top) / h,
        fx = (x - left) / w;
    const row = heat.axisRows().find(r => fy >= r.a && fy < r.b);
    return {row, fx, fy};
};
heat.tip = (x, y) => {
    const {row, fx, fy} = heat.at(x, y),
        t = row?.tensor,
        image = heat.image;
    if (!t || fy < 0 || fy > 1) return null;
    const lines = [t.label, `${t.typeName} ${t.shape} · ${formatBytes(t.bytes)}`];
    if (t.place >= 0) lines.push(`file offset ${formatCount(t.offset)}`);
    if (t.cls === 0 && !app.model.coverage.read[t.id]) lines.push('never read');
    if (fx >= 0 && fx < 1 && image) {
        const v = image.cells[Math.floor(fy * image.rows) * image.columns + Math.floor(fx * image.columns)];
        const run = heat.columns === 'run' ? app.model.trace.runs[Math.floor(fx * app.model.trace.runs.length)] : null;
        const where = run ? `${app.model.name('phase', run.phase)} ${run.decode}: ` : '',
            what = {reuse: 'read since the last touch', cold: 'not resident'}[heat.mode] ?? 'in this cell';
        lines.push(`${where}${v > 0 ? formatBytes(v) : 'nothing'} ${what}`);
    }
    return lines;
};
heat.pointer = (kind, event, x, y) => {
    const {row, fx} = heat.at(x, y);
    if (kind === 'down') heat.drag = {x, y, names: x < heat.gutter, nowX: x, nowY: y, moved: false};
    else if (kind === 'move' && heat.drag) {
        heat.drag.nowX = Math.max(heat.gutter, x);
        heat.drag.nowY = y;
        heat.drag.moved ||= Math.abs(x - heat.drag.x) + Math.abs(y - heat.drag.y) > 4;
        if (heat.drag.moved) app.render();
    } else if (kind === 'move') showTip(event, heat.tip(x, y));
    else if (kind === 'up' && heat.drag) {
        const drag = heat.drag;
        heat.drag = null;
        if (!drag.moved) {
            app.setPin(row ? {kind: 'tensor', tensor: row.tensor.id} : null);
            return;
        }
        if (drag.names) {
            heat.filterRows(Math.min(drag.y, y), Math.max(drag.y, y));
            return;
        }
        const a = Math.max(0, Math.min(heat.at(drag.x, y).fx, fx)),
            b = Math.min(1, Math.max(heat.at(drag.x, y).fx, fx));
        const span = heat.span(),
            runs = app.model.trace.runs;
        if (span.byTime) app.setSelection([span.t0 + a * (span.t1 - span.t0), span.t0 + b * (span.t1 - span.t0)]);
        else if (runs.length)
            app.setSelection([
                runs[Math.min(runs.length - 1, Math.floor(a * runs.length))].begin,
                runs[Math.min(runs.length - 1, Math.ceil(b * runs.length) - 1)].end
            ]);
    } else if (kind === 'double') {
        heat.low = 0;
        heat.high = 1;
        app.render();
    }
};
/** Rows brushed on the axis become filter terms: whole layers if possible, else names. */
heat.filterRows = (y0, y1) => {
    const {top, h} = heat.box,
        list = heat
            .axisRows()
            .filter(r => r.b * h + top > y0 && r.a * h + top < y1)
            .map(r => r.tensor);
    if (!list.length) return;
    const layers = [...new Set(list.map(t => t.layer))].filter(l => l >= 0);
    const word =
        list.length <= 6 && list.every(t => t.name && !/[\s,]/.test(t.name))
            ? `tensor:${list.map(t => t.name).join(',')}`
            : layers.length
              ? `layer:${Math.min(...layers)}-${Math.max(...layers)}`
              : '';
    if (word)
        app.setFilter([...app.state.filter.split(/\s+/).filter(w => w && !/^(tensor|layer):/.test(w)), word].join(' '));
};
heat.zoomRows = (factor, at) => {
    const centre = heat.low + at * (heat.high - heat.low);
    heat.low = Math.max(0, centre - (centre - heat.low) * factor);
    heat.high = Math.min(1, centre + (heat.high - centre) * factor);
    if (heat.high - heat.low < 1e-7) heat.high = heat.low + 1e-7;
    app.render();
};
heat.wheel = (event, x, y) =>
    heat.zoomRows(
        Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.0035),
        Math.max(0, Math.min(1, (y - heat.box.top) / heat.box.h))
    );
heat.key = key => {
    const size = heat.high - heat.low,
        move = d => {
            const s = Math.max(-heat.low, Math.min(1 - heat.high, d * size));
            heat.low += s;
            heat.high += s;
            app.render();
        };
    const keys = {
        w: () => heat.zoomRows(0.6, 0.5),
        s: () => heat.zoomRows(1 / 0.6, 0.5),
        ArrowUp: () => move(-0.2),
        ArrowDown: () => move(0.2),
        0: () => {
            heat.low = 0;
            heat.high = 1;
            app.render();
        }
    };
    if (!keys[key]) return false;
    keys[key]();
    return true;
};
heat.table = () => tensors.tableOf(1000);
