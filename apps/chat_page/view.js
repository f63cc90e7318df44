// The view: one list item per message, the form, the panel.
const at = id => document.getElementById(id);
const list = at("talk"), input = at("message");

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// Renders text with ``` blocks and `code`; never as HTML.
function fill(element, text) {
  element.replaceChildren();
  text.split(/^```.*$/m).forEach((part, i) => {
    if (i % 2) return element.append(make("pre", { tabindex: "0" }, make("code", {}, part.replace(/^\n|\n$/g, ""))));
    part.split(/`([^`\n]+)`/).forEach((piece, j) => {
      if (piece) element.append(j % 2 ? make("code", {}, piece) : piece);
    });
  });
}

function footOf(message, index) {
  const foot = make("div", { class: "foot" });
  const button = (text, action) => foot.append(make("button", { type: "button", onclick: action }, text));
  if (talk.abort) return foot;
  if (message.role === "user") button("Edit", () => edit(index));
  else {
    if (index === talk.messages.length - 1) button("Regenerate", regenerate);
    button("Copy", () => navigator.clipboard && navigator.clipboard.writeText(message.content));
    const facts = [];
    if (message.tokens) facts.push(message.tokens + (message.tokens === 1 ? " token" : " tokens"));
    if (message.rate) facts.push(message.rate.toFixed(1) + " tokens/s");
    if (message.prompt) facts.push(`${message.cached} of ${message.prompt} prompt tokens from the cache`);
    if (message.finish === "length") facts.push("cut: the longest answer is reached");
    if (message.finish === "stopped") facts.push("stopped");
    if (facts.length) foot.append(make("span", { class: "facts" }, facts.join(" · ")));
  }
  return foot;
}

function turnOf(message, index) {
  const text = make("div", { class: "text" });
  const turn = make("li", { class: "turn " + message.role });
  turn.append(make("span", { class: "hidden" }, message.role === "user" ? "You: " : "Answer: "));
  if (message.reasoning) {
    const thought = make("details", {}, make("summary", {}, "Reasoning"),
                         make("div", { class: "text" }, message.reasoning));
    thought.open = !message.content;
    turn.append(thought);
  }
  fill(text, message.content);
  turn.append(text, footOf(message, index));
  return turn;
}

let frame = 0;
function draw() {
  cancelAnimationFrame(frame);  // the pending frame is rendered now
  frame = 0;
  list.replaceChildren(...talk.messages.map(turnOf));
  at("empty").hidden = talk.messages.length > 0;
  at("send").hidden = !!talk.abort;
  at("stop").hidden = !talk.abort;
  list.scrollTop = list.scrollHeight;
}

function say(text, isBad = false) {
  at("status").textContent = text;
  at("status").classList.toggle("bad", isBad);
}

function showSoon(answer) {
  if (frame) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    const follows = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
    const turn = turnOf(answer, talk.messages.length - 1);
    if (talk.abort) turn.classList.add("running");
    while (list.children.length >= talk.messages.length) list.lastChild.remove();
    list.append(turn);
    if (follows) list.scrollTop = list.scrollHeight;
  });
}

async function answer() {
  say("Reading …");
  const asking = ask(message => { say("Answering …"); showSoon(message); },
    ({ processed, total }) => { if (processed < total) say(`Reading ${processed} of ${total} tokens …`); });
  draw();
  try {
    const message = await asking;
    say(message.finish === "stopped" ? "Stopped" : "Answer complete");
  } catch (error) {
    say(error.message, true);
  }
  draw();
  input.focus();
}

function regenerate() {
  talk.messages.pop();
  answer();
}

function edit(index) {
  const box = make("textarea", { rows: "3", "aria-label": "Message to edit" });
  box.value = talk.messages[index].content;
  const done = () => {
    talk.messages.splice(index);
    talk.messages.push({ role: "user", content: box.value });
    answer();
  };
  list.children[index].replaceChildren(box, make("div", { class: "foot" },
    make("button", { type: "button", onclick: done }, "Send"),
    make("button", { type: "button", onclick: draw }, "Cancel")));
  box.focus();
}

function grow() {
  input.style.height = "auto";
  input.style.height = input.scrollHeight + "px";
}

function settings() {
  at("sliders").replaceChildren(...fields.flatMap(([name, title, least, most, step]) => {
    const shown = make("output", { for: name }), given = talk.settings[name];
    const slider = make("input", { type: "range", id: name, min: least, max: most, step });
    slider.value = given ?? least;
    shown.textContent = given ?? "as served";
    slider.addEventListener("input", () => {
      talk.settings[name] = Number(slider.value);
      shown.textContent = slider.value;
      save();
    });
    return [make("label", { for: name }, title, shown), slider];
  }));
  at("system").value = talk.system;
  at("seed").value = talk.seed;
}

at("form").addEventListener("submit", event => {
  event.preventDefault();
  const text = input.value;
  if (talk.abort || !text.trim()) return;
  talk.messages.push({ role: "user", content: text });
  input.value = "";
  grow();
  answer();
});
input.addEventListener("input", grow);
input.addEventListener("keydown", event => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("form").requestSubmit();
});
document.addEventListener("keydown", event => { if (event.key === "Escape" && talk.abort) talk.abort.abort(); });
at("stop").addEventListener("click", () => talk.abort && talk.abort.abort());
at("new").addEventListener("click", () => {
  if (talk.abort) talk.abort.abort();
  talk.messages = [];
  save();
  say("");
  draw();
  input.focus();
});
at("panel-button").addEventListener("click", () => {
  at("panel").hidden = !at("panel").hidden;
  at("panel-button").setAttribute("aria-expanded", String(!at("panel").hidden));
});
for (const name of ["system", "seed"])
  at(name).addEventListener("input", () => { talk[name] = at(name).value; save(); });
at("defaults").addEventListener("click", () => { talk.settings = {}; talk.seed = ""; settings(); save(); });
async function describe() {
  try {
    const response = await fetch("v1/models", { headers: headers() });
    if (response.status === 503) {
      at("model").textContent = "the model is being loaded";
      return void setTimeout(describe, 500);
    }
    if (!response.ok) return void (at("model").textContent = "a key is needed: see Settings");
    const model = (await response.json()).data[0];
    const { n_params, n_ctx } = model.meta;
    at("model").textContent = `${model.id} · ${(n_params / 1e6).toFixed(0)} M parameters · ${n_ctx} tokens`;
    document.title = model.id + " · tinfer";
  } catch { at("model").textContent = "the server does not answer"; }
}
at("key").addEventListener("change", describe);
load();
settings();
draw();
describe();
