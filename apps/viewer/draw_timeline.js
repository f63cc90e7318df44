// SPDX-License-Identifier: MIT
// Timeline: lanes for runs, layers, parts, steps and every thread. Zoomed out, each pixel column of a lane is one
// rectangle from the lane's pyramid; zoomed in, each interval is drawn and named.

const timeline = {id: 'timeline', title: 'Timeline', lanes: [], pixels: null, drag: null, hover: -1, colourBy: 'part'};
app.tabs.push(timeline);

/** Neighbouring events with the same key become one interval. */
function mergeEvents(model, keyOf) {
    const e = model.trace.events,
        begin = [],
        end = [],
        keys = [],
        first = [];
    let last = NaN,
        lastRun = -1;
    for (let i = 0; i < e.count; ++i) {
        const k = keyOf(e.step[i]),
            stop = e.begin[i] + e.duration[i];
        if (k === last && e.run[i] === lastRun) end[end.length - 1] = stop;
        else {
            begin.push(e.begin[i]);
            end.push(stop);
            keys.push(k);
            first.push(i);
        }
        last = k;
        lastRun = e.run[i];
    }
    return {begin: Float64Array.from(begin), end: Float64Array.from(end), keys, first, count: begin.length};
}

timeline.load = model => {
    const {trace, steps} = model,
        e = trace.events;
    const end = new Float64Array(e.count);
    for (let i = 0; i < e.count; ++i) end[i] = e.begin[i] + e.duration[i];
    model.eventEnd = end;
    const runs = trace.runs;
    timeline.lanes = [
        {
            key: 'run',
            label: 'decode',
            height: 24,
            begin: Float64Array.from(runs, r => r.begin),
            end: Float64Array.from(runs, r => r.end),
            count: runs.length,
            short: i => String(runs[i].decode),
            name: i =>
                `${model.name('phase', runs[i].phase)} ${runs[i].decode}` +
                (runs[i].tokens > 1
                    ? ` · ${runs[i].tokens} tokens`
                    : trace.pieces.has(runs[i].token)
                      ? ` “${trace.pieces.get(runs[i].token)}”`
                      : '') +
                (runs[i].rolledBack ? ' · rolled back' : '')
        },
        Object.assign(
            mergeEvents(model, s => steps[s].layer),
            {key: 'layer', label: 'layer', height: 22}
        ),
        Object.assign(
            mergeEvents(model, s => (steps[s].layer + 1) * 64 + steps[s].part),
            {key: 'part', label: 'part', height: 22}
        ),
        {
            key: 'step',
            label: 'step',
            height: 40,
            begin: e.begin,
            end,
            count: e.count,
            short: i => steps[e.step[i]].brief,
            name: i => steps[e.step[i]].label
        }
    ];
    const [, layer, part] = timeline.lanes;
    layer.name = i => (layer.keys[i] < 0 ? steps[e.step[layer.first[i]]].partName : String(layer.keys[i]));
    part.name = i => steps[e.step[part.first[i]]].partName;
    if (model.hasSpans) {
        let most = 0;
        for (let i = 0; i < e.count; ++i) most = Math.max(most, e.firstSpan[i + 1] - e.firstSpan[i]);
        for (let t = 0; t < Math.min(most, 64); ++t) {
            const share = new Float32Array(e.count);
            for (let i = 0; i < e.count; ++i) {
                const k = e.firstSpan[i] + t;
                share[i] =
                    k < e.firstSpan[i + 1] && e.duration[i] ? Math.min(1, trace.spans.busy[k] / e.duration[i]) : 0;
            }
            timeline.lanes.push({
                key: 'thread',
                label: `thread ${t}`,
                thread: t,
                height: most > 12 ? 14 : 26,
                begin: e.begin,
                end,
                count: e.count,
                share,
                name: i => steps[e.step[i]].label
            });
        }
    }
    timeline.lanes.push({key: 'rate', label: 'rate', height: 56, count: 0});
};

