// Settings: each field shows the value that counts, and whether it is the server's or one's own.
const fields = [
  ["temperature", "Temperature", 0, 100, 0.05], ["top_k", "Top k", 0, 100000, 1], ["top_p", "Top p", 0, 1, 0.01],
  ["min_p", "Min p", 0, 1, 0.01], ["repeat_penalty", "Repeat penalty", 0, 10, 0.01],
  ["max_tokens", "Longest answer", 1, 1000000, 1],
];
const emptySetup = { settings: {}, system: "", seed: "", schema: "", tools: "", model: "", scores: true };
const setup = { ...emptySetup };
const setupText = keptText("tinfer setup");

function loadSetup() {
  try {
    const read = JSON.parse(setupText.get() || "{}");
    for (const [name, value] of Object.entries(emptySetup))
      if (typeof read[name] === typeof value && read[name] !== null) setup[name] = read[name];
  } catch { /* unreadable: as new */ }
}
function saveSetup() {
  setupText.set(JSON.stringify(setup));
  drawOwn();
}

// A text field of JSON: its value, or null where it is empty or wrong, which the field says.
function parsed(name) {
  if (!setup[name].trim()) return null;
  try {
    const value = JSON.parse(setup[name]), isRight = name === "tools" ? Array.isArray(value) : value &&
      typeof value === "object";
    if (!isRight) throw new Error(name === "tools" ? "a list of tools is expected" : "an object is expected");
    complain(name, "");
    return name === "tools" && !value.length ? null : value;
  } catch (error) {
    complain(name, error.message + "; it is not sent");
    return null;
  }
}

function complain(name, text) {
  at(name + "-note").textContent = text;
  at(name).setAttribute("aria-invalid", String(Boolean(text)));
}

function defaultOf(name) {
  const value = server.model && server.model.meta.defaults ? server.model.meta.defaults[name] : undefined;
  return value === undefined ? null : Number(value.toPrecision(6));
}

function drawField([name, , least, most, step]) {
  const field = at(name), own = setup.settings[name], served = defaultOf(name);
  field.value = own ?? "";
  field.placeholder = served ?? (name === "max_tokens" ? "as long as fits" : "as served");
  at(name + "-whose").textContent = own === undefined ? "the server's" : "yours";
  at(name + "-back").disabled = own === undefined;
  complain(name, "");
}

function makeFields() {
  at("fields").replaceChildren(...fields.flatMap(entry => {
    const [name, title, least, most, step] = entry;
    const field = make("input", { type: "number", id: name, min: least, max: most, step: "any",
      "aria-describedby": `${name}-whose ${name}-note`, inputmode: "decimal" });
    field.addEventListener("input", () => {
      const value = field.valueAsNumber, isWhole = step === 1;
      if (field.value === "" && !field.validity.badInput) delete setup.settings[name];
      else if (!(value >= least && value <= most) || (isWhole && !Number.isInteger(value)))
        return complain(name, `${isWhole ? "A whole number" : "A number"} from ${least} to ${most} is expected`);
      else setup.settings[name] = value;
      complain(name, "");
      at(name + "-whose").textContent = setup.settings[name] === undefined ? "the server's" : "yours";
      at(name + "-back").disabled = setup.settings[name] === undefined;
      saveSetup();
    });
    const back = make("button", { type: "button", id: name + "-back", "aria-label": title + ": as the server has it",
      title: "As the server has it", onclick: () => { delete setup.settings[name]; saveSetup(); drawField(entry); } },
        "↺");
    return [make("label", { for: name }, title, make("output", { id: name + "-whose", for: name })),
      make("div", { class: "row" }, field, back), make("p", { class: "wrong", id: name + "-note", role: "alert" })];
  }));
}

function drawSettings() {
  fields.forEach(drawField);
  for (const name of ["system", "seed", "schema", "tools"]) at(name).value = setup[name];
  for (const name of ["schema", "tools"]) parsed(name);
  at("scores").checked = setup.scores;
  drawOwn();
  at("key").value = keyText.get();
}

async function drawPresets() {
  const presets = (await all("presets")).sort((a, b) => a.name.localeCompare(b.name));
  at("presets").replaceChildren(make("option", { value: "" }, presets.length ? "Choose …" : "None saved"),
    ...presets.map(({ name }) => make("option", { value: name }, name)));
  at("preset-delete").disabled = !at("presets").value;
}

at("presets").addEventListener("change", async () => {
  const chosen = (await all("presets")).find(({ name }) => name === at("presets").value);
  at("preset-delete").disabled = !chosen;
  if (!chosen) return;
  Object.assign(setup, emptySetup, chosen.setup, { model: setup.model });
  saveSetup();
  drawSettings();
  at("preset-name").value = chosen.name;
});
at("preset-save").addEventListener("click", async () => {
  const name = at("preset-name").value.trim();
  if (!name) return void at("preset-name").focus();
  await put("presets", { name, setup: { ...setup } });
  await drawPresets();
  at("presets").value = name;
  at("preset-delete").disabled = false;
  say(`The preset “${name}” is saved`);
});
at("preset-delete").addEventListener("click", async () => {
  if (at("presets").value) await remove("presets", at("presets").value);
  drawPresets();
});
for (const name of ["system", "seed", "schema", "tools"])
  at(name).addEventListener("input", () => {
    setup[name] = at(name).value;
    saveSetup();
    if (name === "schema" || name === "tools") parsed(name);
    if (name === "seed") complain("seed", /^\s*\d*\s*$/.test(setup.seed) ?
      "" : "A whole number is expected; it is not sent");
  });
at("scores").addEventListener("change", () => { setup.scores = at("scores").checked; saveSetup(); });
at("defaults").addEventListener("click", () => {
  const was = { ...setup };
  Object.assign(setup, emptySetup, { model: setup.model, scores: setup.scores });
  saveSetup();
  drawSettings();
  if (was.system.trim() || was.schema.trim() || was.tools.trim() || Object.keys(was.settings).length)
    say("All is as the server has it, without a system prompt", false, { text: "Undo", action: () => {
      Object.assign(setup, was);
      saveSetup();
      drawSettings();
    } });
});
at("own").addEventListener("click", () => showSide("panel", true));

// What of one's own counts, beside the message box, where the settings are closed.
function drawOwn() {
  const own = [...(setup.system.trim() ? ["system prompt"] : []), ...(setup.tools.trim() ? ["tools"] : []),
    ...(setup.schema.trim() ? ["JSON schema"] : []), ...(setup.seed.trim() ? ["seed"] : []),
    ...fields.filter(([name]) => setup.settings[name] !== undefined).map(([, title]) => title.toLowerCase())];
  at("own").hidden = !own.length;
  at("own").textContent = "Yours: " + own.join(", ");
}
at("key").addEventListener("input", () => { keyText.set(at("key").value); });
at("key").addEventListener("change", () => describe());
