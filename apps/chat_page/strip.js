// The activity strip: which layers and experts the model is reading. Polls the server ten times a second, only while
// the strip and the page are visible; once a second while an answer is made, so that the server counts its bytes.
const strip = { shown: false, answers: false, asks: 0, before: null, layers: [], rate: null, at: -1, timer: 0 };
const stripKept = keptText("tinfer strip");
const stripEvery = 100, stripFade = 0.72;

function sizeText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];   // as the viewer of traces has them
  let unit = 0;
  for (; bytes >= 1024 && unit < 3; ++unit) bytes /= 1024;
  return bytes.toFixed(unit && bytes < 100 ? 1 : 0) + " " + units[unit];
}

// Cells read between two responses light up, others fade.
function takeActivity(now) {
  const before = strip.before;
  strip.before = now;
  if (!before || now.runs < before.runs) return;  // the first response, or the server was restarted
  const rest = name => now.layers.map((layer, i) => layer[name] - ((before.layers[i] || {})[name] || 0));
  const weights = rest("weight_bytes"), cache = rest("cache_bytes");
  const most = list => Math.max(1, ...list);
  const fade = (old, fresh) => Math.max((old || 0) * stripFade < 0.02 ? 0 : (old || 0) * stripFade, fresh);
  strip.layers = now.layers.map((layer, i) => {
    const old = strip.layers[i] || { experts: [] };
    const past = (before.layers[i] || {}).experts || [];
    const counts = (layer.experts || []).map((n, e) => n - (past[e] || 0));
    const top = most(counts);
    return {
      number: layer.layer, weightBytes: weights[i], cacheBytes: cache[i],
      weights: fade(old.weights, weights[i] / most(weights)), cache: fade(old.cache, cache[i] / most(cache)),
      experts: counts.map((n, e) => fade(old.experts[e], n / top)), chosen: counts.filter(n => n > 0).length,
    };
  });
  const tokens = now.tokens - before.tokens, runs = now.runs - before.runs;
  const sum = list => list.reduce((a, b) => a + b, 0);
  const storage = (now.storage_bytes || 0) - (before.storage_bytes || 0);
  strip.rate = runs > 0 ? { tokens, runs, weights: sum(weights), cache: sum(cache), storage } : null;
}

// No cell is lit: nobody knows what is read.
function goOut() {
  strip.before = strip.rate = null;
  strip.layers = strip.layers.map(layer => ({ ...layer, weights: 0, cache: 0, experts: layer.experts.map(() => 0) }));
  if (strip.shown) drawStrip();
}

function stripText() {
  const layer = strip.layers[strip.at];
  if (layer) {
    const experts = layer.experts.length ? ` · ${layer.chosen} of ${layer.experts.length} experts` : "";
    return `Layer ${layer.number}: ${sizeText(layer.weightBytes)} of weights, ${sizeText(layer.cacheBytes)} of cache` +
      `${experts} in a tenth of a second`;
  }
  if (!strip.layers.length) return "Nothing has been read yet";
  if (!strip.rate) return "Nothing is read now";
  const { tokens, weights, cache, storage, runs } = strip.rate;
  const missing = storage > 0 ? `, ${sizeText(storage / runs)} of it from storage,` : "";
  return `${sizeText(weights / runs)} of weights${missing} and ${sizeText(cache / runs)} of cache a step · ` +
    `${(tokens / runs).toFixed(tokens > runs ? 1 : 0)} ${tokens === runs ? "token" : "tokens"} a step`;
}

