// SPDX-License-Identifier: MIT
// Graph: the steps of one plan; equal layers are drawn once. Columns follow the plan's order (embedding, attention,
// feed-forward, head); inside a column a step is below the steps it depends on (longest path).

const graph = {id: 'graph', title: 'Graph', plan: -1, zoom: 0, panX: 0, panY: 0};
app.tabs.push(graph);
graph.load = () => {
    graph.plan = -1;
    graph.zoom = 0;
    graph.key_ = null;
};
graph.recolour = () => {};

graph.sectionOf = step =>
    ({
        embed: 'embedding',
        attn_norm: 'attention',
        attn: 'attention',
        attn_out: 'attention',
        state: 'state',
        ffn_norm: 'feed-forward',
        ffn: 'feed-forward',
        router: 'experts',
        experts: 'experts',
        shared_expert: 'experts',
        head: 'head',
        pool: 'head'
    })[step.partName] ?? step.partName;

/** Nodes, edges and boxes of a plan, in units of the drawing. */
function layoutGraph(model, plan, ratio = 1.6) {
    const all = model.steps.slice(plan.base, plan.base + plan.steps.length),
        tensorsOf = model.trace.tensors;
    const byLayer = new Map();
    for (const step of all)
        if (step.layer >= 0) (byLayer.get(step.layer) ?? byLayer.set(step.layer, []).get(step.layer)).push(step);
    const groups = new Map(),
        groupOf = new Map();
    for (const [layer, list] of byLayer) {
        const key = list.map(s => `${s.op}/${s.part}/${s.weights.map(t => tensorsOf[t].role).join('+')}`).join(' ');
        if (!groups.has(key)) groups.set(key, {layers: [], first: layer});
        groups.get(key).layers.push(layer);
        groupOf.set(layer, groups.get(key));
    }
    const nodes = [],
        nodeOf = new Map();
    for (const step of all) {
        const group = groupOf.get(step.layer) ?? null;
        if (group && step.layer !== group.first) continue;
        const node = {
            step,
            steps: [step.index],
            group,
            section: graph.sectionOf(step),
            rank: 0,
            from: new Set(),
            order: nodes.length
        };
        if (group) {
            const at = byLayer.get(group.first).indexOf(step);
            node.steps = group.layers.map(l => byLayer.get(l)[at].index);
        }
        for (const s of node.steps) nodeOf.set(s, node);
        nodes.push(node);
    }
    const writer = new Map(),
        edges = new Map();
    for (const step of all) {
        const to = nodeOf.get(step.index);
        for (const o of step.operands) {
            if (o.flags & 1) continue; // scratch carries nothing from step to step
            const from = writer.get(o.ref);
            if (o.mode & READS && from && from !== to && from.order < to.order)
                edges.set(from.order * 65536 + to.order, {from, to});
        }
        for (const o of step.operands)
            if (o.mode & WRITES && o.kind !== ELIDED && !(o.flags & 1)) writer.set(o.ref, to);
    }
    const columns = [];
    for (const node of nodes) {
        let column = columns[columns.length - 1];
        if (
            !column ||
            column.group !== node.group ||
            (column.section !== node.section && !(column.section === 'feed-forward' && node.section === 'experts'))
        )
            columns.push((column = {group: node.group, section: node.section, nodes: []}));
        if (node.section === 'experts') column.section = 'experts';
        node.column = column;
        column.nodes.push(node);
    }
    for (const {from, to} of edges.values()) if (from.column === to.column) to.from.add(from);
    const cardW = 152,
        cardH = 54,
        gapX = 14,
        gapY = 24;
    let x = 0;
    for (const column of columns) {
        const ranks = [];
        for (const node of column.nodes) {
            // in plan order, so inputs already have a rank
            node.rank =
                !column.group && column.section === 'embedding'
                    ? column.nodes.indexOf(node)
                    : Math.max(-1, ...[...node.from].map(f => f.rank)) + 1;
            (ranks[node.rank] ??= []).push(node);
        }
        const wide = Math.max(...ranks.map(r => r.length));
        column.x = x;
        column.width = wide * cardW + (wide - 1) * gapX;
        ranks.forEach((list, r) => {
            const start = x + (column.width - list.length * cardW - (list.length - 1) * gapX) / 2;
            list.forEach((node, i) =>
                Object.assign(node, {x: start + i * (cardW + gapX), y: r * (cardH + gapY), w: cardW, h: cardH})
            );
        });
        column.height = ranks.length * (cardH + gapY) - gapY;
        column.y = 0;
        x += column.width + 56;
    }
    return Object.assign({nodes, edges: [...edges.values()], columns}, wrapColumns(columns, ratio));
}

