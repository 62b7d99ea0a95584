// SPDX-License-Identifier: Apache-2.0
// The live picture of the tiers: how full each is, what moves between them, and what came of it.
import {make, setBar} from "./dom.js";
import {bytes, count, counted, rate} from "./figures.js";
import {parseMetrics, pictureOf, remembered, TIERS} from "./metrics.js";

const PAUSE = 1000; // ms between two readings
const SPARK = 60; // readings that the line shows
const ORIGINS = [...TIERS, "computed"];
const ORIGIN_NAMES = {device: "device", host: "host memory", disk: "disk", shared: "shared store", computed: "computed"};

/** Fills the elements and keeps them fresh while `isShown()` and the page can be seen. */
export class MemoryPicture {
  #before = null; // {metrics, at} of the last reading
  #written = []; // tokens a second, the latest last
  #parts = null; // elements, once there is something to show

  /** `read()`: the text of /metrics, or an error with a `message`. */
  constructor({box, note, read, isShown}) {
    Object.assign(this, {box, note, read, isShown});
  }

  start() {
    const step = async () => {
      let pause = PAUSE;
      if (document.visibilityState !== "hidden" && this.isShown()) pause = await this.refresh();
      if (pause !== null) setTimeout(step, pause);
    };
    step();
  }

  /** Returns the time until the next reading, ms; null: there will be none. */
  async refresh() {
    let text;
    try {
      text = await this.read();
    } catch (failure) {
      this.#before = null;
      this.#say(failure.status === 403 ? "Only operators may see this server's figures." : failure.message);
      return failure.status === 403 ? null : 5 * PAUSE;
    }
    const metrics = parseMetrics(text), at = performance.now();
    const picture = pictureOf(metrics, this.#before?.metrics, (at - (this.#before?.at ?? at)) / 1000);
    this.#before = {metrics, at};
    this.#say(picture ? "" : "This server passes requests on, and keeps no state itself.");
    if (picture) this.#show(picture);
    return PAUSE;
  }

  #say(text) {
    this.note.textContent = text;
    this.note.hidden = text === "";
    this.box.hidden = text !== "";
  }

  #show(picture) {
    const there = picture.tiers.filter((tier) => tier.there);
    const names = there.map((tier) => tier.tier).join();
    if (this.#parts?.names !== names) this.#parts = this.#build(there, names);
    for (const tier of there) this.#fill(this.#parts.tiers[tier.tier], tier);
    const {now, kept, spark, line} = this.#parts;
    now.textContent = `${count(picture.running)} running, ${count(picture.queued)} waiting`;
    this.#written = [...this.#written, picture.written].slice(-SPARK);
    spark.textContent = `${rate(picture.written)} tokens/s`;
    const most = Math.max(1, ...this.#written);
    const points = this.#written.map((one, i) => `${SPARK - this.#written.length + i},${30 - (28 * one) / most}`);
    line.setAttribute("points", points.join(" "));
    const {kept: tokens, all} = remembered(picture.origin);
    kept.share.textContent = all > 0 ? `${((100 * tokens) / all).toFixed(0)} %` : "–";
    kept.text.textContent = all > 0 ? `of ${counted(all, "prompt token")} remembered` : "nothing asked yet";
    setBar(kept.bar, ORIGINS.map((origin) => [origin, picture.origin[origin]]));
  }

  #fill({size, bar, text, moves}, tier) {
    size.textContent = bytes(tier.size);
    setBar(bar, [[tier.tier, tier.inUse], [`${tier.tier} kept`, tier.kept]], 1);
    const share = (100 * (tier.inUse + tier.kept)).toFixed(0);
    text.textContent = `${bytes(tier.size * tier.inUse)} in use, ${bytes(tier.size * tier.kept)} kept, ${share} % full`;
    if (!moves) return;
    for (const [element, arrow, value] of [[moves.loads, "↑", tier.loads], [moves.saves, "↓", tier.saves]]) {
      element.textContent = `${arrow} ${value > 0 ? `${bytes(value)}/s` : "–"}`;
      element.className = value > 0 ? "moves" : "";
    }
  }

  #build(there, names) {
    const tiers = {};
    const rows = there.flatMap((tier) => {
      const parts = {size: make("span"), bar: make("div", {class: "bar", role: "presentation"}), text: make("p"), moves: null};
      tiers[tier.tier] = parts;
      const box = make("div", {class: "tier"}, make("h3", {}, tier.name, parts.size), parts.bar, parts.text);
      if (tier.tier === "device") return [box];
      parts.moves = {loads: make("span"), saves: make("span")};
      const link = make("div", {class: "link", title: "brought back for requests, and saved"}, parts.moves.loads, parts.moves.saves);
      return [link, box];
    });
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [name, value] of [["viewBox", `0 0 ${SPARK - 1} 32`], ["preserveAspectRatio", "none"], ["class", "spark"], ["aria-hidden", "true"]])
      svg.setAttribute(name, value);
    svg.append(line);
    const now = make("span"), spark = make("b");
    const kept = {share: make("b"), text: make("span"), bar: make("div", {class: "bar"})};
    const figures = make("div", {class: "figures"},
      make("div", {class: "figure wide"}, spark, now, svg),
      make("div", {class: "figure wide"}, kept.share, kept.text, kept.bar, legend(there)));
    this.box.replaceChildren(...rows, figures);
    return {names, tiers, now, kept, spark, line};
  }
}

function legend(there) {
  const shown = [...there.map((tier) => tier.tier), "computed"];
  return make("div", {class: "legend"}, ...shown.map((name) => make("span", {}, make("i", {class: name}), ORIGIN_NAMES[name])));
}

/** What a reply's explanation ("loci" of its response) says of its prompt. Null: there is none. */
export function originOf(explanation) {
  if (!explanation) return null;
  const {kept, all} = remembered(explanation.tokens);
  const bar = make("div", {class: "bar"});
  setBar(bar, ORIGINS.map((origin) => [origin, explanation.tokens[origin] ?? 0]));
  const places = TIERS.filter((tier) => explanation.tokens[tier] > 0)
    .map((tier) => `${count(explanation.tokens[tier])} ${tier === "device" ? "on the device" : `from the ${ORIGIN_NAMES[tier]}`}`);
  const what = kept > 0 ? `${counted(kept, "token")} of ${count(all)} remembered (${places.join(", ")})` : `${counted(all, "token")} computed`;
  return {bar, what, kept, all};
}
