// What stands behind an answer: how probable each token was, which bytes were read for it, its receipt and its trace.
const percent = logprob => logprob === null ? "?" : (100 * Math.exp(logprob)).toFixed(logprob > Math.log(0.1) ?
  0 : 1) + " %";
const visible = token => token === "" ? "(no text)" : token.replaceAll("\n", "↵").replaceAll(" ", "␣");

// The tokens of an answer, each as probable as its shade says.
function scoresOf(message) {
  const list = make("div", { class: "scores", role: "group", "aria-label": "Tokens; arrow keys go through them" });
  if (message.scoresBegin) list.append(make("span", { class: "unknown", title: "Its probabilities are not known" },
    message.scoresBegin));
  list.append(...message.scores.map(([token, logprob], i) => {
    const one = make("button", { type: "button", class: "token", tabindex: i ? "-1" : "0", "data-at": i,
      "aria-label": `${visible(token)}, ${percent(logprob)}` }, token || "␀");
    one.style.setProperty("--doubt", String(Math.round(100 * (1 - Math.exp(logprob ?? 0)))));
    return one;
  }));
  const at = event => event.target.closest(".token");
  list.addEventListener("pointerover", event => at(event) && event.pointerType === "mouse" && showToken(message, at(
    event)));
  list.addEventListener("focusin", event => at(event) && showToken(message, at(event)));
  list.addEventListener("click", event => {
    if (at(event)) showToken(message, at(event), event.detail === 0);
  });
  list.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], now = at(event);
    const next = step && now && list.querySelectorAll(".token")[Number(now.dataset.at) + step];
    if (!next) return;
    event.preventDefault();
    now.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return list;
}

const scaleOfScores = () => make("p", { class: "soft" }, "Certain ", make("span", { class: "scale" }),
  " improbable. Press a token for the next five.");

function hideToken() {
  at("token").hidden = true;
}

// A focused token that is scrolled into sight keeps what is said of it.
function tokensMoved() {
  const { focused } = at("token");
  if (!at("token").hidden && focused && focused.element === document.activeElement) showToken(focused.message,
    focused.element);
  else hideToken();
}

// Where the content begins in the tokens: thoughts and marks come before it. -1: nowhere.
function contentBegin({ scores, scoresBegin = "", content }) {
  const wanted = content.slice(scoresBegin.length);
  for (let i = 0; i < scores.length; ++i) {
    const rest = joinTokens(scores.slice(i));
    if (rest.startsWith(wanted) || (wanted && rest.trimStart().startsWith(wanted) && scores[i][0].trim())) return i;
    if (rest.length < wanted.length) break;
  }
  return -1;
}

function showToken(message, element, focuses = false) {
  const index = Number(element.dataset.at), [token, logprob, others] = message.scores[index];
  const begin = contentBegin(message);
  const canBranch = begin >= 0 && index >= begin && !talk.abort;
  const branch = text => {
    hideToken();
    const before = (message.scoresBegin || "") + joinTokens(message.scores.slice(begin, index));
    branchAt(message, before + text);
  };
  const row = ([text, value], isChosen) => make("tr", isChosen ? { class: "chosen" } : {},
    make("td", {}, make("code", {}, visible(text))), make("td", {}, percent(value)),
    make("td", {}, ...(canBranch && !isChosen && text && !text.includes("\ufffd") ? [make("button", { type: "button",
      onclick: () => branch(text),
      "aria-label": `Branch here with ${visible(text)}` }, "Branch here")] : [])));
  const tip = at("token");
  tip.replaceChildren(make("table", {}, make("tbody", {}, row([token, logprob], true),
    ...others.map(other => row(other, false)))));
  tip.hidden = false;
  tip.focused = { message, element };
  const box = element.getBoundingClientRect(), size = tip.getBoundingClientRect();
  tip.style.left = Math.max(8, Math.min(innerWidth - size.width - 8, box.left)) + "px";
  tip.style.top = (box.bottom + size.height + 4 < innerHeight ? box.bottom + 2 : Math.max(8,
    box.top - size.height - 2)) +
    "px";
  if (focuses) tip.querySelector("button")?.focus();
}

// Bytes by layer and by class of tensor: parts of blocks for weights, keys and values for the cache.
const classColors = ["#3d7a68", "#c98a2d", "#7268b0", "#b4525c", "#4b86b4", "#8a8f3c", "#9b6a9b", "#5f6b73", "#b07a54",
  "#4d9aa0", "#a0a0a0"];

