// SPDX-License-Identifier: MIT
// The package openai of npm against a server: node clients_cases.mjs FOLDER ADDRESS ADDRESS_WITH_VECTORS
// ADDRESS_WITH_MODELS
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";

const [folder, address, vectors, several] = process.argv.slice(2);
const OpenAI = createRequire(path.join(folder, "package.json"))("openai");
const client = new OpenAI({ baseURL: address + "/v1", apiKey: "sk-test", maxRetries: 0 });
const bias = { 2: -100 };
const hello = [{ role: "user", content: "Hello" }];
const ask = { model: "m", messages: hello, max_tokens: 8, temperature: 0, logit_bias: bias };
const weather = { type: "function", function: { name: "weather", parameters: {
  type: "object", properties: { city: { enum: ["Oslo", "Rome"] } }, required: ["city"], additionalProperties: false,
} } };

const cases = {
  async "[V1] a chat, whole and as a stream"() {
    const whole = await client.chat.completions.create(ask);
    assert.equal(whole.usage.completion_tokens, 8);
    let text = "", usage = null;
    const stream = await client.chat.completions.create({
      ...ask, stream: true, stream_options: { include_usage: true } });
    for await (const part of stream) {
      text += part.choices[0]?.delta?.content ?? "";
      usage = part.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, 8);
  },
  async "[V16] several models, with room in memory for some of them"() {
    const many = new OpenAI({ baseURL: several + "/v1", apiKey: "none", maxRetries: 0 });
    const names = (await many.models.list()).data.map(({ id }) => id);
    assert.equal(names.length, 3);
    const one = i => many.completions.create({ model: names[i % 3], prompt: "Hello", max_tokens: 8, seed: i % 6,
      temperature: 1 });
    const answers = await Promise.all(Array.from({ length: 24 }, (_, i) => one(i)));
    answers.forEach((answer, i) => {
      assert.equal(answer.model, names[i % 3]);
      assert.equal(answer.choices[0].text, answers[i % 6].choices[0].text);
    });
    await assert.rejects(many.completions.create({ model: "violet", prompt: "x" }), OpenAI.NotFoundError);
  },
  async "the helper of streams, and a stop in the middle"() {
    const stream = client.chat.completions.stream(ask);
    const whole = await stream.finalChatCompletion();
    assert.equal(whole.choices[0].finish_reason, "length");
    const cut = await client.chat.completions.create({ ...ask, max_tokens: 500, stream: true });
    let n = 0;
    for await (const part of cut) if (part.choices && ++n > 3) break;
    assert.ok(n > 3);
  },
  async "tools and their results"() {
    const called = await client.chat.completions.create({
      ...ask, tools: [weather], tool_choice: "required", parallel_tool_calls: false, max_tokens: 1500 });
    const [call] = called.choices[0].message.tool_calls;
    assert.ok(["Oslo", "Rome"].includes(JSON.parse(call.function.arguments).city));
    const again = await client.chat.completions.create({ ...ask, tools: [weather], tool_choice: "none",
      messages: [...ask.messages, called.choices[0].message,
        { role: "tool", tool_call_id: call.id, content: "sunny" }] });
    assert.equal(again.choices[0].finish_reason, "length");
  },
  async "structured output, n, log-probabilities, seeds"() {
    const properties = { yes: { type: "boolean" } };
    const schema = { type: "object", properties, required: ["yes"], additionalProperties: false };
    const parsed = await client.chat.completions.parse({ ...ask, max_tokens: 1500,
      response_format: { type: "json_schema", json_schema: { name: "answer", schema, strict: true } } });
    assert.equal(typeof JSON.parse(parsed.choices[0].message.content).yes, "boolean");
    const three = { ...ask, n: 3, seed: 4, temperature: 1.4, logprobs: true, top_logprobs: 2, max_tokens: 3 };
    const several = await client.chat.completions.create(three);
    const again = await client.chat.completions.create(three);
    assert.deepEqual(several.choices, again.choices);
    assert.equal(several.choices[2].logprobs.content.length, 3);
  },
  async "[V13] responses"() {
    const asked = { model: "m", input: "Hello", max_output_tokens: 8, temperature: 0, logit_bias: bias };
    const whole = await client.responses.create(asked);
    let text = "";
    const stream = await client.responses.create({ ...asked, stream: true });
    for await (const event of stream) if (event.type === "response.output_text.delta") text += event.delta;
    assert.equal(text, whole.output_text);
  },
  async "vectors, as floats and by the client's own way"() {
    const other = new OpenAI({ baseURL: vectors + "/v1", apiKey: "none", maxRetries: 0 });
    const model = (await other.models.list()).data[0].id;
    const coded = await other.embeddings.create({ model, input: ["the one", "two"] });
    const plain = await other.embeddings.create({ model, input: ["the one", "two"], encoding_format: "float" });
    coded.data.forEach((item, i) => item.embedding.forEach(
      (x, j) => assert.ok(Math.abs(x - plain.data[i].embedding[j]) < 1e-6)));
  },
  async "errors have types"() {
    await assert.rejects(client.chat.completions.create({ ...ask, temperature: -1 }),
      error => error instanceof OpenAI.BadRequestError && error.param === "temperature");
    const stranger = new OpenAI({ baseURL: address + "/v1", apiKey: "sk-no", maxRetries: 0 });
    await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log("ok", name);
  } catch (error) {
    failed += 1;
    console.error("FAILED", name, error);
  }
}
process.exit(failed ? 1 : 0);
