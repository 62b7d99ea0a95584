// SPDX-License-Identifier: Apache-2.0
//! Keeps what a conversation's people wrote apart from what the template wrote.
//!
//! A control token in rendered text may only come from the template. Before rendering, the first
//! character of every control text inside the context's strings is exchanged for a private-use character
//! that occurs nowhere in the context or the template; after rendering, what still spells a control token
//! was written by the template, and the marks are exchanged back. A mark is one character for one
//! character, so lengths and slices stay what they were.
//!
//! A control text can also be put together from parts: two neighbouring strings ("<|im_", "end|>"), or a
//! string between characters of the template ("<" ~ key ~ ">"). So characters at a string's ends are marked
//! too where they begin, continue or end a control text ("partial" marks). A template may look at such
//! short strings ("text", "user") to decide something; those that are words of the template's source or
//! names of roles are left alone, and `template.rs` checks that partial marks changed nothing.

use std::collections::{BTreeSet, HashMap, HashSet};

use aho_corasick::AhoCorasick;
use serde_json::Value;

/// Names that a message's "role" may have; templates paste them between characters of their own.
const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool", "function", "ipython", "model"];

/// Byte strings in order, so that those that begin alike stand together.
struct Sorted(Vec<Vec<u8>>);

impl Sorted {
    fn new(texts: impl Iterator<Item = Vec<u8>>) -> Sorted {
        let mut all: Vec<Vec<u8>> = texts.collect();
        all.sort_unstable();
        all.dedup();
        Sorted(all)
    }

    /// Whether `part` begins a longer one.
    fn has_longer(&self, part: &[u8]) -> bool {
        let at = self.0.partition_point(|text| text.as_slice() <= part);
        self.0.get(at).is_some_and(|text| text.starts_with(part))
    }
}

fn reversed(text: &str) -> Vec<u8> {
    text.bytes().rev().collect()
}

pub struct Marker {
    /// Finds every occurrence, overlapping ones too; absent when there are no control tokens.
    control: Option<AhoCorasick>,
    texts: Vec<String>,
    longest: usize,
    beginnings: Sorted,
    endings: Sorted,
    words: HashSet<String>,
    source_private: HashSet<char>,
}

/// Which characters stand for which, in one rendering.
#[derive(Default)]
pub struct Marks {
    forward: HashMap<char, char>,
    back: HashMap<char, char>,
    taken: HashSet<char>,
    next: u32,
    pub any_partial: bool,
}

impl Marks {
    pub fn is_empty(&self) -> bool {
        self.back.is_empty()
    }

    pub fn restore(&self, text: &str) -> String {
        if self.is_empty() {
            return text.to_string();
        }
        text.chars().map(|c| self.back.get(&c).copied().unwrap_or(c)).collect()
    }

    fn mark(&mut self, original: char) -> Result<char, String> {
        if let Some(mark) = self.forward.get(&original) {
            return Ok(*mark);
        }
        while let Some(candidate) = private_character(self.next) {
            self.next += 1;
            if !self.taken.contains(&candidate) {
                self.forward.insert(original, candidate);
                self.back.insert(candidate, original);
                return Ok(candidate);
            }
        }
        Err("the context uses every private-use character of Unicode".to_string())
    }
}

/// The private-use planes 15 and 16, then nothing.
fn private_character(index: u32) -> Option<char> {
    const PER_PLANE: u32 = 0xfffe;
    let plane = index / PER_PLANE;
    if plane > 1 {
        return None;
    }
    char::from_u32(0xf0000 + plane * 0x10000 + index % PER_PLANE)
}

fn collect_private(text: &str, into: &mut HashSet<char>) {
    // Planes 15 and 16 are four bytes that begin with F3 B0.. or F4.
    if text.bytes().any(|byte| byte >= 0xf3) {
        into.extend(text.chars().filter(|c| *c as u32 >= 0xf0000));
    }
}

