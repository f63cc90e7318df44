// The conversation that is shown: a tree of messages, of which one path is on the page. Editing, asking again and
// branching add versions beside what is there.
const talk = { id: "", title: "", created: 0, leaf: "", fit: "none", messages: new Map(), abort: null };

const kept = ["id", "title", "created", "leaf", "fit"];
function saveTalk() {
  return put("talks", { ...Object.fromEntries(kept.map(name => [name, talk[name]])), updated: Date.now() });
}

function newTalk() {
  Object.assign(talk, { id: newId(), title: "", created: Date.now(), leaf: "", fit: "none", messages: new Map() });
}

async function openTalk(record) {
  const list = await messagesOf(record.id);
  for (const name of kept) talk[name] = record[name];
  talk.messages = new Map(list.map(message => [message.id, message]));
  if (!talk.messages.has(talk.leaf)) talk.leaf = list.length ? deepest(list[0].id) : "";
}

// Messages from the first to `leaf`.
function pathTo(leaf) {
  const path = [];
  for (let at = talk.messages.get(leaf); at; at = talk.messages.get(at.parent)) path.unshift(at);
  return path;
}
const shown = () => pathTo(talk.leaf);

function childrenOf(id) {
  return [...talk.messages.values()].filter(message => message.parent === id).sort((a, b) => a.created - b.created);
}

// The last message of the newest path through `id`.
function deepest(id) {
  for (let next; (next = childrenOf(id).at(-1)); id = next.id);
  return id;
}

function add(message) {
  const whole = { id: newId(), talk: talk.id, parent: talk.leaf, created: Date.now(), content: "", ...message };
  talk.messages.set(whole.id, whole);
  talk.leaf = whole.id;
  if (!talk.title && whole.role === "user") talk.title = titleOf(whole.content);
  return whole;
}

// A message that never was: its request failed.
function drop(message) {
  talk.messages.delete(message.id);
  if (talk.leaf === message.id) talk.leaf = message.parent;
  return remove("messages", message.id);
}

const titleOf = text => text.trim().split("\n")[0].slice(0, 80) || "Untitled";

// Markdown of the path that is shown.
function asMarkdown() {
  const name = { user: "You", assistant: "Answer", tool: "Result" };
  return `# ${talk.title || "Conversation"}\n\n` + shown().map(({ role, content, reasoning, calls }) =>
    `## ${name[role]}\n\n` + (reasoning ? reasoning.split("\n").map(line => "> " + line).join("\n") + "\n\n" : "") +
    content + (calls || []).map(callText).map(text => "\n\n```\n" + text + "\n```").join("")).join("\n\n") + "\n";
}

const callText = call => `${call.function.name}(${call.function.arguments})`;