/** Puts the columns into the number of rows that can be drawn largest; the columns of a group stay together. */
function wrapColumns(columns, ratio) {
    const units = [];
    for (const column of columns) {
        const last = units[units.length - 1];
        if (last && column.group && last[0].group === column.group) last.push(column);
        else units.push([column]);
    }
    const end = c => c.x + c.width,
        total = end(columns[columns.length - 1]);
    let best = null;
    for (let rows = 1; rows <= Math.min(5, units.length); ++rows) {
        const lines = [[]],
            most = total / rows;
        for (const unit of units) {
            const line = lines[lines.length - 1];
            if (line.length && end(unit[unit.length - 1]) - line[0][0].x > most * 1.15 && lines.length < rows)
                lines.push([unit]);
            else line.push(unit);
        }
        let width = 0,
            height = -110;
        for (const line of lines) {
            const all = line.flat();
            width = Math.max(width, end(all[all.length - 1]) - all[0].x);
            height += Math.max(...all.map(c => c.height)) + 110;
        }
        const zoom = Math.min(1 / width, 1 / ((height + 100) * ratio));
        if (!best || zoom > best.zoom * 1.1) best = {zoom, lines, width, height};
    }
    let y = 0;
    for (const line of best.lines) {
        const all = line.flat(),
            left = all[0].x;
        for (const column of all) {
            for (const node of column.nodes) {
                node.x -= left;
                node.y += y;
            }
            column.x -= left;
            column.y = y;
        }
        y += Math.max(...all.map(c => c.height)) + 110;
    }
    return {width: best.width, height: best.height};
}

graph.toolbar = () => {
    const {trace} = app.model,
        runsOf = trace.plans.map((_, i) => trace.runs.filter(r => r.plan === i).length);
    if (graph.plan < 0) graph.plan = Math.max(0, runsOf.indexOf(Math.max(...runsOf)));
    return [
        el(
            'label',
            {},
            'Plan',
            el(
                'select',
                {
                    'aria-label': 'Plan',
                    onchange: event => {
                        graph.plan = Number(event.target.value);
                        graph.zoom = 0;
                        app.render();
                    }
                },
                trace.plans
                    .slice(0, 500)
                    .map((p, i) =>
                        el(
                            'option',
                            {value: i, selected: i === graph.plan},
                            `${p.tokens} token${p.tokens === 1 ? '' : 's'}, ${p.steps.length} steps, ${runsOf[i]} runs`
                        )
                    )
            )
        ),
        el('span', {class: 'legend', id: 'graph-legend'}),
        el('span', {class: 'grow'}),
        el(
            'button',
            {
                onclick: () => {
                    graph.zoom = 0;
                    graph.fitAll = true;
                    app.render();
                },
                title: 'Fit all (0)'
            },
            'Fit all'
        )
    ];
};

