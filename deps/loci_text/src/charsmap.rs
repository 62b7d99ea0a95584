// SPDX-License-Identifier: Apache-2.0
//! SentencePiece's own normalisation, as a GGUF vocabulary of unigram pieces carries it: a map from
//! sequences of bytes to what replaces them ("precompiled_charsmap"), then rules for blanks.
//!
//! The map is a trie in a double array (Darts-clone's units of 32 bits): a child of node n under byte c is at
//! n ^ offset(n) ^ c if its label is c. Behind the array lie the replacements, each ended by a zero byte.

use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

/// By how many times a replacement may be longer than what it replaces. U+FDFA, of 3 bytes, has one of 33 in
/// every published map. Without a bound a text of some kilobytes could become gigabytes.
pub const GROWTH_MAX: usize = 16;

pub struct CharsMap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize
}
fn label(unit: u32) -> u32 {
    unit & ((1 << 31) | 0xff)
}
fn has_value(unit: u32) -> bool {
    (unit >> 8) & 1 == 1
}
fn value(unit: u32) -> usize {
    (unit & 0x7fff_ffff) as usize
}

impl CharsMap {
    /// An empty map changes nothing.
    pub fn new(bytes: &[u8]) -> Result<CharsMap, String> {
        if bytes.is_empty() {
            return Ok(CharsMap { units: Vec::new(), replacements: Vec::new() });
        }
        let size = bytes.get(..4).map(|size| u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize);
        let array = size.and_then(|size| bytes[4..].get(..size));
        let (Some(size), Some(array)) = (size, array) else {
            return Err(format!("expected a trie within {} bytes, found one of {size:?}", bytes.len()));
        };
        if size % 4 != 0 {
            return Err(format!("expected a trie of whole units of 4 bytes, found {size} bytes"));
        }
        let units = array.chunks_exact(4).map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]));
        let map = CharsMap { units: units.collect(), replacements: bytes[4 + size..].to_vec() };
        map.check_growth()?;
        Ok(map)
    }

    /// Each node once, where the fewest bytes lead to it: a damaged trie may lead back to where it has been.
    fn check_growth(&self) -> Result<(), String> {
        let Some(root) = self.units.first() else { return Ok(()) };
        let mut seen = vec![false; self.units.len()];
        let mut nodes = vec![offset(*root)];
        for length in 1.. {
            let most = length * GROWTH_MAX;
            let mut next = Vec::new();
            for (node, byte) in nodes.iter().flat_map(|node| (1..=255usize).map(move |byte| (*node, byte))) {
                let place = node ^ byte;
                let Some(unit) = self.units.get(place).copied() else { continue };
                if label(unit) as usize != byte || std::mem::replace(&mut seen[place], true) {
                    continue;
                }
                let child = place ^ offset(unit);
                next.push(child);
                let leaf = if has_value(unit) { self.units.get(child) } else { None };
                let rest = leaf.and_then(|leaf| self.replacements.get(value(*leaf)..)).unwrap_or(&[]);
                if rest.len() > most && !rest[..=most].contains(&0) {
                    return Err(format!("expected a replacement of at most {most} bytes for {length}"));
                }
            }
            if next.is_empty() {
                break;
            }
            nodes = next;
        }
        Ok(())
    }

    /// The longest beginning of `text` that the map replaces: its length and the replacement.
    fn longest(&self, text: &[u8]) -> Option<(usize, &str)> {
        let mut node = offset(*self.units.first()?);
        let mut found = None;
        for (index, byte) in text.iter().enumerate() {
            node ^= *byte as usize;
            let Some(unit) = self.units.get(node).copied() else { break };
            if *byte == 0 || label(unit) != u32::from(*byte) {
                break;
            }
            node ^= offset(unit);
            if has_value(unit) {
                let Some(leaf) = self.units.get(node) else { break };
                found = Some((index + 1, value(*leaf)));
            }
        }
        let (length, at) = found?;
        let rest = self.replacements.get(at..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some((length, std::str::from_utf8(&rest[..end]).ok()?))
    }

    fn replace(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            match self.longest(rest.as_bytes()) {
                Some((length, replacement)) if rest.is_char_boundary(length) => {
                    out.push_str(replacement);
                    rest = &rest[length..];
                }
                _ => {
                    out.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        out
    }
}

pub struct UnigramNormalizer {
    pub map: CharsMap,
    pub add_space_prefix: bool,
    /// Blanks at both ends go, several become one, and there is always one in front.
    pub remove_extra_spaces: bool,
}

impl UnigramNormalizer {
    fn apply(&self, text: &str) -> String {
        let replaced = self.map.replace(text);
        let mut out = String::with_capacity(replaced.len() + 3);
        if self.remove_extra_spaces {
            for word in replaced.split(' ').filter(|word| !word.is_empty()) {
                out.push('▁');
                out.push_str(word);
            }
            return out;
        }
        if self.add_space_prefix && replaced.chars().any(|c| c != ' ') {
            out.push('▁');
        }
        out.push_str(&replaced.replace(' ', "▁"));
        out
    }
}

/// What a tokenizer does to text before it is cut into words.
pub enum TextNormalizer {
    Published(NormalizerWrapper),
    Unigram(UnigramNormalizer),
}

impl Normalizer for TextNormalizer {
    fn normalize(&self, normalized: &mut NormalizedString) -> tokenizers::Result<()> {
        match self {
            TextNormalizer::Published(wrapper) => wrapper.normalize(normalized),
            TextNormalizer::Unigram(unigram) => {
                *normalized = NormalizedString::from(unigram.apply(normalized.get()));
                Ok(())
            }
        }
    }
}
