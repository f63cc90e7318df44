// SPDX-License-Identifier: MIT
// The same run of two traces as two timelines, one under the other, on one scale that begins with each run: what took
// longer is longer. Wheel, pinch and keys zoom and move both at once.

const besideLanes = {run: 0, view: null, lanes: null, gutter: 18}; // gutter: pixels with the names of the lanes

/** Neighbouring events of a run with the same layer and part: {begin, end, colour, name, event}, in ns of the run. */
function runIntervals(model, run) {
    const {trace, steps} = model,
        e = trace.events,
        start = trace.runs[run].begin,
        out = [];
    let last = null;
    for (let i = 0; i < e.count; ++i) {
        if (e.run[i] !== run) continue;
        const {layer, partName} = steps[e.step[i]],
            end = e.begin[i] + e.duration[i] - start;
        if (last && last.layer === layer && last.part === partName) last.end = end;
        else out.push((last = {begin: e.begin[i] - start, end, layer, part: partName, event: i}));
    }
    return out;
}

besideLanes.load = (a, b) => {
    const ofPhase = a.trace.runs.findIndex((run, i) => i < b.trace.runs.length && run.phase === phases.now);
    besideLanes.run = Math.max(0, ofPhase);
    besideLanes.lanes = besideLanes.view = null;
};
besideLanes.count = () => Math.min(app.model.trace.runs.length, beside.other.trace.runs.length);
besideLanes.name = one => `${one.layer < 0 ? '' : `layer ${one.layer} `}${one.part}`;

besideLanes.go = step => {
    besideLanes.run = Math.min(besideLanes.count() - 1, Math.max(0, besideLanes.run + step));
    besideLanes.lanes = besideLanes.view = null;
    app.render();
};

/** The view stays inside of the longer run. */
besideLanes.show = (from, to) => {
    const {whole} = besideLanes,
        size = Math.min(whole, Math.max(100, to - from)),
        begin = Math.min(whole - size, Math.max(0, from));
    besideLanes.view = [begin, begin + size];
    besideLanes.draw();
};
besideLanes.zoom = (factor, at = 0.5) => {
    const [from, to] = besideLanes.view,
        place = from + (to - from) * at;
    besideLanes.show(place - (place - from) * factor, place + (to - place) * factor);
};

/** The interval at a place of the canvas: {lane, one}. */
besideLanes.find = (x, y) => {
    const {canvas, view, lanes} = besideLanes,
        lane = lanes[y < canvas.clientHeight / 2 ? 0 : 1],
        {gutter} = besideLanes,
        time = view[0] + ((view[1] - view[0]) * (x - gutter)) / (canvas.clientWidth - gutter),
        one = lane.intervals.find(i => i.begin <= time && time < i.end);
    return one && {lane, one};
};
besideLanes.say = found => {
    const {lanes, view, line} = besideLanes,
        time = lane => `${lane.name} ${formatTime(lane.time)}`;
    if (!found)
        line.textContent =
            `Run ${besideLanes.run}: ${lanes.map(time).join(', ')}. ` +
            `Shown: ${formatTime(view[0])} to ${formatTime(view[1])}.`;
    else {
        const other = lanes.find(lane => lane !== found.lane),
            index = found.lane.intervals.indexOf(found.one),
            same = other.intervals[index],
            took = one => formatTime(one.end - one.begin),
            isSame = same && same.layer === found.one.layer && same.part === found.one.part;
        line.textContent =
            `${besideLanes.name(found.one)}: ${took(found.one)} in ${found.lane.name}` +
            (isSame ? `, ${took(same)} in ${other.name}` : '');
    }
};

