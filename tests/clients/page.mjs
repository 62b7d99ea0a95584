// SPDX-License-Identifier: Apache-2.0
// The web page as the server gives it, in a browser's place: page.mjs URL KEY CHECK, run where node finds happy-dom. It
// has no screen; what a person does and sees is what the elements say.
import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(process.cwd() + "/");
const { Window } = await import(pathToFileURL(require.resolve("happy-dom")).href);
const [url, key, name] = process.argv.slice(2);
const { fetch } = globalThis;

// --- the page ---

let window;
const at = (id) => window.document.getElementById(id);
const all = (selector) => [...window.document.querySelectorAll(selector)];

async function until(what, done, seconds = 60) {
  for (const end = Date.now() + 1000 * seconds; Date.now() < end;) {
    if (done()) return;
    await new Promise((next) => setTimeout(next, 20));
  }
  assert.fail(`${what}: not after ${seconds} s; the page says "${at("state").textContent}", and of the conversation "${at("log").textContent.slice(-300)}"`);
}

// The modules that the server has, in a folder that goes with the process. Each page's are new ones.
async function save(folder, file) {
  const answer = await fetch(`${url}/page/${file}`);
  assert.equal(answer.status, 200, file);
  assert.match(answer.headers.get("content-type"), /^text\/javascript/);
  const text = await answer.text();
  fs.writeFileSync(path.join(folder, file), text);
  for (const [, other] of text.matchAll(/^import .* from "\.\/(.*)";$/gm))
    if (!fs.existsSync(path.join(folder, other))) await save(folder, other);
}

// Answers a request in the server's place, or has `go()` ask it; by the test that needs it.
let meddle = (path, options, go) => go();

const refusal = (status, error, headers = {}) => new Response(JSON.stringify({ error }), { status, headers });
const isTurn = (path, { method }) => path === "/v1/responses" && method === "POST";

async function open(hash = "") {
  const answer = await fetch(url + "/");
  assert.equal(answer.status, 200);
  window = new Window({ url: url + "/" + hash, width: 1400, height: 900 });
  const html = (await answer.text()).replace(/<(link|script)[^>]*>/g, "");
  window.document.write(html);
  // As a browser's page sends it: to its own origin.
  const send = (target, options = {}) =>
    meddle(target, options, () => fetch(new URL(target, url), { ...options, headers: { ...options.headers, Origin: url } }));
  for (const [global, value] of Object.entries({
    window, document: window.document, location: window.location, history: window.history, localStorage: window.localStorage,
    sessionStorage: window.sessionStorage, navigator: window.navigator, fetch: send,
  })) Object.defineProperty(globalThis, global, { value, configurable: true, writable: true });
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "loci-page-"));
  process.on("exit", () => fs.rmSync(folder, { recursive: true, force: true }));
  fs.writeFileSync(path.join(folder, "package.json"), '{"type": "module"}');
  await save(folder, "app.js");
  at("send").disabled = false; // as Firefox leaves it after a reload
  await import(pathToFileURL(path.join(folder, "app.js")).href);
}

async function openWithKey(hash) {
  await open(hash);
  await until("it asks for a key", () => at("key-dialog").open);
  at("key").value = key;
  at("key-dialog").close();
  await until("the models are there", () => all("#model option").length > 0);
}

// What other checks have left on the server.
async function forgetAll() {
  const headers = { Authorization: `Bearer ${key}` };
  const { data } = await (await fetch(`${url}/v1/conversations?limit=100`, { headers })).json();
  for (const { id } of data) await fetch(`${url}/v1/conversations/${id}`, { method: "DELETE", headers });
}

const isIdle = () => at("stop").hidden;

async function ask(text) {
  at("text").value = text;
  at("composer").dispatchEvent(new window.Event("submit", { cancelable: true }));
  await until("the reply runs", () => !isIdle());
  await until("the reply is there", isIdle, 120);
}

// Deletes the conversation that is shown, the only one.
async function forget() {
  await until("the list has it", () => all("#talk-list .now .delete").length > 0);
  for (let clicks = 0; clicks < 2; ++clicks) all("#talk-list .now .delete")[0].dispatchEvent(new window.Event("click"));
  await until("it is gone", () => all("#talk-list li").length === 0);
}

function brief() {
  at("max-tokens").value = "12";
  at("temperature").value = "0";
}

