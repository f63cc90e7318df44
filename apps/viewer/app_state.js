// SPDX-License-Identifier: MIT
// State of the page and its form in the address; formatting of numbers, elements, colours.

const app = {
    model: null,
    masks: null,
    sums: null,
    tensorSums: null,
    tabs: [],
    fileName: '',
    state: {
        tab: 'timeline',
        filter: '',
        phase: '',
        selection: null,
        view: null,
        pin: null,
        table: false,
        folded: false,
        marks: []
    }
};

function formatTime(ns) {
    const a = Math.abs(ns);
    if (a >= 1e9) return `${(ns / 1e9).toFixed(3)} s`;
    if (a >= 1e6) return `${(ns / 1e6).toFixed(3)} ms`;
    if (a >= 1e3) return `${(ns / 1e3).toFixed(a >= 1e5 ? 0 : 2)} µs`;
    return `${Math.round(ns)} ns`;
}
/** A time on an axis, with as many digits as its steps need. */
function axisTime(ns, step, most) {
    const [unit, size] = most >= 1e10 ? ['s', 1e9] : most >= 1e7 ? ['ms', 1e6] : most >= 1e4 ? ['µs', 1e3] : ['ns', 1];
    const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9)));
    return `${(ns / size).toFixed(digits)} ${unit}`;
}
function formatBytes(n) {
    for (const unit of ['B', 'KiB', 'MiB', 'GiB', 'TiB']) {
        if (Math.abs(n) < 1024 || unit === 'TiB')
            return unit === 'B' ? `${Math.round(n)} B` : `${n.toFixed(n < 10 ? 2 : 1)} ${unit}`;
        n /= 1024;
    }
}
const formatRate = (bytes, ns) => {
    const rate = bytes / ns,
        small = rate < 0.1;
    if (!(ns > 0)) return '–';
    return small ? `${(1000 * rate).toFixed(1)} MB/s` : `${rate.toFixed(rate >= 10 ? 1 : 2)} GB/s`;
};
const formatShare = x => (Number.isFinite(x) ? `${(100 * x).toFixed(x < 0.0995 ? 1 : 0)} %` : '–');
const formatCount = n =>
    Math.round(n)
        .toString()
        .replace(/\B(?=(\d{3})+$)/g, '\u202f');

const PART_COLOURS = {
    none: '#8a8f98',
    embed: '#e3a008',
    attn_norm: '#8fb8e8',
    attn: '#2f6fbb',
    attn_out: '#56b4e9',
    ffn_norm: '#8fd3b6',
    ffn: '#009e73',
    router: '#b8a900',
    experts: '#d55e00',
    shared_expert: '#e69f6b',
    state: '#7b61c4',
    head: '#cc79a7',
    pool: '#a0765b'
};
const OTHER_COLOURS = [
    '#2f6fbb',
    '#e3a008',
    '#009e73',
    '#d55e00',
    '#cc79a7',
    '#56b4e9',
    '#7b61c4',
    '#b8a900',
    '#8fd3b6',
    '#a0765b',
    '#8fb8e8',
    '#e69f6b',
    '#5b8c5a',
    '#8a8f98'
];
const PHASE_COLOURS = {
    prefill: '#7b61c4',
    decode: '#2f6fbb',
    verify: '#e3a008',
    encode: '#009e73',
    load: '#d55e00',
    warm_up: '#8a8f98',
    maintenance: '#a0765b'
};
const partColour = name => PART_COLOURS[name] ?? '#8a8f98';

const isDark = () => document.documentElement.dataset.theme === 'dark';
const themeColours = new Map(); // a cache that is cleared when the theme changes
function themeColour(name) {
    let colour = themeColours.get(name);
    if (!colour)
        themeColours.set(
            name,
            (colour = getComputedStyle(document.documentElement)
                .getPropertyValue('--' + name)
                .trim())
        );
    return colour;
}

// light to dark on paper, dark to light on black: in both, more is further from the ground
const RAMPS = {
    light: [
        [233, 244, 222],
        [160, 217, 187],
        [70, 170, 186],
        [40, 104, 160],
        [25, 42, 98]
    ],
    dark: [
        [28, 46, 84],
        [28, 92, 140],
        [38, 150, 160],
        [128, 205, 150],
        [248, 238, 170]
    ]
};
function rampColour(x) {
    const stops = RAMPS[isDark() ? 'dark' : 'light'],
        at = Math.min(0.9999, Math.max(0, x)) * (stops.length - 1),
        i = Math.floor(at);
    return stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * (at - i)));
}
const rampCss = x => `rgb(${rampColour(x).join(' ')})`;
/** Text that is legible on a colour of the ramp. */
function inkOn([r, g, b]) {
    return 0.3 * r + 0.59 * g + 0.11 * b > 140 ? '#10151c' : '#ffffff';
}
function rampLegend(low, high, blank) {
    return el(
        'span',
        {},
        blank ? el('span', {style: {'margin-right': '8px'}}, el('i', {style: {border: '1px solid'}}), blank) : null,
        low,
        el('span', {
            class: 'ramp',
            style: {background: `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(rampCss).join(', ')})`}
        }),
        high
    );
}

