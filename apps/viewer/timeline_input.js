// SPDX-License-Identifier: MIT
// Timeline: pointer, wheel, keys, and its table.

timeline.eventAt = (x, y) => {
    const [t0, t1] = app.view(),
        t = t0 + ((x - timeline.gutter) / timeline.width) * (t1 - t0),
        slack = ((t1 - t0) / timeline.width) * 2;
    const lane = timeline.lanes.find(l => y >= l.y - 3 && y <= l.y + l.h + 3);
    if (x < timeline.gutter) return {t, lane, item: -1};
    if (!lane || !lane.count) return {t, lane, item: -1};
    const i = lowerBound(lane.begin, lane.count, t + slack) - 1;
    return {t, lane, item: i >= 0 && lane.end[i] + slack >= t ? i : -1};
};

timeline.tip = (x, y) => {
    const {lane, item, t} = timeline.eventAt(x, y),
        {trace, steps} = app.model,
        e = trace.events;
    if (!lane || item < 0) return null;
    if (lane.key === 'run') {
        const run = trace.runs[item];
        return [
            lane.name(item),
            `${formatTime(run.end - run.begin)} · ${formatBytes(run.observed)} of weights · ${run.ev1 - run.ev0} steps`,
            run.position >= 0
                ? `position ${run.position}, ${run.tokens} token${run.tokens > 1 ? 's' : ''}`
                : `${run.tokens} tokens`,
            ...(run.ids?.[0] >= 0 ? [details.tokens(run)] : [])
        ];
    }
    if (lane.key === 'layer' || lane.key === 'part') {
        const step = steps[e.step[lane.first[item]]];
        return [
            lane.key === 'part' ? step.place : step.layer < 0 ? step.partName : `layer ${step.layer}`,
            formatTime(lane.end[item] - lane.begin[item])
        ];
    }
    const step = steps[e.step[item]],
        lines = [
            `${step.label}`,
            `${step.place} · ${step.kernel}`,
            `${formatTime(e.duration[item])} · ${formatBytes(e.bytes[item])} · ` +
                formatRate(e.bytes[item], e.duration[item])
        ];
    if (lane.key === 'thread') {
        const k = e.firstSpan[item] + lane.thread;
        if (k < e.firstSpan[item + 1])
            lines.push(
                `thread ${lane.thread}: starts after ${formatTime(trace.spans.start[k])}, ` +
                    `busy ${formatTime(trace.spans.busy[k])}, ` +
                    `waits ${formatTime(Math.max(0, e.duration[item] - trace.spans.busy[k]))}`
            );
    }
    for (const t of step.tensors.slice(0, 4)) lines.push(trace.tensors[t].label);
    return lines;
};

timeline.zoom = (factor, at) => {
    const [t0, t1] = app.view(),
        centre = at ?? (t0 + t1) / 2;
    app.setView([centre - (centre - t0) * factor, centre + (t1 - centre) * factor]);
};
timeline.pan = share => {
    const [t0, t1] = app.view(),
        d = (t1 - t0) * share;
    app.setView([t0 + d, t1 + d]);
};
timeline.fit = () => {
    const {selection, pin} = app.state,
        e = app.model.trace.events;
    if (selection) app.setView(selection);
    else if (pin?.kind === 'event') {
        const d = Math.max(e.duration[pin.event], 50);
        app.setView([e.begin[pin.event] - d, e.begin[pin.event] + 2 * d]);
    } else app.setView([app.model.begin, app.model.end]);
};

/** The view is one step and a little around it. */
timeline.zoomTo = i => {
    const e = app.model.trace.events,
        d = Math.max(e.duration[i], 10);
    app.setTab('timeline');
    app.setView([e.begin[i] - 0.08 * d, e.begin[i] + 1.08 * d]);
    app.setPin({kind: 'event', event: i});
};