graph.draw = canvas => {
    const stage = canvas.parentElement,
        width = stage.clientWidth,
        height = stage.clientHeight,
        g = fitCanvas(canvas, width, height),
        plan = app.model.trace.plans[graph.plan];
    stage.querySelector('.note')?.remove();
    if (!plan) {
        stage.append(el('div', {class: 'note'}, el('b', {}, 'The trace has no plan')));
        return;
    }
    if (graph.key_ !== plan) {
        graph.key_ = plan;
        graph.picture = layoutGraph(app.model, plan, width / height);
        graph.zoom = 0;
    }
    const p = graph.picture;
    if (!graph.zoom) {
        const fit = Math.min(1.25, (width - 70) / p.width, (height - 100) / p.height);
        graph.zoom = graph.fitAll ? fit : Math.max(fit, 0.82); // smaller text is hard to read
        graph.fitAll = false;
        graph.panX = Math.max(36, (width - p.width * graph.zoom) / 2);
        graph.panY = Math.max(62, (height - p.height * graph.zoom) / 2);
    }
    const runs = [...app.sums.runs].filter(r => app.model.trace.runs[r]?.plan === graph.plan).length;
    const {sums, masks} = app,
        z = graph.zoom,
        X = v => graph.panX + v * z,
        Y = v => graph.panY + v * z;
    const timeOf = node => node.steps.reduce((sum, s) => sum + sums.stepTime[s], 0),
        total = p.nodes.reduce((sum, n) => sum + timeOf(n), 0) || 1;
    const most = Math.max(1e-12, ...p.nodes.map(timeOf));
    const size = px =>
        `${Math.max(1, px * z)}px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
    // a box around the columns of a group of layers
    const boxes = new Map();
    for (const c of p.columns) {
        const box = boxes.get(c.group ?? c) ?? {x0: c.x, x1: 0, y: c.y, h: 0, group: c.group};
        box.x1 = Math.max(box.x1, c.x + c.width);
        box.h = Math.max(box.h, c.height);
        box.x0 = Math.min(box.x0, c.x);
        boxes.set(c.group ?? c, box);
    }
    for (const box of boxes.values()) {
        if (!box.group) continue;
        g.fillStyle = themeColour('surface');
        g.strokeStyle = themeColour('line');
        g.lineWidth = 1;
        g.beginPath();
        g.roundRect(X(box.x0 - 18), Y(box.y - 56), (box.x1 - box.x0 + 36) * z, (box.h + 74) * z, 12 * z);
        g.fill();
        g.stroke();
        const l = box.group.layers,
            dense = l[l.length - 1] - l[0] === l.length - 1;
        g.fillStyle = themeColour('text');
        g.font = '600 ' + size(13);
        g.textAlign = 'right';
        g.fillText(
            l.length > 1
                ? `× ${l.length}   layers ` +
                      (dense ? `${l[0]}–${l[l.length - 1]}` : l.slice(0, 4).join(', ') + (l.length > 4 ? ' …' : ''))
                : `layer ${l[0]}`,
            X(box.x1 + 4),
            Y(box.y - 39)
        );
    }
    g.textAlign = 'left';
    g.font = size(12);
    for (const c of p.columns) {
        g.fillStyle = themeColour('quiet');
        g.fillText(c.section, X(c.x), Y(c.y - 16));
    }
    g.lineWidth = Math.max(0.6, 1.1 * z);
    for (const {from, to} of p.edges) {
        const near =
            app.state.pin?.kind === 'group' && (app.state.pin.node === from.order || app.state.pin.node === to.order);
        g.strokeStyle = near ? themeColour('accent') : themeColour('quiet');
        g.globalAlpha = near ? 1 : 0.42;
        g.beginPath();
        let tip, angle;
        if (from.column === to.column) {
            const a = [X(from.x + from.w / 2), Y(from.y + from.h)],
                b = [X(to.x + to.w / 2), Y(to.y) - 1],
                bend = (b[1] - a[1]) / 2;
            // around what lies between
            const side = from.x + from.w / 2 >= to.x + to.w / 2 ? 1 : -1,
                aside = to.rank - from.rank > 1 ? side * (to.w * 0.62) * z : 0;
            g.moveTo(...a);
            g.bezierCurveTo(
                a[0] + aside,
                a[1] + bend * (aside ? 0.6 : 1),
                b[0] + aside,
                b[1] - bend * (aside ? 0.6 : 1),
                ...b
            );
            [tip, angle] = [b, Math.PI / 2];
        } else {
            const a = [X(from.x + from.w), Y(from.y + from.h / 2)],
                b = [X(to.x) - 1, Y(to.y + to.h / 2)],
                bend = Math.max(22 * z, (b[0] - a[0]) * 0.45);
            g.moveTo(...a);
            g.bezierCurveTo(a[0] + bend, a[1], b[0] - bend, b[1], ...b);
            [tip, angle] = [b, 0];
        }
        g.stroke();
        g.save();
        g.translate(...tip);
        g.rotate(angle);
        g.fillStyle = g.strokeStyle;
        g.beginPath();
        g.moveTo(0, 0);
        g.lineTo(-6 * z, -3 * z);
        g.lineTo(-6 * z, 3 * z);
        g.fill();
        g.restore();
    }
    g.globalAlpha = 1;
    for (const node of p.nodes) {
        const time = timeOf(node),
            step = node.step,
            level = time ? Math.max(1, Math.ceil((5 * time) / most)) / 5 : 0,
            colour = time ? rampColour(level * 0.8) : null;
        const dim = !node.steps.some(s => masks.steps[s]);
        g.globalAlpha = dim ? 0.3 : 1;
        g.fillStyle = colour ? `rgb(${colour.join(' ')})` : themeColour('raised');
        g.strokeStyle =
            app.state.pin?.kind === 'group' && app.state.pin.node === node.order
                ? themeColour('text')
                : themeColour('line');
        g.lineWidth = app.state.pin?.kind === 'group' && app.state.pin.node === node.order ? 2.4 : 1;
        g.setLineDash(step.flags & 1 ? [4 * z, 3 * z] : []);
        g.beginPath();
        g.roundRect(X(node.x), Y(node.y), node.w * z, node.h * z, 8 * z);
        g.fill();
        g.stroke();
        g.setLineDash([]);
        g.fillStyle = partColour(step.partName);
        g.beginPath();
        g.roundRect(X(node.x), Y(node.y), 5 * z, node.h * z, [8 * z, 0, 0, 8 * z]);
        g.fill();
        if (z < 0.28) continue;
        g.fillStyle = colour ? inkOn(colour) : themeColour('text');
        g.font = '600 ' + size(12);
        g.fillText(fitText(g, step.opName, (node.w - 20) * z), X(node.x + 12), Y(node.y + 13));
        g.font = size(11);
        const weights = step.tensors.map(t => app.model.trace.tensors[t].roleName).join(', ');
        g.fillText(fitText(g, weights || step.partName, (node.w - 20) * z), X(node.x + 12), Y(node.y + 28));
        g.globalAlpha *= 0.85;
        g.fillText(
            fitText(
                g,
                time ? `${formatTime(time / Math.max(1, runs))} · ${formatShare(time / total)}` : 'did not run',
                (node.w - 20) * z
            ),
            X(node.x + 12),
            Y(node.y + 42)
        );
        g.globalAlpha = 1;
    }
    g.globalAlpha = 1;
    document
        .getElementById('graph-legend')
        ?.replaceChildren(
            rampLegend('0', `${formatShare(most / total)} of the time`),
            el('span', {}, 'dashed: fused'),
            el('span', {}, `mean of ${formatCount(runs)} run${runs === 1 ? '' : 's'}`)
        );
};
graph.at = (x, y) => {
    const px = (x - graph.panX) / graph.zoom,
        py = (y - graph.panY) / graph.zoom;
    return graph.picture?.nodes.find(n => px >= n.x && px <= n.x + n.w && py >= n.y && py <= n.y + n.h);
};
graph.pin = node =>
    app.setPin({
        kind: 'group',
        label: `${node.step.label}${node.group ? ` in ${node.steps.length} layers` : ''}`,
        steps: node.steps,
        node: node.order
    });
graph.pointer = (kind, event, x, y) => {
    const node = graph.at(x, y);
    if (kind === 'down') graph.drag = {x, y, panX: graph.panX, panY: graph.panY, moved: false};
    else if (kind === 'move' && graph.drag) {
        graph.drag.moved ||= Math.abs(x - graph.drag.x) + Math.abs(y - graph.drag.y) > 4;
        graph.panX = graph.drag.panX + x - graph.drag.x;
        graph.panY = graph.drag.panY + y - graph.drag.y;
        if (graph.drag.moved) app.render();
    } else if (kind === 'move')
        showTip(
            event,
            node && [
                node.step.label,
                `${node.step.place}${node.group ? ` and ${node.steps.length - 1} like it` : ''}`,
                node.step.kernel,
                ...node.step.nodes.slice(0, 5)
            ]
        );
    else if (kind === 'up') {
        const moved = graph.drag?.moved;
        graph.drag = null;
        if (!moved) {
            if (node) graph.pin(node);
            else app.setPin(null);
        }
    }
};
graph.wheel = (event, x, y) => {
    const factor = Math.exp(-Math.max(-120, Math.min(120, event.deltaY)) * 0.0025),
        z = Math.max(0.05, Math.min(3, graph.zoom * factor));
    graph.panX = x - ((x - graph.panX) * z) / graph.zoom;
    graph.panY = y - ((y - graph.panY) * z) / graph.zoom;
    graph.zoom = z;
    app.render();
};
graph.key = key => {
    const nodes = graph.picture?.nodes ?? [],
        at = nodes.findIndex(n => n.order === app.state.pin?.node),
        move = (dx, dy) => {
            graph.panX += dx;
            graph.panY += dy;
            app.render();
        };
    const keys = {
        ArrowRight: () => nodes.length && graph.pin(nodes[Math.min(nodes.length - 1, at + 1)]),
        ArrowLeft: () => nodes.length && graph.pin(nodes[Math.max(0, at - 1)]),
        a: () => move(80, 0),
        d: () => move(-80, 0),
        w: () => move(0, 80),
        s: () => move(0, -80),
        0: () => {
            graph.zoom = 0;
            graph.fitAll = true;
            app.render();
        }
    };
    if (!keys[key]) return false;
    keys[key]();
    return true;
};
graph.table = () => {
    const list = app.model.trace.plans[graph.plan],
        rows = list ? app.model.steps.slice(list.base, list.base + list.steps.length) : [];
    return {
        columns: ['step', 'layer', '*part', '*op', '*kernel', '*nodes', '*tensors', 'time', 'runs'],
        note: rows.length > 1000 ? `the first 1000 of ${rows.length}` : '',
        rows: rows.slice(0, 1000).map(s => ({
            cells: [
                s.number,
                s.layer < 0 ? '' : s.layer,
                s.partName,
                s.opName,
                s.kernel,
                s.nodes.join(', '),
                s.tensors.map(t => app.model.trace.tensors[t].label).join(', '),
                formatTime(app.sums.stepTime[s.index]),
                app.sums.stepCount[s.index]
            ],
            pick: () => app.setPin({kind: 'group', label: s.label, steps: [s.index]})
        }))
    };
};
