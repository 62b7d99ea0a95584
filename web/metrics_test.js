// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";
import {bytes, counted, rate, seconds} from "./figures.js";
import {parseMetrics, pictureOf, remembered} from "./metrics.js";

function reading({free = 40, evictable = 10, loaded = 0, written = 0} = {}) {
  return parseMetrics(`# HELP loci_tier_slots x
loci_tier_size_bytes{tier="device"} 1000
loci_tier_size_bytes{tier="disk"} 5000
loci_tier_slots{tier="device",state="total"} 100
loci_tier_slots{tier="device",state="free"} ${free}
loci_tier_slots{tier="device",state="evictable"} ${evictable}
loci_tier_slots{tier="disk",state="total"} 50
loci_tier_slots{tier="disk",state="free"} 50
loci_tier_slots{tier="host",state="total"} 0
loci_tier_bytes_total{link="disk_load"} ${loaded}
loci_tier_bytes_total{link="prefetch"} ${loaded}
loci_generated_tokens_total ${written}
loci_requests_running 3
loci_context_tokens_total{source="device"} 60
loci_context_tokens_total{source="computed"} 40
`);
}

test("a tier's places are in use, kept or free", () => {
  const [device, host, disk] = pictureOf(reading(), null, 0).tiers;
  assert.deepEqual([device.inUse, device.kept, device.size, device.there], [0.5, 0.1, 1000, true]);
  assert.equal(host.there, false);
  assert.deepEqual([disk.inUse, disk.kept], [0, 0]);
});

test("rates are those between two readings", () => {
  const picture = pictureOf(reading({loaded: 600, written: 50}), reading({loaded: 100, written: 30}), 2);
  assert.equal(picture.written, 10);
  assert.equal(picture.tiers[2].loads, 500, "of both links");
  assert.equal(pictureOf(reading({written: 50}), null, 0).written, 0, "of one reading there are none");
  assert.equal(pictureOf(reading({written: 5}), reading({written: 50}), 1).written, 0, "a server that began anew");
});

test("what was remembered", () => {
  assert.deepEqual(remembered(pictureOf(reading(), null, 0).origin), {kept: 60, all: 100});
});

test("a front keeps no state", () => {
  assert.equal(pictureOf(parseMetrics("loci_front_requests_total 3\n"), null, 0), null);
});

test("samples that are none are left out", () => {
  assert.deepEqual([...parseMetrics('a 1\n\n# b 2\nc NaN\nd{x="y z"} 3e2\ne')], [["a", 1], ['d{x="y z"}', 300]]);
});

test("figures are short", () => {
  assert.deepEqual([0, 1023, 1536, 123 * 2 ** 20, 3 * 2 ** 40].map(bytes), ["0 B", "1023 B", "1.5 KiB", "123 MiB", "3.0 TiB"]);
  assert.deepEqual([0.0042, 0.038, 2.34, 75].map(seconds), ["4.2 ms", "38 ms", "2.3 s", "1 min 15 s"]);
  assert.deepEqual([1, 1234].map((value) => counted(value, "token")), ["1 token", "1,234 tokens"]);
  assert.deepEqual([0, 9.94, 173.4].map(rate), ["0.0", "9.9", "173"]);
});
