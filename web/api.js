// SPDX-License-Identifier: Apache-2.0
// The requests that the page sends: to the server that it came from, and to no other.
import {forTab} from "./kept.js";
import {EventReader} from "./sse.js";

const KEY = "key"; // in this tab alone: another tab, or the next person, is asked again

/**
 * What a server said no to: `status` is that of HTTP, 0 where nothing answered; `code` and `param` are the error's;
 * `retryAfter`: seconds after which the server wants to be asked again, null if it does not say.
 */
export class ApiFailure extends Error {
  constructor(status, code, message, {param = null, retryAfter = null} = {}) {
    super(message);
    Object.assign(this, {status, code, param, retryAfter});
  }
}

const brokenOff = () => new ApiFailure(0, "broken_off", "The connection broke off within the reply.");

/** Keeps the key for this tab, or none. False: a header cannot hold it. */
export function setKey(key) {
  const isHeader = /^[\x21-\x7e]+$/.test(key);
  forTab.set(KEY, isHeader ? key : null);
  return isHeader || key === "";
}

/** The one that requests have; null: none. */
export function keyNow() {
  return forTab.get(KEY);
}

async function send(method, path, body, signal) {
  const headers = {};
  const key = forTab.get(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal, cache: "no-store"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiFailure(0, "no_answer", "The server does not answer.");
  }
  if (!answer.ok) throw await failureOf(answer);
  return answer;
}

async function failureOf(answer) {
  const text = await answer.text().catch(() => "");
  const after = answer.headers.get("Retry-After") ?? "";
  const retryAfter = /^[0-9]{1,6}$/.test(after) ? Number(after) : null; // a date counts for nothing: clocks differ
  try {
    const {error} = JSON.parse(text);
    return new ApiFailure(answer.status, error.code ?? "", error.message, {param: error.param, retryAfter});
  } catch {
    return new ApiFailure(answer.status, "", text.slice(0, 500) || `The server answered with ${answer.status}.`, {retryAfter});
  }
}

async function json(method, path, body, signal) {
  const answer = await send(method, path, body, signal);
  return answer.json().catch((error) => {
    throw error.name === "AbortError" ? error : brokenOff();
  });
}

export const models = async () => (await json("GET", "/v1/models")).data;
export const metrics = async () => (await send("GET", "/metrics")).text();

/** A page of the caller's conversations, the last active first, behind the one named `after`. */
export const listTalks = (after) => json("GET", `/v1/conversations?limit=50${after ? `&after=${encodeURIComponent(after)}` : ""}`);
export const deleteTalk = (id) => json("DELETE", `/v1/conversations/${encodeURIComponent(id)}`);

/** Makes a conversation of these items, and returns its id. */
export async function newTalk(items = [], signal = undefined) {
  const atOnce = 20; // as many as one request may bring
  const post = (path, body) => json("POST", path, body, signal);
  const {id} = await post("/v1/conversations", {items: items.slice(0, atOnce)});
  try {
    for (let from = atOnce; from < items.length; from += atOnce)
      await post(`/v1/conversations/${encodeURIComponent(id)}/items`, {items: items.slice(from, from + atOnce)});
  } catch (failure) {
    await deleteTalk(id).catch(() => {}); // half of one is none
    throw failure;
  }
  return id;
}

/** All items of a conversation, the oldest first. */
export async function itemsOf(id) {
  const items = [];
  for (let after = ""; ;) {
    const path = `/v1/conversations/${encodeURIComponent(id)}/items?order=asc&limit=100`;
    const page = await json("GET", after ? `${path}&after=${encodeURIComponent(after)}` : path);
    items.push(...page.data);
    if (!page.has_more || page.data.length === 0) return items;
    after = page.last_id;
  }
}

/** The last items of a conversation, the oldest first; or the last before the one named `before`. */
export async function itemsBefore(id, before = "", limit = 100) {
  const path = `/v1/conversations/${encodeURIComponent(id)}/items?limit=${limit}`;
  const page = await json("GET", before ? `${path}&after=${encodeURIComponent(before)}` : path);
  return {items: page.data.reverse(), hasMore: page.has_more};
}

/** Those of its last turn at least. */
export const lastItemsOf = async (id) => (await itemsBefore(id, "", 20)).items;

export const responseOf = (id) => json("GET", `/v1/responses/${encodeURIComponent(id)}`);

/** Asks for a response and calls `on(event)` with each of its stream's events. Returns at the stream's end. */
export async function respond(request, on, signal) {
  const answer = await send("POST", "/v1/responses", {...request, stream: true}, signal);
  const events = new EventReader();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const piece = await next(reader);
      if (piece.done) return;
      for (const {data} of events.push(piece.value)) on(read(data));
    }
  } finally {
    reader.cancel().catch(() => {}); // of a stream that has not ended nobody reads the rest
  }
}

async function next(reader) {
  try {
    return await reader.read();
  } catch (error) {
    throw error.name === "AbortError" ? error : brokenOff();
  }
}

function read(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw brokenOff(); // something between the server and the page has cut it
  }
}
