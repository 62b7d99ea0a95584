// SPDX-License-Identifier: Apache-2.0
// One conversation as it is shown: its messages, and the reply that is being written.
import {make, nodes} from "./dom.js";
import {count, rate, seconds} from "./figures.js";
import {parseMarkdown} from "./markdown.js";
import {originOf} from "./memory.js";

export const CUT_SHORT = "The reply was cut short: it had come to its limit.";

/** The log's messages. `again()` is called where somebody wants the last one to be asked anew. */
export class TalkView {
  #target; // where messages are added: the log, or what is drawn away from it

  constructor(log, again) {
    Object.assign(this, {log, again});
    this.#target = log;
  }

  clear(...greeting) {
    this.#target = this.log;
    this.log.replaceChildren(...(greeting.length > 0 ? [make("div", {class: "greeting"}, ...greeting)] : []));
  }

  /** Items as /v1/conversations/{id}/items has them, in place of all. `earlier()` is called where somebody wants those before them; null: there are none. */
  showItems(items, earlier = null) {
    this.clear();
    this.log.append(this.#drawn(items, earlier, true));
    this.toEnd();
  }

  /** The items before those that are shown. */
  showEarlier(items, earlier) {
    const below = this.log.scrollHeight - this.log.scrollTop;
    this.log.querySelector(".earlier")?.remove();
    this.log.prepend(this.#drawn(items, earlier, false));
    this.log.scrollTop = this.log.scrollHeight - below;
  }

  // Away from the page: to look where it stands after each message would take time by the square of their
  // number.
  #drawn(items, earlier, isEnd) {
    const drawn = document.createDocumentFragment();
    if (earlier) drawn.append(make("button", {type: "button", class: "plain earlier", onclick: earlier}, "Earlier messages"));
    this.#target = drawn;
    this.#add(items, isEnd);
    this.#target = this.log;
    return drawn;
  }

  // `isEnd`: no item of the conversation comes behind them.
  #add(items, isEnd) {
    let reasoning = "";
    const addReply = (text, isCut) => {
      const reply = this.beginReply();
      Object.assign(reply, {text, reasoning});
      reply.end({note: isCut ? CUT_SHORT : "", isKept: true});
      reasoning = "";
    };
    for (const item of items) {
      const isReply = item.type === "message" && item.role === "assistant";
      // A turn that came to its limit within its reasoning has nothing else.
      if (reasoning && !isReply && item.type !== "reasoning") addReply("", item.type === "message");
      if (item.type === "reasoning") reasoning += textOf(item.content);
      else if (isReply) addReply(textOf(item.content), item.status === "incomplete");
      else if (item.type === "message") this.addText(item.role === "user" ? "user" : "system", textOf(item.content));
      else this.addText("other", describe(item));
    }
    if (reasoning) addReply("", isEnd);
  }

  #append(element) {
    if (this.log.firstElementChild?.className === "greeting") this.log.firstElementChild.remove();
    this.#target.append(element);
    return element;
  }

  addText(kind, text) {
    return this.#append(make("div", {class: `message ${kind}`}, text));
  }

  beginReply() {
    const reply = new ReplyView(this);
    this.#append(reply.element);
    return reply;
  }

  #lastUser() {
    return [...this.log.querySelectorAll(".user")].at(-1);
  }

  /** Removes the last turn. */
  takeBack() {
    const said = this.#lastUser();
    while (said?.nextSibling) said.nextSibling.remove();
    said?.remove();
  }

  /** Somebody reads the end, and wants to go on with it. */
  isAtEnd() {
    return this.#target === this.log && this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
  }

  toEnd() {
    this.log.scrollTop = this.log.scrollHeight;
  }
}

/** A reply of the model's. */
class ReplyView {
  text = "";
  reasoning = "";
  #drawing = 0; // a timer
  #cost = 0; // ms that the last drawing took