// --- what a person does ---

async function keyIsAskedFor() {
  await open();
  await until("it asks for a key", () => at("key-dialog").open);
  assert.ok(at("send").disabled, "nobody can write before the models are there");
  at("key").value = "wrong";
  at("key-dialog").close();
  await until("it asks again", () => at("key-dialog").open && /does not know/.test(at("key-note").textContent));
}

async function conversationIsKept() {
  await openWithKey();
  brief();
  await ask("My name is Ann.");
  await ask("What is my name?");
  assert.equal(all(".message.user").length, 2);
  const [, second] = all(".message.assistant");
  assert.ok(all(".message.assistant > .text")[0].textContent.trim(), "a reply has text");
  assert.match(second.querySelector(".origin").textContent, /[0-9]+ tokens of [0-9]+ remembered/);
  assert.match(second.querySelector(".origin").textContent, /first token after .*s/);
  await until("the list has it", () => /My name is Ann/.test(all("#talk-list .now")[0]?.textContent ?? ""));
  const said = all(".message > .text").map((one) => one.textContent);

  // Another page finds it, by its address.
  await openWithKey(window.location.hash);
  await until("the conversation is there", () => all(".message").length === 4);
  assert.deepEqual(all(".message > .text").map((one) => one.textContent), said);

  // The last turn is asked again in a conversation of its own, which is deleted; the first stays.
  brief();
  all(".message:last-child .again")[0].dispatchEvent(new window.Event("click"));
  await until("it runs again", () => !isIdle());
  await until("it has run again", isIdle);
  assert.equal(all(".message").length, 4, "it took the place of the last one");
  await until("both are there", () => all("#talk-list li").filter((row) => /My name is Ann/.test(row.textContent)).length === 2);
  const remove = all("#talk-list .now .delete")[0];
  remove.dispatchEvent(new window.Event("click"));
  assert.equal(remove.textContent, "Delete?");
  remove.dispatchEvent(new window.Event("click"));
  await until("it is gone", () => all("#talk-list li").filter((row) => /My name is Ann/.test(row.textContent)).length === 1);
  assert.equal(all(".message").length, 0);
  // And the first.
  all("#talk-list .open")[0].dispatchEvent(new window.Event("click"));
  await until("it is open", () => all(".message").length === 4);
  for (let clicks = 0; clicks < 2; ++clicks) all("#talk-list .now .delete")[0].dispatchEvent(new window.Event("click"));
  await until("none is left", () => all("#talk-list li").length === 0);
}

async function replyIsStopped() {
  await openWithKey();
  at("temperature").value = "0";  // which is long, and has words
  at("text").value = "Write a long story.";
  at("composer").dispatchEvent(new window.Event("submit", { cancelable: true }));
  await until("it writes", () => all(".message.assistant > .text")[0]?.textContent.length > 0);
  at("stop").dispatchEvent(new window.Event("click"));
  await until("it stops", isIdle);
  assert.match(at("log").textContent, /The server keeps nothing of this turn/);
  assert.equal(at("text").value, "Write a long story.", "to be written otherwise");
  await until("an empty conversation is not kept", () => all("#talk-list li").length === 0);
}

async function replyGoesOnWhoeverLeaves() {
  await openWithKey();
  at("max-tokens").value = "200";
  at("temperature").value = "0";
  at("text").value = "Name many colours.";
  at("composer").dispatchEvent(new window.Event("submit", { cancelable: true }));
  await until("it writes", () => all(".message.assistant > .text")[0]?.textContent.length > 0);
  at("new").dispatchEvent(new window.Event("click"));
  assert.ok(isIdle(), "somebody may write");
  assert.equal(all(".message").length, 0);
  await until("it has ended", () => /Name many colours/.test(at("talk-list").textContent));
  assert.equal(at("text").value, "");
  all("#talk-list .open")[0].dispatchEvent(new window.Event("click"));
  await until("it is whole", () => all(".message").length === 2);
  for (let clicks = 0; clicks < 2; ++clicks) all("#talk-list .now .delete")[0].dispatchEvent(new window.Event("click"));
  await until("it is gone", () => all("#talk-list li").length === 0);
}

