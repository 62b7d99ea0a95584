// SPDX-License-Identifier: Apache-2.0
// The requests that the page sends: to the server that it came from, and to no other.
import {forTab} from "./kept.js";
import {EventReader} from "./sse.js";

const KEY = "key"; // in this tab alone: another tab, or the next person, is asked again

/** What a server said no to: `status` is that of HTTP, 0 where nothing answered; `code` and `param` are the error's. */
export class ApiFailure extends Error {
  constructor(status, code, message, param = null) {
    super(message);
    Object.assign(this, {status, code, param});
  }
}

/** Keeps the key for this tab, or none. False: a header cannot hold it. */
export function setKey(key) {
  const isHeader = /^[\x21-\x7e]+$/.test(key);
  forTab.set(KEY, isHeader ? key : null);
  return isHeader || key === "";
}

export function hasKey() {
  return forTab.get(KEY) !== null;
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
  try {
    const {error} = JSON.parse(text);
    return new ApiFailure(answer.status, error.code ?? "", error.message, error.param);
  } catch {
    return new ApiFailure(answer.status, "", text.slice(0, 500) || `The server answered with ${answer.status}.`);
  }
}

async function json(method, path, body) {
  return (await send(method, path, body)).json();
}

export const models = async () => (await json("GET", "/v1/models")).data;
export const metrics = async () => (await send("GET", "/metrics")).text();

/** A page of the caller's conversations, the last active first, behind the one named `after`. */
export const listTalks = (after) => json("GET", `/v1/conversations?limit=50${after ? `&after=${encodeURIComponent(after)}` : ""}`);
export const deleteTalk = (id) => json("DELETE", `/v1/conversations/${encodeURIComponent(id)}`);

/** Makes a conversation of these items, and returns its id. */
export async function newTalk(items = [], signal = undefined) {
  const atOnce = 20; // as many as one request may bring
  const post = async (path, body) => (await send("POST", path, body, signal)).json();
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
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiFailure(0, "broken_off", "The connection broke off within the reply.");
    }
    if (piece.done) return;
    for (const {data} of events.push(piece.value)) on(JSON.parse(data));
  }
}