  constructor(view) {
    this.view = view;
    this.thoughts = make("details", {hidden: true}, make("summary", {}, "Reasoning"), make("div", {class: "text"}));
    this.body = make("div", {class: "text waits"});
    this.element = make("div", {class: "message assistant"}, this.thoughts, this.body);
  }

  /** What has come is drawn soon: a long reply is not parsed anew for each of its tokens. */
  changed() {
    this.#drawing ||= setTimeout(() => {
      this.#drawing = 0;
      this.draw();
    }, Math.max(30, 4 * this.#cost));
  }

  draw() {
    const began = performance.now(), follows = this.view.isAtEnd();
    this.thoughts.hidden = this.reasoning === "";
    if (this.reasoning) fill(this.thoughts.lastChild, this.reasoning);
    fill(this.body, this.text);
    if (follows) this.view.toEnd();
    this.#cost = performance.now() - began;
  }

  /** `note`: why it ended early. `response`: what the last event of its stream brought, after `took` seconds. `isKept`: it is part of the conversation. */
  end({note = "", response = null, took = null, isKept = false} = {}) {
    clearTimeout(this.#drawing);
    const follows = this.view.isAtEnd();
    this.draw();
    this.body.classList.remove("waits");
    if (note) this.element.append(make("p", {class: "quiet"}, note));
    const origin = originOf(response?.loci);
    if (origin) this.element.append(make("div", {class: "origin"}, origin.bar, `${[origin.what, ...timesOf(response, took)].join(" · ")}`));
    const again = isKept ? make("button", {type: "button", class: "plain again", onclick: this.view.again}, "Try again") : null;
    this.element.append(make("div", {class: "tools"}, this.text ? copyTool(this.text) : null, again));
    if (follows) this.view.toEnd();
  }
}

// Longer texts are shown as they are: thousands of elements are of no use to anybody.
const MARKDOWN_MAX = 200_000;

function fill(element, text) {
  const isPlain = text.length > MARKDOWN_MAX;
  element.classList.toggle("plain", isPlain);
  if (isPlain) return element.replaceChildren(text);
  // Blocks that have not changed stay, with what somebody has selected in them.
  const blocks = parseMarkdown(text), drawn = blocks.map((block) => JSON.stringify(block));
  const before = DRAWN.get(element) ?? [];
  let same = 0;
  while (same < before.length && before[same] === drawn[same]) ++same;
  while (element.childNodes.length > same) element.lastChild.remove();
  element.append(nodes(blocks.slice(same)));
  DRAWN.set(element, drawn);
}

// The blocks of an element, as JSON.
const DRAWN = new WeakMap();

function timesOf(response, took) {
  const {real_ms: real, restore} = response.loci, out = [];
  const first = (real.queued + real.first_token) / 1000;
  const computing = (restore?.computing_all_ms ?? 0) / 1000;
  const instead = computing > 1.2 * first ? ` (computing all: ${seconds(computing)})` : "";
  out.push(`first token after ${seconds(first)}${instead}`);
  const tokens = response.usage?.output_tokens ?? 0;
  if (took !== null && tokens > 1 && took > first) out.push(`${count(tokens)} tokens, ${rate((tokens - 1) / (took - first))}/s`);
  return out;
}

function copyTool(text) {
  const button = make("button", {type: "button", class: "plain", onclick: async () => {
    const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    button.textContent = isCopied ? "Copied" : "The browser does not allow that";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }}, "Copy");
  return button;
}

// A call of a function or what it gave: the page makes none, other clients do.
function describe({type, name, arguments: given, output}) {
  const what = type.replaceAll("_", " ");
  if (name !== undefined) return `${what}: ${name} ${given}`;
  return `${what}: ${typeof output === "string" ? output : textOf(output)}`;
}

/** The text of an item's content. */
export function textOf(content) {
  return (Array.isArray(content) ? content : []).map((part) => part.text ?? part.refusal ?? "").join("");
}
