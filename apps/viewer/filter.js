// SPDX-License-Identifier: MIT
// The filter box: terms `key:value`, all of which must match; values are lists (a,b), numbers and ranges (3-10), or
// globs. A term without key searches tensors, kernels and ops. A leading minus negates a term.

const FILTER_KEYS = ['layer', 'part', 'op', 'kernel', 'tensor', 'role', 'type', 'phase', 'run', 'plan', 'token'];

function globToRegExp(glob) {
    return new RegExp(
        '^' +
            glob
                .replace(/[.+^${}()|[\]\\]/g, '\\$&')
                .replace(/\*/g, '.*')
                .replace(/\?/g, '.') +
            '$',
        'i'
    );
}

/** Text to [{key, not, test}]; throws with the word that is wrong. */
function parseFilter(text) {
    const words = text.trim().split(/\s+/).filter(Boolean);
    return words.map(word => {
        const not = word.startsWith('-'),
            body = not ? word.slice(1) : word,
            colon = body.indexOf(':');
        if (colon < 0) {
            const needle = globToRegExp('*' + body + '*');
            return {text: word, key: 'any', not, test: value => needle.test(value)};
        }
        const key = body.slice(0, colon),
            list = body
                .slice(colon + 1)
                .split(',')
                .filter(Boolean);
        if (!FILTER_KEYS.includes(key)) throw new Error(`no key "${key}": ${FILTER_KEYS.join(', ')}`);
        if (!list.length) throw new Error(`"${key}:" needs a value`);
        if (['layer', 'run', 'plan', 'token'].includes(key)) {
            const spans = list.map(item => {
                const match = /^(\d+)(?:-(\d*))?$/.exec(item);
                if (!match && !(key === 'layer' && item === 'none'))
                    throw new Error(`"${item}" is no number or span of numbers`);
                if (!match) return [-1, -1];
                return [
                    Number(match[1]),
                    match[2] === undefined ? Number(match[1]) : match[2] ? Number(match[2]) : Infinity
                ];
            });
            return {text: word, key, not, test: value => spans.some(([a, b]) => value >= a && value <= b)};
        }
        const globs = list.map(globToRegExp);
        return {text: word, key, not, test: value => globs.some(glob => glob.test(value))};
    });
}

/** Masks of a filter: which steps, which runs, which tensors pass (0 or 1 each). */
function compileFilter(words, model) {
    const steps = new Uint8Array(model.steps.length).fill(1),
        runs = new Uint8Array(model.trace.runs.length).fill(1);
    const tensors = new Uint8Array(model.trace.tensors.length).fill(1);
    const tensorText = {tensor: t => t.name, role: t => t.roleName, type: t => t.typeName};
    for (const {key, not, test} of words) {
        const holds = value => test(value) !== not;
        if (key === 'run' || key === 'phase' || key === 'token')
            model.trace.runs.forEach((run, i) => {
                runs[i] &= holds(
                    key === 'run' ? run.run : key === 'phase' ? model.name('phase', run.phase) : run.position
                );
            });
        else if (tensorText[key]) {
            model.trace.tensors.forEach((t, i) => {
                tensors[i] &= holds(tensorText[key](t));
            });
            model.steps.forEach((step, i) => {
                steps[i] &= step.tensors.some(t => test(tensorText[key](model.trace.tensors[t]))) !== not;
            });
        } else {
            model.steps.forEach((step, i) => {
                const value = {
                    layer: step.layer,
                    part: step.partName,
                    op: step.opName,
                    kernel: step.kernel,
                    plan: step.planId
                }[key];
                const any = () =>
                    test(step.opName) ||
                    test(step.kernel) ||
                    test(step.partName) ||
                    step.tensors.some(t => test(model.trace.tensors[t].name));
                steps[i] &= key === 'any' ? any() !== not : holds(value);
            });
            if (key === 'layer')
                model.trace.tensors.forEach((t, i) => {
                    tensors[i] &= holds(t.layer);
                });
            if (key === 'any')
                model.trace.tensors.forEach((t, i) => {
                    tensors[i] &= holds(t.name);
                });
        }
    }
    return {steps, runs, tensors};
}
