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
    row.append(
      make("button", { type: "button", class: "open", title, onclick: () => show(record),
        ...(record.id === talk.id ? { "aria-current": "true" } : {}) }, title),
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

async function show(record) {
  if (talk.abort) talk.abort.abort();
  await openTalk(record);
  say("");
  at("full").hidden = true;
  emptyList();
  draw(true);
  drawTalks();
  openedText.set(record.id);
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
  if (isNarrow()) showSide("talks-panel", false);
  input.focus();
}

async function exportAll() {
  const talks = (await all("talks")).filter(record => !record.deleted);
  save("conversations.json", JSON.stringify({ format: "tinfer conversations", version: 1, talks,
    messages: await all("messages") }, null, 1), "application/json");
}

async function importFrom(file) {
  try {
    const data = JSON.parse(await file.text());
    if (data.format !== "tinfer conversations" || !Array.isArray(data.talks) || !Array.isArray(data.messages))
      throw new Error("it is not an export of this page");
    const ids = new Map(data.talks.map(record => [record.id, newId()]));   // beside what is there, never over it
    const names = new Map(data.messages.map(message => [message.id, newId()]));
    const texts = new Set(["user", "assistant", "tool"]);
    const messages = data.messages.filter(message => ids.has(message.talk) && texts.has(message.role)).map(message => ({
      ...message, id: names.get(message.id), talk: ids.get(message.talk), parent: names.get(message.parent) || "",
      content: String(message.content ?? "") }));
    await put("messages", ...messages);
    await put("talks", ...data.talks.map(record => ({ ...record, id: ids.get(record.id), title: titleOf(String(
      record.title)),
      leaf: names.get(record.leaf) || "", updated: Number(record.updated) || Date.now() })));
    await listTalks();
    say(`${data.talks.length} ${data.talks.length === 1 ? "conversation" : "conversations"} imported`);
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
at("export-markdown").addEventListener("click", () => save("conversation.md", asMarkdown(), "text/markdown"));
at("import").addEventListener("click", () => at("import-file").click());
at("import-file").addEventListener("change", async event => {
  for (const file of event.target.files) await importFrom(file);
  event.target.value = "";
});
at("new").addEventListener("click", startNew);
