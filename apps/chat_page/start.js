// The page as a whole: the message box, keys, panels, the model, and the start.
const openedText = keptText("tinfer conversation opened", () => sessionStorage);
const isNarrow = () => matchMedia("(max-width: 1000px)").matches;

function grow() {
  input.style.height = "auto";
  input.style.height = input.scrollHeight + "px";
}

// A panel at the side; on narrow screens it lies over the conversation, and only one is open.
function showSide(id, isShown) {
  for (const [panel, button] of [["talks-panel", "talks-button"], ["panel", "panel-button"]]) {
    const shows = panel === id ? isShown : !at(panel).hidden && !(isShown && isNarrow());
    at(panel).hidden = !shows;
    at(button).setAttribute("aria-expanded", String(shows));
  }
  at("shade").hidden = !isNarrow() || (at("panel").hidden && at("talks-panel").hidden);
  if (isShown) at(id).querySelector("input, textarea, button").focus({ preventScroll: true });
}

for (const [panel, button] of [["talks-panel", "talks-button"], ["panel", "panel-button"]])
  at(button).addEventListener("click", () => showSide(panel, at(panel).hidden));
for (const [close, panel] of [["panel-close", "panel"], ["talks-close", "talks-panel"]])
  at(close).addEventListener("click", () => {
    showSide(panel, false);
    at(panel === "panel" ? "panel-button" : "talks-button").focus();
  });
at("shade").addEventListener("click", () => { showSide("panel", false); showSide("talks-panel", false); });
at("to-end").addEventListener("click", toEnd);

at("form").addEventListener("submit", event => {
  event.preventDefault();
  const text = input.value;
  if (talk.abort || !text.trim()) return;
  input.value = "";
  grow();
  keepDraft();
  send(text);
});
input.addEventListener("input", () => { grow(); keepDraft(); });

// What is begun in the box stays with its conversation, over a reload of the tab, too.
const draftTexts = keptText("tinfer drafts", () => sessionStorage);
const draftName = () => talk.messages.size ? talk.id : "new";
function drafts() {
  try { return JSON.parse(draftTexts.get() || "{}"); } catch { return {}; }
}
function keepDraft() {
  const { [draftName()]: _, ...others } = drafts();
  draftTexts.set(JSON.stringify(input.value ? { ...others, [draftName()]: input.value } : others));
}
function showDraft() {
  input.value = drafts()[draftName()] || "";
  grow();
}

// Each conversation has an address, so that the keys of the browser go between them.
function showAddress(id) {
  const hash = id ? "#" + id : "";
  if (location.hash !== hash) history.pushState(null, "", location.pathname + location.search + hash);
}
addEventListener("popstate", () => {
  const wanted = talksList.records.find(({ id }) => id === location.hash.slice(1));
  if (wanted && wanted.id !== talk.id) show(wanted);
  else if (!wanted && talk.messages.size) startNew();
});
input.addEventListener("keydown", event => {
  if (event.key === "ArrowUp" && !input.value && !talk.abort) {
    const mine = shown().findLast(message => message.role === "user");
    if (mine) { event.preventDefault(); edit(mine); }
    return;
  }
  // A keyboard on glass has no Shift+Enter: there Enter begins a line, and the button sends.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || matchMedia("(pointer: coarse)").matches) return;
  event.preventDefault();
  at("form").requestSubmit();
});
document.addEventListener("keydown", event => {
  if (event.key !== "Escape") return;
  if (!at("token").hidden) return hideToken();
  if (talk.abort) return talk.abort.abort();
  if (isNarrow()) { showSide("panel", false); showSide("talks-panel", false); }
});
document.addEventListener("pointerdown", event => { if (!event.target.closest("#token, .token")) hideToken(); });
at("stop").addEventListener("click", () => talk.abort && talk.abort.abort());
addEventListener("resize", () => { at("shade").hidden = !isNarrow() || (at("panel").hidden && at("talks-panel").hidden);
  });

function describeModel() {
  const model = server.models.find(({ id }) => id === setup.model) || server.models[0];
  server.model = model;
  setup.model = model.id;
  const { n_params, n_ctx } = model.meta || {};
  const facts = n_params ? `${(n_params / 1e6).toFixed(0)} M parameters · ${n_ctx} tokens` : "";
  const choice = at("model-choice");
  choice.hidden = server.models.length < 2;
  const texts = server.models.map(({ id, status }) => status && status.value !== "loaded" ? `${id} (${status.value})` :
    id);
  const isSame = choice.length === texts.length && server.models.every(({ id }, i) => choice.options[i].value === id);
  if (!isSame) choice.replaceChildren(...server.models.map(({ id }) => make("option", { value: id })));
  texts.forEach((text, i) => { choice.options[i].textContent = text; });   // in place: the list may be open
  choice.value = model.id;
  at("model").textContent = server.models.length < 2 ? `${model.id} · ${facts}` : facts;
  document.title = model.id + " · tinfer";
  drawSettings();
  draw();
}

async function describe() {
  try {
    const models = (await (await request("v1/models")).json()).data;
    server.models = models;
    describeModel();
  } catch (error) {
    at("model").textContent = error.status === 503 ? "the model is being loaded" :
      error.status === 401 ? "a key is needed: see Settings" : "the server does not answer";
    if (error.status !== 401) setTimeout(describe, error.status === 503 ? 500 : 3000);
  }
}
at("model-choice").addEventListener("change", () => { setup.model = at("model-choice").value; saveSetup();
  strip.before = null;   // its counts are the other model's
  describeModel(); });
at("model-choice").addEventListener("focus", describe);   // which are in memory now

// Another tab has changed something: the list, and what this tab shows of the same conversation. Where its end is
// shown, what another tab has added behind it is shown, too, so that the next message goes there.
let syncing = 0;
const changes = new Set();
function syncSoon() {
  clearTimeout(syncing);
  syncing = setTimeout(async () => {
    if (talk.abort || !changes.size) return;   // after the answer
    const isMine = changes.has(talk.id), { id } = talk;
    changes.clear();
    await drawPresets();
    await listTalks();
    const list = isMine ? await messagesOf(id) : [];
    if (talk.abort || talk.id !== id) return;
    for (const message of list) {
      const known = talk.messages.get(message.id);
      if (known && known.content === message.content && known.finish === message.finish) continue;
      talk.messages.set(message.id, { ...message, stamp: ((known && known.stamp) || 0) + 1 });
    }
    const hasMore = talk.messages.has(talk.leaf) && childrenOf(talk.leaf).length > 0;
    if (hasMore) {
      talk.leaf = deepest(talk.leaf);
      say("This conversation went on in another tab");
    }
    if (isMine) draw();
  }, 200);
}
store.changed = ({ name, talk: of }) => {
  changes.add(name === "messages" ? of : name);
  syncSoon();
};

async function start() {
  store.opened = openStore();
  loadSetup();
  makeFields();
  drawSettings();
  newTalk();
  draw();
  describe();
  showStrip(stripKept.get() === "1");
  if (!isNarrow()) showSide("talks-panel", true);
  input.focus();
  const isKept = await store.opened;
  at("kept").hidden = isKept;
  await sweep();
  await listTalks();
  drawPresets();
  const wanted = location.hash.slice(1) || openedText.get();
  const before = talksList.records.find(({ id }) => id === wanted);
  if (before && !talk.leaf) {
    history.replaceState(null, "", "#" + before.id);
    await show(before);
  }
  else if (!input.value) showDraft();
}
start();
// After the first paint: it needs none of them.
requestAnimationFrame(() => setTimeout(() =>
  document.head.append(make("script", { src: "page/libraries.js", onload: loadLibraries }))));
