// SPDX-License-Identifier: Apache-2.0
// The page: conversations that the server keeps, the one that is open, and the picture of where state is.
import * as api from "./api.js";
import {make} from "./dom.js";
import {ago, counted} from "./figures.js";
import {forGood} from "./kept.js";
import {MemoryPicture} from "./memory.js";
import {CUT_SHORT, TalkView, textOf} from "./talk.js";

const at = (id) => document.getElementById(id);
const view = new TalkView(at("log"), tryAgain);

let talk = null; // the id of the conversation that is open; null: it is new
let lastItem; // the id of the last item that is shown; undefined: there is none
let items = []; // of the open one, where the server stores none
let isStored = true; // the server keeps conversations
let spare = null; // the id of an empty conversation that could not be deleted: the next new one
let opening = null; // a value of its own while a conversation is being read
let running = null; // the AbortController of the turn that is shown, while its reply is written

// --- what the browser keeps ---

const SETTINGS = ["instructions", "temperature", "max-tokens", "model"];

function loadSettings() {
  for (const name of SETTINGS) {
    const kept = forGood.get(name);
    if (kept !== null) at(name).value = kept;
    at(name).addEventListener("change", () => forGood.set(name, at(name).value));
  }
}

function numberOf(id) {
  const value = at(id).valueAsNumber;
  return Number.isFinite(value) && at(id).checkValidity() ? value : undefined;
}

// --- the server ---

function say(text, isBad = false) {
  at("state").textContent = at("state").title = text;
  at("state").classList.toggle("bad", isBad);
}

let asking = null; // a promise while the dialog for a key is open

/** Asks for a key, once however many requests lack one. */
function askForKey(failure) {
  asking ??= (async () => {
    let note = api.keyNow() !== null ? failure.message : at("key-note").textContent;
    api.setKey("");
    for (let key = ""; key === "";) {
      at("key-note").textContent = note;
      at("key-dialog").showModal();
      await new Promise((done) => at("key-dialog").addEventListener("close", done, {once: true}));
      key = at("key").value.trim();
      at("key").value = "";
      if (!api.setKey(key)) [key, note] = ["", "A key is made of letters, digits and other signs of ASCII."];
    }
    asking = null;
  })();
  return asking;
}

/** Calls `ask()` again after a key was given. */
async function withKey(ask) {
  for (;;) {
    const key = api.keyNow();
    try {
      return await ask();
    } catch (failure) {
      if (failure.status !== 401) throw failure;
      // (Another request may have asked for a key while this one was on its way with the old one.)
      if (api.keyNow() === key) await askForKey(failure);
    }
  }
}

/** What is said of a failure. */
function why({message, retryAfter}) {
  return retryAfter === null || retryAfter === undefined ? message : `${message.replace(/\.$/, "")}. Try again in ${counted(retryAfter, "second")}.`;
}

/** Calls `ask()` again after a key was given; while the server loads its model or is away, until it is there. */
async function insist(ask) {
  for (let pause = 1000; ; pause = Math.min(2 * pause, 8000)) {
    try {
      const answer = await withKey(ask);
      say("");
      return answer;
    } catch (failure) {
      const comesLater = [0, 408, 429].includes(failure.status) || failure.status >= 500;
      say(failure.message, !comesLater);
      if (!comesLater) throw failure;
      const asked = 1000 * Math.min(failure.retryAfter ?? 0, 60);
      await new Promise((done) => setTimeout(done, Math.max(pause, asked)));
    }
  }
}

async function loadModels() {
  const models = await insist(api.models);
  at("send").disabled = false;
  at("model").replaceChildren(...models.map((model) => make("option", {value: model.id}, model.id)));
  const wanted = forGood.get("model");
  if (models.some((model) => model.id === wanted)) at("model").value = wanted;
}

// --- conversations ---

let lastTalk = ""; // the last one of the list

async function loadTalks(after = "") {
  if (!isStored) return;
  let page;
  try {
    page = await withKey(() => api.listTalks(after));
  } catch (failure) {
    if (!keepsNone(failure)) at("talks-note").textContent = why(failure);
    return;
  }
  const rows = page.data.filter(({id}) => id !== spare).map(rowOf);
  if (after) at("talk-list").append(...rows);
  else at("talk-list").replaceChildren(...rows);
  lastTalk = page.last_id ?? "";
  at("more-talks").hidden = !page.has_more;
  at("talks-note").textContent = at("talk-list").children.length > 0 ? "" : "What is said is kept by the server, and found here again.";
}