/** Colours depend on the filter and the colour mode; so do the pyramids, which keep the dominant colour. */
timeline.recolour = model => {
    const {trace, steps} = model,
        e = trace.events,
        masks = app.masks;
    const ops = [...new Set(steps.map(s => s.op))];
    const palette = (timeline.palette = ['dim']),
        of = new Map();
    const index = (key, colour) => {
        if (!of.has(key)) {
            of.set(key, palette.length);
            palette.push(colour);
        }
        return of.get(key);
    };
    const stepColour = steps.map(s =>
        timeline.colourBy === 'op'
            ? index('op' + s.op, OTHER_COLOURS[ops.indexOf(s.op) % OTHER_COLOURS.length])
            : index('part' + s.part, partColour(s.partName))
    );
    const even = index('even', 'even'),
        odd = index('odd', 'odd');
    const pass = i => masks.steps[e.step[i]] && (e.run[i] >= masks.runs.length || masks.runs[e.run[i]]);
    const events = new Uint8Array(e.count);
    for (let i = 0; i < e.count; ++i) events[i] = pass(i) ? stepColour[e.step[i]] : 0;
    let stepPyramid = null;
    for (const lane of timeline.lanes) {
        if (lane.key === 'rate') continue;
        if (lane.key === 'run')
            lane.colour = Uint8Array.from(trace.runs, (r, i) =>
                masks.runs[i] ? index('phase' + r.phase, PHASE_COLOURS[model.name('phase', r.phase)] ?? '#8a8f98') : 0
            );
        else if (lane.key === 'layer')
            lane.colour = Uint8Array.from(lane.first, (i, k) =>
                !pass(i) ? 0 : lane.keys[k] < 0 ? stepColour[e.step[i]] : lane.keys[k] % 2 ? odd : even
            );
        else if (lane.key === 'part')
            lane.colour = Uint8Array.from(lane.first, i =>
                pass(i) ? index('part' + steps[e.step[i]].part, partColour(steps[e.step[i]].partName)) : 0
            );
        else lane.colour = events;
        lane.pyramid = lane.share
            ? sharePyramid(stepPyramid, lane.share)
            : buildPyramid(lane.begin, lane.end, lane.colour, lane.count);
        if (lane.key === 'step') stepPyramid = lane.pyramid;
    }
    timeline.stack = stackRuns(trace, events, palette.length);
};

timeline.cssColour = index => {
    const c = timeline.palette[index];
    if (c === 'dim') return isDark() ? '#2a313c' : '#e6e9ee';
    if (c === 'even') return isDark() ? '#40638f' : '#a9c4e6';
    if (c === 'odd') return isDark() ? '#2f4a6d' : '#c9dbf1';
    return c;
};

timeline.toolbar = () => {
    const model = app.model,
        select = el(
            'select',
            {
                'aria-label': 'Colour by',
                onchange: () => {
                    timeline.colourBy = select.value;
                    timeline.recolour(model);
                    app.render();
                }
            },
            ['part', 'op'].map(v => el('option', {value: v, selected: v === timeline.colourBy}, v))
        );
    const items =
        timeline.colourBy === 'part'
            ? model.parts.map(p => [model.name('part', p), partColour(model.name('part', p))])
            : [...new Set(model.steps.slice(0, -1).map(s => s.op))].map((op, i) => [
                  model.name('op', op),
                  OTHER_COLOURS[i % OTHER_COLOURS.length]
              ]);
    const waits = model.hasSpans
        ? el(
              'span',
              {},
              el('i', {
                  style: {
                      background: 'repeating-linear-gradient(45deg, var(--quiet) 0 1px, transparent 1px 4px)',
                      border: '1px solid var(--line)'
                  }
              }),
              'waits'
          )
        : el('span', {}, 'no threads recorded (level threads has them)');
    return [
        el('label', {}, 'Colour', select),
        el(
            'span',
            {class: 'legend'},
            items.slice(0, 16).map(([name, colour]) => el('span', {}, el('i', {style: {background: colour}}), name)),
            waits
        ),
        el('span', {class: 'grow'}),
        el('button', {title: 'Whole session (0)', onclick: () => app.setView([app.model.begin, app.model.end])}, 'All'),
        el('button', {title: 'Fit the selection (F)', onclick: () => timeline.fit()}, 'Fit')
    ];
};

timeline.gutter = 84;
timeline.axis = 24;

