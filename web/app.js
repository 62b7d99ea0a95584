// SPDX-License-Identifier: Apache-2.0
// The page: conversations that the server keeps, the one that is open, and the picture of where state is.
import * as api from "./api.js";
import {make} from "./dom.js";
import {ago} from "./figures.js";
import {MemoryPicture} from "./memory.js";
import {CUT_SHORT, TalkView, textOf} from "./talk.js";

const at = (id) => document.getElementById(id);
const view = new TalkView(at("log"), tryAgain);

let talk = null; // the id of the conversation that is open; null: it is new
let items = []; // of the open one: all where the server stores none, else those of its last turn at least
let isStored = true; // the server keeps conversations
let running = null; // an AbortController while a reply is written

// --- what the browser keeps ---

const SETTINGS = ["instructions", "temperature", "max-tokens", "model"];

function loadSettings() {
  for (const name of SETTINGS) {
    const kept = localStorage.getItem(`loci-${name}`);
    if (kept !== null) at(name).value = kept;
    at(name).addEventListener("change", () => localStorage.setItem(`loci-${name}`, at(name).value));
  }
}

function numberOf(id) {
  const value = at(id).valueAsNumber;
  return Number.isFinite(value) && at(id).checkValidity() ? value : undefined;
}

// --- the server ---

function say(text, isBad = false) {
  at("state").textContent = text;
  at("state").classList.toggle("bad", isBad);
}

/** Asks for a key until the server takes one. */
async function askForKey(failure) {
  at("key-note").textContent = api.hasKey() ? failure.message : at("key-note").textContent;
  at("key").value = "";
  at("key-dialog").showModal();
  await new Promise((done) => at("key-dialog").addEventListener("close", done, {once: true}));
  api.setKey(at("key").value.trim());
}