// Whether a request failed because the server runs without a store. From then on the page keeps what is said.
function keepsNone({code}) {
  if (code !== "store_disabled") return false;
  const wasOpen = isStored && talk !== null;
  isStored = false;
  if (wasOpen) {
    // The server was started again without its store: the model would not read what is shown.
    history.replaceState(null, "", "/");
    startTalk();
    say("The server does not keep conversations any more.", true);
  }
  at("talk-list").replaceChildren();
  at("more-talks").hidden = true;
  at("talks-note").textContent = "This server keeps no conversations: what is said here is lost when the page is closed.";
  return true;
}

function rowOf({id, title, last_active_at: active}) {
  const open = make("button", {type: "button", class: "open", onclick: () => openTalk(id)},
    make("span", {class: "title"}, title || "No title"), make("span", {class: "when"}, ago(active, Date.now() / 1000)));
  const remove = make("button", {type: "button", class: "delete", "aria-label": `Delete: ${title}`, title: "Delete, with its state", onclick: () => deleteTalk(id, remove)}, "✕");
  return make("li", {"data-talk": id, class: id === talk ? "now" : null}, open, remove);
}

function markOpen() {
  for (const row of at("talk-list").children) row.className = row.dataset.talk === talk ? "now" : "";
  showTalks(false);
}

// Of a narrow window.
function showTalks(isShown) {
  document.body.classList.toggle("talks-shown", isShown);
  at("show-talks").setAttribute("aria-expanded", String(isShown));
}

function greet() {
  view.clear(make("h2", {}, "What is on your mind?"), make("p", {}, "The server remembers: a conversation's computed state is kept, and brought back when you go on."));
}

// The conversation that the page's address names; empty: none.
function addressed() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function followAddress() {
  if (addressed() === "") startTalk();
  else if (addressed() !== talk) openTalk(addressed());
}

// A turn whose conversation is left goes on, and is found there when it has ended. Where nothing is stored it
// would be lost.
function leave() {
  opening = null;
  if (!isStored) running?.abort();
  running = null;
  setRunning(false);
}

function startTalk() {
  leave();
  talk = null;
  lastItem = undefined;
  items = [];
  greet();
  markOpen();
  if (location.hash) history.pushState(null, "", "/");
  at("text").focus();
}

async function openTalk(id) {
  leave();
  const mine = (opening = {});
  talk = id;
  items = [];
  markOpen();
  view.clear();
  if (addressed() !== id) history.pushState(null, "", `#${id}`);
  try {
    const page = await withKey(() => api.itemsBefore(id));
    if (opening !== mine) return; // another was opened meanwhile
    lastItem = page.items.at(-1)?.id;
    view.showItems(page.items, earlierThan(id, page));
    say("");
  } catch (failure) {
    if (opening !== mine) return;
    if (failure.status === 404 || keepsNone(failure)) {
      history.replaceState(null, "", "/"); // else the way back would lead here again
      startTalk();
    } else {
      view.clear(make("p", {}, "The conversation could not be read."));
    }
    say(why(failure), true);
  } finally {
    if (opening === mine) opening = null;
  }
  at("text").focus();
}

// What shows the items before those of the page; null: there are none.
function earlierThan(id, {items: shown, hasMore}) {
  if (!hasMore || shown.length === 0) return null;
  return async ({target}) => {
    target.disabled = true;
    try {
      const page = await withKey(() => api.itemsBefore(id, shown[0].id));
      if (talk === id) view.showEarlier(page.items, earlierThan(id, page));
    } catch (failure) {
      target.disabled = false;
      say(failure.message, true);
    }
  };
}

// The first click asks, the second one deletes.
async function deleteTalk(id, button) {
  if (!button.classList.contains("sure")) {
    const label = button.getAttribute("aria-label");
    const show = (isSure) => {
      button.classList.toggle("sure", isSure);
      button.textContent = isSure ? "Delete?" : "✕";
      button.setAttribute("aria-label", isSure ? `Really ${label}?` : label);
    };
    show(true);
    setTimeout(() => show(false), 3000);
    return;
  }
  try {
    if (talk === id) startTalk();
    await withKey(() => api.deleteTalk(id));
    await loadTalks();
  } catch (failure) {
    say(failure.message, true);
  }
}

// --- a turn ---

