// The list of conversations: search, rename, delete with undo, export and import.
const talksList = { records: [], texts: new Map() };

async function listTalks() {
  talksList.records = (await all("talks")).filter(record => !record.deleted).sort((a, b) => b.updated - a.updated);
  drawTalks();
}

function matches(record, words) {
  const text = (record.title + "\n" + (talksList.texts.get(record.id) || "")).toLowerCase();
  return words.every(word => text.includes(word));
}

function drawTalks() {
  const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const records = talksList.records.filter(record => matches(record, words));
  at("talks").replaceChildren(...records.map(record => {
    const title = record.title || "Untitled";
    const row = make("li", record.id === talk.id ? { class: "current" } : {});
    const snippet = snippetOf(record, words);
    row.append(
      make("button", { type: "button", class: "open", title, onclick: () => show(record, words),
        ...(record.id === talk.id ? { "aria-current": "true" } : {}) }, title,
      ...(snippet ? [make("span", { class: "snippet" }, snippet)] : [])),
      make("button", { type: "button", "aria-label": "Rename " + title, title: "Rename", onclick: () => rename(record,
        row) },
        "✎"),
      make("button", { type: "button", "aria-label": "Delete " + title, title: "Delete", onclick: () => deleteTalk(
        record) },
        "✕"));
    return row;
  }));
  at("talks-none").hidden = records.length > 0;
  at("talks-none").textContent = words.length ? "Nothing matches" : "No conversations yet";
}

// The words around the first of those that are searched, where it was said.
function snippetOf(record, words) {
  const text = talksList.texts.get(record.id) || "", found = words.length ? text.toLowerCase().indexOf(words[0]) : -1;
  if (found < 0) return "";
  const from = Math.max(0, found - 24);
  return (from ? "…" : "") + text.slice(from, found + 60).replace(/\s+/g, " ").trim() + "…";
}

// With `words`: at the first message that has one of them.
async function show(record, words = []) {
  if (talk.abort) talk.abort.abort();
  await openTalk(record);
  const found = words.length && [...talk.messages.values()].sort((a, b) => a.created - b.created)
    .find(({ content }) => words.some(word => content.toLowerCase().includes(word)));
  if (found && !shown().includes(found)) talk.leaf = deepest(found.id);
  say("");
  at("full").hidden = true;
  emptyList();
  draw(true);
  if (found) {
    end.follows = false;
    items.get(found.id).item.scrollIntoView({ block: "center" });
    items.get(found.id).item.classList.add("found");
  }
  drawTalks();
  openedText.set(record.id);
  showAddress(record.id);
  showDraft();
  if (isNarrow()) showSide("talks-panel", false);
  input.focus();
}

function rename(record, row) {
  const field = make("input", { "aria-label": "Title" });
  field.value = record.title;
  const done = async () => {
    const title = titleOf(field.value);
    if (record.id === talk.id) talk.title = title;
    await put("talks", { ...record, title });
    listTalks();
  };
  row.replaceChildren(field);
  field.addEventListener("keydown", event => {
    if (event.key === "Enter") done();
    if (event.key !== "Escape") return;
    event.stopPropagation();
    drawTalks();
  });
  field.addEventListener("blur", () => row.isConnected && done());
  field.focus();
  field.select();
}

// A deleted conversation is only marked; it goes for good when the page is loaded next.
async function deleteTalk(record) {
  await put("talks", { ...record, deleted: true });
  const wasOpen = record.id === talk.id;
  if (wasOpen) startNew();
  await listTalks();
  say(`“${record.title || "Untitled"}” is deleted.`, false, { text: "Undo", action: async () => {
    await put("talks", { ...record, updated: record.updated });
    await listTalks();
    if (wasOpen) show(record);
  } });
}

async function sweep() {
  for (const record of await all("talks")) {
    if (!record.deleted) continue;
    await remove("messages", ...(await messagesOf(record.id)).map(message => message.id));
    await remove("talks", record.id);
  }
}

function startNew() {
  if (talk.abort) talk.abort.abort();
  newTalk();
  at("full").hidden = true;
  say("");
  draw();
  drawTalks();
  openedText.set("");
  showAddress("");
  showDraft();
  if (isNarrow()) showSide("talks-panel", false);
  input.focus();
}

