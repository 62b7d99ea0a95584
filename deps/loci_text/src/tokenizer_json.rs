// SPDX-License-Identifier: Apache-2.0
//! A tokenizer.json as `tokenizers` defines it. Its parts are taken as they are; only the control tokens are
//! taken out of what plain text can become.

use std::collections::{HashMap, HashSet};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::cutter::Cutter;
use crate::normalizer_bounds;
use crate::tokenizer::Place;
use crate::unigram::named_byte;
use crate::vocabulary::{TokenKind, Vocabulary};

/// More than any vocabulary; bounds what a damaged file makes us allocate.
const TOKENS_MAX: u64 = 1 << 22;

/// A token of "added_tokens".
pub struct Added {
    pub id: u32,
    pub content: String,
    pub special: bool,
    pub single_word: bool,
    pub lstrip: bool,
    pub rstrip: bool,
    pub normalized: bool,
}

pub enum JsonModel {
    /// The object of "model", without control tokens.
    Bpe(Value),
    Unigram { scores: Vec<f64>, byte_fallback: bool },
}

/// How tokens spell text, which the decoder says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spelling {
    /// Characters stand for bytes (GPT-2's alphabet); otherwise "▁" is a blank and <0xNN> a byte.
    pub byte_level: bool,
    /// A blank that a text's first token begins with was put there by encoding.
    pub strips_space: bool,
}

pub struct TokenizerJson {
    pub vocabulary: Vocabulary,
    pub added: Vec<Added>,
    pub model: JsonModel,
    pub unknown: Option<u32>,
    pub spelling: Spelling,
    root: Map<String, Value>,
}

fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn token_id(value: &Value, place: &str) -> Result<u32, String> {
    match value.as_u64() {
        Some(id) if id < TOKENS_MAX => Ok(id as u32),
        _ => Err(format!("{place}: expected a token's number below {TOKENS_MAX}, found {value}")),
    }
}

fn read_added(root: &Map<String, Value>) -> Result<Vec<Added>, String> {
    let Some(list) = field(root, "added_tokens") else { return Ok(Vec::new()) };
    let list = list.as_array().ok_or_else(|| format!("added_tokens: expected an array, found {}", kind_of(list)))?;
    let mut added = Vec::with_capacity(list.len());
    for (index, item) in list.iter().enumerate() {
        let place = format!("added_tokens[{index}]");
        let object = item.as_object().ok_or_else(|| format!("{place}: expected an object, found {}", kind_of(item)))?;
        let flag = |name: &str| object.get(name).and_then(Value::as_bool).unwrap_or(false);
        let content = object.get("content").and_then(Value::as_str);
        added.push(Added {
            id: token_id(object.get("id").unwrap_or(&Value::Null), &format!("{place}.id"))?,
            content: content.ok_or_else(|| format!("{place}.content: expected a string"))?.to_string(),
            special: flag("special"),
            single_word: flag("single_word"),
            lstrip: flag("lstrip"),
            rstrip: flag("rstrip"),
            normalized: flag("normalized"),
        });
    }
    Ok(added)
}

/// What a vocabulary is built from: texts by id, with holes.
struct Slots(Vec<Option<String>>);

impl Slots {
    fn put(&mut self, id: u32, text: &str, place: &str) -> Result<(), String> {
        let index = id as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        match &self.0[index] {
            Some(other) if other != text => {
                Err(format!("{place}: token {id} is both {other:?} and {text:?}"))
            }
            _ => {
                self.0[index] = Some(text.to_string());
                Ok(())
            }
        }
    }
}

fn read_bpe_vocabulary(model: &Map<String, Value>, slots: &mut Slots) -> Result<(), String> {
    let Some(Value::Object(vocab)) = model.get("vocab") else {
        return Err("model.vocab: expected an object".to_string());
    };
    for (text, id) in vocab {
        slots.put(token_id(id, "model.vocab")?, text, "model.vocab")?;
    }
    Ok(())
}

