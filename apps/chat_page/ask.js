// Requests to the server. Data leaves the browser only there.
const keyText = keptText("tinfer key", () => sessionStorage);
const server = { models: [], model: null };

function headers() {
  const key = keyText.get();
  return { "Content-Type": "application/json", ...(key ? { Authorization: "Bearer " + key } : {}) };
}

class Refused extends Error {
  constructor(status, error) {
    super(error.message || "the server said " + status);
    Object.assign(this, { status, code: error.code, param: error.param });
  }
}

async function request(path, document, signal) {
  let response;
  try {
    response = await fetch(path, document === undefined ? { headers: headers(), signal } :
      { method: "POST", headers: headers(), body: JSON.stringify(document), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.ok) return response;
  const text = await response.text();
  let error = { message: text };
  try { error = JSON.parse(text).error; } catch { /* not JSON */ }
  if (response.status === 401) error.message = "The server asks for a key: Settings has a field for it.";
  throw new Refused(response.status, error);
}

function messageOf({ role, content, calls, call }) {
  if (role === "tool") return { role, content, tool_call_id: call };
  return calls && calls.length ? { role, content, tool_calls: calls } : { role, content };
}

// The request whose answer follows `path`. What `asked` says stays with the answer, so that it can be made again.
function bodyOf(path, asked) {
  const messages = path.slice(asked.dropped || 0).map(messageOf);
  if (asked.system) messages.unshift({ role: "system", content: asked.system });
  if (asked.begun) messages.push({ role: "assistant", content: asked.begun.slice(asked.begunFrom || 0) });
  return {
    messages, ...(server.models.length > 1 ? { model: asked.model } : {}), ...asked.settings, seed: asked.seed,
    clip_max_tokens: true,
    ...(asked.begun ? { continue_final_message: true } : {}), ...(asked.middle ? { truncate: "middle" } : {}),
    ...(asked.tools && !asked.begun ? { tools: asked.tools } : {}),
    ...(asked.schema && !asked.begun && !asked.tools ? { response_format:
      { type: "json_schema", json_schema: { name: "answer", schema: asked.schema } } } : {}),
    ...(asked.scores ? { logprobs: true, top_logprobs: 6 } : {}),
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

// [text, log-probability, the next five, its bytes where they are no whole text]
function scoreOf({ token, logprob, top_logprobs, bytes }) {
  const others = top_logprobs.filter(one => one.token !== token || String(one.bytes) !== String(bytes)).slice(0, 5);
  const score = [token, logprob, others.map(one => [one.token, one.logprob])];
  return token.includes("\ufffd") ? [...score, bytes] : score;
}

function joinTokens(scores) {
  const whole = scores.flatMap(([token, , , bytes]) => bytes || [...new TextEncoder().encode(token)]);
  return new TextDecoder().decode(new Uint8Array(whole));
}

// Adds one document of a stream to the answer.
function take(answer, document) {
  if (document.error) throw new Refused(0, document.error);
  const choice = document.choices && document.choices[0], delta = choice && choice.delta;
  if (delta) {
    answer.content += delta.content || "";
    if (delta.reasoning_content) answer.reasoning = (answer.reasoning || "") + delta.reasoning_content;
    for (const call of delta.tool_calls || []) {
      const calls = answer.calls = answer.calls || [], at = call.index ?? calls.length;
      calls[at] = calls[at] || { id: call.id, type: "function", function: { name: "", arguments: "" } };
      calls[at].function.name += (call.function && call.function.name) || "";
      calls[at].function.arguments += (call.function && call.function.arguments) || "";
    }
    const scores = choice.logprobs && choice.logprobs.content;
    if (scores) (answer.scores = answer.scores || []).push(...scores.map(scoreOf));
    // Until the server says how many there were, and where it is stopped and never does.
    if (scores) answer.tokens = answer.scores.length;
    else if (delta.content || delta.reasoning_content) ++answer.tokens;
  }
  if (choice && choice.finish_reason) answer.finish = choice.finish_reason;
  if (document.usage) {
    const details = document.usage.prompt_tokens_details || {};
    answer.cached = details.cached_tokens;
    answer.truncated = details.truncated_tokens;
    answer.prompt = document.usage.prompt_tokens;
    answer.tokens = document.usage.completion_tokens;
  }
  if (document.timings) answer.rate = document.timings.generation_tps;
}

// Streams an answer into `answer`, until `talk.abort` says stop; `show` is called on every update. Throws what went
// wrong; stopping is no error.
async function stream(path, answer, show, progress) {
  const start = performance.now();
  const { signal } = talk.abort;
  let first = 0;
  Object.assign(answer, { finish: "", tokens: 0, prompt: undefined, cached: undefined, truncated: undefined });
  try {
    const response = await request("v1/chat/completions", { ...bodyOf(path, answer.asked), stream: true,
      stream_options: { include_usage: true }, prompt_progress: true }, signal);
    try {
      for await (const document of documents(response)) {
        signal.throwIfAborted();  // the rest may have arrived in one packet before the abort
        if (document.prompt_progress) {
          const { total, cached } = document.prompt_progress;
          Object.assign(answer, { prompt: total, cached });
          progress(document.prompt_progress);
        }
        take(answer, document);
        first = first || (answer.tokens && performance.now());
        show(answer);
      }
    } catch (error) {
      if (error.name === "AbortError" || error instanceof Refused) throw error;
      throw new Error("The connection ended before the answer did.");
    }
    if (!answer.finish) throw new Error("The connection ended before the answer did.");
    answer.seconds = (performance.now() - start) / 1000;
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    answer.finish = "stopped";
    const spent = performance.now() - first;
    if (answer.tokens > 1 && spent > 100) answer.rate = 1000 * (answer.tokens - 1) / spent;
    const { system, begun, dropped = 0 } = answer.asked;
    answer.prompt = answer.prompt || await countTokens(path.slice(dropped), system, begun).catch(() => undefined);
  }
}

// Of a request with these messages, and the begin of an answer where there is one.
async function countTokens(path, system, begun = "") {
  return (await (await request("v1/messages/count_tokens", {
    model: server.model.id, ...(system ? { system } : {}),
    messages: path.filter(message => message.role !== "tool")
      .map(({ role, content }) => ({ role, content: content || "…" }))
      .concat(begun ? [{ role: "assistant", content: begun }] : []),
  })).json()).input_tokens;
}

// What has to be left out so that the rest and an answer fit: `dropped` of the oldest messages, of which the first that
// stays is a user's; and of an answer that goes on, where that is not enough, its letters before `begunFrom`.
async function oldestToDrop(path, system, begun = "") {
  const room = server.model.meta.n_ctx, wanted = room - Math.min(1024, room / 4);
  const begins = path.map((message, i) => message.role === "user" ? i : -1).filter(i => i > 0);
  const fits = async (at, from = 0) => await countTokens(path.slice(at), system, begun.slice(from) || begun) <= wanted;
  if (await fits(0)) return {};
  let low = 0, high = begins.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (await fits(begins[middle])) high = middle; else low = middle + 1;
  }
  const dropped = begins[low] || 0;
  let from = 0;
  while (begun.length - from > 1 && !await fits(dropped, from)) from += (begun.length - from) >> 1;
  if (/[\udc00-\udfff]/.test(begun[from] || "")) ++from;  // no half of a character
  return { ...(dropped ? { dropped } : {}), ...(from ? { begunFrom: from } : {}) };
}