timeline.layout = (width, height) => {
    const natural = timeline.lanes.reduce((sum, lane) => sum + lane.height + 6, 0);
    const scale = Math.min(2.4, Math.max(0.6, (height - timeline.axis - 8) / natural));
    let y = timeline.axis + 6;
    for (const lane of timeline.lanes) {
        lane.y = y;
        lane.h = Math.floor(lane.height * scale);
        y += lane.h + Math.round(6 * scale);
    }
    timeline.width = width - timeline.gutter;
};

timeline.draw = canvas => {
    const stage = canvas.parentElement,
        width = stage.clientWidth,
        height = stage.clientHeight;
    const g = fitCanvas(canvas, width, height),
        [t0, t1] = app.view(),
        left = timeline.gutter;
    timeline.layout(width, height);
    const w = timeline.width,
        x = t => left + ((t - t0) / (t1 - t0)) * w;
    if (!timeline.pixels || timeline.pixels.cover.length < w)
        timeline.pixels = {
            cover: new Float32Array(w),
            busy: new Float32Array(w),
            best: new Float32Array(w),
            colour: new Uint8Array(w)
        };
    drawTimeAxis(g, t0, t1, left, w, height);
    const wait = hatch(g, themeColour('quiet'));
    for (const lane of timeline.lanes) {
        g.fillStyle = themeColour('quiet');
        g.textAlign = 'right';
        g.fillText(lane.label, left - 10, lane.y + lane.h / 2);
        if (lane.key === 'rate' && timeline.rateMost)
            g.fillText(formatRate(timeline.rateMost, 1), left - 10, lane.y + 7);
        g.textAlign = 'left';
        g.save();
        g.beginPath();
        g.rect(left, lane.y - 1, w, lane.h + 2);
        g.clip();
        if (lane.key === 'rate') drawRate(g, lane, t0, t1, left, w);
        else drawLane(g, lane, t0, t1, left, w, wait);
        g.restore();
    }
    drawMarks(g, x, left, height);
    const selection = app.state.selection;
    if (selection) {
        g.fillStyle = themeColour('accent');
        g.globalAlpha = 0.1;
        const a = Math.max(left, x(selection[0])),
            b = Math.min(width, x(selection[1]));
        if (b > a) g.fillRect(a, 0, b - a, height);
        g.globalAlpha = 0.8;
        for (const t of selection) if (x(t) >= left) g.fillRect(x(t) - 0.5, 0, 1, height);
        g.globalAlpha = 1;
    }
    const pin = app.state.pin;
    if (pin?.kind === 'event') {
        const e = app.model.trace.events,
            a = Math.max(left - 2, x(e.begin[pin.event])),
            b = Math.min(width + 2, x(e.begin[pin.event] + e.duration[pin.event]));
        if (b > left && a < width) {
            g.strokeStyle = themeColour('text');
            g.lineWidth = 2;
            for (const lane of timeline.lanes)
                if (lane.key === 'step' || lane.key === 'thread')
                    g.strokeRect(a - 1, lane.y - 1, Math.max(3, b - a + 2), lane.h + 2);
        }
    }
};

function drawTimeAxis(g, t0, t1, left, w, height) {
    const step = niceStep(t1 - t0, w / 110),
        origin = app.model.begin;
    g.textAlign = 'center';
    const first = Math.ceil((t0 - origin) / step);
    for (let n = 0; n < 200 && (first + n) * step <= t1 - origin; ++n) {
        const t = (first + n) * step;
        const x = left + ((t + origin - t0) / (t1 - t0)) * w;
        g.fillStyle = themeColour('line');
        g.fillRect(Math.round(x), timeline.axis - 3, 1, height);
        g.fillStyle = themeColour('quiet');
        if (x > left + 20 && x < left + w - 24) g.fillText(axisTime(t, step, t1 - origin), x, 11);
    }
    g.textAlign = 'left';
}

/** Prefix sums over runs of the time of each colour: the mix of a range of runs is a difference. */
function stackRuns(trace, colour, colours) {
    const e = trace.events,
        runs = trace.runs.length;
    if (runs < 100 || runs * colours > 1 << 23) return null;
    const sums = new Float64Array((runs + 1) * colours);
    for (let i = 0; i < e.count; ++i) if (e.run[i] < runs) sums[(e.run[i] + 1) * colours + colour[i]] += e.duration[i];
    for (let k = colours; k < sums.length; ++k) sums[k] += sums[k - colours];
    return {sums, colours, begin: Float64Array.from(trace.runs, r => r.begin), runs};
}