fn read_pieces(model: &Map<String, Value>, slots: &mut Slots) -> Result<Vec<f64>, String> {
    let Some(Value::Array(vocab)) = model.get("vocab") else {
        return Err("model.vocab: expected an array".to_string());
    };
    if vocab.len() as u64 > TOKENS_MAX {
        return Err(format!("model.vocab: expected at most {TOKENS_MAX} pieces, found {}", vocab.len()));
    }
    let mut scores = Vec::with_capacity(vocab.len());
    for (index, piece) in vocab.iter().enumerate() {
        let (Some(text), Some(score)) = (piece.get(0).and_then(Value::as_str), piece.get(1).and_then(Value::as_f64))
        else {
            return Err(format!("model.vocab[{index}]: expected a piece and its score"));
        };
        slots.put(index as u32, text, "model.vocab")?;
        scores.push(score);
    }
    Ok(scores)
}

/// Takes control tokens out of a BPE model, so that no merge and no whole word can become one.
fn without_control(mut model: Map<String, Value>, control: &HashSet<&str>, unknown: Option<&str>) -> Result<Value, String> {
    if let Some(Value::Object(vocab)) = model.get_mut("vocab") {
        vocab.retain(|text, _| !control.contains(text.as_str()) || unknown == Some(text.as_str()));
    }
    if let Some(Value::Array(merges)) = model.get_mut("merges") {
        let mut kept = Vec::with_capacity(merges.len());
        for (index, merge) in std::mem::take(merges).into_iter().enumerate() {
            let parts = match &merge {
                Value::String(text) => text.split_once(' '),
                Value::Array(pair) if pair.len() == 2 => pair[0].as_str().zip(pair[1].as_str()),
                _ => None,
            };
            let Some((left, right)) = parts else {
                return Err(format!("model.merges[{index}]: expected two parts, found {merge}"));
            };
            let product = [left, right].concat();
            if [left, right, product.as_str()].iter().all(|part| !control.contains(part)) {
                kept.push(merge);
            }
        }
        *merges = kept;
    }
    // Not dropout, which is for training.
    const KEPT: [&str; 8] = [
        "unk_token",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "fuse_unk",
        "byte_fallback",
        "ignore_merges",
        "vocab",
        "merges",
    ];
    model.retain(|key, _| KEPT.contains(&key.as_str()));
    Ok(Value::Object(model))
}

/// Steps of a decoder or pre-tokenizer, sequences opened.
fn steps<'a>(value: Option<&'a Value>, inner: &str, out: &mut Vec<&'a Map<String, Value>>) {
    let Some(Value::Object(step)) = value else { return };
    match step.get(inner) {
        Some(Value::Array(list)) => list.iter().for_each(|item| steps(Some(item), inner, out)),
        _ => out.push(step),
    }
}

fn type_of(step: &Map<String, Value>) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or("")
}

fn read_spelling(root: &Map<String, Value>) -> Result<Spelling, String> {
    let mut decoders = Vec::new();
    steps(field(root, "decoder"), "decoders", &mut decoders);
    if decoders.is_empty() {
        let mut before = Vec::new();
        steps(field(root, "pre_tokenizer"), "pretokenizers", &mut before);
        let byte_level = before.iter().any(|step| type_of(step) == "ByteLevel");
        return Ok(Spelling { byte_level, strips_space: false });
    }
    let mut spelling = Spelling { byte_level: false, strips_space: false };
    for step in decoders {
        match type_of(step) {
            "ByteLevel" => spelling.byte_level = true,
            "Metaspace" => {
                let scheme = step.get("prepend_scheme").and_then(Value::as_str).unwrap_or("always");
                let old = step.get("add_prefix_space").and_then(Value::as_bool);
                spelling.strips_space |= scheme != "never" && old != Some(false);
            }
            "Strip" => spelling.strips_space |= step.get("start").and_then(Value::as_u64).unwrap_or(0) > 0,
            "Replace" | "ByteFallback" | "Fuse" => {}
            other => {
                return Err(format!(
                    "decoder: expected ByteLevel, Metaspace, Replace, ByteFallback, Fuse or Strip, found {other:?}"
                ))
            }
        }
    }
    Ok(spelling)
}

