// SPDX-License-Identifier: Apache-2.0
//! Bounds by how much a tokenizer.json's normaliser may lengthen a text, beside what Unicode does: `tokenizers` takes
//! any replacement, so a file could make a text of some kilobytes one of gigabytes.

use serde_json::{Map, Value};

use crate::charsmap::{self, CharsMap};

/// Of all its steps together. Published ones have 33: a map (11 times) and a blank that becomes "▁" (3 times).
const GROWTH_MAX: usize = 64;
const PREPENDED_BYTES_MAX: usize = 64;

/// `steps`: sequences opened.
pub fn check(steps: &[&Map<String, Value>]) -> Result<(), String> {
    let mut growth = 1usize;
    for step in steps {
        growth = growth.saturating_mul(growth_of(step)?);
    }
    match growth <= GROWTH_MAX {
        true => Ok(()),
        false => Err(format!("normalizer: expected one that makes a text at most {GROWTH_MAX} times as long")),
    }
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or("")
}

/// By the step's fields: `tokenizers` also takes steps without a type.
fn growth_of(step: &Map<String, Value>) -> Result<usize, String> {
    if text(step.get("prepend")).len() > PREPENDED_BYTES_MAX {
        return Err(format!("normalizer: expected at most {PREPENDED_BYTES_MAX} bytes before a text"));
    }
    let map = from_base64(text(step.get("precompiled_charsmap")));
    CharsMap::new(&map).map_err(|error| format!("normalizer: precompiled_charsmap: {error}"))?;
    let of_map = if map.is_empty() { 1 } else { charsmap::GROWTH_MAX };
    let content = text(step.get("content")).len();
    // An expression may match an empty text, between any two characters.
    let literal = step.get("pattern").and_then(|pattern| pattern.get("String"));
    Ok(match text(literal).len() {
        0 => of_map.saturating_mul(content + 1),
        replaced => of_map.saturating_mul(content.div_ceil(replaced).max(1)),
    })
}

/// What is no digit of base64 is passed over: `tokenizers`, which reads it too, refuses it.
fn from_base64(text: &str) -> Vec<u8> {
    let (mut bits, mut count, mut out) = (0u32, 0, Vec::with_capacity(text.len() / 4 * 3));
    for digit in text.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}
