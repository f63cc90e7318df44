// SPDX-License-Identifier: MIT
// Roofline: arithmetic intensity against arithmetic rate for groups of steps, under the machine's roofs as recorded in
// the file, or as typed in.

const roofline = {id: 'roofline', title: 'Roofline', by: 'weight', roofs: null};
app.tabs.push(roofline);
roofline.load = model => {
    const number = (...keys) => keys.map(k => Number.parseFloat(model.trace.session[k])).find(v => v > 0) ?? 0;
    const both = number('gmacs'); // of traces that tell one rate
    roofline.roofs = {
        read: number('read_gbps'),
        macs: number('int8_gmacs') || both,
        f32: number('f32_gmacs') || both
    };
    roofline.measured = roofline.roofs.read > 0;
};
roofline.recolour = () => {};
roofline.toolbar = () => {
    const box = (label, key, title) =>
        el(
            'label',
            {title},
            label,
            el('input', {
                type: 'number',
                min: 0,
                step: 'any',
                value: roofline.roofs[key] || '',
                'aria-label': label,
                onchange: event => {
                    roofline.roofs[key] = Math.max(0, Number(event.target.value) || 0);
                    details.render();
                    app.render();
                }
            })
        );
    return [
        el(
            'label',
            {},
            'Groups',
            el(
                'select',
                {
                    'aria-label': 'Groups',
                    onchange: event => {
                        roofline.by = event.target.value;
                        app.render();
                    }
                },
                [
                    ['weight', 'weights'],
                    ['part', 'parts'],
                    ['op', 'ops'],
                    ['kernel', 'kernels'],
                    ['layer', 'layers']
                ].map(([v, text]) => el('option', {value: v, selected: v === roofline.by}, text))
            )
        ),
        box('read GB/s', 'read', 'What memory gives'),
        box('int8 GMAC/s', 'macs', 'Multiply-adds a second of block formats'),
        box('f32 GMAC/s', 'f32', 'Multiply-adds a second of everything else'),
        el('span', {class: 'quiet'}, roofline.measured ? 'roofs as recorded' : 'type your roofs in'),
        el('span', {class: 'grow'}),
        el('span', {class: 'quiet'}, 'area: share of time')
    ];
};
roofline.groups = () => {
    const {model, sums} = app,
        {trace} = model;
    const keys = {
        weight: s =>
            (s.weights.length ? s.weights.map(t => trace.tensors[t].roleName).join(' + ') : s.opName) +
            (s.tokens > 1 ? ` · ${s.tokens} tokens` : ''),
        part: s => s.partName + (s.tokens > 1 ? ` · ${s.tokens} tokens` : ''),
        op: s => s.opName + (s.tokens > 1 ? ` · ${s.tokens} tokens` : ''),
        kernel: s => s.kernel,
        layer: s => (s.layer < 0 ? s.partName : `layer ${s.layer}` + (s.tokens > 1 ? ` · ${s.tokens} tokens` : ''))
    };
    return groupSteps(model, sums, keys[roofline.by])
        .map(g => ({
            ...g,
            intensity: g.streamed ? g.macs / g.streamed : 0,
            rate: g.time ? g.macs / g.time : 0,
            gbs: g.time ? g.streamed / g.time : 0
        }))
        .sort(roofline.by === 'layer' ? (a, b) => layerNumber(a) - layerNumber(b) : (a, b) => b.time - a.time);
};
const layerNumber = group => app.model.steps[group.steps[0]].layer;
/** Steps that reach less of both roofs are bound by neither. */
roofline.overhead = 0.05;
/** The limiting roof and the fraction reached: {name, share}; null where no roof is known. */
roofline.bound = g => {
    const {read, macs, f32} = roofline.roofs,
        over = (amount, peak) => (peak > 0 ? amount / peak : 0),
        bytes = over(g.streamed, read) / g.time,
        products = (over(g.int8Macs, macs) + over(g.macs - g.int8Macs, f32)) / g.time,
        share = Math.max(bytes, products);
    if (!(share > 0)) return null;
    return {name: share < roofline.overhead ? 'overhead' : bytes >= products ? 'memory' : 'arithmetic', share};
};
/** What limits the time of the selection: shares of kernel time by name, of groups by op and the weights they read, as
    `tinfer trace roofline` takes them; and what share of its roof each bound reaches. */