/// `tokenizers` takes it for granted that a template names only special tokens that it defines.
fn check_templates(root: &Map<String, Value>) -> Result<(), String> {
    let mut processors = Vec::new();
    steps(field(root, "post_processor"), "processors", &mut processors);
    for step in processors {
        let pieces = ["single", "pair"].into_iter().filter_map(|name| step.get(name).and_then(Value::as_array));
        for piece in pieces.flatten() {
            let id = piece.get("SpecialToken").and_then(|token| token.get("id")).and_then(Value::as_str);
            let Some(id) = id else { continue };
            if step.get("special_tokens").and_then(|tokens| tokens.get(id)).is_none() {
                return Err(format!("post_processor.special_tokens: expected {id:?}, which its template names"));
            }
        }
    }
    Ok(())
}

fn model_type(model: &Map<String, Value>) -> String {
    match model.get("type").and_then(Value::as_str) {
        Some(name) => name.to_string(),
        None if model.contains_key("merges") => "BPE".to_string(),
        None if matches!(model.get("vocab"), Some(Value::Array(_))) => "Unigram".to_string(),
        None => "none".to_string(),
    }
}

impl TokenizerJson {
    /// `control`: more tokens that control (of tokenizer_config.json), by text or number. `token_limit`:
    /// added tokens from this number on are left out, as the model has no row for them; 0: no limit.
    pub fn parse(text: &str, control: &[&str], control_ids: &[u32], token_limit: u32) -> Result<TokenizerJson, String> {
        let root: Value = serde_json::from_str(text).map_err(|error| format!("expected valid JSON: {error}"))?;
        let Value::Object(mut root) = root else {
            return Err(format!("expected an object, found {}", kind_of(&root)));
        };
        let Some(Value::Object(model)) = root.remove("model") else {
            return Err("model: expected an object".to_string());
        };
        let mut added = read_added(&root)?;
        added.retain(|token| token_limit == 0 || token.id < token_limit);
        let mut slots = Slots(Vec::new());
        let kind = model_type(&model);
        let mut scores = match kind.as_str() {
            "BPE" => read_bpe_vocabulary(&model, &mut slots).map(|()| Vec::new())?,
            "Unigram" => read_pieces(&model, &mut slots)?,
            other => return Err(format!("model.type: expected BPE or Unigram, found {other:?} (an encoder's?)")),
        };
        for token in &added {
            slots.put(token.id, &token.content, "added_tokens")?;
        }
        if token_limit != 0 && slots.0.len() > token_limit as usize {
            return Err(format!("model.vocab: expected at most {token_limit} tokens (the embedding's rows), found {}", slots.0.len()));
        }
        let byte_fallback = model.get("byte_fallback").and_then(Value::as_bool).unwrap_or(false);
        let unknown = unknown_of(&model, &slots)?;
        let vocabulary = classify(slots, &mut added, unknown, byte_fallback, control, control_ids);
        let spelling = read_spelling(&root)?;
        check_templates(&root)?;
        let mut normalizers = Vec::new();
        steps(field(&root, "normalizer"), "normalizers", &mut normalizers);
        normalizer_bounds::check(&normalizers)?;
        let model = if kind == "BPE" {
            let control: HashSet<&str> = vocabulary.control_texts().collect();
            let unknown = unknown.map(|id| vocabulary.tokens[id as usize].as_str());
            JsonModel::Bpe(without_control(model, &control, unknown)?)
        } else {
            scores.resize(vocabulary.tokens.len(), 0.0);
            JsonModel::Unigram { scores, byte_fallback }
        };
        Ok(TokenizerJson { vocabulary, added, model, unknown, spelling, root })
    }

    /// A part that `tokenizers` reads, or none, as it is for a piece of text at `place`.
    pub fn part<T: DeserializeOwned>(&self, name: &str, place: Place) -> Result<Option<T>, String> {
        let Some(value) = field(&self.root, name) else { return Ok(None) };
        let Some(value) = at_place(value, place) else { return Ok(None) };
        serde_json::from_value(value).map(Some).map_err(|error| format!("{name}: {error}"))
    }