/** Where several runs share a pixel, steps are the mix of their colours, one shape each. */
function drawStack(g, lane, t0, t1, left, w) {
    const {sums, colours, begin, runs} = timeline.stack,
        level = new Float32Array(w),
        mix = new Float32Array(w * colours);
    for (let x = 0; x < w; ++x) {
        let a = lowerBound(begin, runs, t0 + (x / w) * (t1 - t0));
        const b = Math.max(1, lowerBound(begin, runs, t0 + ((x + 1) / w) * (t1 - t0)));
        if (a >= b) a = b - 1;
        let all = 0;
        for (let c = 0; c < colours; ++c) all += sums[b * colours + c] - sums[a * colours + c];
        if (all > 0)
            for (let c = 0; c < colours; ++c) mix[c * w + x] = (sums[b * colours + c] - sums[a * colours + c]) / all;
    }
    const bottom = lane.y + lane.h;
    for (let c = 0; c < colours; ++c) {
        const part = mix.subarray(c * w, (c + 1) * w);
        if (!part.some(v => v > 0)) continue;
        g.fillStyle = timeline.cssColour(c);
        g.beginPath();
        for (let x = 0; x < w; ++x) g.lineTo(left + x, bottom - level[x] * lane.h);
        for (let x = w - 1; x >= 0; --x) {
            level[x] += part[x];
            g.lineTo(left + x, bottom - level[x] * lane.h);
        }
        g.fill();
    }
}

function drawLane(g, lane, t0, t1, left, w, wait) {
    if (lane.key === 'step' && timeline.stack) {
        const {begin, runs} = timeline.stack;
        if (lowerBound(begin, runs, t1) - lowerBound(begin, runs, t0) > w / 3) {
            drawStack(g, lane, t0, t1, left, w);
            return;
        }
    }
    const p = timeline.pixels,
        {level, from, to, number} = lanePixels(lane.pyramid, t0, t1, w, p),
        scale = w / (t1 - t0);
    if (number === 0 && to - from <= w / 3) {
        for (let i = from; i < to; ++i) {
            const a = left + (lane.begin[i] - t0) * scale,
                b = left + (lane.end[i] - t0) * scale;
            drawInterval(g, lane, i, a, Math.max(a + 0.7, b - (b - a > 3 ? 0.7 : 0)), left, left + w, wait, scale);
        }
        return;
    }
    let start = 0;
    const level8 = x =>
        p.cover[x] <= 0.003
            ? 0
            : lane.share
              ? 1 + Math.round(31 * Math.min(1, p.busy[x] / p.cover[x]))
              : 1 + Math.round(7 * Math.min(1, p.cover[x]));
    for (let x = 1; x <= w; ++x) {
        if (x < w && p.colour[x] === p.colour[start] && level8(x) === level8(start)) continue;
        const k = level8(start);
        if (k) {
            g.fillStyle = timeline.cssColour(p.colour[start]);
            if (lane.share) {
                const busy = (lane.h * (k - 1)) / 31;
                g.fillRect(left + start, lane.y + lane.h - busy, x - start, busy);
                g.fillStyle = wait;
                g.globalAlpha = 0.45;
                g.fillRect(left + start, lane.y, x - start, lane.h - busy);
            } else {
                g.globalAlpha = 0.3 + 0.1 * (k - 1);
                g.fillRect(left + start, lane.y, x - start, lane.h);
            }
            g.globalAlpha = 1;
        }
        start = x;
    }
}

