// SPDX-License-Identifier: MIT
// The npm packages that speak Ollama's interface against a server: node ollama_cases.mjs FOLDER ADDRESS VECTORS PULLING
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";

const [folder, address, vectors, pulling] = process.argv.slice(2);
const load = createRequire(path.join(folder, "package.json"));
const { Ollama } = load("ollama");
const { ChatOllama } = load("@langchain/ollama");
const { createOllama } = load("ollama-ai-provider-v2");
const { generateText } = load("ai");
const client = new Ollama({ host: address });
const hello = [{ role: "user", content: "Hello" }];
const options = { temperature: 0, num_predict: 8, logit_bias: { 2: -100 } };
const ask = { model: "tiny", messages: hello, options };
const schema = { type: "object", properties: { yes: { type: "boolean" } }, required: ["yes"],
  additionalProperties: false };

const cases = {
  async "[V17] a chat, whole and as a stream"() {
    const whole = await client.chat(ask);
    assert.equal(whole.eval_count, 8);
    let text = "", last = null;
    for await (const part of await client.chat({ ...ask, stream: true })) {
      text += part.message.content;
      last = part;
    }
    assert.equal(text, whole.message.content);
    assert.equal(last.done_reason, "length");
  },
  async "generate, and a stop in the middle"() {
    const whole = await client.generate({ model: "tiny", prompt: "Hello", options });
    assert.equal(whole.done, true);
    const stream = await client.generate({ model: "tiny", prompt: "Hello", stream: true,
      options: { ...options, num_predict: 1000 } });
    await assert.rejects(async () => {
      for await (const part of stream) if (part.response) stream.abort();
    }, { name: "AbortError" });
  },
  async "an answer that a schema binds"() {
    const answer = await client.chat({ ...ask, format: schema, options: { ...options, num_predict: 1000 } });
    assert.equal(typeof JSON.parse(answer.message.content).yes, "boolean");
  },
  async "lists, one model, vectors"() {
    assert.equal((await client.list()).models[0].name, "tiny:latest");
    assert.equal((await client.ps()).models[0].size_vram, 0);
    assert.equal((await client.show({ model: "tiny" })).details.format, "gguf");
    assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
    const two = await new Ollama({ host: vectors }).embed({ model: "tiny", input: ["one", "two"] });
    assert.equal(two.embeddings.length, 2);
  },
  async "[V17] a model that the server fetches"() {
    const other = new Ollama({ host: pulling }), name = "owner/Tiny-GGUF", told = [];
    let last = null;
    for await (const part of await other.pull({ model: name, stream: true })) {
      told.push(part.status);
      if (part.digest) last = part;
    }
    assert.deepEqual([told[0], told.at(-1)], ["pulling manifest", "success"]);
    assert.equal(last.completed, last.total);
    assert.equal((await other.list()).models[0].name, `${name}:Q8_0`);
    assert.equal((await other.chat({ ...ask, model: `hf.co/${name}` })).done, true);
    assert.equal((await other.pull({ model: `${name}:F16` })).status, "success");
    await assert.rejects(other.pull({ model: "owner/none" }), { name: "ResponseError", status_code: 404 });
    await assert.rejects(client.pull({ model: name }), { name: "ResponseError", status_code: 403 });
    await assert.rejects(other.push({ model: name }), /is not supported by tinfer/);
    await assert.rejects(other.copy({ source: name, destination: "x" }), /is not supported by tinfer/);
  },
  async "errors"() {
    await assert.rejects(client.chat({ ...ask, model: "another" }), { name: "ResponseError", status_code: 404 });
    await assert.rejects(client.delete({ model: "tiny" }), /is not supported by tinfer/);
    await assert.rejects(client.chat({ ...ask, stream: true, think: true }), /does not support thinking/);
  },
  async "@langchain/ollama"() {
    const model = new ChatOllama({ model: "tiny", baseUrl: address, temperature: 0, numPredict: 8 });
    const said = await model.invoke("Hello");
    let text = "";
    for await (const part of await model.stream("Hello")) text += part.content;
    assert.equal(text, said.content);
  },
  async "ollama-ai-provider-v2"() {
    const provider = createOllama({ baseURL: address + "/api" });
    const { text } = await generateText({ model: provider("tiny"), prompt: "Hello", maxOutputTokens: 8, temperature: 0,
      maxRetries: 0 });
    assert.equal(typeof text, "string");
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log("ok", name);
  } catch (error) {
    failed += 1;
    console.log("FAILED", name, error);
  }
}
process.exit(failed === 0 ? 0 : 1);