timeline.pointer = (kind, event, x, y) => {
    const {t, lane, item} = timeline.eventAt(x, y);
    if (kind === 'down') timeline.drag = {x, t, view: app.view(), select: event.shiftKey, moved: false};
    else if (kind === 'move' && timeline.drag) {
        const drag = timeline.drag;
        if (Math.abs(x - drag.x) > 3) drag.moved = true;
        if (!drag.moved) return;
        showTip(event, null);
        if (drag.select) app.setSelection([Math.min(drag.t, t), Math.max(drag.t, t)], true);
        else {
            const d = ((drag.x - x) / timeline.width) * (drag.view[1] - drag.view[0]);
            app.setView([drag.view[0] + d, drag.view[1] + d]);
        }
    } else if (kind === 'move') {
        timeline.pointerTime = t;
        showTip(event, timeline.tip(x, y));
    } else if (kind === 'up' && timeline.drag) {
        const drag = timeline.drag;
        timeline.drag = null;
        if (drag.moved) {
            if (drag.select) app.changed();
            return;
        }
        if (item < 0 || !lane) app.setPin(null);
        else if (lane.key === 'run') app.setPin({kind: 'run', run: item});
        else if (lane.key === 'layer' && lane.keys[item] >= 0) app.setPin({kind: 'layer', layer: lane.keys[item]});
        else if (lane.key === 'layer' || lane.key === 'part') app.setPin({kind: 'event', event: lane.first[item]});
        else app.setPin({kind: 'event', event: item});
    } else if (kind === 'double') {
        if (item >= 0 && (lane.key === 'step' || lane.key === 'thread')) timeline.zoomTo(item);
        else timeline.zoom(0.4, t);
    }
};
timeline.wheel = (event, x) => {
    const [t0, t1] = app.view(),
        t = t0 + ((x - timeline.gutter) / timeline.width) * (t1 - t0);
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
        timeline.pan((event.deltaX || event.deltaY) / 900);
    else timeline.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.0035), t);
};

timeline.key = key => {
    const e = app.model.trace.events,
        pin = app.state.pin;
    const keys = {
        w: () => timeline.zoom(0.6),
        s: () => timeline.zoom(1 / 0.6),
        a: () => timeline.pan(-0.2),
        d: () => timeline.pan(0.2),
        f: () => timeline.fit(),
        z: () => pin?.kind === 'event' && timeline.zoomTo(pin.event),
        0: () => app.setView([app.model.begin, app.model.end]),
        m: () => {
            const t = timeline.pointerTime ?? (app.view()[0] + app.view()[1]) / 2;
            app.state.marks = [...app.state.marks, Math.max(0, Math.round(t))];
            app.render();
        },
        ArrowRight: () =>
            timeline.pinEvent(pin?.kind === 'event' ? pin.event + 1 : lowerBound(e.begin, e.count, app.view()[0])),
        ArrowLeft: () =>
            timeline.pinEvent(pin?.kind === 'event' ? pin.event - 1 : lowerBound(e.begin, e.count, app.view()[0])),
        '[': () => timeline.sameStep(-1),
        ']': () => timeline.sameStep(1)
    };
    if (!keys[key]) return false;
    keys[key]();
    return true;
};

/** Pins an event and moves the view as far as needed to see it. */
timeline.pinEvent = i => {
    const e = app.model.trace.events;
    if (i < 0 || i >= e.count) return;
    let [t0, t1] = app.view();
    const stop = e.begin[i] + e.duration[i];
    if (e.begin[i] < t0 || stop > t1) {
        const span = Math.max(t1 - t0, e.duration[i] * 2),
            middle = (e.begin[i] + stop) / 2;
        app.setView([middle - span / 2, middle + span / 2]);
    }
    app.setPin({kind: 'event', event: i});
};
timeline.sameStep = direction => {
    const {pin} = app.state,
        model = app.model;
    if (pin?.kind !== 'event') return;
    const s = model.trace.events.step[pin.event],
        list = model.stepEvents.subarray(model.stepFirst[s], model.stepFirst[s + 1]);
    const at = list.indexOf(pin.event) + direction;
    if (at < 0 || at >= list.length) return;
    const e = model.trace.events,
        [t0, t1] = app.view(),
        shift = e.begin[list[at]] - e.begin[pin.event];
    app.setView([t0 + shift, t1 + shift]);
    app.setPin({kind: 'event', event: list[at]});
};

/** The same as a table: the events in view. */
timeline.table = () => {
    const {trace, steps} = app.model,
        e = trace.events,
        [t0, t1] = app.view(),
        rows = [];
    const from = lowerBound(e.begin, e.count, t0),
        to = lowerBound(e.begin, e.count, t1);
    for (let i = from; i < to && rows.length < 1000; ++i) {
        const step = steps[e.step[i]];
        if (!app.masks.steps[e.step[i]]) continue;
        rows.push({
            cells: [
                formatTime(e.begin[i] - app.model.begin),
                formatTime(e.duration[i]),
                step.layer < 0 ? '' : step.layer,
                step.partName,
                step.label,
                step.kernel,
                formatBytes(e.bytes[i]),
                formatRate(e.bytes[i], e.duration[i])
            ],
            pick: () => app.setPin({kind: 'event', event: i})
        });
    }
    return {
        columns: ['begin', 'duration', 'layer', '*part', '*step', '*kernel', 'bytes', 'rate'],
        rows,
        note: to - from > 1000 ? `the first 1000 of ${formatCount(to - from)} steps in view` : ''
    };
};
