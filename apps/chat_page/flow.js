// What happens between a message and its answer: sending, asking again, going on, branching, failing, a full context.

// What a request says beside its messages. It stays with the answer.
function askedNow() {
  const seed = /^\d+$/.test(setup.seed.trim()) ? Number(setup.seed) : crypto.getRandomValues(new Uint32Array(
    1))[0] >>> 1;
  return {
    seed, settings: { ...setup.settings }, system: setup.system.trim() ? setup.system : "", model: setup.model,
    tools: parsed("tools"), schema: parsed("schema"), scores: setup.scores,
  };
}

// Asks for an answer behind the message that is shown last, or for more of `message`. `undo`: where to go back to where
// nothing came; its message `added` becomes text in the box again.
async function answer(undo = {}, message = null, begun = "") {
  if (talk.abort) return;
  at("full").hidden = true;
  const path = message ? pathTo(message.parent) : shown();
  const before = message ? { ...message } : null;
  const asked = askedNow();
  const reply = message || add({ role: "assistant", isNew: true });
  const retry = { text: "Retry", action: () => {
    if (message) return void answer(undo, message, begun);
    if (undo.added) { input.value = ""; grow(); return void send(undo.added.content); }
    talk.leaf = path.at(-1).id;
    answer(undo);
  } };
  let saved = performance.now();
  try {
    say("Reading …");
    talk.abort = new AbortController();   // nothing else begins meanwhile
    spoken.upTo = begun.length;
    strip.answers = true;
    lookSoon();
    const more = async () => {
      const past = begun ? { ...reply } : {};
      reply.asked = { ...asked, ...(begun ? { begun } : {}), ...await fitOf(path, asked, begun) };
      const bytesBefore = offers("activity") ? await lookOnce() : null;
      draw(!reply.content || Boolean(message));
      for (const name of ["scores", "bytes", "rate"]) delete reply[name];
      if (begun) reply.tokensBefore = allTokens(past);
      try {
        await stream(path, reply, showMore, showReading);
      } finally {
        if (reply.content !== past.content && bytesBefore) reply.bytes = bytesBetween(bytesBefore, await lookOnce());
        if (begun) join(reply, past);
      }
    };
    const showMore = () => {
      const n = Math.floor(allTokens(reply) / 100) * 100;   // a screen reader hears a hundred, not each
      say("Answering …" + (n ? ` ${n} tokens so far` : ""));
      showSoon(reply);
      speak(reply.content, false);
      if (performance.now() - saved > 1000) { saved = performance.now(); saveAnswer({ ...reply, finish: "broken" }); }
    };
    const showReading = ({ processed, total }) => {
      if (processed < total) say(`Reading ${processed} of ${total} tokens …`);
    };
    await more();
    for (; shifts(reply); await more()) begun = reply.content;
    speak(reply.content, true);
    if (before && reply.content === before.content && reply.finish === "stopped") putBack(reply, before);
    const cut = reply.finish === "stopped" ? "stopped" : cutOf(reply);
    say(cut ? cut[0].toUpperCase() + cut.slice(1) : "Answer complete");
  } catch (error) {
    talk.abort = null;
    fail(error, reply, undo, retry, before);
  } finally {
    talk.abort = null;
    strip.answers = false;
    syncSoon();   // what other tabs have changed meanwhile
  }
  if (talk.messages.has(reply.id)) { touch(reply); await saveAnswer(reply); }
  await saveTalk();
  draw();
  listTalks();
  if (server.models.length > 1) describe();   // an answer has loaded its model
  if (document.activeElement === document.body || document.activeElement === at("stop")) input.focus();
}

// What stands behind the part of an answer that was there before goes before that of the new part. Where the first
// part's tokens are not known, the new part's are shown behind its text.
function join(reply, past) {
  const isWhole = past.scores && joinTokens(past.scores).trimEnd().endsWith(
    past.content.slice((past.scoresBegin || "").length).trim());
  if (isWhole) reply.scores = [...past.scores, ...(reply.scores || [])];
  else if (reply.content !== past.content) reply.scoresBegin = past.content;
  reply.bytes = addBytes(past.bytes, reply.bytes);
}

// An answer as it was before more of it was asked for.
function putBack(reply, before) {
  for (const name of Object.keys(reply)) if (!(name in before)) delete reply[name];
  Object.assign(reply, before);
}

const longestInContexts = 4;
const isLong = message => server.model && allTokens(message) >= longestInContexts * server.model.meta.n_ctx;

// Where it was chosen how a conversation goes on, an answer that fills the context goes on, too: with fewer of the
// oldest turns, or of the middle, than before. Each step has to bring something, and an answer that does not end is cut
// where it is as long as four contexts.
function shifts(reply) {
  return talk.fit !== "none" && reply.finish === "length" && isFull(reply) && reply.tokens > 1 && !isLong(reply) &&
    reply.content && !(reply.calls || []).length && !reply.asked.settings.max_tokens && talk.leaf === reply.id;
}

function saveAnswer(reply) {
  const { stamp, isNew, showsScores, showsBytes, ...whole } = reply;
  return put("messages", whole);
}

// What was there stays there; what was to be sent is in the box again.
function fail(error, reply, undo, retry, before) {
  const hasText = reply.content || reply.reasoning || (reply.calls || []).length;
  if (before) {
    if (reply.content === before.content) putBack(reply, before);
    else reply.finish = "broken";
  } else if (hasText) reply.finish = "broken";
  else {
    drop(reply);
    if (undo.added) {
      drop(undo.added);
      if (!input.value.trim()) { input.value = undo.added.content; grow(); keepDraft(); }
    }
    if (undo.back !== undefined) talk.leaf = undo.back;
  }
  if (error.code === "context_length_exceeded") return showFull(error, retry);
  const isCut = hasText && !before;
  say(error.message, true, isCut ? { text: "Retry", action: () => regenerate(reply) } : retry);
}

// A conversation that does not fit: how it goes on is for people to say, once for each conversation.
function showFull(error, retry) {
  say("The context is full.", true);
  at("full").hidden = false;
  at("full-text").textContent = error.message;
  const choose = fit => () => {
    talk.fit = fit;
    at("full").hidden = true;
    saveTalk();
    retry.action();
  };
  at("full-oldest").onclick = choose("oldest");
  at("full-middle").onclick = choose("middle");
  at("full-stop").onclick = () => { at("full").hidden = true; say("Stopped: the context is full"); input.focus(); };
  at("full-oldest").focus();
}

async function fitOf(path, { system }, begun) {
  if (talk.fit === "middle") return { middle: true };
  if (talk.fit !== "oldest") return {};
  return oldestToDrop(path, system, begun);
}

function send(text) {
  const back = talk.leaf, added = add({ role: "user", content: text });
  put("messages", added);
  saveTalk();
  openedText.set(talk.id);
  showAddress(talk.id);
  answer({ back, added });
}

function regenerate(message) {
  if (talk.abort) return;
  const back = talk.leaf;
  talk.leaf = message.parent;
  answer({ back });
}

function goOn(message) {
  touch(message);
  answer({ back: talk.leaf }, message, message.content);
}

// Another version of an answer, which is the same up to a token and then takes another.
function branchAt(message, begin) {
  if (talk.abort) return;
  const back = talk.leaf;
  talk.leaf = message.parent;
  const made = add({ role: "assistant", content: begin, reasoning: message.reasoning });
  answer({ back }, made, begin);
}
