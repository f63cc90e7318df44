// SPDX-License-Identifier: MIT
// Elements of a page, for the viewer and for the page of comparisons.

/** An element with properties and children; text is always text. */
function el(tag, props = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(props)) {
        if (value === undefined || value === null) continue;
        if (key === 'class') node.className = value;
        else if (key === 'style') for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
        else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
        else if (key.startsWith('aria-') || key === 'role' || key === 'for') node.setAttribute(key, value);
        else node[key] = value;
    }
    node.append(
        ...children
            .flat()
            .filter(c => c !== null && c !== undefined)
            .map(c => (c instanceof Node ? c : String(c)))
    );
    return node;
}

/** A select element with items [value, text, disabled]; calls chosen(value). */
function choice(label, items, current, chosen) {
    const option = ([value, text, off]) => el('option', {value, selected: value === current, disabled: off}, text);
    const onchange = event => chosen(event.target.value);
    return el('label', {}, label, el('select', {'aria-label': label, onchange}, items.map(option)));
}