besideLanes.draw = () => {
    const {canvas, lanes, view} = besideLanes,
        {gutter} = besideLanes,
        whole = canvas.parentElement.clientWidth,
        width = whole - gutter,
        row = 30,
        g = fitCanvas(canvas, whole, 2 * row + 26),
        scale = width / (view[1] - view[0]);
    lanes.forEach((lane, k) => {
        g.fillStyle = themeColour('text');
        g.fillText(lane.name, 4, k * (row + 4) + row / 2);
    });
    g.save();
    g.translate(gutter, 0);
    g.beginPath();
    g.rect(0, 0, width, 2 * row + 26);
    g.clip();
    lanes.forEach((lane, k) => {
        const y = k * (row + 4);
        g.fillStyle = themeColour('line');
        g.fillRect(0, y, width, row);
        let painted = -1; // what is narrower than a pixel is drawn once for each pixel
        for (const one of lane.intervals) {
            const x = (one.begin - view[0]) * scale,
                size = Math.max(1, (one.end - one.begin) * scale);
            if (x + size < 0 || x > width || x + size < painted) continue;
            g.fillStyle = partColour(one.part);
            g.fillRect(x, y, size - (size > 4 ? 1 : 0), row);
            painted = x + size;
            if (size < 40) continue;
            g.fillStyle = '#ffffff';
            g.fillText(fitText(g, besideLanes.name(one), size - 8), x + 4, y + row / 2);
        }
    });
    const step = niceStep(view[1] - view[0], Math.max(2, width / 120));
    g.fillStyle = themeColour('quiet');
    for (let t = Math.ceil(view[0] / step) * step; t < view[1]; t += step)
        g.fillText(formatTime(t), (t - view[0]) * scale + 2, 2 * row + 16);
    g.restore();
    besideLanes.say(null);
};

besideLanes.keys = event => {
    const [from, to] = besideLanes.view,
        move = (to - from) / 4,
        acts = {
            '+': () => besideLanes.zoom(0.5),
            '=': () => besideLanes.zoom(0.5),
            '-': () => besideLanes.zoom(2),
            ArrowLeft: () => besideLanes.show(from - move, to - move),
            ArrowRight: () => besideLanes.show(from + move, to + move),
            Home: () => besideLanes.show(0, besideLanes.whole)
        };
    if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
};

/** The two timelines; draw() once they are on the page. */
besideLanes.make = (a, b) => {
    besideLanes.lanes ??= [
        {name: 'a', model: a},
        {name: 'b', model: b}
    ].map(({name, model}) => {
        const {begin, end} = model.trace.runs[besideLanes.run];
        return {name, model, time: end - begin, intervals: runIntervals(model, besideLanes.run)};
    });
    besideLanes.whole = Math.max(1, ...besideLanes.lanes.map(lane => lane.time));
    besideLanes.view ??= [0, besideLanes.whole];
    const found = event => besideLanes.find(event.offsetX, event.offsetY);
    const canvas = (besideLanes.canvas = el('canvas', {
        role: 'img',
        tabIndex: 0,
        'aria-label': 'The run in a and in b, on one scale. Plus and minus zoom, arrows move.',
        onkeydown: besideLanes.keys,
        onpointermove: event => besideLanes.say(found(event)),
        onpointerleave: () => besideLanes.say(null),
        onclick: event => {
            const hit = found(event);
            if (!hit || hit.lane.name !== 'a') return;
            app.setTab('timeline');
            timeline.pinEvent(hit.one.event);
        }
    }));
    canvas.addEventListener(
        'wheel',
        event => {
            event.preventDefault();
            const {gutter, zoom} = besideLanes;
            zoom(event.deltaY < 0 ? 0.8 : 1.25, (event.offsetX - gutter) / (canvas.clientWidth - gutter));
        },
        {passive: false}
    );
    besideLanes.line = el('div', {class: 'quiet', role: 'status'});
    const phase = a.name('phase', a.trace.runs[besideLanes.run].phase),
        button = (text, label, act, disabled) => el('button', {'aria-label': label, onclick: act, disabled}, text);
    return el(
        'div',
        {class: 'lanes'},
        el('h3', {}, 'Run by run'),
        el(
            'div',
            {class: 'steps'},
            button('‹', 'Run before', () => besideLanes.go(-1), besideLanes.run === 0),
            el('span', {}, `Run ${besideLanes.run} of ${besideLanes.count()}: ${phase}`),
            button('›', 'Run after', () => besideLanes.go(1), besideLanes.run === besideLanes.count() - 1),
            button('+', 'Zoom in', () => besideLanes.zoom(0.5)),
            button('−', 'Zoom out', () => besideLanes.zoom(2))
        ),
        el('div', {}, canvas),
        besideLanes.line
    );
};