function drawInterval(g, lane, i, a, b, low, high, wait, scale) {
    const colour = timeline.cssColour(lane.colour[i]),
        from = Math.max(low, a),
        to = Math.min(high, b);
    if (lane.key === 'thread') {
        const {spans, events} = app.model.trace,
            k = events.firstSpan[i] + lane.thread;
        if (k >= events.firstSpan[i + 1]) return;
        g.fillStyle = wait;
        g.globalAlpha = 0.5;
        g.fillRect(from, lane.y, to - from, lane.h);
        g.globalAlpha = 1;
        const busyFrom = a + spans.start[k] * scale,
            busyTo = Math.min(b, busyFrom + spans.busy[k] * scale);
        g.fillStyle = colour;
        g.fillRect(
            Math.max(low, busyFrom),
            lane.y,
            Math.max(0, Math.min(high, busyTo) - Math.max(low, busyFrom)),
            lane.h
        );
        return;
    }
    g.fillStyle = colour;
    g.fillRect(from, lane.y, to - from, lane.h);
    if (to - from < 26) return;
    const rgb = /^#(..)(..)(..)$/.exec(colour);
    g.fillStyle = rgb ? inkOn(rgb.slice(1).map(v => parseInt(v, 16))) : '#fff';
    if (lane.h > 34 && lane.key === 'step') {
        const e = app.model.trace.events,
            middle = lane.y + lane.h / 2,
            name = g.measureText(lane.name(i)).width > to - from - 10 ? lane.short(i) : lane.name(i);
        g.fillText(fitText(g, name, to - from - 10), from + 5, middle - 8);
        g.globalAlpha = 0.8;
        g.fillText(
            fitText(g, `${formatTime(e.duration[i])}  ${formatRate(e.bytes[i], e.duration[i])}`, to - from - 10),
            from + 5,
            middle + 8
        );
        g.globalAlpha = 1;
    } else {
        const room = to - from - 10,
            name = lane.name(i),
            text = lane.short && g.measureText(name).width > room ? lane.short(i) : name;
        g.fillText(fitText(g, text, room), from + 5, lane.y + lane.h / 2 + 0.5);
    }
}

/** Bytes a nanosecond, one value per pixel; the bytes of levels come from running sums. */
function drawRate(g, lane, t0, t1, left, w) {
    const {trace} = app.model,
        e = trace.events;
    if (!app.model.byteSums) {
        const sums = (app.model.byteSums = new Float64Array(e.count + 1));
        for (let i = 0; i < e.count; ++i) sums[i + 1] = sums[i] + e.bytes[i];
    }
    const sums = app.model.byteSums,
        end = app.model.eventEnd,
        values = new Float64Array(w),
        step = (t1 - t0) / w;
    const moved = t => {
        // bytes moved up to a time, with an event's bytes spread evenly
        const i = lowerBound(e.begin, e.count, t) - 1;
        if (i < 0) return 0;
        return sums[i] + e.bytes[i] * Math.min(1, e.duration[i] ? (t - e.begin[i]) / (end[i] - e.begin[i]) : 1);
    };
    let before = moved(t0),
        most = 0;
    for (let x = 0; x < w; ++x) {
        const now = moved(t0 + (x + 1) * step);
        values[x] = (now - before) / step;
        before = now;
        if (values[x] > most) most = values[x];
    }
    if (!most) return;
    const y = v => lane.y + lane.h - (v / most) * (lane.h - 4);
    g.beginPath();
    g.moveTo(left, lane.y + lane.h);
    for (let x = 0; x < w; ++x) g.lineTo(left + x, y(values[x]));
    g.lineTo(left + w, lane.y + lane.h);
    g.fillStyle = themeColour('accent');
    g.globalAlpha = 0.22;
    g.fill();
    g.globalAlpha = 1;
    g.strokeStyle = themeColour('accent');
    g.lineWidth = 1;
    g.beginPath();
    for (let x = 0; x < w; ++x) g[x ? 'lineTo' : 'moveTo'](left + x, y(values[x]));
    g.stroke();
    g.fillStyle = themeColour('quiet');
    timeline.rateMost = most;
}

function drawMarks(g, x, left, height) {
    const marks = [...app.model.trace.marks, ...app.state.marks.map(time => ({time, text: '', own: true}))];
    for (const mark of marks) {
        const at = x(mark.time);
        if (at < left) continue;
        g.fillStyle = mark.own ? themeColour('accent') : themeColour('warn');
        g.fillRect(at, timeline.axis - 4, 1, height);
        g.beginPath();
        g.moveTo(at, timeline.axis - 4);
        g.lineTo(at + 8, timeline.axis);
        g.lineTo(at, timeline.axis + 4);
        g.fill();
        if (mark.text) g.fillText(fitText(g, mark.text, 140), at + 11, timeline.axis + 1);
    }
}
