// SPDX-License-Identifier: Apache-2.0
// What /metrics says (Prometheus' text), and what the page makes of two readings of it.

/** A map from a sample's name with its labels, as the text has them, to its value. */
export function parseMetrics(text) {
  const out = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line[0] === "#") continue;
    const space = line.lastIndexOf(" ");
    const value = Number(line.slice(space + 1));
    if (space > 0 && Number.isFinite(value)) out.set(line.slice(0, space), value);
  }
  return out;
}

// The order is that of their distance from the processor.
export const TIERS = ["device", "host", "disk", "shared"];
const NAMES = {device: "Device", host: "Host memory", disk: "Disk", shared: "Shared store"};

// The links beside each tier: what they bring towards the device, and what away from it.
const LINKS = {
  host: {in: ["host_load"], out: ["host_save"]},
  disk: {in: ["disk_load", "prefetch"], out: ["disk_save"]},
  shared: {in: ["shared_load"], out: ["shared_save", "peer_serve"]},
};

/** Two readings, `seconds` apart, as the picture shows them. `before` may be null. Null: it is no server's that keeps state. */
export function pictureOf(now, before, seconds) {
  const of = (name) => now.get(name) ?? 0;
  if (!now.has('loci_tier_size_bytes{tier="device"}')) return null;
  // A server that has started anew counts from 0.
  const perSecond = (name) => (before && seconds > 0 ? Math.max(0, of(name) - (before.get(name) ?? 0)) / seconds : 0);
  const sum = (names, value) => names.reduce((total, name) => total + value(name), 0);
  const tiers = TIERS.map((tier) => {
    const slots = (state) => of(`loci_tier_slots{tier="${tier}",state="${state}"}`);
    const total = slots("total"), free = slots("free"), evictable = slots("evictable");
    const rates = (names) => sum(names ?? [], (link) => perSecond(`loci_tier_bytes_total{link="${link}"}`));
    return {
      tier,
      name: NAMES[tier],
      size: of(`loci_tier_size_bytes{tier="${tier}"}`),
      there: total > 0,
      inUse: total > 0 ? Math.max(0, total - free - evictable) / total : 0,
      kept: total > 0 ? evictable / total : 0,
      loads: rates(LINKS[tier]?.in),
      saves: rates(LINKS[tier]?.out),
    };
  });
  const sources = [...TIERS, "computed"];
  return {
    tiers,
    running: of("loci_requests_running"),
    queued: of("loci_requests_queued"),
    written: perSecond("loci_generated_tokens_total"),
    origin: Object.fromEntries(sources.map((source) => [source, of(`loci_context_tokens_total{source="${source}"}`)])),
  };
}

/** Of the prompts' tokens by their origin, those whose state was kept, and all. */
export function remembered(origin) {
  const all = Object.values(origin).reduce((total, one) => total + one, 0);
  return {kept: all - (origin.computed ?? 0), all};
}
