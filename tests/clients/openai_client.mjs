// OpenAI's JavaScript client against the server: openai_client.mjs URL, run where node finds the package.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.cwd() + "/");
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")).href);
const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "none", maxRetries: 0 });
const model = "default";
const messages = [{ role: "user", content: "Say hello." }];

async function chat() {
  const reply = await client.chat.completions.create({ model, messages, max_tokens: 12, temperature: 0 });
  assert.ok(reply.choices[0].message.content);
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens);
}

async function chatStreaming() {
  const whole = await client.chat.completions.create({ model, messages, max_tokens: 12, temperature: 0 });
  let text = "";
  const stream = await client.chat.completions.create({ model, messages, max_tokens: 12, temperature: 0, stream: true });
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
  assert.equal(text, whole.choices[0].message.content);
}

async function structuredOutput() {
  const schema = { type: "object", properties: { colour: { enum: ["red", "green"] } }, required: ["colour"], additionalProperties: false };
  const reply = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "Choose a colour." }], max_tokens: 40, temperature: 0,
    response_format: { type: "json_schema", json_schema: { name: "choice", schema, strict: true } } });
  assert.ok(["red", "green"].includes(JSON.parse(reply.choices[0].message.content).colour));
}

async function responses() {
  const first = await client.responses.create({ model, input: "My name is Ada.", max_output_tokens: 12 });
  assert.ok(first.output_text);
  const second = await client.responses.create({ model, input: "What is my name?", previous_response_id: first.id, max_output_tokens: 8 });
  assert.equal(second.previous_response_id, first.id);
  assert.ok(second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens);
  let text = "";
  const stream = await client.responses.create({ model, input: "Say hello.", max_output_tokens: 8, stream: true });
  for await (const event of stream) if (event.type === "response.output_text.delta") text += event.delta;
  assert.ok(text);
}

async function conversations() {
  const conversation = await client.conversations.create({ metadata: { topic: "x" } });
  await client.responses.create({ model, input: "Hello.", conversation: conversation.id, max_output_tokens: 6 });
  const items = await client.conversations.items.list(conversation.id, { order: "asc" });
  assert.deepEqual(items.data.map((item) => item.role), ["user", "assistant"]);
  await client.conversations.delete(conversation.id);
  await assert.rejects(client.conversations.retrieve(conversation.id), OpenAI.NotFoundError);
}

async function errors() {
  await assert.rejects(client.chat.completions.create({ model, messages, temperature: -1 }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature");
}

let failed = 0;
const checks = [chat, chatStreaming, structuredOutput, responses, conversations, errors];
for (const check of checks) {
  try {
    await check();
    console.log("ok   ", check.name);
  } catch (error) {
    failed += 1;
    console.log("FAIL ", check.name, error);
  }
}
console.log(`${checks.length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