function drawStrip() {
  const view = at("strip-view"), style = getComputedStyle(document.documentElement);
  const ground = style.getPropertyValue("--cell"), hot = style.getPropertyValue("--accent");
  const n = strip.layers.length, nExperts = Math.max(0, ...strip.layers.map(layer => layer.experts.length));
  const expertHeight = nExperts ? Math.max(1, Math.min(6, Math.floor(96 / nExperts))) : 0;
  const width = view.clientWidth, height = 30 + (nExperts ? 4 + nExperts * expertHeight : 0);
  view.style.height = height + "px";
  const dense = window.devicePixelRatio || 1;
  view.width = Math.round(width * dense);
  view.height = Math.round(height * dense);
  const pen = view.getContext("2d");
  pen.scale(dense, dense);
  const step = width / Math.max(1, n), gap = step > 4 ? 1 : 0;
  const cell = (i, y, tall, heat) => {
    for (const [color, alpha] of [[ground, 1], [hot, heat]]) {
      pen.globalAlpha = alpha;
      pen.fillStyle = color;
      pen.fillRect(i * step, y, step - gap, tall);
    }
  };
  strip.layers.forEach((layer, i) => {
    cell(i, 0, 18, layer.weights);
    cell(i, 20, 8, layer.cache);
    layer.experts.forEach((heat, e) => cell(i, 32 + e * expertHeight, expertHeight - (expertHeight > 2 ? 1 : 0), heat));
  });
  pen.globalAlpha = 1;
  if (strip.at >= 0 && strip.at < n) {
    pen.strokeStyle = style.getPropertyValue("--ink");
    pen.lineWidth = 2;
    pen.strokeRect(strip.at * step + 1, 1, Math.max(2, step - gap - 2), height - 2);
  }
  const text = stripText();
  if (at("strip-text").textContent !== text) at("strip-text").textContent = text;
  view.setAttribute("aria-label", `Layers from the first to the last, the upper row weights, the lower one cache` +
    `${nExperts ? ", below them experts" : ""}. ${text}`);
}

// Of the model that is chosen, which is not loaded for it.
const activityPath = () => server.models.length < 2 ? "activity" :
  `activity?model=${encodeURIComponent(setup.model)}&autoload=false`;

// Counts since the server began to count; null where it does not.
async function lookOnce() {
  try { return await (await request(activityPath())).json(); } catch { return null; }
}

async function lookAtLayers() {
  const begin = performance.now();
  const again = wait => { strip.timer = setTimeout(lookAtLayers, wait); };
  strip.timer = 0;
  const isSeen = strip.shown && !document.hidden;
  if (!isSeen && !strip.answers) return;
  try {
    const response = await fetch(activityPath(), { headers: headers() });
    if (!response.ok) {
      at("strip-text").textContent = response.status === 401 ? "A key is needed: see Settings" :
        response.status === 503 ? "The model is being loaded" :
        response.status === 400 ? "The model is not in memory" : "This server does not count what it reads";
      return again(2000);
    }
    ++strip.asks;
    const now = await response.json();
    if (!strip.shown) return void (strip.answers && again(1000));
    takeActivity(now);
    drawStrip();
    again(Math.max(0, (isSeen ? stripEvery : 1000) - (performance.now() - begin)));
  } catch {
    goOut();
    at("strip-text").textContent = "The server does not answer";
    again(2000);
  }
}

function lookSoon() {
  if (!strip.shown && !strip.timer && offers("activity")) strip.timer = setTimeout(lookAtLayers, 1000);
}

function showStrip(shown) {
  strip.shown = shown;
  at("strip").hidden = !shown;
  at("strip-button").setAttribute("aria-expanded", String(shown));
  stripKept.set(shown ? "1" : "");
  clearTimeout(strip.timer);
  strip.timer = 0;
  strip.before = null;
  if (shown) {
    drawStrip();
    lookAtLayers();
  }
}

function pointAt(layer) {
  strip.at = Math.max(-1, Math.min(strip.layers.length - 1, layer));
  drawStrip();
}

at("strip-button").addEventListener("click", () => showStrip(!strip.shown));
at("strip-view").addEventListener("keydown", event => {
  const moves = { ArrowLeft: Math.max(0, strip.at - 1), ArrowRight: strip.at + 1, Home: 0, End: Infinity, Escape: -1 };
  if (!(event.key in moves) || (event.key === "Escape" && strip.at < 0)) return;
  event.preventDefault();
  event.stopPropagation();
  pointAt(moves[event.key]);
});
at("strip-view").addEventListener("pointermove", event => {
  const box = at("strip-view").getBoundingClientRect();
  pointAt(Math.floor((event.clientX - box.left) / box.width * strip.layers.length));
});
for (const name of ["pointerleave", "blur"]) at("strip-view").addEventListener(name, () => pointAt(-1));
document.addEventListener("visibilitychange", () => {
  if (strip.shown && !document.hidden && !strip.timer) lookAtLayers();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => strip.shown && drawStrip());
addEventListener("resize", () => strip.shown && drawStrip());