function requestOf({id, text}) {
  const request = {
    model: at("model").value || undefined,
    instructions: at("instructions").value.trim() || undefined,
    temperature: numberOf("temperature"),
    max_output_tokens: numberOf("max-tokens"),
    truncation: "auto",
    loci: {explain: true},
  };
  if (isStored) return {...request, conversation: id, input: text};
  return {...request, store: false, input: [...items, messageOf(text)]};
}

function messageOf(text) {
  return {type: "message", role: "user", content: [{type: "input_text", text}]};
}

async function runTurn(text) {
  running = new AbortController();
  const {signal} = running;
  setRunning(true);
  const turn = {text, signal, said: view.addText("user", text), reply: view.beginReply(), id: talk, made: null, response: null, last: null, key: api.keyNow()};
  view.toEnd();
  const began = performance.now();
  try {
    await hear(turn);
    if (!isStored) items.push(messageOf(text), ...turn.last.output);
    const note = turn.last.status === "incomplete" ? CUT_SHORT : "";
    turn.reply.end({note, response: turn.last, took: (performance.now() - began) / 1000, isKept: true});
    if (isShown(turn)) say("");
    await showOthers(turn);
  } catch (failure) {
    await endBadly(failure, turn).catch((worse) => say(worse.message, true));
  }
  endRunning(signal);
  await loadTalks();
}

function endRunning(signal) {
  if (running?.signal !== signal) return;
  running = null;
  setRunning(false);
}

// Other pages and clients may have gone on with the conversation: then the model has read what is not shown.
async function showOthers({id, said, last}) {
  if (!isStored) return;
  const now = await api.lastItemsOf(id).catch(() => null);
  if (now === null || talk !== id) return;
  const before = now.at(-last.output.length - 2)?.id; // the item before this turn's
  // (Who left, and came back before it had ended, has not seen this turn either.)
  const isAllShown = said.isConnected && (before === lastItem || (now.length >= 20 && before === undefined));
  lastItem = now.at(-1)?.id;
  if (isAllShown) return;
  const wasShown = said.isConnected;
  await openTalk(id);
  if (wasShown && talk === id) say("Something else was said in this conversation meanwhile. This is all of it.");
}

function isShown({signal}) {
  return running?.signal === signal;
}

// Shows the reply while it comes. Returns when it has ended well, with `turn.last`; throws where it has not.
async function hear(turn) {
  if (isStored && turn.id === null) {
    turn.id = turn.made = await beginTalk(); // the conversation begins with this turn
    turn.signal.throwIfAborted();
    if (isShown(turn) && turn.id !== null) {
      talk = turn.id;
      history.replaceState(null, "", `#${talk}`);
    }
  }
  const hearing = api.respond(requestOf(turn), (event) => {
    if (event.type === "response.output_text.delta") turn.reply.text += event.delta;
    else if (event.type === "response.reasoning_text.delta") turn.reply.reasoning += event.delta;
    else if (event.type === "response.created") turn.response = event.response.id;
    else if (event.type === "error") throw new api.ApiFailure(0, event.code, event.message);
    else if (["response.completed", "response.incomplete", "response.failed"].includes(event.type)) turn.last = event.response;
    turn.reply.changed();
  }, turn.signal);
  await hearing.catch((failure) => {
    if (turn.last === null) throw failure; // else it is whole, however the connection ended
  });
  if (turn.last === null) throw new api.ApiFailure(0, "broken_off", "The connection broke off within the reply.");
  if (turn.last.status === "failed") throw new api.ApiFailure(0, turn.last.error.code, turn.last.error.message);
}

// The id of an empty conversation; null: the server keeps none.
async function beginTalk() {
  const id = spare;
  spare = null;
  return id ?? api.newTalk().catch((failure) => {
    if (!keepsNone(failure)) throw failure;
    return null;
  });
}

// True: the server has the turn all the same. Null: it does not say.
async function isKept(response) {
  if (!isStored || response === null) return false;
  return api.responseOf(response).then(({status}) => status === "completed" || status === "incomplete",
    (failure) => (failure.status === 404 ? false : null));
}

