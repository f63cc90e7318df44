"use strict";
// The conversation: messages, requests to the server, and streamed answers. Data leaves the browser only to the server.
const fields = [
  ["temperature", "Temperature", 0, 2, 0.05], ["top_k", "Top k", 0, 200, 1], ["top_p", "Top p", 0, 1, 0.01],
  ["min_p", "Min p", 0, 1, 0.01], ["repeat_penalty", "Repeat penalty", 1, 2, 0.01],
  ["max_tokens", "Longest answer", 16, 4096, 16],
];
const kept = "tinfer conversation";
const talk = { messages: [], settings: {}, system: "", seed: "", abort: null };

function load() {
  try {
    const read = JSON.parse(localStorage.getItem(kept) || "{}");
    if (Array.isArray(read.messages)) talk.messages = read.messages;
    if (read.settings && typeof read.settings === "object") talk.settings = read.settings;
    talk.system = String(read.system || "");
    talk.seed = String(read.seed || "");
  } catch { /* unreadable data: start over */ }
}

function save() {
  try {
    const { messages, settings, system, seed } = talk;
    localStorage.setItem(kept, JSON.stringify({ messages, settings, system, seed }));
  } catch { /* storage full or forbidden: continue without */ }
}

function headers() {
  const key = document.getElementById("key").value;
  return { "Content-Type": "application/json", ...(key ? { Authorization: "Bearer " + key } : {}) };
}

function body() {
  const messages = talk.messages.map(({ role, content }) => ({ role, content }));
  if (talk.system.trim()) messages.unshift({ role: "system", content: talk.system });
  const seed = talk.seed.trim();
  return {
    messages, ...talk.settings, ...(/^\d+$/.test(seed) ? { seed: Number(seed) } : {}), stream: true,
    stream_options: { include_usage: true }, prompt_progress: true, clip_max_tokens: true,
  };
}

// Parses server-sent events of a response, across packet boundaries.
async function* documents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2))
      for (const line of rest.slice(0, end).split("\n"))
        if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
  }
}

// Requests an answer to the messages; `show` is called on every update.
async function ask(show, progress) {
  const answer = { role: "assistant", content: "", reasoning: "" };
  const start = performance.now();
  const { signal } = talk.abort = new AbortController();
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(body()), signal,
    });
    if (!response.ok) {
      const text = await response.text();
      let message = text;
      try { message = JSON.parse(text).error.message; } catch { /* not JSON */ }
      throw new Error(message || "the server said " + response.status);
    }
    talk.messages.push(answer);
    for await (const document of documents(response)) {
      signal.throwIfAborted();  // the rest may have arrived in one packet before the abort
      if (document.error) throw new Error(document.error.message);
      if (document.prompt_progress) progress(document.prompt_progress);
      const choice = document.choices && document.choices[0];
      if (choice && choice.delta) {
        answer.content += choice.delta.content || "";
        answer.reasoning += choice.delta.reasoning_content || "";
      }
      if (choice && choice.finish_reason) answer.finish = choice.finish_reason;
      if (document.usage) {
        answer.cached = document.usage.prompt_tokens_details.cached_tokens;
        answer.prompt = document.usage.prompt_tokens;
        answer.tokens = document.usage.completion_tokens;
        answer.rate = document.timings && document.timings.generation_tps;
      }
      show(answer);
    }
    answer.seconds = (performance.now() - start) / 1000;
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    answer.finish = "stopped";
  } finally {
    talk.abort = null;
    save();
  }
  return answer;
}
