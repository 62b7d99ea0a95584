// SPDX-License-Identifier: Apache-2.0
// What the page makes of answers that are none, with a fetch that gives them.
import assert from "node:assert/strict";
import test from "node:test";
import * as api from "./api.js";

const kept = new Map();
globalThis.window = {sessionStorage: {getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value), removeItem: (name) => kept.delete(name)}};

// Answers requests one after the other; what was asked.
function answering(...answers) {
  const asked = [];
  globalThis.fetch = async (path, options) => {
    asked.push({path, ...options});
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer;
  };
  return asked;
}

const refusal = (status, error, headers = {}) => new Response(JSON.stringify({error}), {status, headers});
const event = (type, fields = {}) => `event: ${type}\ndata: ${JSON.stringify({type, ...fields})}\n\n`;

// A stream of these pieces: texts, or an error with which it breaks.
function stream(pieces, told = {}) {
  const encoder = new TextEncoder();
  return new Response(new ReadableStream({
    pull(controller) {
      const piece = pieces.shift();
      if (piece === undefined) controller.close();
      else if (piece instanceof Error) controller.error(piece);
      else controller.enqueue(encoder.encode(piece));
    },
    cancel() {
      told.cancelled = true;
    },
  }, {highWaterMark: 0}));
}

async function failureOf(promise) {
  const failure = await promise.then(() => null, (one) => one);
  assert.ok(failure, "it fails");
  return failure;
}

// What was heard, and the failure after it.
async function heard(answer, signal) {
  answering(answer);
  const types = [];
  const failure = await api.respond({input: "Hi"}, ({type}) => types.push(type), signal).then(() => null, (one) => one);
  return {types, failure};
}

test("a limit says when to come again", async () => {
  const limit = {message: "the limit is 3 requests per minute", code: "rate_limit_exceeded"};
  answering(refusal(429, limit, {"Retry-After": "12"}));
  const failure = await failureOf(api.respond({}, assert.fail));
  assert.ok(failure instanceof api.ApiFailure);
  assert.deepEqual({...failure, message: failure.message}, {status: 429, code: "rate_limit_exceeded", param: null, retryAfter: 12, message: limit.message});
  for (const [value, wanted] of [[undefined, null], ["", null], ["0", 0], ["-1", null], ["1.5", null], ["12 s", null], ["9999999", null], ["Wed, 21 Oct 2026 07:28:00 GMT", null]]) {
    answering(refusal(503, limit, value === undefined ? {} : {"Retry-After": value}));
    assert.equal((await failureOf(api.models())).retryAfter, wanted, value);
  }
  answering(new Response("<html>busy</html>", {status: 502, headers: {"Retry-After": "3"}}));
  const proxy = await failureOf(api.models());
  assert.deepEqual([proxy.status, proxy.message, proxy.retryAfter], [502, "<html>busy</html>", 3]);
});

test("a key is sent with each request until there is none", async () => {
  const models = () => new Response('{"data": []}');
  const authorization = async () => {
    const asked = answering(models());
    await api.models();
    return asked[0].headers.Authorization;
  };
  assert.equal(await authorization(), undefined);
  assert.equal(api.setKey("one"), true);
  assert.equal(await authorization(), "Bearer one");
  answering(refusal(401, {message: "the server does not know this key", code: "invalid_api_key"}));
  const failure = await failureOf(api.itemsOf("conv_1"));
  assert.deepEqual([failure.status, failure.code], [401, "invalid_api_key"]);
  assert.equal(api.keyNow(), "one", "whoever asks for another one takes it away");
  assert.equal(api.setKey("two words"), false, "no header can have it");
  assert.equal(api.keyNow(), null);
  assert.equal(await authorization(), undefined);
  assert.equal(api.setKey(""), true);
});

test("a server without a store says so by a code", async () => {
  for (const ask of [() => api.listTalks(""), () => api.newTalk(), () => api.itemsBefore("conv_1")]) {
    answering(refusal(400, {message: "this server keeps no conversations", code: "store_disabled", param: null}));
    assert.equal((await failureOf(ask())).code, "store_disabled");
  }
});

test("a stream that breaks gives what came before", async () => {
  const pieces = [event("a"), event("b").slice(0, 9), event("b").slice(9) + "event: c\nda"];
  const broken = await heard(stream([...pieces, new TypeError("network error")]));
  assert.deepEqual(broken.types, ["a", "b"]);
  assert.deepEqual([broken.failure.status, broken.failure.code], [0, "broken_off"]);
  const ended = await heard(stream([...pieces]));
  assert.deepEqual(ended, {types: ["a", "b"], failure: null}, "who asked sees that no last event came");
  assert.equal((await heard(stream([new TypeError("network error")]))).failure.code, "broken_off");
});

test("a stream that is no stream of events any more has broken off", async () => {
  const told = {};
  const {types, failure} = await heard(stream([event("a"), "data: {\"type\": \"b\n\n", event("c"), event("d")], told));
  assert.deepEqual([types, failure.code, told.cancelled], [["a"], "broken_off", true]);
});

test("of a stream that nobody wants any more nothing is read", async () => {
  const told = {};
  answering(stream([event("error", {code: "overloaded"}), event("b"), event("c")], told));
  const failure = await failureOf(api.respond({}, ({type, code}) => {
    assert.equal(type, "error");
    throw new api.ApiFailure(0, code, "no");
  }));
  assert.deepEqual([failure.code, told.cancelled], ["overloaded", true]);
});

test("who stops is told nothing of a broken connection", async () => {
  const stopped = new DOMException("stopped", "AbortError");
  assert.equal((await heard(stream([event("a"), stopped]))).failure, stopped);
  answering(stopped);
  assert.equal(await failureOf(api.models()), stopped);
});

test("no answer, and half of one", async () => {
  answering(new TypeError("fetch failed"));
  const none = await failureOf(api.models());
  assert.deepEqual([none.status, none.code], [0, "no_answer"]);
  for (const body of [stream(['{"data": [', new TypeError("network error")]), new Response('{"data": [')]) {
    answering(body);
    const half = await failureOf(api.models());
    assert.deepEqual([half.status, half.code], [0, "broken_off"], "the page tries again");
  }
});

test("half of a conversation is deleted again", async () => {
  const items = Array.from({length: 45}, (_, i) => ({type: "message", i}));
  const asked = answering(new Response('{"id": "conv_1"}'), new Response("{}"), refusal(429, {message: "no", code: "rate_limit_exceeded"}), new Response("{}"));
  assert.equal((await failureOf(api.newTalk(items))).status, 429);
  assert.deepEqual(asked.map(({method, path}) => `${method} ${path}`), ["POST /v1/conversations", ...Array(2).fill("POST /v1/conversations/conv_1/items"), "DELETE /v1/conversations/conv_1"]);
  assert.deepEqual(asked.slice(0, 3).map(({body}) => JSON.parse(body).items.length), [20, 20, 5]);
});
