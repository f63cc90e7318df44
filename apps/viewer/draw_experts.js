// SPDX-License-Identifier: MIT
// Experts: how often the router chose each, by layer; overlap of consecutive tokens; hit rate of an expert cache.

const experts = {id: 'experts', title: 'Experts', sorted: false};
app.tabs.push(experts);
experts.load = () => {
    experts.picks = undefined;
};
experts.recolour = () => {
    experts.picks = undefined;
};
experts.get = () => {
    const key = app.sums;
    if (experts.picks === undefined || experts.of !== key) {
        experts.of = key;
        experts.picks = expertPicks(app.model, app.masks, app.sums);
        if (experts.picks) {
            const p = experts.picks;
            p.total = new Float64Array(p.experts);
            for (let l = 0; l < p.layers.length; ++l)
                for (let x = 0; x < p.experts; ++x) p.total[x] += p.counts[l * p.experts + x];
            p.overlap = expertOverlap(p);
            p.curve = expertCacheCurve(p);
            p.tokensAll = p.tokens.reduce((a, b) => a + b, 0);
            p.used = p.total.reduce((a, b) => a + b, 0) / Math.max(1, p.tokensAll);
        }
    }
    return experts.picks;
};
experts.toolbar = () => [
    el(
        'label',
        {},
        el('input', {
            type: 'checkbox',
            checked: experts.sorted,
            onchange: event => {
                experts.sorted = event.target.checked;
                app.render();
            }
        }),
        'sort by load'
    ),
    el('span', {class: 'legend', id: 'experts-legend'}),
    el('span', {class: 'grow'}),
    el('span', {class: 'quiet', id: 'experts-sum'})
];