// The difference of two looks at /activity.
function bytesBetween(before, now) {
  if (!before || !now || now.runs <= before.runs) return null;
  const old = new Map(before.layers.map(layer => [layer.layer, layer.classes]));
  const minus = (classes, past = {}) => Object.fromEntries(Object.entries(classes || {})
    .map(([name, bytes]) => [name, bytes - (past[name] || 0)]).filter(([, bytes]) => bytes > 0));
  const layers = now.layers.map(({ layer, classes }) => ({ layer: String(layer), classes: minus(classes, old.get(
    layer)) }));
  const outside = minus(now.outside.classes, before.outside.classes);
  if (Object.keys(outside).length) layers.push({ layer: "outside", classes: outside });
  return { layers, runs: now.runs - before.runs, tokens: now.tokens - before.tokens };
}

// Of two parts of one answer.
function addBytes(first, second) {
  if (!first || !second) return first || second;
  const layers = new Map();
  for (const { layer, classes } of [...first.layers, ...second.layers]) {
    const sums = layers.get(layer) || {};
    for (const [name, n] of Object.entries(classes)) sums[name] = (sums[name] || 0) + n;
    layers.set(layer, sums);
  }
  return { layers: [...layers].map(([layer, classes]) => ({ layer, classes })), runs: first.runs + second.runs,
    tokens: first.tokens + second.tokens };
}

const wordsOf = { attn: "attention", ffn: "feed-forward", attn_out: "attention's output",
  head: "product with the vocabulary", embed: "rows of the vocabulary", keys: "cache of keys",
  values: "cache of values" };

function bytesFigure(bytes) {
  const sums = new Map();
  for (const { classes } of bytes.layers)
    for (const [name, n] of Object.entries(classes)) sums.set(name, (sums.get(name) || 0) + n);
  const names = [...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a));
  const color = name => classColors[names.indexOf(name) % classColors.length];
  const total = layer => Object.values(layer.classes).reduce((a, b) => a + b, 0);
  const most = Math.max(1, ...bytes.layers.map(total)), whole = bytes.layers.map(total).reduce((a, b) => a + b, 0);
  const colored = (element, name) => { element.style.background = color(name); return element; };
  const bars = make("div", { class: "bars", role: "img",
    "aria-label": `Bytes by layer; the table below has them as numbers` });
  bars.append(...bytes.layers.map(layer => {
    const bar = make("div", { class: "bar", title: `${layer.layer === "outside" ? "Outside of layers" :
      "Layer " + layer.layer}: ${sizeText(total(layer))}` });
    bar.append(...names.filter(name => layer.classes[name]).map(name => {
      const part = colored(make("i"), name);
      part.style.height = 100 * layer.classes[name] / most + "%";
      return part;
    }));
    return bar;
  }));
  const each = Math.max(1, bytes.runs);
  const inside = bytes.layers.filter(layer => layer.layer !== "outside").sort((a, b) => total(a) - total(b));
  const outside = bytes.layers.find(layer => layer.layer === "outside");
  const shares = [];
  if (inside.length) {
    const [least, last] = [inside[0], inside.at(-1)], sizes = [least, last].map(layer => sizeText(total(layer) / each));
    shares.push(sizes[0] === sizes[1] ? `${sizes[0]} of them in each layer` :
      `${sizes[0]} (layer ${least.layer}) to ${sizes[1]} (layer ${last.layer}) of them in each layer`);
  }
  if (outside) shares.push(`${sizeText(total(outside) / each)} outside of layers`);
  return make("figure", { class: "bytes" },
    make("p", {}, `${sizeText(whole)} were read in ${bytes.runs} ${bytes.runs === 1 ? "step" : "steps"} with ` +
      `${bytes.tokens} ${bytes.tokens === 1 ? "token" : "tokens"}: ${sizeText(whole / each)} a step` +
      (shares.length ? `, ${shares.join(", ")}` : "") + "."),
    bars,
    make("ul", { class: "legend" }, ...names.map(name => make("li", {}, colored(make("i"), name),
      ` ${name}${wordsOf[name] ? ` (${wordsOf[name]})` : ""} ${sizeText(sums.get(name))} `))),
    make("details", {}, make("summary", {}, "As a table"), make("div", { class: "wide", tabindex: "0" },
      make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "layer"),
        ...names.map(name => make("th", {}, name)))),
      make("tbody", {}, ...bytes.layers.map(layer => make("tr", {}, make("th", {}, layer.layer),
        ...names.map(name => make("td", {}, (layer.classes[name] || 0).toLocaleString("en"))))))))),
    make("figcaption", {},
      "Unique bytes of each step, as a trace counts them: of this server, so of other answers in the " +
      "same steps, too."));
}