impl Marker {
    pub fn new(control_texts: &[String], source: &str) -> Result<Marker, String> {
        let mut blanked = source.to_string();
        let mut texts: Vec<String> = control_texts.to_vec();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        for text in &texts {
            if blanked.contains(text.as_str()) {
                blanked = blanked.replace(text.as_str(), " ");
            }
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let mut words: HashSet<String> =
            blanked.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(str::to_string).collect();
        words.extend(ROLES.iter().map(|role| role.to_string()));
        let mut source_private = HashSet::new();
        collect_private(source, &mut source_private);
        let control = if texts.is_empty() {
            None
        } else {
            Some(AhoCorasick::new(&texts).map_err(|error| error.to_string())?)
        };
        let longest = texts.first().map_or(0, String::len);
        let beginnings = Sorted::new(texts.iter().map(|text| text.clone().into_bytes()));
        let endings = Sorted::new(texts.iter().map(|text| reversed(text)));
        Ok(Marker { control, texts, longest, beginnings, endings, words, source_private })
    }

    /// Marks every string of `context`, keys included. Without `partial` only whole control texts.
    pub fn mark(&self, context: &mut Value, partial: bool) -> Result<Marks, String> {
        let mut marks = Marks { taken: self.source_private.clone(), ..Marks::default() };
        if self.control.is_some() {
            collect_private_in(context, &mut marks.taken);
            self.mark_value(context, partial, &mut marks)?;
        }
        Ok(marks)
    }

    fn mark_value(&self, value: &mut Value, partial: bool, marks: &mut Marks) -> Result<(), String> {
        match value {
            Value::String(text) => {
                if let Some(marked) = self.mark_text(text, partial, marks)? {
                    *text = marked;
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.mark_value(item, partial, marks)?;
                }
            }
            Value::Object(map) => {
                let mut renamed = false;
                let mut names = Vec::with_capacity(map.len());
                for (key, item) in map.iter_mut() {
                    self.mark_value(item, partial, marks)?;
                    let name = self.mark_text(key, partial, marks)?;
                    renamed |= name.is_some();
                    names.push(name);
                }
                if renamed {
                    let old = std::mem::take(map);
                    for ((key, item), name) in old.into_iter().zip(names) {
                        map.insert(name.unwrap_or(key), item);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn mark_text(&self, text: &str, partial: bool, marks: &mut Marks) -> Result<Option<String>, String> {
        let Some(control) = &self.control else { return Ok(None) };
        let mut places: BTreeSet<usize> =
            control.find_overlapping_iter(text).map(|hit| hit.start()).collect();
        if partial {
            let whole = places.len();
            self.partial_places(text, &mut places);
            marks.any_partial |= places.len() > whole;
        }
        if places.is_empty() {
            return Ok(None);
        }
        let mut marked = String::with_capacity(text.len() + 4 * places.len());
        for (at, c) in text.char_indices() {
            marked.push(if places.contains(&at) { marks.mark(c)? } else { c });
        }
        Ok(Some(marked))
    }

    /// Where `text`, trimmed as templates trim, could be a part of a control text that others complete.
    fn partial_places(&self, text: &str, places: &mut BTreeSet<usize>) {
        for candidate in [text, text.trim()] {
            if candidate.is_empty() {
                continue;
            }
            let offset = candidate.as_ptr() as usize - text.as_ptr() as usize;
            let tail_from = candidate.len().saturating_sub(self.longest);
            for at in (tail_from..candidate.len()).filter(|at| candidate.is_char_boundary(*at)) {
                if self.beginnings.has_longer(candidate[at..].as_bytes()) && !self.words.contains(&candidate[at..]) {
                    places.insert(offset + at);
                }
            }
            let head_max = candidate.len().min(self.longest);
            let backwards: Vec<u8> = candidate.as_bytes()[..head_max].iter().rev().copied().collect();
            for at in (1..=head_max).filter(|at| candidate.is_char_boundary(*at)) {
                let head = &candidate[..at];
                if self.endings.has_longer(&backwards[head_max - at..]) && !head.chars().all(|c| c.is_alphanumeric() || c == '_') {
                    places.insert(offset);
                }
            }
            if candidate.len() < self.longest
                && !self.words.contains(candidate)
                && self.texts.iter().any(|control| control.contains(candidate))
            {
                places.insert(offset);
            }
        }
    }
}

fn collect_private_in(value: &Value, into: &mut HashSet<char>) {
    match value {
        Value::String(text) => collect_private(text, into),
        Value::Array(items) => items.iter().for_each(|item| collect_private_in(item, into)),
        Value::Object(map) => map.iter().for_each(|(key, item)| {
            collect_private(key, into);
            collect_private_in(item, into);
        }),
        _ => {}
    }
}
