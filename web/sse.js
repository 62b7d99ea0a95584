// SPDX-License-Identifier: Apache-2.0
// Server-sent events, as a stream of text brings them.

/** Takes a stream's text in any pieces, and gives the events that are whole: {event, data}. */
export class EventReader {
  #rest = "";

  push(text) {
    // A line may end with "\r\n", and a piece between the two.
    const whole = this.#rest + text;
    const held = whole.endsWith("\r") ? "\r" : "";
    this.#rest = (held ? whole.slice(0, -1) : whole).replaceAll("\r\n", "\n");
    const events = [];
    for (;;) {
      const end = this.#rest.indexOf("\n\n");
      if (end < 0) break;
      const event = parse(this.#rest.slice(0, end));
      if (event) events.push(event);
      this.#rest = this.#rest.slice(end + 2);
    }
    this.#rest += held;
    return events;
  }
}

// Null: a comment, which servers send so that nobody takes a silent stream for a dead one.
function parse(block) {
  let event = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
  }
  return data.length === 0 ? null : {event, data: data.join("\n")};
}
