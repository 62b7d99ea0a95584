// SPDX-License-Identifier: Apache-2.0
// One conversation as it is shown: its messages, and the reply that is being written.
import {make, nodes} from "./dom.js";
import {count, rate, seconds} from "./figures.js";
import {parseMarkdown} from "./markdown.js";
import {originOf} from "./memory.js";

export const CUT_SHORT = "The reply was cut short: it had come to its limit.";

/** The log's messages. `again()` is called where somebody wants the last reply to be written anew. */
export class TalkView {
  constructor(log, again) {
    Object.assign(this, {log, again});
  }

  clear(...greeting) {
    this.log.replaceChildren(...(greeting.length > 0 ? [make("div", {class: "greeting"}, ...greeting)] : []));
  }

  /** Items as /v1/conversations/{id}/items has them. */
  showItems(items) {
    this.clear();
    let reasoning = "";
    for (const item of items) {
      if (item.type === "reasoning") {
        reasoning += textOf(item.content);
      } else if (item.type === "message" && item.role === "assistant") {
        const reply = this.beginReply();
        reply.reasoning = reasoning;
        reply.text = textOf(item.content);
        reply.end({note: item.status === "incomplete" ? CUT_SHORT : "", isKept: true});
        reasoning = "";
      } else if (item.type === "message") {
        this.addText(item.role === "user" ? "user" : "system", textOf(item.content));
      } else {
        this.addText("other", `${item.type.replaceAll("_", " ")}: ${item.name ? `${item.name} ${item.arguments}` : item.output ?? ""}`);
      }
    }
    this.toEnd();
  }

  addText(kind, text) {
    this.log.querySelector(".greeting")?.remove();
    const element = make("div", {class: `message ${kind}`}, text);
    this.log.append(element);
    return element;
  }

  beginReply() {
    this.log.querySelector(".greeting")?.remove();
    const reply = new ReplyView(this);
    this.log.append(reply.element);
    return reply;
  }

  #lastUser() {
    return [...this.log.querySelectorAll(".user")].at(-1);
  }

  lastSaid() {
    return this.#lastUser()?.textContent;
  }

  /** Removes the last turn. */
  takeBack() {
    const said = this.#lastUser();
    while (said?.nextSibling) said.nextSibling.remove();
    said?.remove();
  }

  isAtEnd() {
    return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
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
    if (this.reasoning) this.thoughts.lastChild.replaceChildren(...nodes(parseMarkdown(this.reasoning)));
    this.body.replaceChildren(...nodes(parseMarkdown(this.text)));
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

/** The text of an item's content. */
export function textOf(content) {
  return (content ?? []).map((part) => part.text ?? part.refusal ?? "").join("");
}
