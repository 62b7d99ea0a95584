// SPDX-License-Identifier: Apache-2.0
// What models write of Markdown, as a tree: texts, and {tag, attributes, children}. Headings, lists, quotes,
// code, tables, rules; strong, emphasis, links. Everything else is text. It takes time in proportion to the
// text, whatever that is, and half of a text, as streams bring it, has half of the tree.

const DEPTH_MAX = 8; // of lists and quotes in one another, and of emphasis

function node(tag, children, attributes = {}) {
  return {tag, attributes, children};
}

/** The blocks of a text. */
export function parseMarkdown(text) {
  return blocks(text.replaceAll("\r\n", "\n").split("\n"), 0);
}

// --- blocks ---

const FENCE = /^ {0,3}(?:```|~~~)/;
const HEADING = /^ {0,3}(#{1,6})\s+(\S.*)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +)(?=\S)/;

function blocks(lines, depth) {
  const out = [];
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    const read = line.trim() === "" ? {next: i + 1}
      : fence(lines, i) ?? heading(lines, i) ?? rule(lines, i) ?? table(lines, i) ??
        (depth < DEPTH_MAX ? quote(lines, i, depth) ?? list(lines, i, depth) : null) ?? paragraph(lines, i, depth);
    if (read.block) out.push(read.block);
    i = read.next;
  }
  return out;
}

// {mark, language}; null: the line opens no code. "```a```" is code within a line.
function opening(line) {
  if (!FENCE.test(line)) return null;
  const said = line.trim(), mark = run(said, 0), rest = said.slice(mark.length).trim();
  return mark[0] === "`" && rest.includes("`") ? null : {mark, language: rest.split(/\s/, 1)[0]};
}

function fence(lines, at) {
  const opened = opening(lines[at]);
  if (!opened) return null;
  const {mark, language} = opened;
  let end = at + 1;
  const closes = (line) => {
    const said = line.trim();
    return said.length >= mark.length && said === mark[0].repeat(said.length);
  };
  while (end < lines.length && !closes(lines[end])) ++end;
  const attributes = language ? {"data-language": language} : {};
  const code = node("code", [lines.slice(at + 1, end).join("\n")], attributes);
  return {block: node("pre", [code]), next: end + 1};
}

function heading(lines, at) {
  const found = HEADING.exec(lines[at]);
  if (!found) return null;
  // The page's own heading is above them.
  const level = Math.min(found[1].length + 1, 4);
  return {block: node(`h${level}`, inline(withoutClosing(found[2].trimEnd()))), next: at + 1};
}

// "Title ##" is "Title".
function withoutClosing(title) {
  let end = title.length;
  while (title[end - 1] === "#") --end;
  return end === title.length || !/\s/.test(title[end - 1] ?? " ") ? title : title.slice(0, end).trimEnd();
}

function rule(lines, at) {
  return RULE.test(lines[at]) ? {block: node("hr", []), next: at + 1} : null;
}

function quote(lines, at, depth) {
  if (!QUOTE.test(lines[at])) return null;
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) ++end;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return {block: node("blockquote", blocks(inner, depth + 1)), next: end};
}

function list(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  if (!first) return null;
  const indent = first[1].length, ordered = /\d/.test(first[2]);
  const items = [];
  let next = at;
  while (next < lines.length) {
    const mark = ITEM.exec(lines[next]);
    if (!mark || mark[1].length !== indent || /\d/.test(mark[2]) !== ordered || RULE.test(lines[next])) break;
    const body = mark[0].length;
    const inner = [lines[next].slice(body)];
    // What is further in belongs to the item; an empty line does if such a one follows.
    for (++next; next < lines.length; ++next) {
      const line = lines[next];
      const filled = line.trim() !== "";
      if (filled && leading(line) <= indent) break;
      if (!filled && !(next + 1 < lines.length && leading(lines[next + 1]) > indent)) break;
      inner.push(line.slice(Math.min(leading(line), body)));
    }
    const children = blocks(inner, depth + 1);
    // A single paragraph stands in its item without the space around one.
    const single = children.length > 0 && children[0].tag === "p" && children.filter((one) => one.tag === "p").length === 1;
    items.push(node("li", single ? [...children[0].children, ...children.slice(1)] : children));
    while (next + 1 < lines.length && lines[next].trim() === "" && ITEM.exec(lines[next + 1])?.[1].length === indent) ++next;
  }
  const start = ordered ? parseInt(first[2], 10) : 1;
  return {block: node(ordered ? "ol" : "ul", items, start === 1 ? {} : {start: String(start)}), next};
}

function leading(line) {
  return line.length - line.trimStart().length;
}

function table(lines, at) {
  const separator = lines[at + 1];
  if (!lines[at].includes("|") || !separator?.includes("-") || !/^[\s|:-]+$/.test(separator)) return null;
  const head = cells(lines[at]);
  if (cells(separator).length !== head.length) return null;
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim() !== "") ++end;
  const row = (line, tag) => node("tr", cells(line).slice(0, head.length).map((cell) => node(tag, inline(cell))));
  const body = lines.slice(at + 2, end).map((line) => row(line, "td"));
  return {block: node("table", [node("thead", [row(lines[at], "th")]), node("tbody", body)]), next: end};
}

function cells(line) {
  return line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  const ends = (line) => line.trim() === "" || opening(line) || HEADING.test(line) || RULE.test(line) ||
    (depth < DEPTH_MAX && (QUOTE.test(line) || ITEM.test(line)));
  while (end < lines.length && !ends(lines[end]) && !table(lines, end)) ++end;
  const children = [];
  lines.slice(at, end).forEach((line, i) => {
    if (i > 0) children.push(node("br", []));
    for (const part of inline(line.trim())) children.push(part); // (as arguments they could be too many)
  });
  return {block: node("p", children), next: end};
}

// --- inside a line ---

/** The parts of one line. */
export function inline(text, depth = 0) {
  const out = [];
  const marks = new Marks(text);
  let plain = "";
  for (let i = 0; i < text.length;) {
    const read = escaped(text, i) ?? code(text, i, marks) ?? link(text, i, depth, marks) ?? address(text, i) ??
      (depth < DEPTH_MAX ? emphasis(text, i, depth, marks) : null);
    if (read?.part) {
      if (plain) out.push(plain);
      plain = "";
      out.push(read.part);
    } else {
      plain += read ? read.text : text[i];
    }
    i = read ? read.next : i + 1;
  }
  if (plain) out.push(plain);
  return out;
}

// Where marks stand in a line. What was looked for from one place on, and is not there, is not looked for
// again from a later one: else a line of open marks would take time by its square.
class Marks {
  #none = new Set();
  #ticks = null; // by their length: where runs of backticks stand, and the next one to look at

  constructor(text) {
    this.text = text;
  }

  // The next run of so many backticks from `from` on; -1: there is none. Calls come with a `from` that grows.
  ticks(length, from) {
    if (!this.#ticks) {
      this.#ticks = new Map();
      for (const {0: run, index} of this.text.matchAll(/`+/g)) {
        if (!this.#ticks.has(run.length)) this.#ticks.set(run.length, {places: [], next: 0});
        this.#ticks.get(run.length).places.push(index);
      }
    }
    const runs = this.#ticks.get(length);
    while (runs && runs.next < runs.places.length && runs.places[runs.next] < from) ++runs.next;
    return runs?.places[runs.next] ?? -1;
  }

  // The next place of `mark` from `from` on for which `fits(place)` holds; -1: there is none. Calls with one
  // `name` come with a `from` that grows, and with the same condition.
  find(name, mark, from, fits = () => true) {
    if (this.#none.has(name)) return -1;
    let at = this.text.indexOf(mark, from);
    while (at >= 0 && !fits(at)) at = this.text.indexOf(mark, at + 1);
    if (at < 0) this.#none.add(name);
    return at;
  }
}

