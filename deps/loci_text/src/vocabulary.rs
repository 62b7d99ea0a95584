// SPDX-License-Identifier: Apache-2.0
//! A vocabulary as model files carry it, and the BPE model that it stands for.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokenizers::models::bpe::{BpeTrainer, BPE};
use tokenizers::{Model, Token};

use crate::unigram::Unigram;

/// What a token is for; the numbers are GGUF's (tokenizer.ggml.token_type).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenKind {
    pub fn number(self) -> i32 {
        match self {
            TokenKind::Normal => 1,
            TokenKind::Unknown => 2,
            TokenKind::Control => 3,
            TokenKind::UserDefined => 4,
            TokenKind::Unused => 5,
            TokenKind::Byte => 6,
        }
    }
    pub fn from_number(number: i32) -> Option<TokenKind> {
        Some(match number {
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => return None,
        })
    }
    /// Text never becomes such a token, unless a template wrote it.
    pub fn is_control(self) -> bool {
        matches!(self, TokenKind::Control | TokenKind::Unknown)
    }
}

#[derive(Default)]
pub struct Vocabulary {
    pub tokens: Vec<String>,
    pub kinds: Vec<TokenKind>,
}

impl Vocabulary {
    pub fn control_texts(&self) -> impl Iterator<Item = &str> {
        let pairs = self.tokens.iter().zip(&self.kinds);
        pairs.filter(|(_, kind)| kind.is_control()).map(|(text, _)| text.as_str())
    }
}

enum Pieces {
    Bpe(BPE),
    Unigram(Unigram),
}

/// A model whose ordinary vocabulary leaves out the control tokens, so that no merge, no piece and no whole
/// word can become one, while the added vocabulary still finds every id by its text. Cheap to copy.
#[derive(Clone)]
pub struct PlainModel(Arc<Parts>);

struct Parts {
    pieces: Pieces,
    ids: HashMap<String, u32>,
    tokens: Arc<Vocabulary>,
}

impl PlainModel {
    fn with(pieces: Pieces, tokens: Arc<Vocabulary>) -> PlainModel {
        let ids = ids_of(&tokens);
        PlainModel(Arc::new(Parts { pieces, ids, tokens }))
    }

    /// `bpe` has no control tokens.
    pub fn bpe(vocabulary: Arc<Vocabulary>, bpe: BPE) -> PlainModel {
        PlainModel::with(Pieces::Bpe(bpe), vocabulary)
    }

    pub fn unigram(vocabulary: Arc<Vocabulary>, unigram: Unigram) -> PlainModel {
        PlainModel::with(Pieces::Unigram(unigram), vocabulary)
    }

    /// BPE with explicit merges ("left right"). `byte_fallback`: characters without a token become <0xNN>;
    /// otherwise every byte has a token under its character of GPT-2's alphabet.
    pub fn merged(
        vocabulary: Arc<Vocabulary>,
        merges: &[&str],
        ignore_merges: bool,
        byte_fallback: bool,
    ) -> Result<PlainModel, String> {
        let ids = ids_of(&vocabulary);
        let ordinary = ordinary_tokens(&vocabulary);
        let mut pairs = Vec::with_capacity(merges.len());
        for (index, merge) in merges.iter().enumerate() {
            // A token of one space would make the first byte the separator.
            let split = merge.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
            let Some(at) = split else {
                return Err(format!("tokenizer.ggml.merges[{index}]: expected \"left right\", found {merge:?}"));
            };
            let (left, right) = (&merge[..at], &merge[at + 1..]);
            let product = [left, right].concat();
            for part in [left, right, product.as_str()] {
                if !ids.contains_key(part) {
                    return Err(format!(
                        "tokenizer.ggml.merges[{index}]: {merge:?} needs the token {part:?}, which \
                         tokenizer.ggml.tokens does not have"
                    ));
                }
            }
            // What would merge into or out of a control token stays text.
            if [left, right, product.as_str()].iter().all(|part| ordinary.contains_key(*part)) {
                pairs.push((left.to_string(), right.to_string()));
            }
        }
        let bpe = BPE::builder()
            .vocab_and_merges(ordinary.into_iter().collect::<tokenizers_vocab::Map>(), pairs)
            .ignore_merges(ignore_merges)
            .byte_fallback(byte_fallback)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(PlainModel::bpe(vocabulary, bpe))
    }

