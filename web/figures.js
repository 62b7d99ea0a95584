// SPDX-License-Identifier: Apache-2.0
// Figures as people read them.

const COUNT = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});

export function count(value) {
  return COUNT.format(value);
}

/** "3 tokens", "1 token". */
export function counted(value, noun) {
  return `${count(value)} ${noun}${Math.round(value) === 1 ? "" : "s"}`;
}

/** 1536 is "1.5 KiB". */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; ++unit) value /= 1024;
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

/** 0.0123 is "12 ms". */
export function seconds(value) {
  if (value < 0.0095) return `${(value * 1000).toFixed(1)} ms`;
  if (value < 0.9995) return `${(value * 1000).toFixed(0)} ms`;
  return value < 60 ? `${value.toFixed(1)} s` : `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
}

/** A rate a second: "12.3", "173". */
export function rate(value) {
  return value < 9.95 ? value.toFixed(1) : count(value);
}

/** "just now", "5 minutes ago", "yesterday", else a date. Times in seconds since 1970. */
export function ago(then, now) {
  const past = Math.max(0, now - then);
  if (past < 60) return "just now";
  if (past < 3600) return `${counted(Math.floor(past / 60), "minute")} ago`;
  if (past < 86400) return `${counted(Math.floor(past / 3600), "hour")} ago`;
  if (past < 2 * 86400) return "yesterday";
  return new Date(then * 1000).toLocaleDateString(undefined, {day: "numeric", month: "short", year: "numeric"});
}
