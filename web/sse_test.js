// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";
import {EventReader} from "./sse.js";

const STREAM = ": waiting\n\nevent: a\ndata: {\"x\": 1}\n\ndata: one\r\ndata: two\r\n\r\nevent: b\ndata:  kept\n\n";
const EVENTS = [{event: "a", data: '{"x": 1}'}, {event: "message", data: "one\ntwo"}, {event: "b", data: " kept"}];

test("a stream has the same events in any pieces", () => {
  for (let size = 1; size <= STREAM.length; ++size) {
    const reader = new EventReader(), events = [];
    for (let at = 0; at < STREAM.length; at += size) events.push(...reader.push(STREAM.slice(at, at + size)));
    assert.deepEqual(events, EVENTS, `pieces of ${size}`);
  }
});

test("an event is there when it is whole", () => {
  const reader = new EventReader();
  assert.deepEqual(reader.push("data: 1\n"), []);
  assert.deepEqual(reader.push("\n"), [{event: "message", data: "1"}]);
});