roofline.verdict = () => {
    const {model, sums} = app,
        shares = {memory: 0, arithmetic: 0, overhead: 0, unknown: 0, above: 0},
        reach = {memory: 0, arithmetic: 0};
    for (const g of groupSteps(model, sums, s => s.label)) {
        const bound = roofline.bound(g),
            name = bound?.name ?? 'unknown';
        shares[name] += g.time;
        if (name in reach) reach[name] += g.time * bound.share;
        if (bound?.share > roofline.above) shares.above += g.time;
    }
    for (const name of Object.keys(reach)) reach[name] /= shares[name] || 1;
    for (const name of Object.keys(shares)) shares[name] /= sums.time || 1;
    return {...shares, reach};
};
/** Whether one event moved more than the memory's roof gives in its time, or multiplied more than its arithmetic's. */
roofline.eventAbove = i => {
    const {model} = app,
        e = model.trace.events,
        step = model.steps[e.step[i]],
        bound = roofline.bound({
            time: e.duration[i] || 1,
            streamed: e.bytes[i] + rereads(model, step, i),
            macs: step.macs || 0,
            int8Macs: step.int8 ? step.macs || 0 : 0
        });
    return bound?.share > roofline.above;
};
/** A roof is measured; what exceeds it by more than that is not from memory, or not of that time. */
roofline.above = 1.1;
roofline.boundText = ({name, share}) =>
    `${name} ${formatShare(share)}${share > roofline.above ? ' (above the roof)' : ''}`;