experts.draw = canvas => {
    const stage = canvas.parentElement,
        width = stage.clientWidth,
        height = stage.clientHeight,
        g = fitCanvas(canvas, width, height),
        p = experts.get();
    stage.querySelector('.note')?.remove();
    document.getElementById('experts-legend')?.replaceChildren();
    document.getElementById('experts-sum')?.replaceChildren();
    if (!p || !p.tokensAll) {
        stage.append(
            el(
                'div',
                {class: 'note'},
                el('b', {}, p ? 'No step of the selection chose experts' : 'This model has no experts'),
                el(
                    'span',
                    {},
                    p
                        ? 'Clear the filter or the selection.'
                        : 'In a mixture of experts this page shows which of them the router chose, layer by layer.'
                )
            )
        );
        return;
    }
    const low = p.overlap.perRun.length > 1 || p.curve.length ? Math.min(210, height * 0.36) : 0;
    const left = 64,
        top = 52,
        w = width - left - 78,
        h = height - top - low - 34,
        n = p.experts,
        rows = p.layers.length;
    experts.box = {left, top, w, h};
    let most = 0;
    const share = (l, x) => (p.tokens[l] ? p.counts[l * n + x] / p.tokens[l] : 0);
    for (let l = 0; l < rows; ++l) for (let x = 0; x < n; ++x) most = Math.max(most, share(l, x));
    experts.order = p.layers.map((_, l) => {
        const list = Array.from({length: n}, (_, x) => x);
        return experts.sorted ? list.sort((a, b) => share(l, b) - share(l, a) || a - b) : list;
    });
    const cw = w / n,
        ch = h / rows,
        gap = cw > 4 && ch > 4 ? 1 : 0;
    g.textAlign = 'right';
    for (let l = 0; l < rows; ++l) {
        for (let c = 0; c < n; ++c) {
            const v = share(l, experts.order[l][c]);
            g.fillStyle = v ? rampCss(v / most) : themeColour('surface');
            g.fillRect(left + c * cw, top + l * ch, cw - gap, ch - gap);
        }
        if (ch > 11 || l % Math.ceil(13 / ch) === 0) {
            g.fillStyle = themeColour('quiet');
            g.fillText(String(p.layers[l]), left - 8, top + (l + 0.5) * ch);
        }
        const overlap = p.overlap.perLayer[l];
        if (ch > 9 && Number.isFinite(overlap)) {
            g.textAlign = 'left';
            g.fillStyle = themeColour('quiet');
            g.fillText(formatShare(overlap), left + w + 10, top + (l + 0.5) * ch);
            g.textAlign = 'right';
        }
    }
    g.fillStyle = themeColour('quiet');
    g.fillText('layer', left - 8, top - 10);
    g.textAlign = 'left';
    g.fillText('kept', left + w + 10, top - 10);
    if (!experts.sorted) {
        // load of each expert over all layers, above its column
        const high = Math.max(...p.total),
            mean = (p.tokensAll * p.used) / n;
        g.textAlign = 'center';
        for (let x = 0; x < n; ++x) {
            const bar = (p.total[x] / high) * 22;
            g.fillStyle = p.total[x] > 2 * mean ? '#d55e00' : themeColour('quiet');
            g.globalAlpha = p.total[x] > 2 * mean ? 1 : 0.5;
            g.fillRect(left + x * cw, top - 4 - bar, Math.max(1, cw - gap - 0.5), bar);
            g.globalAlpha = 1;
            if (p.total[x] > 2 * mean) {
                g.fillStyle = themeColour('text');
                g.fillText(String(x), left + (x + 0.5) * cw, top - 34);
            }
        }
    }
    g.textAlign = 'center';
    g.fillStyle = themeColour('quiet');
    const step = Math.max(1, Math.round(niceStep(n, w / 40)));
    for (let x = 0; x < n; x += step) g.fillText(String(x), left + (x + 0.5) * cw, top + h + 10);
    g.fillText(experts.sorted ? 'rank by load' : 'expert', left + w / 2, top + h + 24);
    g.textAlign = 'left';
    document
        .getElementById('experts-legend')
        ?.replaceChildren(rampLegend('0 %', `${formatShare(most)} of tokens`, 'never chosen'));
    // the last layer of a prompt sees fewer tokens than the others
    const tokens = [...new Set([Math.min(...p.tokens), Math.max(...p.tokens)])].map(formatCount).join(' to ');
    document
        .getElementById('experts-sum')
        ?.replaceChildren(`${n} experts a layer, ${p.used.toFixed(1)} a token · ${tokens} tokens a layer`);
    if (low > 90) {
        const y = height - low + 12,
            half = (width - 40) / 2;
        curve(
            g,
            20,
            y,
            half - 20,
            low - 24,
            p.overlap.perRun.map((o, i) => [i, o.share]),
            'experts kept from the token before',
            formatShare,
            p.overlap.perRun.length > 1 ? `token 1 … ${p.overlap.perRun.length}` : ''
        );
        curve(
            g,
            30 + half,
            y,
            half - 20,
            low - 24,
            p.curve.map((v, i) => [i, v]),
            'hits of an LRU cache of n experts a layer',
            formatShare,
            `n = 0 … ${n}   (${formatBytes(p.sliceBytes)} each)`
        );
    }
};
function curve(g, x, y, w, h, points, title, format, note) {
    g.fillStyle = themeColour('text');
    g.fillText(fitText(g, title, w + 20), x, y + 4);
    g.fillStyle = themeColour('quiet');
    const high = Math.max(0.05, ...points.map(p => p[1])) > 0.5 ? 1 : 0.5,
        left = x + 44,
        top = y + 16,
        pw = w - 54,
        ph = h - 34;
    for (const v of [0, 0.5, 1]) {
        const py = top + ph - v * ph;
        g.fillStyle = themeColour('line');
        g.fillRect(left, py, pw, 1);
        g.fillStyle = themeColour('quiet');
        g.textAlign = 'right';
        g.fillText(format(v * high), left - 6, py);
        g.textAlign = 'left';
    }
    g.fillText(note, left, top + ph + 13);
    if (points.length < 2) {
        g.fillText('needs more tokens', left + 10, top + ph / 2);
        return;
    }
    g.strokeStyle = themeColour('accent');
    g.lineWidth = 1.8;
    g.beginPath();
    points.forEach(([, v], i) =>
        g[i ? 'lineTo' : 'moveTo'](left + (i / (points.length - 1)) * pw, top + ph - (v / high) * ph)
    );
    g.stroke();
    g.lineWidth = 1;
}
experts.at = (x, y) => {
    const p = experts.get(),
        b = experts.box;
    if (!p || !b) return null;
    const c = Math.floor(((x - b.left) / b.w) * p.experts),
        l = Math.floor(((y - b.top) / b.h) * p.layers.length);
    return c >= 0 && c < p.experts && l >= 0 && l < p.layers.length
        ? {layer: p.layers[l], l, expert: experts.order[l][c]}
        : null;
};
experts.pointer = (kind, event, x, y) => {
    const hit = experts.at(x, y),
        p = experts.picks;
    if (kind === 'move')
        showTip(
            event,
            hit && [
                `layer ${hit.layer}, expert ${hit.expert}`,
                `chosen ${formatCount(p.counts[hit.l * p.experts + hit.expert])} times ` +
                    `by ${formatCount(p.tokens[hit.l])} tokens: ` +
                    formatShare(p.counts[hit.l * p.experts + hit.expert] / p.tokens[hit.l]),
                `even routing: ${formatShare(p.used / p.experts)}`
            ]
        );
    else if (kind === 'up') app.setPin(hit && {kind: 'expert', layer: hit.layer, expert: hit.expert});
};
experts.key = key => {
    const p = experts.get(),
        pin = app.state.pin,
        d = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[key];
    if (!p || !d) return false;
    let l = 0,
        c = -1;
    if (pin?.kind === 'expert') {
        l = p.layers.indexOf(pin.layer);
        c = experts.order[l].indexOf(pin.expert);
    }
    l = Math.max(0, Math.min(p.layers.length - 1, l + d[0]));
    c = Math.max(0, Math.min(p.experts - 1, c + d[1]));
    app.setPin({kind: 'expert', layer: p.layers[l], expert: experts.order[l][c]});
    return true;
};
experts.table = () => {
    const p = experts.get(),
        rows = [];
    if (p)
        p.layers.forEach((layer, l) => {
            for (let x = 0; x < p.experts; ++x) {
                const n = p.counts[l * p.experts + x];
                rows.push({
                    sort: n,
                    cells: [layer, x, formatCount(n), formatShare(n / p.tokens[l])],
                    pick: () => app.setPin({kind: 'expert', layer, expert: x})
                });
            }
        });
    rows.sort((a, b) => b.sort - a.sort);
    return {
        columns: ['layer', 'expert', 'times chosen', 'share of tokens'],
        rows: rows.slice(0, 1000),
        note: rows.length > 1000 ? `the first 1000 of ${rows.length}` : ''
    };
};
