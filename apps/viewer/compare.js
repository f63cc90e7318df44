// SPDX-License-Identifier: MIT
// The page of a comparison: a chart of divergences, the text coloured by them, a table, and the selected token.

const $ = id => document.getElementById(id);
const data = JSON.parse($('comparison').textContent);
const state = {token: -1, tab: 'text', colour: 'kl', sort: null};
const colours = {
    kl: ['distance (KL)', t => t.kl ?? Infinity],
    a: ['surprise of a', t => -Math.log(Math.max(t.a.p, 1e-12))],
    b: ['surprise of b', t => -Math.log(Math.max(t.b.p, 1e-12))]
};
const parted = t => t.a.choice !== t.b.choice;

/** Replaces invisible characters by visible symbols. */
const shown = text => text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/[\u0000-\u001f\u007f]/g, '·');
const digits = (x, n) => (x === null || !Number.isFinite(x) ? '∞' : x.toFixed(n));
const share = p =>
    p >= 0.0995 ? `${(100 * p).toFixed(0)} %`
    : p >= 0.00095 ? `${(100 * p).toFixed(1)} %`
    : p > 0 ? p.toExponential(0) : '0';

/** From 0 to 1: how strongly a value is shown, against the largest. */
function strengths() {
    const value = colours[state.colour][1];
    const all = data.tokens.map(value), most = Math.max(1e-9, ...all.filter(Number.isFinite));
    return all.map(x => (Number.isFinite(x) ? Math.sqrt(Math.max(0, x) / most) : 1));
}

function choose(i, scroll = true) {
    if (data.tokens.length === 0) return;
    state.token = Math.min(Math.max(i, 0), data.tokens.length - 1);
    for (const node of document.querySelectorAll('[data-token]'))
        node.classList.toggle('selected', Number(node.dataset.token) === state.token);
    const chosen = `#${state.tab} [data-token="${state.token}"]`;
    if (scroll) document.querySelector(chosen)?.scrollIntoView({block: 'nearest'});
    drawChart();
    drawDetails();
}
function jump(step) {
    for (let i = state.token + step; i >= 0 && i < data.tokens.length; i += step)
        if (parted(data.tokens[i])) return choose(i);
}

function drawHead() {
    document.title = `${data.a} and ${data.b}`;
    $('sides').append(
        el('span', {}, `a  ${data.a}`), el('span', {class: 'quiet'}, '   and   '), el('span', {}, `b  ${data.b}`));
    const badge = (kind, text) => el('span', {class: `badge ${kind}`}, text);
    $('badges').append(
        data.first_bits === null ? badge('good', 'the same bits')
            : badge('warn', `other bits from token ${data.first_bits}`),
        data.first_parted === null ? badge('good', 'no other choice')
            : badge('bad', `they part at token ${data.first_parted}`)
    );
    $('status').textContent =
        `${data.tokens.length} tokens · the same choice for ${digits(100 * data.same_choice, 1)} % · ` +
        `mean KL ${digits(data.mean_kl, 6)} · ` +
        `largest ${digits(data.max_kl, 6)} · perplexity ${digits(data.ppl_a, 4)} and ${digits(data.ppl_b, 4)}`;
}

function drawChart() {
    const canvas = $('chart').firstElementChild, ratio = devicePixelRatio || 1;
    const width = $('chart').clientWidth, height = $('chart').clientHeight, n = data.tokens.length;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const ink = canvas.getContext('2d'), css = getComputedStyle(document.documentElement);
    ink.scale(ratio, ratio);
    ink.font = '11px system-ui, sans-serif';
    const strong = strengths(), left = 10, top = 20, room = height - top - 6;
    const w = (width - 2 * left) / Math.max(n, 1);
    for (let i = 0; i < n; ++i) {
        if (i === state.token) {
            ink.fillStyle = css.getPropertyValue('--accent-soft');
            ink.fillRect(left + i * w - 1, 0, Math.max(w, 3) + 1, height);
        }
        ink.fillStyle = css.getPropertyValue(parted(data.tokens[i]) ? '--bad' : '--accent');
        const h = Math.max(1, strong[i] * room);
        ink.fillRect(left + i * w, top + room - h, Math.max(1, w - (w > 4 ? 1 : 0)), h);
    }
    ink.fillStyle = css.getPropertyValue('--quiet');
    ink.fillText(`${colours[state.colour][0]} of each token, root scale; red: they choose differently`, left, 13);
}

function drawText() {
    const strong = strengths();
    const nodes = data.tokens.map((t, i) => {
        const text = /^[\s\u0000-\u001f]*$/.test(t.text)
            ? [el('span', {class: 'shape'}, shown(t.text) || '∅'), /\n/.test(t.text) ? '\n' : ''] : [t.text];
        return el(
            'button',
            {class: (parted(t) ? 'parted' : '') + (i === state.token ? ' selected' : ''),
             style: {'--x': strong[i].toFixed(3)}, onclick: () => choose(i, false),
             'aria-label': `token ${i}: ${shown(t.text)}, KL ${digits(t.kl, 4)}${parted(t) ? ', other choice' : ''}`},
            text
        );
    });
    nodes.forEach((node, i) => (node.dataset.token = i));
    $('text').replaceChildren(el('span', {class: 'prompt'}, data.prompt ?? ''), ...nodes);
}