async function memoryIsShown() {
  await openWithKey();
  await until("the tiers are there", () => all(".tier").length > 0);
  assert.match(all(".tier h3")[0].textContent, /^Device192 MiB/);
  brief();
  await ask("Hello.");
  await until("the figures follow", () => /of [1-9][0-9,]* prompt tokens remembered/.test(at("tiers").textContent));
  await forget();
}

async function markupStaysText() {
  await openWithKey();
  brief();
  await ask("<img src=x onerror=alert(1)> **hi**");
  assert.equal(all(".message.user")[0].textContent, "<img src=x onerror=alert(1)> **hi**");
  assert.equal(all("#log img").length, 0);
  await forget();
}

// --- what goes wrong in the middle ---

async function tellsWhoeverComesTooOften() {
  await forgetAll();
  await openWithKey();
  brief();
  let made = 0, isLimited = true;
  meddle = (path, options, go) => {
    if (path === "/v1/conversations" && options.method === "POST") ++made;
    const counts = isTurn(path, options) || options.method === "DELETE";
    return isLimited && counts ? refusal(429, { message: "rate limit reached", code: "rate_limit_exceeded" }, { "Retry-After": "12" }) : go();
  };
  // The first turn: its conversation has begun, and cannot be deleted either.
  await ask("My name is Ann.");
  assert.match(at("log").textContent, /rate limit reached\. Try again in 12 seconds\./);
  assert.equal(at("text").value, "My name is Ann.", "to be sent again");
  assert.equal(all("#talk-list li").length, 0, "an empty conversation is not shown");
  isLimited = false;
  await ask(at("text").value);
  assert.equal(made, 1, "it is the conversation that had begun");
  await until("the list has it", () => all("#talk-list li").length === 1);
  // One in the middle.
  isLimited = true;
  await ask("What is my name?");
  assert.equal(at("text").value, "What is my name?");
  isLimited = false;
  await ask(at("text").value);
  await openWithKey(window.location.hash);
  await until("both turns are there, once", () => all(".message").length === 4);
}

async function asksAgainForAKeyThatIsTakenAway() {
  await openWithKey();
  brief();
  await ask("My name is Ann.");
  meddle = (path, options, go) =>
    options.headers?.Authorization === `Bearer ${key}` && path !== "/metrics" ? refusal(401, { message: "this key is not known", code: "invalid_api_key" }) : go();
  at("text").value = "What is my name?";
  at("composer").dispatchEvent(new window.Event("submit", { cancelable: true }));
  await until("it asks for another key", () => at("key-dialog").open);
  assert.equal(at("key-note").textContent, "this key is not known");
  assert.equal(at("text").value, "What is my name?", "to be sent again");
  assert.ok(isIdle());
  // A request that was on its way with the old key fails when the new one is there: nobody is asked again.
  let fail;
  meddle = (path, options, go) => (path.startsWith("/v1/conversations?") ? new Promise((done) => (fail ??= () => done(refusal(401, { message: "old" })))) : go());
  at("more-talks").dispatchEvent(new window.Event("click"));
  at("key").value = key;
  at("key-dialog").close();
  await until("the list is being read", () => fail);
  meddle = (path, options, go) => go();
  fail();
  await ask(at("text").value);
  assert.ok(!at("key-dialog").open);
  assert.equal(all(".message.failed").length, 1);
  await openWithKey(window.location.hash);
  await until("both turns are there, once", () => all(".message").length === 4);
}

async function talksWithoutAStore() {
  const asked = [], waiting = [];
  let isSlow = true;
  meddle = (path, options, go) => {
    if (isTurn(path, options)) asked.push(JSON.parse(options.body));
    if (!path.startsWith("/v1/conversations")) return go();
    const none = refusal(400, { message: "this server keeps no conversations", code: "store_disabled" });
    return isSlow && options.method === "GET" ? new Promise((done) => waiting.push(() => done(none))) : none;
  };
  await openWithKey("#conv_1");
  await until("it looks for the conversation that is addressed, and for all", () => waiting.length === 2);
  isSlow = false;
  waiting.forEach((answer) => answer());
  await until("it says that there is none", () => /keeps no conversations: what is said here is lost/.test(at("talks-note").textContent));
  assert.equal(window.location.hash, "");
  brief();
  await ask("My name is Ann.");
  await ask("What is my name?");
  assert.equal(all(".message.assistant").length, 2);
  assert.equal(all(".message.failed").length, 0, at("log").textContent);
  assert.deepEqual(asked.map(({ store, conversation, input }) => [store, conversation, input.map(({ role }) => role)]),
    [[false, undefined, ["user"]], [false, undefined, ["user", "assistant", "user"]]]);
  // A turn that fails is not part of what is sent next.
  const before = meddle;
  meddle = (path, options, go) => (isTurn(path, options) ? refusal(429, { message: "no" }) : before(path, options, go));
  await ask("Lost.");
  meddle = before;
  await ask("Again.");
  assert.deepEqual(asked.at(-1).input.map(({ role }) => role), ["user", "assistant", "user", "assistant", "user"]);
}

