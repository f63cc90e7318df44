"use strict";
// Conversations, messages and presets in IndexedDB. A message is a record of its own, and an answer never replaces
// another, so two tabs do not overwrite each other. Without IndexedDB all lives as long as the page.
const store = { opened: null, db: null, tables: null, channel: null, changed: () => {} };
const tableKeys = { talks: "id", messages: "id", presets: "name" };

function openStore() {
  if ("BroadcastChannel" in window) {
    store.channel = new BroadcastChannel("tinfer");
    store.channel.addEventListener("message", event => store.changed(event.data));
  }
  return new Promise(done => {
    const inMemory = () => {
      store.tables = Object.fromEntries(Object.keys(tableKeys).map(name => [name, new Map()]));
      done(false);
    };
    try {
      const opening = indexedDB.open("tinfer", 1);
      opening.onupgradeneeded = () => {
        for (const [name, keyPath] of Object.entries(tableKeys)) {
          const table = opening.result.createObjectStore(name, { keyPath });
          if (name === "messages") table.createIndex("talk", "talk");
        }
      };
      opening.onsuccess = () => { store.db = opening.result; done(true); };
      opening.onerror = opening.onblocked = inMemory;
    } catch { inMemory(); }
  });
}

// Runs `act` on the tables in one transaction; resolves with the result of the request it returns.
function transact(names, mode, act) {
  return new Promise((done, failed) => {
    const work = store.db.transaction(names, mode);
    const asked = act(...names.map(name => work.objectStore(name)));
    work.oncomplete = () => done(asked && asked.result);
    work.onerror = work.onabort = () => failed(work.error);
  });
}

async function all(name) {
  await store.opened;
  return store.db ? transact([name], "readonly", table => table.getAll()) : [...store.tables[name].values()];
}

async function messagesOf(talk) {
  await store.opened;
  return store.db ? transact(["messages"], "readonly", table => table.index("talk").getAll(talk)) :
    [...store.tables.messages.values()].filter(message => message.talk === talk);
}

// Full storage is told once; the page goes on without.
async function put(name, ...records) {
  await store.opened;
  try {
    if (!store.db) for (const record of records) store.tables[name].set(record[tableKeys[name]], record);
    else await transact([name], "readwrite", table => { for (const record of records) table.put(record); });
  } catch (error) {
    say("The browser keeps no more: " + error.message + ". Export what must not be lost.", true);
    return;
  }
  if (store.channel) store.channel.postMessage({ name, talk: records[0] && (records[0].talk || records[0].id) });
}

async function remove(name, ...keys) {
  if (!store.db) for (const key of keys) store.tables[name].delete(key);
  else await transact([name], "readwrite", table => { for (const key of keys) table.delete(key); });
  if (store.channel) store.channel.postMessage({ name });
}

const newId = () => [...crypto.getRandomValues(new Uint8Array(12))].map(n => n.toString(16).padStart(2, "0")).join("");

// What outlives a reload but is no conversation: the settings.
const keptText = (name, area = () => localStorage) => ({
  get() { try { return area().getItem(name) || ""; } catch { return ""; } },
  set(text) { try { area().setItem(name, text); } catch { /* only the preference is lost */ } },
});