const today = () => new Date().toLocaleDateString("sv");   // 2026-11-28
const fileName = title => (title.toLowerCase().match(/[\p{L}\p{N}]+/gu) || ["conversation"]).join("-").slice(0, 60);

async function exportAll() {
  const talks = (await all("talks")).filter(record => !record.deleted);
  save(`conversations-${today()}.json`, JSON.stringify({ format: "tinfer conversations", version: 1, talks,
    messages: await all("messages") }, null, 1), "application/json");
}

// A list of {role, content}, as requests and other programs have it, as an export with one conversation.
function asExport(list) {
  const isText = message => message && typeof message.role === "string" && typeof message.content === "string";
  if (!list.length || !list.every(isText)) throw new Error("a list of {role, content} is expected");
  const id = newId(), now = Date.now(), kept = list.filter(({ role }) => role !== "system");
  const messages = kept.map(({ role, content }, i) => ({ id: id + i, talk: id, role, content, created: now + i,
    parent: i ? id + (i - 1) : "", finish: "stop" }));
  const title = titleOf((kept.find(({ role }) => role === "user") || { content: "" }).content);
  const leaf = kept.length ? id + (kept.length - 1) : "";
  return { talks: [{ id, title, created: now, leaf, fit: "none" }], messages };
}

function exportOf(data) {
  const list = Array.isArray(data) ? data : data && !data.talks && data.messages;
  if (Array.isArray(list)) return asExport(list);
  if (!data || data.format !== "tinfer conversations" || !Array.isArray(data.talks) || !Array.isArray(data.messages))
    throw new Error("it is neither an export of this page nor a list of {role, content}");
  return data;
}

// What is here already stays as it is: messages are known by their ids, and none is ever changed. Those that an open
// conversation of the same id has not are added to it.
async function importFrom(file) {
  try {
    const data = exportOf(JSON.parse(await file.text())), texts = new Set(["user", "assistant", "tool"]);
    const here = new Map((await all("messages")).map(message => [message.id, message.talk]));
    const open = new Map((await all("talks")).map(record => [record.id, record]));
    const ids = new Set(data.talks.map(({ id }) => id).filter(id => id && typeof id === "string"));
    const messages = data.messages.filter(({ id, talk, role }) => ids.has(talk) && texts.has(role) && id &&
      typeof id === "string" && !here.has(id)).map(message => ({ ...message, parent: String(message.parent ?? ""),
      content: String(message.content ?? "") }));
    const grown = new Set(messages.map(message => message.talk));
    const isNew = ({ id }) => !open.has(id) || open.get(id).deleted || grown.has(id);
    const talks = data.talks.filter(record => ids.has(record.id) && isNew(record));
    await put("messages", ...messages);
    await put("talks", ...talks.map(record => ({ ...record, ...(open.get(record.id) || {}), deleted: false,
      title: (open.get(record.id) || {}).title || titleOf(String(record.title)), leaf: String(record.leaf || ""),
      updated: Number(record.updated) || Date.now() })));
    await listTalks();
    const counted = n => `${n} ${n === 1 ? "conversation" : "conversations"}`, rest = ids.size - talks.length;
    say(talks.length ? counted(talks.length) + " imported" + (rest ? `, ${rest} already here` : "") :
      counted(rest) + " already here: nothing is imported");
  } catch (error) {
    say(`${file.name} cannot be imported: ${error.message}`, true);
  }
}

at("search").addEventListener("input", async () => {
  drawTalks();
  if (!at("search").value) return;
  const texts = new Map();
  for (const message of await all("messages"))
    texts.set(message.talk, (texts.get(message.talk) || "") + "\n" + message.content);
  talksList.texts = texts;
  drawTalks();
});
at("export-json").addEventListener("click", exportAll);
at("export-markdown").addEventListener("click", () => save(
  `${fileName(talk.title || "conversation")}-${today()}.md`, asMarkdown(), "text/markdown"));
at("import").addEventListener("click", () => at("import-file").click());
at("import-file").addEventListener("change", async event => {
  for (const file of event.target.files) await importFrom(file);
  event.target.value = "";
});
at("new").addEventListener("click", startNew);