const columns = [
    ['token', (t, i) => i, (t, i) => i],
    ['recorded', t => t.text, t => shown(t.text)],
    ['a chooses', t => t.a.text, t => (t.a.choice === t.token ? '=' : shown(t.a.text))],
    ['b chooses', t => t.b.text, t => (t.b.choice === t.token ? '=' : shown(t.b.text))],
    ['rank a', t => t.a.rank, t => t.a.rank],
    ['rank b', t => t.b.rank, t => t.b.rank],
    ['p a', t => t.a.p, t => t.a.p.toFixed(4)],
    ['p b', t => t.b.p, t => t.b.p.toFixed(4)],
    ['KL', t => t.kl ?? Infinity, t => digits(t.kl, 5)]
];
function drawTable() {
    const order = data.tokens.map((t, i) => i);
    if (state.sort) {
        const [column, sign] = state.sort, value = columns[column][1];
        const keys = data.tokens.map(value);
        order.sort((x, y) => sign * (keys[x] < keys[y] ? -1 : keys[x] > keys[y] ? 1 : 0) || x - y);
    }
    const head = columns.map(([name], c) => {
        const sorted = state.sort?.[0] === c;
        const again = () => {
            state.sort = sorted && state.sort[1] < 0 ? [c, 1] : [c, -1];
            drawTable();
        };
        const order = sorted ? (state.sort[1] < 0 ? 'descending' : 'ascending') : null;
        return el('th', {class: c >= 1 && c <= 3 ? 'text' : '', 'aria-sort': order},
                  el('button', {onclick: again}, name));
    });
    const rows = order.map(i => {
        const t = data.tokens[i];
        const row = el('tr', {class: i === state.token ? 'selected' : '', onclick: () => choose(i, false)},
                       columns.map(([, , text], c) => el(
                           'td', {class: c >= 1 && c <= 3 ? `text mono${c > 1 && parted(t) ? ' parted' : ''}` : ''},
                           text(t, i))));
        row.dataset.token = i;
        return row;
    });
    $('table').replaceChildren(
        el('table', {class: 'grid'}, el('thead', {}, el('tr', {}, head)), el('tbody', {}, rows)));
}

function drawDetails() {
    const t = data.tokens[state.token];
    if (!t) return;
    const side = (name, s) => {
        const most = Math.max(1e-12, ...s.top.map(o => o.p));
        return el('div', {},
            el('h3', {}, name),
            el('div', {class: `choice${s.choice === t.token ? '' : ' other'}`}, shown(s.text)),
            el('div', {class: 'quiet'}, `chosen with ${share(s.p_choice)}`),
            el('div', {class: 'quiet'}, `recorded one: rank ${s.rank}, ${share(s.p)}`),
            el('div', {class: 'alternatives'}, s.top.map(o =>
                el('div', {},
                    el('div', {class: `name${o.token === t.token ? ' recorded' : ''}`},
                       el('span', {}, shown(o.text)), el('span', {}, share(o.p))),
                    el('div', {class: 'bar'}, el('i', {style: {width: `${(100 * o.p) / most}%`}}))))));
    };
    $('details').replaceChildren(
        el('h2', {}, `Token ${state.token}: `, el('span', {class: 'mono'}, shown(t.text))),
        el('div', {class: 'quiet'}, `id ${t.token}, KL ${digits(t.kl, 6)} nats`),
        parted(t) ? el('div', {class: 'chips'}, el('span', {class: 'badge bad'}, 'they choose differently')) : null,
        el('div', {class: 'pair'}, side('a', t.a), side('b', t.b)));
}

function show(tab) {
    state.tab = tab;
    $('text').hidden = tab !== 'text';
    $('table').hidden = tab !== 'table';
    for (const button of $('tabs').children) button.setAttribute('aria-selected', String(button.dataset.tab === tab));
    if (tab === 'table') drawTable();
    else drawText();
    choose(state.token);
}

function start() {
    drawHead();
    for (const [name, title] of [['text', 'Text'], ['table', 'Table']]) {
        const button = el('button', {role: 'tab', onclick: () => show(name)}, title);
        button.dataset.tab = name;
        $('tabs').append(button);
    }
    const select = el('select', {id: 'colour', onchange: () => {
        state.colour = select.value;
        show(state.tab);
    }}, Object.entries(colours).map(([value, [name]]) => el('option', {value}, name)));
    $('toolbar').append(el('label', {}, 'colour', select), el('span', {class: 'quiet'}, data.sampler ?? ''));
    $('chart').addEventListener('click', event => {
        const box = $('chart').getBoundingClientRect(), left = 10;
        choose(Math.floor(((event.clientX - box.left - left) / (box.width - 2 * left)) * data.tokens.length));
    });
    addEventListener('keydown', event => {
        if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const keys = {ArrowLeft: () => choose(state.token - 1), ArrowRight: () => choose(state.token + 1),
                      n: () => jump(1), p: () => jump(-1),
                      t: () => show(state.tab === 'text' ? 'table' : 'text')};
        const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
        if (!act) return;
        event.preventDefault();
        act();
    });
    addEventListener('resize', drawChart);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    let theme = null;
    const apply = () => {
        document.documentElement.dataset.theme = theme ?? (dark.matches ? 'dark' : 'light');
        drawChart();
    };
    dark.addEventListener('change', apply);
    $('theme').addEventListener('click', () => {
        theme = theme === null ? (dark.matches ? 'light' : 'dark')
            : theme === 'dark' ? 'light'
            : theme === 'light' && !dark.matches ? 'dark' : null;
        apply();
    });
    apply();
    state.token = data.first_parted ?? (data.tokens.length > 0 ? 0 : -1);
    show('text');
}
start();
