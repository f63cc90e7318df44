// SPDX-License-Identifier: MIT
// Phases are never mixed: prompt, tokens and checks of drafts are different work, so that a mean over them says
// nothing. A switch chooses one; the page opens with the one that has most of the time.

const phases = {list: [], now: null};

/** Time of each phase among runs that pass, inside the selection: [{phase, name, time, runs}], most time first. */
phases.count = (model, runMask, selection) => {
    const of = new Map(),
        [from, to] = selection ?? [-Infinity, Infinity];
    model.trace.runs.forEach((run, i) => {
        const time = Math.min(run.end, to) - Math.max(run.begin, from);
        if (!runMask[i] || !(time > 0)) return;
        const item = of.get(run.phase) ?? {phase: run.phase, name: model.name('phase', run.phase), time: 0, runs: 0};
        item.time += time;
        ++item.runs;
        of.set(run.phase, item);
    });
    return [...of.values()].sort((a, b) => b.time - a.time);
};

/** Which phase counts: the chosen one where the filter and the selection leave runs of it, else the one with most
    time. A filter that names phases is the choice itself. */
phases.choose = (words, runMask) => {
    const {model, state} = app;
    phases.list = phases.count(model, new Uint8Array(runMask.length).fill(1), null);
    if (words.some(word => word.key === 'phase')) return (phases.now = null);
    const here = phases.count(model, runMask, state.selection);
    phases.now = (here.find(item => item.name === state.phase) ?? here[0])?.phase ?? null;
    return phases.now;
};

/** The name of what counts, for titles: "decode", or the filter's phases. */
phases.text = () => (phases.now === null ? 'phases of the filter' : app.model.name('phase', phases.now));

phases.draw = () => {
    const all = phases.list.reduce((sum, item) => sum + item.time, 0),
        had = document.activeElement?.closest?.('#phases');
    $('phases').replaceChildren(
        ...phases.list.map(item => {
            const on = item.phase === phases.now;
            return el(
                'button',
                {
                    role: 'radio',
                    'aria-checked': String(on),
                    tabIndex: on || (phases.now === null && item === phases.list[0]) ? 0 : -1,
                    title: `${formatCount(item.runs)} runs, ${formatTime(item.time)} (P: the next phase)`,
                    onclick: () => phases.set(item.name)
                },
                `${item.name} ${formatShare(item.time / all)}`
            );
        })
    );
    if (had) $('phases').querySelector('[tabindex="0"]')?.focus();
};
phases.set = name => {
    const {state} = app;
    state.phase = name;
    state.filter = state.filter
        .split(/\s+/)
        .filter(word => !/^-?phase:/.test(word))
        .join(' ');
    const here = phases.count(app.model, new Uint8Array(app.model.trace.runs.length).fill(1), state.selection);
    if (!here.some(item => item.name === name)) state.selection = null;
    app.changed();
};
phases.next = step => {
    const at = phases.list.findIndex(item => item.phase === phases.now),
        n = phases.list.length;
    if (n) phases.set(phases.list[(at + step + n) % n].name);
};