function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// The same request again, as one document; its text has to be the same to the byte.
async function again(message, extra) {
  const { asked } = message;
  const answer = await (await request("v1/chat/completions", {
    ...bodyOf(pathTo(message.parent), asked), logprobs: false, top_logprobs: undefined,
    ...(message.finish === "stopped" || message.finish === "broken" ? { max_tokens: Math.max(1, message.tokens ||
      1) } : {}),
    ...extra,
  })).json();
  const text = (asked.begun || "") + (answer.choices[0].message.content || "");
  let at = 0;
  while (at < text.length && text[at] === message.content[at]) ++at;
  const isWhole = message.finish !== "stopped" && message.finish !== "broken";
  const isSame = isWhole ? text === message.content : message.content.startsWith(text) || text.startsWith(
    message.content);
  return { choice: answer.choices[0], text, isSame, at };
}

const comparison = ({ isSame, text, at }, message) => isSame ?
  "The same again, to the byte." :
  `Not the same: from letter ${at + 1} on it says “${text.slice(at, at + 40)}”, not ` +
    `“${message.content.slice(at, at + 40)}”.`;

function dialog(title, ...children) {
  const box = at("dialog");
  box.replaceChildren(make("h2", { id: "dialog-title" }, title), ...children,
    make("button", { type: "button", onclick: () => box.close() }, "Close"));
  if (!box.open) box.showModal();
  return box;
}

const offers = name => Boolean(server.model && (server.model.meta.offers || []).includes(name));

function showReceipt(message) {
  const state = make("p", { role: "status" });
  const doing = action => async () => {
    state.textContent = "The answer is made again …";
    try { state.textContent = await action(); } catch (error) { state.textContent = error.message; }
  };
  const download = doing(async () => {
    const made = await again(message, { receipt: true });
    if (!made.choice.receipt) throw new Error("The server gave no receipt.");
    save("answer.receipt.json", made.choice.receipt, "application/json");
    return comparison(made, message) + " The receipt is saved: tinfer replay answer.receipt.json -m MODEL";
  });
  const button = (text, action, needs) => {
    const one = make("button", { type: "button", onclick: action }, text);
    one.disabled = needs === false;
    return one;
  };
  dialog("Receipt", make("p", {},
    `Seed ${message.asked.seed}` + (server.model ?
      `; fingerprint of the model and the program: ${server.model.meta.system_fingerprint}. ` : ". ") +
    "The same request gives the same bytes on any machine, thread count and instruction set."),
  make("div", { class: "row" }, button("Download", download, offers("receipt")),
    button("Replay and compare", doing(async () => comparison(await again(message, {}), message)))),
  ...(offers("receipt") ? [] : [make("p", { class: "soft" }, "Downloads need a server with --receipts.")]), state);
}

// The trace of the same answer, made again, in a window of the viewer.
async function openTrace(message) {
  if (!offers("trace")) return void dialog("Trace", make("p", {},
    "This server keeps no traces: start it with --trace-dir FOLDER, and each answer has one."));
  const viewer = open("viewer");  // within the click; a later window would be blocked
  const isReady = new Promise(done => addEventListener("message", event =>
    event.source === viewer && event.data === "viewer ready" && done()));
  say("The answer is made again, with a trace …");
  try {
    // The whole prompt is computed again, so that its reading is in the trace, too.
    const made = await again(message, { trace: true, cache_prompt: false });
    const { file } = made.choice.trace;
    const bytes = await (await request("traces/" + encodeURIComponent(file))).arrayBuffer();
    if (!viewer) save(file, bytes, "application/octet-stream");
    else {
      await isReady;
      viewer.postMessage({ name: file, trace: bytes }, location.origin);
    }
    say((viewer ? "The trace is open. " : "The trace is saved. ") + comparison(made, message));
  } catch (error) {
    if (viewer) viewer.close();
    say(error.message, true);
  }
}