/** A canvas that fills its element, in real pixels; draw(context, width, height). */
function fitCanvas(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.max(1, Math.round(width * ratio));
        canvas.height = Math.max(1, Math.round(height * ratio));
        canvas.style.width = width + 'px';
        canvas.style.height = height + 'px';
    }
    const g = canvas.getContext('2d');
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
    g.textBaseline = 'middle';
    return g;
}
function hatch(g, colour) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const t = tile.getContext('2d');
    t.strokeStyle = colour;
    t.lineWidth = 1.2;
    t.beginPath();
    for (const d of [-6, 0, 6]) {
        t.moveTo(d, 6);
        t.lineTo(d + 6, 0);
    }
    t.stroke();
    return g.createPattern(tile, 'repeat');
}
/** Text cut to a width, with an ellipsis. */
function fitText(g, text, width) {
    if (text.length > 400) text = text.slice(0, 400);
    if (g.measureText(text).width <= width) return text;
    let low = 0,
        high = text.length;
    while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (g.measureText(text.slice(0, middle) + '…').width <= width) low = middle;
        else high = middle - 1;
    }
    return low ? text.slice(0, low) + '…' : '';
}
/** Round steps for an axis of about n labels: 1, 2, 5 times a power of ten. */
function niceStep(span, n) {
    const raw = span / Math.max(1, n),
        power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map(k => k * power).find(s => s >= raw) ?? raw;
}

function showTip(event, lines) {
    const tip = document.getElementById('tip');
    if (!lines || !lines.length) {
        tip.hidden = true;
        return;
    }
    tip.replaceChildren(...lines.map(line => el('div', {}, line.length > 300 ? line.slice(0, 300) + '…' : line)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + 'px';
    tip.style.top =
        Math.max(
            4,
            event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18
        ) + 'px';
}

/** State in the fragment of the address, so that a link or a reload shows the same. */
function writeFragment() {
    const {tab, filter, phase, selection, view, marks} = app.state,
        parts = [`tab=${tab}`];
    if (filter) parts.push('filter=' + encodeURIComponent(filter));
    if (phase) parts.push('phase=' + encodeURIComponent(phase));
    if (selection) parts.push('sel=' + selection.map(Math.round).join('-'));
    if (view && app.model && (view[0] > app.model.begin || view[1] < app.model.end))
        parts.push('view=' + view.map(Math.round).join('-'));
    if (marks.length) parts.push('marks=' + marks.map(Math.round).join(','));
    if (app.state.table) parts.push('table=1');
    if (app.state.folded) parts.push('folded=1');
    const pin = app.model && links.pinText(app.state.pin),
        tabs = links.tabsText();
    if (tabs) parts.push('tabs=' + tabs);
    if (pin) parts.push('pin=' + pin);
    history.replaceState(null, '', '#' + parts.join('&'));
}
function readFragment() {
    const pairs = Object.fromEntries(
        location.hash
            .slice(1)
            .split('&')
            .map(part => {
                const at = part.indexOf('=');
                return [part.slice(0, at), part.slice(at + 1)];
            })
    );
    const span = text => {
        const match = /^(-?\d+)-(\d+)$/.exec(text ?? '');
        return match && Number(match[2]) > Number(match[1]) ? [Number(match[1]), Number(match[2])] : null;
    };
    const plain = text => {
        try {
            return decodeURIComponent(text ?? '');
        } catch {
            return ''; /* a truncated address */
        }
    };
    return {
        tab: pairs.tab,
        filter: plain(pairs.filter),
        phase: plain(pairs.phase),
        folded: pairs.folded === undefined ? null : pairs.folded === '1',
        tabs: pairs.tabs,
        pin: pairs.pin,
        selection: span(pairs.sel),
        view: span(pairs.view),
        table: pairs.table === '1',
        marks: (pairs.marks ?? '')
            .split(',')
            .filter(s => /^\d+$/.test(s))
            .map(Number)
    };
}
