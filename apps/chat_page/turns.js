// The conversation on the page: one item per message, in groups, so that a browser looks at a few groups in each frame
// and not at thousands of items. Answers far from what is seen are plain text; they are rendered when they come near.
const at = id => document.getElementById(id);
const list = at("talk"), input = at("message");
const items = new Map();  // by id of message: {item, stamp, text}

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const near = { root: list, rootMargin: "1500px" };
const nearby = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries)
    if (isIntersecting) {
      nearby.unobserve(target);
      target.waits = false;
      fill(target, talk.messages.get(target.closest(".turn").dataset.id)?.content || "");
    }
}, near);

// Groups of items, in order. Texts of a group are observed one by one once it has been near.
const groups = [], groupSize = 16;
const nearGroups = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries)
    if (isIntersecting) {
      nearGroups.unobserve(target);
      target.wasNear = true;
      for (const text of target.querySelectorAll(".turn > .text")) if (text.waits) nearby.observe(text);
    }
}, near);

function groupAt(index) {
  if (!groups[index]) {
    groups[index] = make("div", { class: "group", role: "presentation" });
    list.append(groups[index]);
    resized.observe(groups[index]);
    nearGroups.observe(groups[index]);
  }
  return groups[index];
}

// Puts the items of a path into their groups, in order.
function place(path) {
  path.forEach(({ id }, i) => {
    const group = groupAt(Math.floor(i / groupSize)), before = group.children[i % groupSize] || null;
    const { item, text } = items.get(id);
    if (before !== item) group.insertBefore(item, before);
    if (text.waits && group.wasNear) nearby.observe(text);
  });
  for (const group of groups.splice(Math.ceil(path.length / groupSize))) {
    resized.unobserve(group);
    nearGroups.unobserve(group);
    group.remove();
  }
}

function emptyList() {
  for (const { item } of items.values()) item.remove();
  items.clear();
  place([]);
}

async function copy(text, button) {
  let isDone = false;
  try {
    await navigator.clipboard.writeText(text);
    isDone = true;
  } catch {  // no secure context: the old way
    const box = make("textarea", { class: "hidden", "aria-hidden": "true" });
    box.value = text;
    document.body.append(box);
    box.select();
    isDone = document.execCommand("copy");
    box.remove();
    button.focus();
  }
  const was = button.dataset.text || button.textContent;
  button.dataset.text = was;
  button.textContent = isDone ? "Copied" : "Not allowed";
  say(isDone ? "Copied" : "The browser does not allow copying");
  setTimeout(() => { button.textContent = was; }, 1500);
}

const reasons = { length: "cut: the longest answer is reached", stopped: "stopped", broken: "broken off" };

// Why an answer ends where it does, if not by itself.
function cutOf(message) {
  if (message.finish !== "length") return reasons[message.finish] || "";
  if (isLong(message)) return `cut: as long as ${longestInContexts} contexts; Continue goes on`;
  return isFull(message) ? "cut: the context is full" : reasons.length;
}

// Of all parts of an answer that was continued.
const allTokens = message => (message.tokensBefore || 0) + (message.tokens || 0);

function factsOf(message) {
  const facts = [], tokens = allTokens(message), more = message.scoresBegin && !message.tokensBefore ? " more" : "";
  if (tokens) facts.push(tokens + more + (tokens === 1 ? " token" : " tokens"));
  if (message.rate) facts.push(message.rate.toFixed(1) + " tokens/s");
  if (message.prompt && message.cached !== undefined) facts.push(
    `${message.cached || 0} of ${message.prompt} prompt tokens from the cache`);
  if (cutOf(message)) facts.push(cutOf(message));
  return facts.join(" · ");
}

const isFull = message => server.model && message.prompt + message.tokens >= server.model.meta.n_ctx;

function footOf(message) {
  const foot = make("div", { class: "foot" });
  const button = (text, action, more = {}) => foot.append(make("button", { type: "button", onclick: action, ...more },
    text));
  const versions = versionsOf(message);
  if (versions.length > 1) {
    const now = versions.indexOf(message);
    const go = step => { showVersion(versions[now + step]); };
    const arrow = (text, step, name) => button(text, () => go(step), { "aria-label": name,
      ...(versions[now + step] ? {} : { disabled: "" }) });
    arrow("‹", -1, "Version before");
    foot.append(make("span", { class: "facts" }, `${now + 1} of ${versions.length}`));
    arrow("›", 1, "Version after");
  }
  if (message.role === "tool") return foot;
  button("Edit", () => edit(message));
  if (message.role === "user") return foot;
  const isLast = message.id === talk.leaf;
  button("Regenerate", () => regenerate(message));
  if (isLast && message.content && !(message.calls || []).length) button("Continue", () => goOn(message));
  button("Copy", event => copy(message.content, event.target));
  const toggle = (text, name) => button(text, () => { message[name] = !message[name]; touch(message); draw(); },
    { "aria-pressed": String(Boolean(message[name])) });
  if (message.scores && message.scores.length) toggle("Probabilities", "showsScores");
  if (message.bytes) toggle("Bytes", "showsBytes");
  if (message.asked) {
    button("Receipt", () => showReceipt(message));
    button("Trace", () => openTrace(message));
  }
  const facts = factsOf(message);
  if (facts) foot.append(make("span", { class: "facts" }, facts));
  return foot;
}

