// SPDX-License-Identifier: Apache-2.0
// Elements are made of values, never of HTML in text: what a model or a user wrote cannot become markup.

/** An element. Of `attributes`, functions become listeners (onclick), and null is left out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

/** The nodes of a tree that is made of texts and of {tag, attributes, children} (markdown.js), of any number. */
export function nodes(tree) {
  const out = document.createDocumentFragment();
  for (const one of tree) out.append(typeof one === "string" ? one : make(one.tag, one.attributes, nodes(one.children)));
  return out;
}

/** A bar of parts [class, value], as wide as all of them. Parts that are there already stay, so that they glide. */
export function setBar(bar, parts, whole = parts.reduce((sum, [, value]) => sum + value, 0)) {
  while (bar.children.length > parts.length) bar.lastChild.remove();
  while (bar.children.length < parts.length) bar.append(make("span"));
  parts.forEach(([name, value], i) => {
    bar.children[i].className = name;
    bar.children[i].style.width = `${whole > 0 ? (100 * value) / whole : 0}%`;
  });
}