    /// SentencePiece's BPE: every pair of tokens whose join is a token merges, the best-scored product
    /// first. Bytes without a token fall back to <0xNN>.
    pub fn sentence_piece(
        vocabulary: Arc<Vocabulary>,
        scores: &[f32],
        unknown: Option<u32>,
    ) -> Result<PlainModel, String> {
        let mut ordinary = ordinary_tokens(&vocabulary);
        let pairs = merges_from_scores(&vocabulary, &ordinary, scores);
        let mut builder = BPE::builder().byte_fallback(true).fuse_unk(true);
        if let Some(id) = unknown.filter(|id| (*id as usize) < vocabulary.tokens.len()) {
            let text = vocabulary.tokens[id as usize].clone();
            ordinary.insert(text.clone(), id);
            builder = builder.unk_token(text);
        }
        let bpe = builder
            .vocab_and_merges(ordinary.into_iter().collect::<tokenizers_vocab::Map>(), pairs)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(PlainModel::bpe(vocabulary, bpe))
    }
}

/// The map type that `BPE::builder` takes, without naming its hasher's crate.
mod tokenizers_vocab {
    pub type Map = tokenizers::models::bpe::Vocab;
}

fn ids_of(vocabulary: &Vocabulary) -> HashMap<String, u32> {
    let mut ids = HashMap::with_capacity(vocabulary.tokens.len());
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        ids.entry(token.clone()).or_insert(id as u32);
    }
    ids
}

fn ordinary_tokens(vocabulary: &Vocabulary) -> HashMap<String, u32> {
    let control: HashSet<&str> = (0..vocabulary.tokens.len())
        .filter(|id| vocabulary.kinds[*id].is_control())
        .map(|id| vocabulary.tokens[id].as_str())
        .collect();
    let mut ordinary = HashMap::with_capacity(vocabulary.tokens.len());
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        if !control.contains(token.as_str()) {
            ordinary.entry(token.clone()).or_insert(id as u32);
        }
    }
    ordinary
}

/// A longer token is no product of merges: all of its cuts would be looked up, each in as many steps as it has bytes.
const MERGED_BYTES_MAX: usize = 1000;

/// In the order that Hugging Face's converter gives a SentencePiece vocabulary: by score, then longer
/// left parts, then longer right parts, then ids.
fn merges_from_scores(
    vocabulary: &Vocabulary,
    ordinary: &HashMap<String, u32>,
    scores: &[f32],
) -> Vec<(String, String)> {
    struct Candidate<'a> {
        left: &'a str,
        right: &'a str,
        score: f32,
        lengths: (usize, usize),
    }
    let mut candidates = Vec::new();
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        if token.len() > MERGED_BYTES_MAX
            || matches!(vocabulary.kinds[id], TokenKind::Byte | TokenKind::Unused)
            || ordinary.get(token) != Some(&(id as u32))
        {
            continue;
        }
        let characters = token.chars().count();
        let mut local: Vec<(u32, u32, Candidate)> = token
            .char_indices()
            .skip(1)
            .enumerate()
            .filter_map(|(index, (at, _))| {
                let (left, right) = token.split_at(at);
                let lengths = (index + 1, characters - index - 1);
                let candidate = Candidate { left, right, score: scores[id], lengths };
                Some((*ordinary.get(left)?, *ordinary.get(right)?, candidate))
            })
            .collect();
        local.sort_by_key(|(left, right, _)| (*left, *right));
        candidates.extend(local.into_iter().map(|(_, _, candidate)| candidate));
    }
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.lengths.cmp(&a.lengths)));
    candidates.into_iter().map(|c| (c.left.to_string(), c.right.to_string())).collect()
}

impl Model for PlainModel {
    type Trainer = BpeTrainer;

    fn tokenize(&self, sequence: &str) -> tokenizers::Result<Vec<Token>> {
        match &self.0.pieces {
            Pieces::Bpe(bpe) => bpe.tokenize(sequence),
            Pieces::Unigram(unigram) => Ok(unigram.tokenize(sequence, &self.0.tokens)),
        }
    }
    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.ids.get(token).copied()
    }
    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.tokens.tokens.get(id as usize).cloned()
    }
    fn get_vocab(&self) -> HashMap<String, u32> {
        self.0.ids.clone()
    }
    fn get_vocab_size(&self) -> usize {
        self.0.tokens.tokens.len()
    }
    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Err("vocabularies are read here, not written".into())
    }
    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}