roofline.draw = canvas => {
    const stage = canvas.parentElement,
        width = stage.clientWidth,
        height = stage.clientHeight,
        g = fitCanvas(canvas, width, height);
    const all = roofline.groups(),
        points = all.filter(p => p.macs > 0 && p.intensity > 0),
        {read, macs, f32} = roofline.roofs;
    stage.querySelector('.note')?.remove();
    if (!points.length) {
        stage.append(
            el(
                'div',
                {class: 'note'},
                el('b', {}, 'No step of the selection says its arithmetic'),
                el('span', {}, 'The table of the same name lists bytes a second of all groups (T).')
            )
        );
        return;
    }
    const left = 74,
        top = 18,
        w = width - left - 26,
        h = height - top - 52,
        logs = list => [Math.log10(Math.min(...list)), Math.log10(Math.max(...list))];
    let [x0, x1] = logs([...points.map(p => p.intensity), ...(read && macs ? [macs / read] : [])]),
        [y0, y1] = logs([...points.map(p => p.rate), ...(macs ? [macs] : [])]);
    x0 = Math.floor(x0 - 0.25);
    x1 = Math.ceil(x1 + 0.3);
    y0 = Math.floor(y0 - 0.2);
    y1 = Math.ceil(y1 + 0.15);
    const x = v => left + ((Math.log10(v) - x0) / (x1 - x0)) * w,
        y = v => top + h - ((Math.log10(v) - y0) / (y1 - y0)) * h;
    const digits = v => (v >= 1 ? String(v) : v.toFixed(Math.round(-Math.log10(v))));
    for (let d = x0; d <= x1; ++d)
        for (const k of [1, 2, 5]) {
            const v = k * 10 ** d;
            if (d + Math.log10(k) > x1) continue;
            g.fillStyle = themeColour('line');
            g.globalAlpha = k === 1 ? 1 : 0.45;
            g.fillRect(x(v), top, 1, h);
            g.globalAlpha = 1;
            if (k === 1) {
                g.fillStyle = themeColour('quiet');
                g.textAlign = 'center';
                g.fillText(digits(v), x(v), top + h + 13);
            }
        }
    for (let d = y0; d <= y1; ++d)
        for (const k of [1, 2, 5]) {
            const v = k * 10 ** d;
            if (d + Math.log10(k) > y1) continue;
            g.fillStyle = themeColour('line');
            g.globalAlpha = k === 1 ? 1 : 0.45;
            g.fillRect(left, y(v), w, 1);
            g.globalAlpha = 1;
            if (k === 1) {
                g.fillStyle = themeColour('quiet');
                g.textAlign = 'right';
                g.fillText(digits(v), left - 8, y(v));
            }
        }
    g.fillStyle = themeColour('quiet');
    g.textAlign = 'center';
    g.fillText('multiply-adds a byte', left + w / 2, height - 14);
    g.save();
    g.translate(16, top + h / 2);
    g.rotate(-Math.PI / 2);
    g.fillText('GMAC/s', 0, 0);
    g.restore();
    g.textAlign = 'left';
    g.save();
    g.beginPath();
    g.rect(left, top, w, h);
    g.clip();
    if (read) {
        const knee = macs ? macs / read : 10 ** x1;
        g.strokeStyle = themeColour('bad');
        g.lineWidth = 2;
        g.beginPath();
        g.moveTo(x(10 ** x0), y(10 ** x0 * read));
        g.lineTo(x(knee), y(knee * read));
        if (macs) g.lineTo(left + w, y(macs));
        g.stroke();
        g.fillStyle = themeColour('bad');
        const at = Math.min(knee, 10 ** y1 / read) * 0.85, // away from the products of one token
            slope = Math.atan2(y(read) - y(10 * read), x(10) - x(1));
        g.save();
        g.translate(x(at), y(at * read));
        g.rotate(-slope);
        g.textAlign = 'right';
        g.fillText(`memory ${read.toFixed(1)} GB/s`, 0, -11);
        g.restore();
        if (macs) {
            g.textAlign = 'right';
            g.fillText(`int8 arithmetic ${macs.toFixed(0)} GMAC/s`, left + w - 8, y(macs) - 9);
            if (f32 && f32 < 0.9 * macs && f32 / read > 10 ** x0 && f32 > 10 ** y0) {
                g.globalAlpha = 0.6;
                g.fillRect(x(f32 / read), y(f32), left + w - x(f32 / read), 1.2);
                g.fillText(`f32 ${f32.toFixed(0)} GMAC/s`, left + w - 8, y(f32) + 10);
                g.globalAlpha = 1;
            }
            g.textAlign = 'left';
        }
    }
    g.restore();
    const time = app.sums.time,
        taken = [];
    roofline.dots = [];
    points.forEach(p => {
        const r = 3.5 + 26 * Math.sqrt(p.time / time),
            px = x(p.intensity),
            py = y(p.rate),
            colour = roofline.by === 'layer' ? themeColour('accent') : partColour(app.model.name('part', p.part));
        g.fillStyle = g.strokeStyle = colour;
        g.globalAlpha = 0.5;
        g.beginPath();
        g.arc(px, py, r, 0, 7);
        g.fill();
        g.globalAlpha = 1;
        g.lineWidth = app.state.pin?.kind === 'group' && app.state.pin.label === p.label ? 3.5 : 1.4;
        g.stroke();
        roofline.dots.push({p, px, py, r});
    });
    g.fillStyle = themeColour('text');
    for (const {p, px, py, r} of roofline.dots.slice(0, 24)) {
        // labels where they have room, the slowest first
        const textWidth = Math.min(220, g.measureText(p.label).width);
        for (const [dx, dy] of [
            [r + 6, 0],
            [-r - 6 - textWidth, 0],
            [-textWidth / 2, -r - 9],
            [-textWidth / 2, r + 10],
            [r + 4, -r - 2],
            [r + 4, r + 4]
        ]) {
            const box = [px + dx, py + dy - 8, px + dx + textWidth, py + dy + 8];
            if (box[0] < left || box[2] > left + w || box[1] < top || box[3] > top + h) continue;
            if (taken.some(b => box[0] < b[2] && box[2] > b[0] && box[1] < b[3] && box[3] > b[1])) continue;
            if (
                roofline.dots.some(
                    o =>
                        o.p !== p &&
                        o.px + o.r > box[0] &&
                        o.px - o.r < box[2] &&
                        o.py + o.r > box[1] &&
                        o.py - o.r < box[3]
                )
            )
                continue;
            g.fillText(fitText(g, p.label, 220), px + dx, py + dy);
            taken.push(box);
            break;
        }
    }
};
roofline.pointer = (kind, event, x, y) => {
    const hit = (roofline.dots ?? [])
            .filter(d => Math.hypot(d.px - x, d.py - y) <= d.r + 3)
            .sort((a, b) => a.r - b.r)[0]?.p,
        bound = hit && roofline.bound(hit);
    if (kind === 'move')
        showTip(
            event,
            hit && [
                hit.label,
                `${formatTime(hit.time)} (${formatShare(hit.time / app.sums.time)}) in ${formatCount(hit.count)} steps`,
                `${hit.gbs.toFixed(1)} GB/s · ${hit.rate.toFixed(1)} GMAC/s · ${hit.intensity.toFixed(2)} MAC a byte`,
                ...(bound
                    ? [
                          bound.name === 'overhead'
                              ? `overhead: ${formatShare(bound.share)} of the nearer roof`
                              : `${formatShare(bound.share)} of the roof of ${bound.name}` +
                                (bound.share > roofline.above ? ': from a cache, or counted with a neighbour' : '')
                      ]
                    : [])
            ]
        );
    else if (kind === 'up') app.setPin(hit ? {kind: 'group', label: hit.label, steps: hit.steps} : null);
};
roofline.key = key => {
    if (key !== 'ArrowRight' && key !== 'ArrowLeft') return false;
    const list = roofline.dots ?? [],
        at = list.findIndex(d => d.p.label === app.state.pin?.label),
        next = list[Math.max(0, Math.min(list.length - 1, at + (key === 'ArrowRight' ? 1 : -1)))];
    if (next) app.setPin({kind: 'group', label: next.p.label, steps: next.p.steps});
    return true;
};
roofline.table = () => ({
    columns: ['*group', 'time', 'share', 'steps', 'bytes', 'GB/s', 'GMAC/s', 'MAC a byte', '*nearer roof'],
    rows: roofline
        .groups()
        .slice(0, 1000)
        .map(g => {
            const bound = roofline.bound(g);
            return {
                cells: [
                    g.label,
                    formatTime(g.time),
                    formatShare(g.time / app.sums.time),
                    formatCount(g.count),
                    formatBytes(g.streamed),
                    g.gbs.toFixed(1),
                    g.macs ? g.rate.toFixed(1) : '–',
                    g.macs ? g.intensity.toFixed(2) : '–',
                    bound ? roofline.boundText(bound) : '–'
                ],
                pick: () => app.setPin({kind: 'group', label: g.label, steps: g.steps})
            };
        })
});
