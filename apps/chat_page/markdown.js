// Text of answers: Markdown by marked, cleaned by DOMPurify, code by highlight.js, formulas by KaTeX. All of these come
// in page/libraries.js after the first paint; before, and in a build without them, texts are plain.
const markdown = { reader: null, isLoaded: false };

const escapeText = text => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")
  .replaceAll('"', "&quot;");

// A formula between two marks. It stays text until the tree is clean; then KaTeX makes elements of it.
function formula(name, level, open, close, isDisplay, isFormula = () => true) {
  return {
    name, level,
    start(text) { const at = text.indexOf(open); return at < 0 ? undefined : at; },
    tokenizer(text) {
      if (!text.startsWith(open)) return undefined;
      const end = text.indexOf(close, open.length), inner = text.slice(open.length, end);
      if (end < 0 || !inner.trim() || inner.includes("\n\n")) return undefined;
      const after = text.slice(end + close.length);
      if (!isFormula(inner, after) || (level === "block" && after.split("\n")[0].trim())) return undefined;
      return { type: name, raw: text.slice(0, end + close.length), text: inner };
    },
    renderer: token => `<code class="formula${isDisplay ? " display" : ""}">${escapeText(token.text)}</code>`,
  };
}

function loadLibraries() {
  markdown.isLoaded = true;  // or this build has none
  if (!window.marked || !window.DOMPurify) return;
  // "$5 and $6" is money: a formula begins and ends beside its dollars, and no digit follows.
  const isDollars = (inner, after) => inner.trim() === inner && !inner.includes("\n") && !/^\d/.test(after);
  markdown.reader = new window.marked.Marked({
    gfm: true,
    extensions: [
      formula("blockDollars", "block", "$$", "$$", true), formula("blockBrackets", "block", "\\[", "\\]", true),
      formula("displayDollars", "inline", "$$", "$$", true), formula("displayBrackets", "inline", "\\[", "\\]", true),
      formula("brackets", "inline", "\\(", "\\)", false), formula("dollars", "inline", "$", "$", false, isDollars),
    ],
    renderer: {
      html: token => escapeText(token.text),  // what looks like HTML in an answer is text
      checkbox: token => (token.checked ? "☑ " : "☐ "),
      image: token => `<a href="${escapeText(token.href)}">${escapeText(token.text || token.href)}</a>`,
    },
  });
  window.DOMPurify.addHook("afterSanitizeAttributes", node => {
    if (node.nodeName !== "A" || !node.hasAttribute("href")) return;
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  });
  redraw();
}

const clean = html => window.DOMPurify.sanitize(html, {
  RETURN_DOM_FRAGMENT: true, FORBID_ATTR: ["style", "id", "name"], ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  FORBID_TAGS: ["img", "picture", "audio", "video", "svg", "math", "form", "input", "button", "textarea", "select",
    "style",
    "dialog", "details"],
});

function highlight(code) {
  const language = [...code.classList].find(name => name.startsWith("language-"))?.slice(9) || "";
  const text = code.textContent;
  if (window.hljs && window.hljs.getLanguage(language) && text.length < 100000)
    code.replaceChildren(clean(window.hljs.highlight(text, { language }).value));
  const frame = make("div", { class: "code" }, make("div", { class: "head" }, make("span", {}, language || "text"),
    make("button", { type: "button", class: "copy", "aria-label": `Copy this ${language || "text"}` }, "Copy")));
  const block = code.parentNode;
  block.replaceWith(frame);
  block.tabIndex = 0;
  frame.append(block);
}

// The elements of one block.
function blockOf(token) {
  const part = clean(markdown.reader.parser([token]));
  for (const code of part.querySelectorAll("pre > code")) highlight(code);
  for (const code of part.querySelectorAll("code.formula")) {
    if (!window.katex) continue;
    const isDisplay = code.classList.contains("display"), place = make("span", { class: code.className });
    try {
      window.katex.render(code.textContent, place,
        { displayMode: isDisplay, output: "mathml", throwOnError: true, strict: "ignore", trust: false, maxSize: 20,
          maxExpand: 300 });
      code.replaceWith(place);
    } catch { /* it stays as it is written */ }
  }
  for (const table of part.querySelectorAll("table")) {
    const frame = make("div", { class: "wide", tabindex: "0" });
    table.replaceWith(frame);
    frame.append(table);
  }
  return make("div", { class: "block" }, part);
}

// Makes `old` equal to `fresh` by as little as possible: what is selected or focused in it stays so.
function patch(old, fresh) {
  for (const name of old.getAttributeNames()) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const name of fresh.getAttributeNames())
    if (old.getAttribute(name) !== fresh.getAttribute(name)) old.setAttribute(name, fresh.getAttribute(name));
  const olds = [...old.childNodes], freshs = [...fresh.childNodes];
  freshs.forEach((node, i) => {
    const was = olds[i];
    if (!was) old.append(node);
    else if (was.nodeName !== node.nodeName) was.replaceWith(node);
    else if (was.nodeType === Node.ELEMENT_NODE) patch(was, node);
    else if (node.data.startsWith(was.data)) { if (node.data !== was.data) was.appendData(node.data.slice(
      was.data.length)); }
    else was.data = node.data;
  });
  for (const node of olds.slice(freshs.length)) node.remove();
}

// Shows `text` in `element`. Blocks that are as before are not touched.
function fill(element, text) {
  if (!markdown.reader) {
    element.classList.add("plain");
    element.shownBlocks = null;
    const first = element.firstChild;
    if (element.childNodes.length === 1 && first.nodeType === Node.TEXT_NODE && text.startsWith(first.data))
      first.appendData(text.slice(first.data.length));
    else element.textContent = text;
    return;
  }
  element.classList.remove("plain");
  if (!element.shownBlocks) { element.replaceChildren(); element.shownBlocks = []; }
  const blocks = element.shownBlocks, tokens = markdown.reader.lexer(text).filter(token => token.type !== "space");
  tokens.forEach((token, i) => {
    if (blocks[i] && blocks[i].raw === token.raw) return;
    const fresh = blockOf(token);
    if (blocks[i]) patch(blocks[i].element, fresh); else element.append(fresh);
    blocks[i] = { raw: token.raw, element: blocks[i] ? blocks[i].element : fresh };
  });
  for (const block of blocks.splice(tokens.length)) block.element.remove();
}
