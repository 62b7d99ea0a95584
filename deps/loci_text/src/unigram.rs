// SPDX-License-Identifier: Apache-2.0
//! The unigram language model: of all ways to write a text as pieces, the one whose scores (logarithms of
//! probabilities) add up to the most. Found from left to right: the best way to reach each character's end
//! is the best of its last piece's beginning plus that piece (Viterbi). Pieces are matched by one automaton,
//! so time grows with the text's length times the number of pieces that end at one place.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::Token;

use crate::vocabulary::{TokenKind, Vocabulary};

/// How much worse than the worst piece an unknown character is, as in SentencePiece.
const UNKNOWN_PENALTY: f64 = 10.0;

pub struct Unigram {
    /// Pattern i is the piece `ids[i]`.
    pieces: AhoCorasick,
    ids: Vec<u32>,
    scores: Vec<f64>,
    unknown: Option<u32>,
    unknown_score: f64,
    /// Tokens of single bytes, for characters without a piece; empty: they are unknown.
    bytes: HashMap<u8, u32>,
}

/// The best way to a place in the text.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    begin: usize,
    /// None: an unknown character.
    piece: Option<u32>,
}

impl Unigram {
    /// Control and byte tokens are never pieces.
    pub fn new(
        vocabulary: &Vocabulary,
        scores: &[f64],
        unknown: Option<u32>,
        byte_fallback: bool,
    ) -> Result<Unigram, String> {
        let mut texts = Vec::new();
        let mut ids = Vec::new();
        let mut bytes = HashMap::new();
        let mut least = f64::INFINITY;
        for (id, (text, kind)) in vocabulary.tokens.iter().zip(&vocabulary.kinds).enumerate() {
            if byte_fallback {
                if let Some(byte) = named_byte(text) {
                    bytes.insert(byte, id as u32);
                    continue;
                }
            }
            let is_piece = matches!(kind, TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused);
            if !is_piece || text.is_empty() {
                continue;
            }
            if !scores[id].is_finite() {
                return Err(format!("token {id}: expected a finite score, found {}", scores[id]));
            }
            least = least.min(scores[id]);
            texts.push(text.as_str());
            ids.push(id as u32);
        }
        let pieces = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&texts)
            .map_err(|error| error.to_string())?;
        let unknown_score = if least.is_finite() { least } else { 0.0 } - UNKNOWN_PENALTY;
        Ok(Unigram { pieces, ids, scores: scores.to_vec(), unknown, unknown_score, bytes })
    }

    /// A piece that ends where a better or equal and longer one ends takes no part.
    fn best_ways(&self, text: &str, user_defined: &dyn Fn(u32) -> bool) -> Vec<Option<Best>> {
        let mut ways: Vec<Option<Best>> = vec![None; text.len() + 1];
        ways[0] = Some(Best { score: 0.0, begin: 0, piece: None });
        let mut matches = self.pieces.find_overlapping_iter(text).peekable();
        for (begin, character) in text.char_indices() {
            let end = begin + character.len_utf8();
            let mut has_piece = false;
            let mut best: Option<Best> = None;
            let mut consider = |candidate: Best| {
                let is_better = best.is_none_or(|best| {
                    candidate.score > best.score
                        || (candidate.score == best.score && candidate.begin < best.begin)
                });
                if is_better {
                    best = Some(candidate);
                }
            };
            while let Some(found) = matches.peek() {
                if found.end() > end {
                    break;
                }
                if found.end() == end {
                    has_piece |= found.start() == begin;
                    let id = self.ids[found.pattern().as_usize()];
                    let score = if user_defined(id) { 0.0 } else { self.scores[id as usize] };
                    if let Some(before) = ways[found.start()] {
                        consider(Best { score: before.score + score, begin: found.start(), piece: Some(id) });
                    }
                }
                matches.next();
            }
            if !has_piece {
                if let Some(before) = ways[begin] {
                    consider(Best { score: before.score + self.unknown_score, begin, piece: None });
                }
            }
            ways[end] = best;
        }
        ways
    }

    pub fn tokenize(&self, text: &str, vocabulary: &Vocabulary) -> Vec<Token> {
        let is_user_defined = |id: u32| vocabulary.kinds[id as usize] == TokenKind::UserDefined;
        let ways = self.best_ways(text, &is_user_defined);
        // From the end to the beginning; unknown characters side by side are one piece.
        let mut pieces: Vec<(usize, usize, Option<u32>)> = Vec::new();
        let mut end = text.len();
        while end > 0 {
            let Some(best) = ways[end] else { break };
            match (best.piece, pieces.last_mut()) {
                (None, Some(last)) if last.2.is_none() => last.0 = best.begin,
                _ => pieces.push((best.begin, end, best.piece)),
            }
            end = best.begin;
        }
        let mut tokens = Vec::with_capacity(pieces.len());
        for (begin, end, piece) in pieces.into_iter().rev() {
            let mut push = |id: u32| {
                tokens.push(Token::new(id, vocabulary.tokens[id as usize].clone(), (begin, end)));
            };
            match piece {
                Some(id) => push(id),
                None => {
                    let bytes: Option<Vec<u32>> =
                        text.as_bytes()[begin..end].iter().map(|byte| self.bytes.get(byte).copied()).collect();
                    match bytes {
                        Some(bytes) => bytes.into_iter().for_each(push),
                        None => self.unknown.into_iter().for_each(push),
                    }
                }
            }
        }
        tokens
    }
}

/// "<0x0A>"
pub fn named_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}