// Whoever writes before the page knows that nothing is kept loses nothing by that.
async function talksWithoutAStoreFromTheFirstWord() {
  meddle = (path, options, go) => {
    if (!path.startsWith("/v1/conversations")) return go();
    return options.method === "GET" ? new Promise(() => {}) : refusal(400, { message: "no", code: "store_disabled" });
  };
  await openWithKey();
  brief();
  await ask("My name is Ann.");
  assert.equal(all(".message.failed").length, 0, at("log").textContent);
  assert.ok(all(".message.assistant > .text")[0].textContent.trim(), "a reply has text");
}

// A server that was started again without its store: what is shown would not be read by the model.
async function beginsAnewWhereTheStoreIsGone() {
  await forgetAll();
  await openWithKey();
  brief();
  await ask("My name is Ann.");
  await until("the list has it", () => all("#talk-list li").length === 1);
  meddle = (path, options, go) => {
    if (path.startsWith("/v1/conversations")) return refusal(400, { message: "no", code: "store_disabled" });
    const isOfStore = JSON.parse(options.body ?? "{}").conversation !== undefined;
    return isOfStore ? refusal(400, { message: "conversation: this server keeps no responses and no conversations", code: "store_disabled", param: "conversation" }) : go();
  };
  await ask("What is my name?");
  await until("it notices", () => at("state").textContent === "The server does not keep conversations any more.");
  assert.equal(at("text").value, "What is my name?", "to be sent again");
  assert.deepEqual([all(".message").length, all("#talk-list li").length, window.location.hash], [0, 0, ""]);
  await ask(at("text").value);
  assert.equal(all(".message.assistant").length, 1);
}

// The body up to the first event for which `ends(data)` holds, and then none: the connection breaks.
function broken(answer, ends) {
  let text = "";
  const decoder = new TextDecoder();
  const breaking = new TransformStream({
    transform(piece, controller) {
      text += decoder.decode(piece, { stream: true });
      controller.enqueue(piece);
      if (ends(text)) controller.error(new TypeError("network error"));
    },
  });
  return new Response(answer.body.pipeThrough(breaking), { status: answer.status });
}

async function streamBreaks() {
  await forgetAll();
  await openWithKey();
  at("max-tokens").value = "200";
  let ends = (text) => /output_text\.delta/.test(text);
  meddle = async (path, options, go) => (isTurn(path, options) ? broken(await go(), ends) : go());
  await ask("Name many colours.");
  assert.match(at("log").textContent, /The connection broke off within the reply\./);
  assert.equal(at("text").value, "Name many colours.", "to be sent again");
  await until("an empty conversation is not kept", () => all("#talk-list li").length === 0);
  assert.equal(window.location.hash, "");
  // What has come whole counts, however its connection ends.
  brief();
  ends = (text) => /event: response\.(completed|incomplete)\n.*\n\n/.test(text);
  await ask(at("text").value);
  assert.equal(all(".message.failed").length, 1, "the one of before");
  assert.match(all(".message:last-child .origin")[0].textContent, /first token after/);
  await until("the list has it", () => all("#talk-list li").length === 1);
}

// One check a run: node_test.py names it.
const checks = { keyIsAskedFor, conversationIsKept, replyIsStopped, replyGoesOnWhoeverLeaves, memoryIsShown, markupStaysText, tellsWhoeverComesTooOften, asksAgainForAKeyThatIsTakenAway, talksWithoutAStore, talksWithoutAStoreFromTheFirstWord, beginsAnewWhereTheStoreIsGone, streamBreaks };
await checks[name]();
process.exit(0); // the page looks at the server for as long as it is open
