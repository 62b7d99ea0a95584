// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";
import {parseMarkdown} from "./markdown.js";

const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

function html(tree) {
  return tree.map((one) => {
    if (typeof one === "string") return escape(one);
    const attributes = Object.entries(one.attributes).filter(([name]) => name === "href" || name === "start");
    return `<${one.tag}${attributes.map(([name, value]) => ` ${name}=${value}`).join("")}>${html(one.children)}</${one.tag}>`;
  }).join("");
}

const CASES = [
  ["plain", "<p>plain</p>"],
  ["one\ntwo\n\nthree", "<p>one<br></br>two</p><p>three</p>"],
  ["# Title\n## Other ##\n#no", "<h2>Title</h2><h3>Other</h3><p>#no</p>"],
  ["C# and F#", "<p>C# and F#</p>"],
  ["**bold** and *em* and ***both*** and ~~gone~~", "<p><strong>bold</strong> and <em>em</em> and <em><strong>both</strong></em> and <del>gone</del></p>"],
  ["*a **b** c*", "<p><em>a <strong>b</strong> c</em></p>"],
  ["**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"],
  ["snake_case_name and _em_ and __init__", "<p>snake_case_name and <em>em</em> and <strong>init</strong></p>"],
  ["2 * 3 * 4 and 2*3*4", "<p>2 * 3 * 4 and 2*3*4</p>"],
  ["A table:\n| a |\n|---|\n| 1 |\nafter", "<p>A table:</p><table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table><p>after</p>"],
  ["`a *b*` and ``c ` d``", "<p><code>a *b*</code> and <code>c ` d</code></p>"],
  ["an open ` or ** or [x](", "<p>an open ` or ** or [x](</p>"],
  ["\\*not\\* em", "<p>*not* em</p>"],
  ["- a\n- b\n  - c\n- d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"],
  ["3. x\n4. y", "<ol start=3><li>x</li><li>y</li></ol>"],
  ["1. a\n\n2. b", "<ol><li>a</li><li>b</li></ol>"],
  ["- a\n\n  more\n- b", "<ul><li><p>a</p><p>more</p></li><li>b</li></ul>"],
  ["> said\n> *so*", "<blockquote><p>said<br></br><em>so</em></p></blockquote>"],
  ["```python\nif a < b:\n    *x*\n```\nafter", "<pre><code>if a &lt; b:\n    *x*</code></pre><p>after</p>"],
  ["```\nstill open", "<pre><code>still open</code></pre>"],
  ["a\n\n---\n\nb", "<p>a</p><hr></hr><p>b</p>"],
  ["| a | b |\n|---|:-:|\n| 1 | **2** |", "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><strong>2</strong></td></tr></tbody></table>"],
  ["[site](https://a.example/x_y) and https://b.example/z.", "<p><a href=https://a.example/x_y>site</a> and <a href=https://b.example/z>https://b.example/z</a>.</p>"],
  ["<script>alert(1)</script> & <b>", "<p>&lt;script>alert(1)&lt;/script> &amp; &lt;b></p>"],
  ["[x](javascript:alert(1)) [y](data:text/html,z) [z](//e.example)", "<p>[x](javascript:alert(1)) [y](data:text/html,z) [z](//e.example)</p>"],
];

for (const [text, wanted] of CASES) test(JSON.stringify(text), () => assert.equal(html(parseMarkdown(text)), wanted));

test("a link asks for no script, and tells the other side nothing", () => {
  const [{children: [link]}] = parseMarkdown("[x](HTTPS://a.example)");
  assert.deepEqual(link.attributes, {href: "HTTPS://a.example", target: "_blank", rel: "noopener noreferrer nofollow"});
});

// Texts for which a careless parser takes a time that grows with their square, or a stack as deep as they are.
const HOSTILE = ["*a ", "_a ", "**", "[", "[](", "`", "``` ", "`` ` ", "> ", "- ", "  - a\n", "| ", "#", "# a ", "<", "http://", "\\", "***a_", "~~a", "1. a\n\n", " ", "~", "~~~a", "```a", "a", "=", "-", "* * ", "|-", ":-|", "\t", "![", "&", "http://a."];

// [before, again and again, after]: alone on a line, and inside of one.
const LINES = HOSTILE.flatMap((part) => ["", "# ", "- ", "> ", "a|b\n-|-\n"].flatMap((before) => ["", "x", "`", " x\n\n"].map((after) => [before, part, after])));

// Of the processor, in ms: what else runs on the machine does not count.
function timeOf(text) {
  const began = process.cpuUsage();
  parseMarkdown(text);
  const {user, system} = process.cpuUsage(began);
  return (user + system) / 1000;
}

for (const part of HOSTILE) {
  test(`time for ${JSON.stringify(part)} again and again`, () => {
    const took = (count) => {
      const text = LINES.filter((line) => line[1] === part).map(([before, , after]) => before + part.repeat(count) + after).join("\n\n");
      return timeOf(text);
    };
    const best = (count) => Math.min(took(count), took(count));
    // With the square of the length, sixteen times as long a text would take 256 times as long.
    const short = best(500), long = best(8_000);
    assert.ok(long < 64 * (short + 2), `${long} ms for 8,000, ${short} ms for 500`);
  });
}

test("every beginning of a text can be drawn", () => {
  const text = CASES.map(([one]) => one).join("\n\n");
  for (let end = 0; end <= text.length; ++end) parseMarkdown(text.slice(0, end));
});

test("time for runs of backticks of all lengths", () => {
  const took = (bytes) => {
    let text = "";
    for (let length = 1; text.length < bytes; ++length) text += `${"`".repeat(length)} `;
    return timeOf(text);
  };
  took(5_000);
  const short = Math.min(took(5_000), took(5_000)), long = Math.min(took(80_000), took(80_000));
  assert.ok(long < 64 * (short + 2), `${long} ms for 80,000, ${short} ms for 5,000`);
});
