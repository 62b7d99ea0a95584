// SPDX-License-Identifier: Apache-2.0
// OpenAI's JavaScript client against the server: openai_client.mjs URL KEY CHECK, run where node finds the package.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.cwd() + "/");
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")).href);
const [url, key, name] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url + "/v1", apiKey: key, maxRetries: 0 });
const model = "default";
const messages = [{ role: "user", content: "Say hello." }];
const question = [{ role: "user", content: "What is the weather in Paris?" }];
const parameters = {
  type: "object", properties: { city: { type: "string", maxLength: 20 }, unit: { enum: ["celsius", "fahrenheit"] } },
  required: ["city", "unit"], additionalProperties: false };
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather of a city.", parameters, strict: true } }];
const called = { tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 120 };

const create = (fields) => client.chat.completions.create({ model, messages, max_tokens: 12, temperature: 0, ...fields });

function checkArguments(text) {
  const found = JSON.parse(text);
  assert.deepEqual(Object.keys(found).sort(), ["city", "unit"]);
  assert.ok(["celsius", "fahrenheit"].includes(found.unit));
}

async function chat() {
  const reply = await create();
  assert.ok(reply.choices[0].message.content);
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens);
  const models = [];
  for await (const one of client.models.list()) models.push(one.id);
  assert.deepEqual(models, [reply.model]);
}

async function chatStreaming() {
  const whole = await create();
  let text = "";
  for await (const chunk of await create({ stream: true })) text += chunk.choices[0]?.delta?.content ?? "";
  assert.equal(text, whole.choices[0].message.content);
  const helper = client.chat.completions.stream({ model, messages, max_tokens: 12, temperature: 0 });
  assert.equal((await helper.finalChatCompletion()).choices[0].message.content, text);
}

async function chatTools() {
  for (const tool_choice of ["required", { type: "function", function: { name: "get_weather" } }]) {
    const fields = { messages: question, ...called, tool_choice };
    const whole = (await create(fields)).choices[0];
    assert.equal(whole.finish_reason, "tool_calls");
    assert.equal(whole.message.tool_calls.length, 1);
    const call = whole.message.tool_calls[0].function;
    checkArguments(call.arguments);
    const streamed = await client.chat.completions.stream({ model, temperature: 0, ...fields }).finalChatCompletion();
    const again = streamed.choices[0].message.tool_calls[0].function;
    assert.deepEqual([again.name, again.arguments], [call.name, call.arguments]);
    const turns = [...question, whole.message, { role: "tool", tool_call_id: whole.message.tool_calls[0].id, content: "18 degrees" }];
    assert.ok((await create({ messages: turns, tools, tool_choice: "none" })).choices[0].message.content);
  }
}

// The client's loop, which calls the function itself.
async function chatRunTools() {
  let calls = 0;
  const runnable = [{ type: "function", function: {
    name: "get_weather", description: "The weather of a city.", parameters, parse: JSON.parse,
    function: (found) => { calls += 1; checkArguments(JSON.stringify(found)); return "18 degrees"; } } }];
  const runner = client.chat.completions.runTools(
    { model, messages: question, temperature: 0, max_tokens: 120, tools: runnable, parallel_tool_calls: false,
      tool_choice: { type: "function", function: { name: "get_weather" } } }, { maxChatCompletions: 2 });
  await runner.done();
  assert.ok(calls > 0);
  assert.ok(runner.messages.some((message) => message.role === "tool" && message.content === "18 degrees"));
}

async function structuredOutput() {
  const schema = { type: "object", properties: { colour: { enum: ["red", "green"] } }, required: ["colour"], additionalProperties: false };
  const fields = { model, messages: [{ role: "user", content: "Choose a colour." }], max_tokens: 40, temperature: 0,
    response_format: { type: "json_schema", json_schema: { name: "choice", schema, strict: true } } };
  const reply = await client.chat.completions.parse(fields);
  assert.ok(["red", "green"].includes(JSON.parse(reply.choices[0].message.content).colour));
}

async function responses() {
  const first = await client.responses.create({ model, input: "My name is Ada.", max_output_tokens: 12, temperature: 0 });
  assert.ok(first.output_text);
  const second = await client.responses.create({ model, input: "What is my name?", previous_response_id: first.id, max_output_tokens: 8 });
  assert.equal(second.previous_response_id, first.id);
  assert.ok(second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens);
  let text = "";
  const fields = { model, input: "Say hello.", max_output_tokens: 8, temperature: 0 };
  const stream = await client.responses.create({ ...fields, stream: true });
  for await (const event of stream) if (event.type === "response.output_text.delta") text += event.delta;
  assert.equal(text, (await client.responses.create(fields)).output_text);
}

async function responsesTools() {
  const fields = { model, input: question, temperature: 0, max_output_tokens: 120, tool_choice: "required", parallel_tool_calls: false,
    tools: [{ type: "function", ...tools[0].function }] };
  const reply = await client.responses.create(fields);
  const call = reply.output.at(-1);
  assert.equal(call.type, "function_call");
  checkArguments(call.arguments);
  const streamed = await client.responses.stream(fields).finalResponse();
  assert.equal(streamed.output.at(-1).arguments, call.arguments);
  const told = await client.responses.create({
    ...fields, previous_response_id: reply.id, tool_choice: "none", max_output_tokens: 16,
    input: [{ type: "function_call_output", call_id: call.call_id, output: "18 degrees" }] });
  assert.ok(told.output_text);
}

async function conversations() {
  const conversation = await client.conversations.create({ metadata: { topic: "x" } });
  await client.responses.create({ model, input: "Hello.", conversation: conversation.id, max_output_tokens: 6, temperature: 0 });
  const items = await client.conversations.items.list(conversation.id, { order: "asc" });
  assert.deepEqual(items.data.map((item) => item.role), ["user", "assistant"]);
  await client.conversations.delete(conversation.id);
  await assert.rejects(client.conversations.retrieve(conversation.id), OpenAI.NotFoundError);
}

async function errors() {
  await assert.rejects(create({ temperature: -1 }), (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature");
  await assert.rejects(create({ model: "other" }), (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
  const stranger = new OpenAI({ baseURL: url + "/v1", apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(stranger.chat.completions.create({ model, messages }), OpenAI.AuthenticationError);
}

// One check a run: node_test.py names it.
const checks = { chat, chatStreaming, chatTools, chatRunTools, structuredOutput, responses, responsesTools, conversations, errors };
await checks[name]();
