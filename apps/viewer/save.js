// SPDX-License-Identifier: MIT
// The picture of a tab as a file: the same drawing calls write SVG, tables become rectangles and texts; PNG is the SVG
// drawn at twice the size.

/** Takes what the tabs ask of a canvas (the calls and properties they use), and keeps it as SVG. */
class SvgContext {
    constructor(width, height) {
        Object.assign(this, {
            width,
            height,
            fillStyle: '#000',
            strokeStyle: '#000',
            lineWidth: 1,
            globalAlpha: 1,
            textAlign: 'left',
            textBaseline: 'middle',
            font: '12px sans-serif',
            imageSmoothingEnabled: true
        });
        this.out = [];
        this.defs = [];
        this.stack = [];
        this.path = '';
        this.matrix = [1, 0, 0, 1, 0, 0];
        this.clips = 0;
        this.dash = [];
        this.ruler = document.createElement('canvas').getContext('2d');
    }
    number(x) {
        return String(Math.round(x * 100) / 100);
    }
    escape(text) {
        return String(text)
            .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '')
            .replace(/[&<>"]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'})[c]);
    }
    place() {
        const m = this.matrix,
            plain = m.every((v, i) => v === [1, 0, 0, 1, 0, 0][i]);
        return plain ? '' : ` transform="matrix(${m.map(v => this.number(v)).join(' ')})"`;
    }
    alpha() {
        return this.globalAlpha < 1 ? ` opacity="${this.number(this.globalAlpha)}"` : '';
    }
    paint(style) {
        return typeof style === 'string' ? this.escape(style) : 'url(#hatch)';
    }
    setTransform() {}
    clearRect() {}
    setLineDash(list) {
        this.dash = list;
    }
    save() {
        const {fillStyle, strokeStyle, lineWidth, globalAlpha, textAlign, font, matrix, dash, clips} = this;
        this.stack.push({
            fillStyle,
            strokeStyle,
            lineWidth,
            globalAlpha,
            textAlign,
            font,
            matrix: [...matrix],
            dash,
            clips
        });
    }
    restore() {
        const before = this.stack.pop();
        for (; before && this.clips > before.clips; --this.clips) this.out.push('</g>');
        Object.assign(this, before);
    }
    translate(x, y) {
        const m = this.matrix;
        this.matrix = [m[0], m[1], m[2], m[3], m[0] * x + m[2] * y + m[4], m[1] * x + m[3] * y + m[5]];
    }
    rotate(angle) {
        const [a, b, c, d, e, f] = this.matrix,
            cos = Math.cos(angle),
            sin = Math.sin(angle);
        this.matrix = [a * cos + c * sin, b * cos + d * sin, c * cos - a * sin, d * cos - b * sin, e, f];
    }
    beginPath() {
        this.path = '';
    }
    moveTo(x, y) {
        this.path += `M${this.number(x)} ${this.number(y)}`;
    }
    lineTo(x, y) {
        this.path += `${this.path ? 'L' : 'M'}${this.number(x)} ${this.number(y)}`;
    }
    bezierCurveTo(...at) {
        this.path += `C${at.map(v => this.number(v)).join(' ')}`;
    }
    closePath() {
        this.path += 'Z';
    }
    rect(x, y, w, h) {
        this.path += `M${this.number(x)} ${this.number(y)}h${this.number(w)}v${this.number(h)}h${this.number(-w)}Z`;
    }
    roundRect(x, y, w, h, r) {
        const n = v => this.number(v),
            k = Math.min(Array.isArray(r) ? r[0] : r, w / 2, h / 2),
            arc = (dx, dy) => `a${n(k)} ${n(k)} 0 0 1 ${n(dx)} ${n(dy)}`;
        this.path +=
            `M${n(x + k)} ${n(y)}h${n(w - 2 * k)}${arc(k, k)}v${n(h - 2 * k)}${arc(-k, k)}` +
            `h${n(2 * k - w)}${arc(-k, -k)}v${n(2 * k - h)}${arc(k, -k)}Z`;
    }
    arc(x, y, r) {
        const n = v => this.number(v);
        this.path += `M${n(x - r)} ${n(y)}a${n(r)} ${n(r)} 0 1 0 ${n(2 * r)} 0a${n(r)} ${n(r)} 0 1 0 ${n(-2 * r)} 0Z`;
    }
    clip() {
        const id = `clip${this.defs.length}`;
        this.defs.push(`<clipPath id="${id}"><path d="${this.path}"${this.place()}/></clipPath>`);
        this.out.push(`<g clip-path="url(#${id})">`);
        ++this.clips;
    }
    fill() {
        if (this.path)
            this.out.push(
                `<path d="${this.path}" fill="${this.paint(this.fillStyle)}"${this.alpha()}${this.place()}/>`
            );
    }
    stroke() {
        const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(' ')}"` : '';
        if (this.path)
            this.out.push(
                `<path d="${this.path}" fill="none" stroke="${this.paint(this.strokeStyle)}" ` +
                    `stroke-width="${this.number(this.lineWidth)}"${dash}${this.alpha()}${this.place()}/>`
            );
    }
    box(x, y, w, h) {
        return `x="${this.number(x)}" y="${this.number(y)}" width="${this.number(w)}" height="${this.number(h)}"`;
    }
    fillRect(x, y, w, h) {
        if (w > 0 && h > 0)
            this.out.push(
                `<rect ${this.box(x, y, w, h)} fill="${this.paint(this.fillStyle)}"${this.alpha()}${this.place()}/>`
            );
    }
    strokeRect(x, y, w, h) {
        this.out.push(
            `<rect ${this.box(x, y, w, h)} fill="none" stroke="${this.paint(this.strokeStyle)}" ` +
                `stroke-width="${this.number(this.lineWidth)}"${this.alpha()}${this.place()}/>`
        );
    }
    measureText(text) {
        this.ruler.font = this.font;
        return this.ruler.measureText(text);
    }
    fillText(text, x, y) {
        const anchor = {left: '', right: ' text-anchor="end"', center: ' text-anchor="middle"'}[this.textAlign] ?? '';
        if (String(text))
            this.out.push(
                `<text x="${this.number(x)}" y="${this.number(y)}" dominant-baseline="central"${anchor} ` +
                    `style="font:${this.escape(this.font)}" fill="${this.paint(this.fillStyle)}"${this.alpha()}` +
                    `${this.place()} xml:space="preserve">${this.escape(text)}</text>`
            );
    }
    drawImage(image, x, y, w, h) {
        this.out.push(
            `<image ${this.box(x, y, w, h)} preserveAspectRatio="none" style="image-rendering:pixelated" ` +
                `href="${image.toDataURL('image/png')}"/>`
        );
    }
    createPattern() {
        return {};
    }
    svg(ground, quiet) {
        for (; this.clips > 0; --this.clips) this.out.push('</g>');
        return (
            `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" ` +
            `viewBox="0 0 ${this.width} ${this.height}"><defs><pattern id="hatch" width="6" height="6" ` +
            `patternUnits="userSpaceOnUse"><path d="M-1 7L7 -1" stroke="${quiet}" stroke-width="1.2"/></pattern>` +
            `${this.defs.join('')}</defs><rect width="100%" height="100%" fill="${ground}"/>${this.out.join('')}</svg>`
        );
    }
}