// Calls are shown as calls; the last message's have a field for what the tool said.
function callsOf(message) {
  const box = make("div", { class: "calls" });
  const answers = message.calls.map(call => {
    box.append(make("pre", { tabindex: "0" }, make("code", {}, callText(call))));
    if (message.id !== talk.leaf || talk.abort) return null;
    const field = make("textarea", { rows: "2", "aria-label": `Result of ${call.function.name}`,
      placeholder: `What ${call.function.name} gives back` });
    box.append(field);
    return field;
  });
  if (answers.every(Boolean)) box.append(make("button", { type: "button", class: "primary", onclick: () => {
    const made = message.calls.map((call, i) => add({ role: "tool", content: answers[i].value, call: call.id }));
    put("messages", ...made);
    answer();
  } }, "Give results"));
  return box;
}

function thoughtOf(message) {
  const thought = make("details", {}, make("summary", {}, "Reasoning"), make("div", { class: "text plain" },
    message.reasoning));
  thought.open = !message.content;
  return thought;
}

const touch = message => { message.stamp = (message.stamp || 0) + 1; };

function itemOf(message) {
  const text = make("div", { class: "text" });
  const item = make("div", { class: "turn " + message.role, role: "listitem", "data-id": message.id });
  const who = { user: "You: ", assistant: "Answer: ", tool: "Result: " };
  item.append(make("span", { class: "hidden" }, who[message.role]));
  const { dropped, middle, begunFrom } = message.asked || {};
  if (dropped) item.append(make("p", { class: "note" },
    `The ${dropped} oldest messages did not fit and were left out for this answer.`));
  if (begunFrom) item.append(make("p", { class: "note" },
    "The answer filled the context; it went on with its own beginning left out."));
  if (middle && message.truncated) item.append(make("p", { class: "note" },
    `${message.truncated} tokens from the middle did not fit and were left out for this answer.`));
  if (message.reasoning) item.append(thoughtOf(message));
  if (message.showsScores && message.scores) item.append(scoresOf(message), scaleOfScores());
  else {
    text.waits = message.role === "assistant";  // until it is near, it can be searched
    text.classList.add("plain");
    text.textContent = message.content;
  }
  if (!(message.showsScores && message.scores)) item.append(text);
  if (message.calls && message.calls.length) item.append(callsOf(message));
  if (message.showsBytes && message.bytes) item.append(bytesFigure(message.bytes));
  item.append(footOf(message));
  return { item, text };
}

// The versions of each message, by what it follows: made once for a drawing.
let kin = new Map();
function readKin() {
  kin = new Map();
  for (const message of talk.messages.values()) {
    const name = message.parent + " " + message.role, known = kin.get(name);
    if (known) known.push(message); else kin.set(name, [message]);
  }
  for (const versions of kin.values()) if (versions.length > 1) versions.sort((a, b) => a.created - b.created);
}
const versionsOf = message => kin.get(message.parent + " " + message.role) || [message];

// The end is followed until somebody scrolls up. Items far away have estimated heights, which change as they come near.
const end = { follows: true, top: 0 };
const isAtEnd = () => list.scrollHeight - list.scrollTop - list.clientHeight < 80;
function toEnd() {
  end.follows = true;
  list.style.overflowAnchor = "none";
  list.scrollTop = list.scrollHeight;
  end.top = list.scrollTop;  // as far as it goes
  at("to-end").hidden = true;
}
const resized = new ResizeObserver(() => end.follows && toEnd());
list.addEventListener("scroll", () => {
  end.follows = isAtEnd() || (end.follows && list.scrollTop >= end.top);
  end.top = list.scrollTop;
  list.style.overflowAnchor = end.follows ? "none" : "auto";  // heights that become known move nothing one reads
  if (end.follows) at("to-end").hidden = true;
  tokensMoved();
}, { passive: true });

