// SPDX-License-Identifier: Apache-2.0
// What the browser keeps for the page. Where it keeps nothing (its owner forbids that), the page does for as
// long as it is open.

const fallback = {localStorage: new Map(), sessionStorage: new Map()};

function read(place, name) {
  if (fallback[place].has(name)) return fallback[place].get(name);
  try {
    return window[place].getItem(`loci-${name}`);
  } catch {
    return null;
  }
}

// Null: nothing is to be kept.
function write(place, name, value) {
  try {
    if (value === null) window[place].removeItem(`loci-${name}`);
    else window[place].setItem(`loci-${name}`, value);
    fallback[place].delete(name);
  } catch {
    if (value === null) fallback[place].delete(name);
    else fallback[place].set(name, value);
  }
}

/** For all pages of this server, until somebody clears the browser. */
export const forGood = {get: (name) => read("localStorage", name), set: (name, value) => write("localStorage", name, value)};
/** For this tab alone. */
export const forTab = {get: (name) => read("sessionStorage", name), set: (name, value) => write("sessionStorage", name, value)};