    pub fn cutter(&self, place: Place) -> Result<Option<Cutter>, String> {
        let Some(value) = field(&self.root, "pre_tokenizer") else { return Ok(None) };
        let Some(value) = at_place(value, place) else { return Ok(None) };
        Cutter::from_json(value).map(Some).map_err(|error| format!("pre_tokenizer: {error}"))
    }

    /// Whether text at `place` is encoded unlike a text's first piece.
    pub fn differs(&self, place: Place) -> bool {
        ["normalizer", "pre_tokenizer"].iter().any(|name| {
            field(&self.root, name).is_some_and(|value| at_place(value, place).as_ref() != Some(value))
        })
    }
}

/// A normaliser or pre-tokenizer without what it puts before a text, where it would not do so at `place`.
fn at_place(value: &Value, place: Place) -> Option<Value> {
    let mut value = value.clone();
    let Value::Object(step) = &mut value else { return Some(value) };
    let kind = type_of(step).to_string();
    let is_continued = place == Place::Continued;
    match kind.as_str() {
        "Prepend" if is_continued => return None,
        "Metaspace" => {
            let is_first_alone = step.get("prepend_scheme").and_then(Value::as_str) == Some("first");
            if is_continued || (is_first_alone && place == Place::Inner) {
                step.remove("add_prefix_space");
                step.insert("prepend_scheme".to_string(), Value::String("never".to_string()));
            }
        }
        "ByteLevel" if is_continued && step.contains_key("add_prefix_space") => {
            step.insert("add_prefix_space".to_string(), Value::Bool(false));
        }
        _ => {}
    }
    for name in ["normalizers", "pretokenizers"] {
        if let Some(Value::Array(list)) = step.get_mut(name) {
            *list = list.iter().filter_map(|item| at_place(item, place)).collect();
        }
    }
    Some(value)
}

fn unknown_of(model: &Map<String, Value>, slots: &Slots) -> Result<Option<u32>, String> {
    if let Some(id) = field(model, "unk_id") {
        let id = token_id(id, "model.unk_id")?;
        return match slots.0.get(id as usize) {
            Some(Some(_)) => Ok(Some(id)),
            _ => Err(format!("model.unk_id: expected a token of the vocabulary, found {id}")),
        };
    }
    match field(model, "unk_token").and_then(Value::as_str) {
        Some(text) => match slots.0.iter().position(|slot| slot.as_deref() == Some(text)) {
            Some(id) => Ok(Some(id as u32)),
            None => Err(format!("model.unk_token: expected a token of the vocabulary, found {text:?}")),
        },
        None => Ok(None),
    }
}

/// Says of each token what it is for; tokens that `control` names join the special ones.
fn classify(
    slots: Slots,
    added: &mut [Added],
    unknown: Option<u32>,
    byte_fallback: bool,
    control: &[&str],
    control_ids: &[u32],
) -> Vocabulary {
    let control: HashSet<&str> = control.iter().copied().collect();
    let by_id: HashMap<u32, usize> = added.iter().enumerate().map(|(index, token)| (token.id, index)).collect();
    let mut tokens = Vec::with_capacity(slots.0.len());
    let mut kinds = Vec::with_capacity(slots.0.len());
    for (id, slot) in slots.0.into_iter().enumerate() {
        let id = id as u32;
        let Some(text) = slot else {
            tokens.push(format!("[PAD{id}]"));
            kinds.push(TokenKind::Unused);
            continue;
        };
        let is_named = control.contains(text.as_str()) || control_ids.contains(&id);
        kinds.push(match by_id.get(&id) {
            _ if unknown == Some(id) => TokenKind::Unknown,
            Some(index) if is_named || added[*index].special => {
                added[*index].special = true;
                TokenKind::Control
            }
            None if is_named => TokenKind::Control,
            Some(_) => TokenKind::UserDefined,
            None if byte_fallback && named_byte(&text).is_some() => TokenKind::Byte,
            None => TokenKind::Normal,
        });
        tokens.push(text);
    }
    Vocabulary { tokens, kinds }
}
