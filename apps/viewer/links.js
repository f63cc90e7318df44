// SPDX-License-Identifier: MIT
// What is pinned and how tabs are set, as text in the address, so that a link opens at the same place.

const links = {
    tabs: {
        layers: ['columns', 'value'],
        heat: ['rows', 'columns', 'mode'],
        roofline: ['by'],
        timeline: ['colourBy'],
        tensors: ['sort']
    }
};

links.pinText = pin => {
    if (!pin) return '';
    const {trace, steps} = app.model,
        e = trace.events;
    switch (pin.kind) {
        case 'event':
            return `event,${trace.runs[e.run[pin.event]]?.run ?? ''},${steps[e.step[pin.event]].number}`;
        case 'run':
            return `run,${trace.runs[pin.run].run}`;
        case 'layer':
            return `layer,${pin.layer},${encodeURIComponent(pin.part ?? '')}`;
        case 'part':
            return `part,${pin.layer},${encodeURIComponent(pin.part)}`;
        case 'tensor':
            return `tensor,${pin.tensor}`;
        case 'expert':
            return `expert,${pin.layer},${pin.expert}`;
        case 'group':
            return pin.steps.length > 400
                ? ''
                : `group,${encodeURIComponent(pin.label.slice(0, 200))},${pin.steps.join('.')}`;
        default:
            return '';
    }
};

/** The pin of such a text; null where it is none of this trace. */
links.pin = text => {
    const {trace, steps, layers: n} = app.model,
        [kind, a, b] = (text ?? '').split(','),
        number = Number(a),
        plain = part => {
            try {
                return decodeURIComponent(part ?? '');
            } catch {
                return ''; /* a truncated address */
            }
        };
    if (kind === 'group') {
        const list = (b ?? '').split('.').map(Number);
        return list.every(s => steps[s]) ? {kind, label: plain(a), steps: list} : null;
    }
    if (!Number.isInteger(number)) return null;
    const run = trace.runs.findIndex(r => r.run === number);
    if (kind === 'run') return run >= 0 ? {kind, run} : null;
    if (kind === 'event' && run >= 0) {
        const e = trace.events;
        for (let i = trace.runs[run].ev0; i < trace.runs[run].ev1; ++i)
            if (e.run[i] === run && steps[e.step[i]].number === Number(b)) return {kind, event: i};
        return null;
    }
    if (kind === 'layer') return number < n ? {kind, layer: number, ...(b ? {part: plain(b)} : {})} : null;
    if (kind === 'part') return {kind, layer: number, part: plain(b)};
    if (kind === 'tensor') return trace.tensors[number] ? {kind, tensor: number} : null;
    if (kind === 'expert')
        return experts.get()?.layers.includes(number) ? {kind, layer: number, expert: Number(b)} : null;
    return null;
};

/** How the tabs are set: "layers.value:bytes,roofline.by:layer". */
links.tabsText = () =>
    app.tabs
        .flatMap(tab =>
            (links.tabs[tab.id] ?? []).map(key => [`${tab.id}.${key}`, tab[key], links.first?.[tab.id]?.[key]])
        )
        .filter(([, value, first]) => value !== first)
        .map(([key, value]) => `${key}:${value}`)
        .join(',');
links.setTabs = text => {
    links.first ??= Object.fromEntries(
        app.tabs.map(tab => [tab.id, Object.fromEntries((links.tabs[tab.id] ?? []).map(key => [key, tab[key]]))])
    );
    for (const item of (text ?? '').split(',')) {
        const match = /^(\w+)\.(\w+):(\w+)$/.exec(item),
            tab = match && app.tabs.find(t => t.id === match[1]);
        if (tab && links.tabs[tab.id]?.includes(match[2])) tab[match[2]] = match[3];
    }
};

/** Copies a text and says so; pages from disk may have no clipboard. */
links.copy = async (text, button) => {
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        const area = el('textarea', {value: text, class: 'hidden'});
        document.body.append(area);
        area.select();
        document.execCommand('copy');
        area.remove();
    }
    const before = button.textContent;
    button.textContent = 'Copied';
    setTimeout(() => {
        button.textContent = before;
    }, 1200);
};