// A turn that failed or was stopped adds nothing to its conversation, so its text is given back.
async function endBadly(failure, turn) {
  const {text, reply, made, response} = turn;
  const isStopped = failure.name === "AbortError", kept = await isKept(response);
  if (made !== null && kept === false) await dropEmpty(made);
  if (!isShown(turn)) {
    reply.end();
    if (!isStopped && !kept) say(`A message that was left got no reply: ${why(failure)}`, true);
    return;
  }
  if (failure.status === 404 && failure.param === "conversation") {
    history.replaceState(null, "", "/");
    startTalk();
    if (at("text").value === "") at("text").value = text;
    fitText();
    return say("The conversation was deleted meanwhile.", true);
  }
  if (kept) {
    await openTalk(turn.id);
    return say("The connection broke off, but the server has the whole reply.");
  }
  const notKept = isStopped ? "Stopped. The server keeps nothing of this turn." : "";
  reply.end({note: kept === null ? "The server does not say whether it has kept this turn: look before you send it again." : notKept});
  if (!isStopped) view.addText("failed", why(failure));
  if (at("text").value === "") at("text").value = text;
  fitText();
  view.toEnd();
  endRunning(turn.signal);
  if (failure.status === 401) {
    if (api.keyNow() === turn.key) await askForKey(failure);
    if (spare !== null) await dropEmpty(spare);
  }
  if (failure.code === "model_not_found") await loadModels(); // the server serves another one by now
}

// A conversation whose first turn came to nothing. The server may not have noticed yet that nobody waits.
async function dropEmpty(id) {
  if (talk === id) {
    talk = null;
    history.replaceState(null, "", "/");
  }
  spare = null;
  for (let attempts = 0; attempts < 10; ++attempts) {
    const drop = async () => (await api.lastItemsOf(id)).length > 0 || api.deleteTalk(id);
    const failure = await drop().then(() => null, (one) => one);
    if (failure?.status !== 409) {
      // Without a key, or over a limit, not even that is done.
      if (failure !== null && failure.status !== 404) spare = id;
      return;
    }
    await new Promise((done) => setTimeout(done, 200));
  }
}

// The last message is asked anew, in a conversation that begins with all that was said before it. The old one
// stays as it is, so nothing is lost whatever becomes of the new one.
async function tryAgain() {
  if (running || opening) return;
  running = new AbortController();
  const {signal} = running, id = talk;
  setRunning(true);
  let text = "";
  try {
    const known = isStored ? await withKey(() => api.itemsOf(id)) : items;
    const first = known.findLastIndex((item) => item.type === "message" && item.role === "user");
    text = textOf(known[first]?.content);
    if (text === "") throw new Error("There is no message to ask again.");
    const before = known.slice(0, first);
    const branch = isStored && before.length > 0 ? await api.newTalk(before, signal) : null;
    if (running?.signal !== signal) {
      if (branch) await api.deleteTalk(branch).catch(() => {}); // somebody has left
      return loadTalks();
    }
    talk = branch;
    markOpen();
    if (isStored) history.pushState(null, "", branch ? `#${branch}` : "/");
    lastItem = before.at(-1)?.id;
    items = before;
    view.takeBack();
  } catch (failure) {
    text = "";
    if (failure.name !== "AbortError") say(failure.message, true);
  }
  endRunning(signal);
  if (text !== "") await runTurn(text);
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
  if (text === "" || running || opening || at("send").disabled) return;
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
  at("show-talks").addEventListener("click", () => showTalks(!document.body.classList.contains("talks-shown")));
  at("log").addEventListener("click", () => showTalks(false));
  at("show-memory").addEventListener("click", () => {
    showMemory(document.body.classList.contains("no-memory"));
    forGood.set("memory", at("show-memory").getAttribute("aria-expanded"));
  });
  window.addEventListener("popstate", followAddress);
  document.addEventListener("keydown", (event) => {
    if (event.altKey && event.key === "n") startTalk();
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    if (document.body.classList.contains("talks-shown")) showTalks(false);
    else running?.abort();
  });
}

function showMemory(isShown) {
  document.body.classList.toggle("no-memory", !isShown);
  at("show-memory").setAttribute("aria-expanded", String(isShown));
}

async function main() {
  at("send").disabled = true; // after a reload Firefox takes over what it was before
  loadSettings();
  listen();
  showMemory(forGood.get("memory") !== "false" && window.innerWidth > 1120);
  greet();
  new MemoryPicture({box: at("tiers"), note: at("memory-note"), read: api.metrics, isShown: () => !document.body.classList.contains("no-memory")}).start();
  await loadModels();
  // From here on somebody may write.
  if (addressed() === "") at("text").focus();
  else openTalk(addressed());
  await loadTalks();
}

main().catch((failure) => say(failure.message, true));