function escaped(text, at) {
  if (text[at] !== "\\" || !/[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) return null;
  return {text: text[at + 1], next: at + 2};
}

function run(text, at) {
  let end = at;
  while (text[end] === text[at]) ++end;
  return text.slice(at, end);
}

function code(text, at, marks) {
  if (text[at] !== "`") return null;
  const mark = run(text, at), from = at + mark.length;
  const end = marks.ticks(mark.length, from);
  if (end < 0) return {text: mark, next: from};
  const inner = text.slice(from, end);
  const isPadded = inner.length > 2 && inner.startsWith(" ") && inner.endsWith(" ");
  return {part: node("code", [isPadded ? inner.slice(1, -1) : inner]), next: end + mark.length};
}

function emphasis(text, at, depth, marks) {
  // "2*3*4": a star between digits is none.
  if (text[at] === "*" && /[0-9]/.test(text[at - 1] ?? "") && /[0-9]/.test(text[at + 1] ?? "")) return null;
  const mark = ["***", "**", "__", "~~", "*", "_"].find((one) => text.startsWith(one, at));
  if (!mark || /\s/.test(text[at + mark.length] ?? " ")) return null;
  // Names have underscores inside.
  const isWord = (c) => /[\p{L}\p{N}]/u.test(c ?? "");
  if (mark[0] === "_" && isWord(text[at - 1])) return null;
  // A single mark does not end at a double one, nor the other way round.
  const ends = (place) => place > at + mark.length - 1 && !/\s/.test(text[place - 1]) && text[place - 1] !== mark[0] &&
    text[place + mark.length] !== mark[0] && !(mark[0] === "_" && isWord(text[place + mark.length]));
  const end = marks.find(`end ${mark}`, mark, at + mark.length + 1, ends);
  if (end < 0) return {text: mark, next: at + mark.length};
  const inner = inline(text.slice(at + mark.length, end), depth + 1);
  const part = mark === "***" ? node("em", [node("strong", inner)]) : node(mark === "~~" ? "del" : mark.length === 2 ? "strong" : "em", inner);
  return {part, next: end + mark.length};
}

const TARGET_MAX = 2048;

function link(text, at, depth, marks) {
  if (text[at] !== "[" || depth >= DEPTH_MAX) return null;
  const middle = marks.find("](", "](", at + 1);
  const inner = text.indexOf("[", at + 1); // of two brackets the inner one begins the link
  if (middle < 0 || (inner > 0 && inner < middle)) return null;
  const end = marks.find(")", ")", middle + 2);
  if (end < 0 || end - middle > TARGET_MAX) return null;
  const [target] = text.slice(middle + 2, end).trim().split(/\s/);
  if (!isSafe(target)) return null;
  return {part: anchor(target, inline(text.slice(at + 1, middle), DEPTH_MAX)), next: end + 1};
}

function address(text, at) {
  if (text[at] !== "h" || !/^https?:\/\//.test(text.slice(at, at + 8)) || /\w/.test(text[at - 1] ?? "")) return null;
  const [whole] = /^[^\s<>"`]+/.exec(text.slice(at, at + TARGET_MAX));
  const target = whole.replace(/[.,;:!?)\]*_']+$/, "");
  return isSafe(target) ? {part: anchor(target, [target]), next: at + target.length} : null;
}

// A link must not run a script, and nothing is fetched until somebody clicks it.
function isSafe(target) {
  return /^(https?:\/\/|mailto:)[^\s]+$/i.test(target);
}

function anchor(target, children) {
  return node("a", children, {href: target, target: "_blank", rel: "noopener noreferrer nofollow"});
}