/** Calls `ask()` again after a key was given; while the server loads its model or is away, until it is there. */
async function insist(ask) {
  for (;;) {
    try {
      const answer = await ask();
      say("");
      return answer;
    } catch (failure) {
      if (failure.status === 401) {
        await askForKey(failure);
        continue;
      }
      const comesLater = failure.status === 0 || failure.status === 503;
      say(failure.message, !comesLater);
      if (!comesLater) throw failure;
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

async function loadModels() {
  const models = await insist(api.models);
  at("send").disabled = false;
  at("model").replaceChildren(...models.map((model) => make("option", {value: model.id}, model.id)));
  const wanted = localStorage.getItem("loci-model");
  if (models.some((model) => model.id === wanted)) at("model").value = wanted;
}

// --- conversations ---

let lastTalk = ""; // the last one of the list

async function loadTalks(after = "") {
  if (!isStored) return;
  let page;
  try {
    page = await api.listTalks(after);
  } catch (failure) {
    isStored = failure.code !== "store_disabled";
    at("talks-note").textContent = isStored ? failure.message : "This server keeps no conversations: what is said here is lost when the page is closed.";
    return;
  }
  const rows = page.data.map(rowOf);
  if (after) at("talk-list").append(...rows);
  else at("talk-list").replaceChildren(...rows);
  lastTalk = page.last_id ?? "";
  at("more-talks").hidden = !page.has_more;
  at("talks-note").textContent = at("talk-list").children.length > 0 ? "" : "What is said is kept by the server, and found here again.";
}

function rowOf({id, title, last_active_at: active}) {
  const open = make("button", {type: "button", class: "open", onclick: () => openTalk(id)},
    make("span", {class: "title"}, title || "No title"), make("span", {class: "when"}, ago(active, Date.now() / 1000)));
  const remove = make("button", {type: "button", class: "delete", "aria-label": `Delete: ${title}`, title: "Delete, with its state", onclick: () => deleteTalk(id, remove)}, "✕");
  return make("li", {"data-talk": id, class: id === talk ? "now" : null}, open, remove);
}

function markOpen() {
  for (const row of at("talk-list").children) row.className = row.dataset.talk === talk ? "now" : "";
  document.body.classList.remove("talks-shown");
}

function greet() {
  view.clear(make("h2", {}, "What is on your mind?"), make("p", {}, "The server remembers: a conversation's computed state is kept, and brought back when you go on."));
}

function startTalk() {
  running?.abort();
  talk = null;
  items = [];
  greet();
  markOpen();
  history.replaceState(null, "", "/");
  at("text").focus();
}

async function openTalk(id) {
  running?.abort();
  talk = id;
  items = [];
  markOpen();
  history.replaceState(null, "", `#${id}`);
  try {
    const read = await api.itemsOf(id);
    if (talk !== id) return; // another was opened meanwhile
    items = read;
    view.showItems(items);
    say("");
  } catch (failure) {
    if (talk !== id) return;
    startTalk();
    say(failure.message, true);
  }
  at("text").focus();
}

// The first click asks, the second one deletes.
async function deleteTalk(id, button) {
  if (!button.classList.contains("sure")) {
    button.classList.add("sure");
    button.textContent = "Delete?";
    setTimeout(() => {
      button.classList.remove("sure");
      button.textContent = "✕";
    }, 3000);
    return;
  }
  try {
    if (talk === id) startTalk();
    await api.deleteTalk(id);
    await loadTalks();
  } catch (failure) {
    say(failure.message, true);
  }
}

// --- a turn ---

function requestOf(text) {
  const request = {
    model: at("model").value || undefined,
    instructions: at("instructions").value.trim() || undefined,
    temperature: numberOf("temperature"),
    max_output_tokens: numberOf("max-tokens"),
    truncation: "auto",
    loci: {explain: true},
  };
  if (isStored) return {...request, conversation: talk, input: text};
  return {...request, store: false, input: [...items, messageOf(text)]};
}

function messageOf(text) {
  return {type: "message", role: "user", content: [{type: "input_text", text}]};
}

async function runTurn(text) {
  running = new AbortController();
  const {signal} = running;
  setRunning(true);
  const said = view.addText("user", text), reply = view.beginReply();
  view.toEnd();
  const began = performance.now();
  let last = null, made = null; // the conversation, if it begins with this turn
  try {
    if (isStored && talk === null) {
      made = (await api.newTalk()).id;
      signal.throwIfAborted();
      talk = made;
      history.replaceState(null, "", `#${talk}`);
    }
    await api.respond(requestOf(text), (event) => {
      if (event.type === "response.output_text.delta") reply.text += event.delta;
      else if (event.type === "response.reasoning_text.delta") reply.reasoning += event.delta;
      else if (event.type === "error") throw new api.ApiFailure(0, event.code, event.message);
      else if (["response.completed", "response.incomplete", "response.failed"].includes(event.type)) last = event.response;
      reply.changed();
    }, signal);
    if (last === null) throw new api.ApiFailure(0, "broken_off", "The connection broke off within the reply.");
    if (last.status === "failed") throw new api.ApiFailure(0, last.error.code, last.error.message);
    const took = (performance.now() - began) / 1000;
    const now = isStored ? await api.lastItemsOf(last.conversation.id) : [...items, messageOf(text), ...last.output];
    signal.throwIfAborted();
    items = now;
    reply.end({note: last.status === "incomplete" ? CUT_SHORT : "", response: last, took, isKept: true});
    say("");
  } catch (failure) {
    endBadly(failure, said, reply, text);
    if (made !== null) await dropEmpty(made);
  } finally {
    if (running?.signal === signal) {
      running = null;
      setRunning(false);
    }
    await loadTalks();
  }
}

// A conversation whose first turn came to nothing. Its turn may not have noticed yet that nobody waits for it.
async function dropEmpty(id) {
  if (talk === id) {
    talk = null;
    history.replaceState(null, "", "/");
  }
  for (let attempts = 0; attempts < 10; ++attempts) {
    const isDone = await api.deleteTalk(id).then(() => true, (failure) => failure.status !== 409);
    if (isDone) return;
    await new Promise((done) => setTimeout(done, 200));
  }
}

// A turn that failed or was stopped adds nothing to its conversation, so its text is given back.
function endBadly(failure, said, reply, text) {
  const isStopped = failure.name === "AbortError";
  reply.end({note: isStopped ? "Stopped. The server keeps nothing of this turn." : ""});
  if (!isStopped) {
    view.addText("failed", failure.message);
    say(failure.status === 401 ? "The server does not take this key." : "", true);
    if (failure.status === 401) api.setKey("");
  }
  if (!said.isConnected) return; // another conversation is open
  if (at("text").value === "") at("text").value = text;
  fitText();
  view.toEnd();
}

// The last turn is taken back, and asked again.
async function tryAgain() {
  const first = items.findLastIndex((item) => item.type === "message" && item.role === "user");
  if (running || first < 0) return;
  const text = textOf(items[first].content);
  try {
    if (isStored) for (const item of items.slice(first).reverse()) await api.deleteItem(talk, item.id);
  } catch (failure) {
    await openTalk(talk); // some of it may be gone
    say(failure.message, true);
    return;
  }
  items = items.slice(0, first);
  view.takeBack();
  await runTurn(text);
}

function setRunning(isRunning) {
  at("send").hidden = isRunning;
  at("stop").hidden = !isRunning;
  at("log").setAttribute("aria-busy", String(isRunning));
}

// --- what a person does ---

function fitText() {
  at("text").style.height = "auto";
  at("text").style.height = `${at("text").scrollHeight + 2}px`;
}

function submit() {
  const text = at("text").value.trim();
  if (text === "" || running || at("send").disabled) return;
  at("text").value = "";
  fitText();
  runTurn(text);
}

function listen() {
  at("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  at("text").addEventListener("input", fitText);
  at("text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  at("stop").addEventListener("click", () => running?.abort());
  at("new").addEventListener("click", startTalk);
  at("more-talks").addEventListener("click", () => loadTalks(lastTalk));
  at("show-settings").addEventListener("click", () => at("settings").showModal());
  at("show-talks").addEventListener("click", () => document.body.classList.toggle("talks-shown"));
  at("show-memory").addEventListener("click", () => showMemory(document.body.classList.contains("no-memory")));
  document.addEventListener("keydown", (event) => {
    if (event.altKey && event.key === "n") startTalk();
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) running?.abort();
  });
}

function showMemory(isShown) {
  document.body.classList.toggle("no-memory", !isShown);
  at("show-memory").setAttribute("aria-expanded", String(isShown));
  localStorage.setItem("loci-memory", String(isShown));
}

async function main() {
  loadSettings();
  listen();
  showMemory(localStorage.getItem("loci-memory") !== "false" && window.innerWidth > 1120);
  greet();
  new MemoryPicture({box: at("tiers"), note: at("memory-note"), read: api.metrics, isShown: () => !document.body.classList.contains("no-memory")}).start();
  await loadModels();
  await loadTalks();
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (wanted) await openTalk(wanted);
  else at("text").focus();
}

main().catch((failure) => say(failure.message, true));