// Makes the list what is to be shown; items of messages that are as before stay.
let frame = 0;
function draw(goesToEnd = false) {
  cancelAnimationFrame(frame);  // the pending frame is rendered now
  frame = 0;
  const path = shown(), last = path.at(-1), follows = goesToEnd || end.follows, keys = new Set();
  list.classList.toggle("answering", Boolean(talk.abort));
  readKin();
  for (const message of path) {
    const isLast = message === last;
    const stamp = [message.stamp || 0, isLast, isLast && Boolean(talk.abort), versionsOf(message).length].join();
    const known = items.get(message.id);
    keys.add(message.id);
    if (known && known.stamp === stamp) continue;
    const made = itemOf(message);
    if (known) {  // the text keeps its elements
      if (known.text.shownBlocks && made.text.parentNode) { nearby.unobserve(made.text); made.text.replaceWith(
        known.text);
        made.text = known.text; made.text.waits = false; fill(made.text, message.content); }
      known.item.replaceWith(made.item);
    }
    items.set(message.id, { ...made, stamp });
  }
  for (const [id, { item }] of items) if (!keys.has(id)) { item.remove(); items.delete(id); }
  place(path);
  at("empty").hidden = path.length > 0;
  at("send").hidden = !!talk.abort;
  at("stop").hidden = !talk.abort;
  drawMeter(last);
  if (follows) toEnd();
}

// All texts anew: the libraries have come.
function redraw() {
  emptyList();
  draw();
}

function drawMeter(last) {
  const room = server.model && server.model.meta.n_ctx, meter = at("meter");
  const known = last && last.prompt ? last : shown().filter(message => message.prompt).at(-1);
  const used = known ? Math.min(room, known.prompt + (known.tokens || 0)) : 0;   // the last token is in no cache
  at("room").hidden = !room || !used;
  if (!room) return;
  Object.assign(meter, { max: room, high: room * 0.85, value: used });
  at("room-text").textContent = `${used} of ${room} tokens of context`;
}

function say(text, isBad = false, retry = null) {
  at("status-text").textContent = text;
  at("status").classList.toggle("bad", isBad);
  at("retry").hidden = !retry;
  at("retry").textContent = retry ? retry.text : "";
  at("retry").onclick = retry ? () => { say(""); retry.action(); } : null;
}

// A screen reader hears the answer sentence by sentence, each once.
const spoken = { upTo: 0 };
function speak(text, isEnd) {
  const rest = text.slice(spoken.upTo);
  const end = isEnd ? rest.length : Math.max(...[". ", "! ", "? ", "\n"].map(mark => rest.lastIndexOf(mark)));
  if (end <= 0) return;
  spoken.upTo += end;
  at("spoken").append(make("p", {}, rest.slice(0, end)));
  while (at("spoken").children.length > 5) at("spoken").firstChild.remove();
}

// The text that is being made; only it changes.
function showSoon(message) {
  if (frame) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    const { follows } = end, known = items.get(message.id);
    if (!known || (message.reasoning && !known.thought)) {
      if (known) { known.item.remove(); items.delete(message.id); }
      draw();
      const made = items.get(message.id);
      made.thought = made.item.querySelector("details");
      made.item.classList.add("running");
      nearby.unobserve(made.text);
      made.text.waits = false;
    }
    const { thought, text } = items.get(message.id);
    if (thought) thought.lastChild.textContent = message.reasoning;
    if (text.parentNode) fill(text, message.content);
    if (follows) toEnd(); else at("to-end").hidden = false;
  });
}
list.addEventListener("click", event => {
  const button = event.target.closest(".code .copy");
  if (button) copy(button.closest(".code").querySelector("code").textContent, button);
});

function edit(message) {
  const box = make("textarea", { rows: "1", "aria-label": "Message to edit" });
  box.value = message.content;
  const fit = () => { box.style.height = "auto"; box.style.height = box.scrollHeight + 2 + "px"; };
  box.addEventListener("input", fit);
  const isMine = message.role === "user";
  const done = () => {
    const before = talk.leaf;
    talk.leaf = message.parent;
    const { scores, ...facts } = isMine ? {} : { reasoning: message.reasoning, finish: "edited" };
    const made = add({ role: message.role, content: box.value, ...facts });
    put("messages", made);
    if (isMine) answer({ back: before, added: made });
    else { saveTalk(); draw(); }
  };
  const cancel = () => { touch(message); draw(); };
  const { item } = items.get(message.id);
  item.replaceChildren(box, make("div", { class: "foot" },
    make("button", { type: "button", class: "primary", onclick: done }, isMine ? "Send" : "Save"),
    make("button", { type: "button", onclick: cancel }, "Cancel")));
  box.addEventListener("keydown", event => {
    if (event.key === "Escape") { event.stopPropagation(); cancel(); input.focus(); }
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || !isMine) return;
    event.preventDefault();
    done();
  });
  items.get(message.id).stamp = "";
  fit();
  box.focus();
}

function showVersion(message) {
  if (talk.abort) return;
  talk.leaf = deepest(message.id);
  saveTalk();
  draw();
  items.get(message.id)?.item.scrollIntoView({ block: "nearest" });
}