const saving = {};

/** The current tab as SVG: its canvas drawn once more, or the cells of its table. */
saving.svg = () => {
    const tab = app.tab(),
        stage = $('stage'),
        canvas = stage.querySelector(':scope > canvas');
    let g;
    if (canvas && !app.state.table) {
        const width = stage.clientWidth,
            height = stage.clientHeight;
        g = new SvgContext(width, height);
        const note = stage.querySelector('.note');
        tab.draw({parentElement: stage, width: 0, height: 0, style: {}, getContext: () => g});
        if (!note) stage.querySelector('.note')?.remove();
    } else {
        const table = (app.state.table ? $('table') : stage).querySelector('table'),
            frame = (table ?? stage).getBoundingClientRect();
        g = new SvgContext(Math.ceil(frame.width) + 16, Math.ceil(frame.height) + 16);
        g.translate(8, 8);
        for (const cell of table?.querySelectorAll('th, td, td i') ?? []) saving.cell(g, cell, frame);
    }
    return g.svg(themeColour('bg'), themeColour('quiet'));
};
saving.cell = (g, cell, frame) => {
    const box = cell.getBoundingClientRect(),
        style = getComputedStyle(cell),
        x = box.left - frame.left,
        y = box.top - frame.top;
    if (!/rgba\(0, 0, 0, 0\)|transparent/.test(style.backgroundColor)) {
        g.fillStyle = style.backgroundColor;
        g.fillRect(x, y, box.width, box.height);
    }
    const text = cell.tagName === 'I' ? '' : cell.innerText.trim();
    if (!text) return;
    const right = style.textAlign === 'right' || style.textAlign === 'end';
    g.font = `${style.fontWeight} ${style.fontSize} system-ui, sans-serif`;
    g.fillStyle = style.color;
    g.textAlign = right ? 'right' : 'left';
    const bar = cell.querySelector('i')?.getBoundingClientRect().right ?? 0;
    g.fillText(
        text,
        right
            ? x + box.width - parseFloat(style.paddingRight)
            : Math.max(x + parseFloat(style.paddingLeft), bar ? bar - frame.left + 8 : 0),
        y + box.height / 2
    );
};
saving.download = (blob, ending) => {
    const link = el('a', {href: URL.createObjectURL(blob), download: `${saving.name()}.${ending}`});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
};
saving.name = () => `${(app.fileName || 'trace').replace(/\.tntrace$/, '').replace(/[^\w.-]+/g, '_')}-${app.state.tab}`;
saving.png = async svg => {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    await image.decode();
    const canvas = el('canvas', {width: 2 * image.width, height: 2 * image.height}),
        g = canvas.getContext('2d');
    g.scale(2, 2);
    g.drawImage(image, 0, 0);
    return new Promise(done => canvas.toBlob(done, 'image/png'));
};
saving.save = async kind => {
    const svg = saving.svg();
    app.render(); // what the drawing remembered (places, sizes) is that of the page again
    if (kind === 'svg') saving.download(new Blob([svg], {type: 'image/svg+xml'}), 'svg');
    else saving.download(await saving.png(svg), 'png');
};
