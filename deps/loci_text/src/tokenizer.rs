// SPDX-License-Identifier: Apache-2.0
//! Text to token ids. One `tokenizers` object encodes plain text; control tokens are found by a
//! separate matcher, so plain text can never become one.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::{AddedToken, DecoderWrapper, PostProcessorWrapper, TokenizerImpl};

use crate::charsmap::{CharsMap, TextNormalizer, UnigramNormalizer};
use crate::cutter::Cutter;
use crate::pre_tokenizer;
use crate::tokenizer_json::{JsonModel, Spelling, TokenizerJson};
use crate::unigram::Unigram;
use crate::vocabulary::{PlainModel, TokenKind, Vocabulary};

type Plain = TokenizerImpl<PlainModel, TextNormalizer, Cutter, PostProcessorWrapper, DecoderWrapper>;

/// Where a piece of text stands: tokenizers put a blank before a text, or before every piece of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// It begins the text.
    First,
    /// It follows a control token.
    Inner,
    /// It follows text that is encoded already: nothing is put before it.
    Continued,
}

pub enum Scheme<'a> {
    ByteLevel { pre: &'a str, merges: &'a [&'a str] },
    SentencePiece { scores: &'a [f32], add_space_prefix: bool, unknown: Option<u32> },
    Unigram { scores: &'a [f32], normalizer: UnigramNormalizer, unknown: Option<u32> },
    SentencePieceMerges { merges: &'a [&'a str], add_space_prefix: bool },
}

/// Phi-3's special tokens without the blanks that follow them.
const WITHOUT_BLANKS: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

/// A token that is matched as a whole in raw text.
struct Whole {
    id: u32,
    is_control: bool,
    /// Blanks before or after it belong to it.
    lstrip: bool,
    rstrip: bool,
}

pub struct Tokenizer {
    plain: Plain,
    /// For pieces of a text that do not begin it, where they are treated unlike the first.
    inner: Option<Plain>,
    /// For text that goes on, where a piece's beginning is treated unlike its middle.
    continued: Option<Plain>,
    /// Finds every `wholes`, leftmost-longest as in `tokenizers`.
    whole: AhoCorasick,
    wholes: Vec<Whole>,
    control_texts: Vec<String>,
    pub vocabulary: Arc<Vocabulary>,
    pub spelling: Spelling,
    pub unknown: Option<u32>,
    /// What a post-processor puts before every text.
    pub leading: Option<u32>,
}

/// A control token that was found in a text, with the text before it.
pub struct Found<'a> {
    pub before: &'a str,
    pub place: Place,
    pub control: Option<u32>,
}

/// Encodes text at its beginning, and (where that differs) in its middle.
struct Encoders {
    plain: Plain,
    continued: Option<Plain>,
    spelling: Spelling,
}

fn encoders_of_scheme(vocabulary: &Arc<Vocabulary>, scheme: Scheme) -> Result<Encoders, String> {
    let spelling = |byte_level, strips_space| Spelling { byte_level, strips_space };
    let with_normalizer = |model, normalizer| -> Result<Plain, String> {
        let mut plain = Plain::new(model);
        plain.with_normalizer(Some(normalizer)).map_err(|error| error.to_string())?;
        Ok(plain)
    };
    match scheme {
        Scheme::ByteLevel { pre, merges } => {
            let found = pre_tokenizer::find(pre)?;
            let model = PlainModel::merged(vocabulary.clone(), merges, found.ignore_merges, false)?;
            let mut plain = Plain::new(model);
            plain
                .with_normalizer(found.normalizer.map(TextNormalizer::Published))
                .map_err(|error| error.to_string())?;
            plain.with_pre_tokenizer(Some(found.pre_tokenizer));
            Ok(Encoders { plain, continued: None, spelling: spelling(true, false) })
        }
        Scheme::SentencePiece { scores, add_space_prefix, unknown } => {
            let model = PlainModel::sentence_piece(vocabulary.clone(), scores, unknown)?;
            let made = |prefix| -> Result<Plain, String> {
                let normalizer = pre_tokenizer::sentence_piece_normalizer(prefix)?;
                with_normalizer(model.clone(), TextNormalizer::Published(normalizer))
            };
            let continued = if add_space_prefix { Some(made(false)?) } else { None };
            Ok(Encoders { plain: made(add_space_prefix)?, continued, spelling: spelling(false, add_space_prefix) })
        }
        Scheme::Unigram { scores, normalizer, unknown } => {
            let scores: Vec<f64> = scores.iter().map(|score| f64::from(*score)).collect();
            let strips_space = normalizer.add_space_prefix;
            let unigram = Unigram::new(vocabulary, &scores, unknown, false)
                .map_err(|error| format!("tokenizer.ggml.scores: {error}"))?;
            let model = PlainModel::unigram(vocabulary.clone(), unigram);
            let plain = with_normalizer(model, TextNormalizer::Unigram(normalizer))?;
            // Its normaliser may change any text: who goes on with one has to look at what came out.
            Ok(Encoders { plain, continued: None, spelling: spelling(false, strips_space) })
        }
        Scheme::SentencePieceMerges { merges, add_space_prefix } => {
            let model = PlainModel::merged(vocabulary.clone(), merges, false, true)?;
            let made = |prefix| -> Result<Plain, String> {
                let normalizer = pre_tokenizer::sentence_piece_normalizer(prefix)?;
                let mut plain = with_normalizer(model.clone(), TextNormalizer::Published(normalizer))?;
                plain.with_pre_tokenizer(Some(pre_tokenizer::newline_runs()?));
                Ok(plain)
            };
            let continued = if add_space_prefix { Some(made(false)?) } else { None };
            Ok(Encoders { plain: made(add_space_prefix)?, continued, spelling: spelling(false, add_space_prefix) })
        }
    }
}

fn plain_of_json(json: &TokenizerJson, model: PlainModel, place: Place) -> Result<Plain, String> {
    let mut plain = Plain::new(model);
    let normalizer = json.part("normalizer", place)?.map(TextNormalizer::Published);
    plain.with_normalizer(normalizer).map_err(|error| format!("normalizer: {error}"))?;
    plain.with_pre_tokenizer(json.cutter(place)?);
    plain.with_post_processor(json.part::<PostProcessorWrapper>("post_processor", place)?);
    let user_defined = json.added.iter().filter(|token| !token.special).map(|token| {
        AddedToken::from(token.content.clone(), false)
            .single_word(token.single_word)
            .lstrip(token.lstrip)
            .rstrip(token.rstrip)
            .normalized(token.normalized)
    });
    plain.add_tokens(user_defined).map_err(|error| format!("added_tokens: {error}"))?;
    Ok(plain)
}

/// The tokens that are matched as a whole, and the automaton that finds them.
fn wholes_of(vocabulary: &Vocabulary) -> Result<(AhoCorasick, Vec<Whole>), String> {
    let mut texts: Vec<&str> = Vec::new();
    let mut wholes = Vec::new();
    for (id, (text, kind)) in vocabulary.tokens.iter().zip(&vocabulary.kinds).enumerate() {
        if text.is_empty() || !(kind.is_control() || *kind == TokenKind::UserDefined) {
            continue;
        }
        texts.push(text);
        wholes.push(Whole { id: id as u32, is_control: kind.is_control(), lstrip: false, rstrip: false });
    }
    let whole = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(&texts)
        .map_err(|error| error.to_string())?;
    Ok((whole, wholes))
}

/// No published control token comes near it. Templates compare texts with control tokens and their parts.
const CONTROL_BYTES_MAX: usize = 1000;

/// Nor any other published token: replies are made of them.
const TOKEN_BYTES_MAX: usize = 4096;

/// `place`: the field that has the tokens.
fn check_texts(vocabulary: &Vocabulary, place: &str) -> Result<(), String> {
    for (id, (text, kind)) in vocabulary.tokens.iter().zip(&vocabulary.kinds).enumerate() {
        let (what, most) = if kind.is_control() {
            ("a control token", CONTROL_BYTES_MAX)
        } else {
            ("a token", TOKEN_BYTES_MAX)
        };
        if text.len() > most {
            return Err(format!("{place}[{id}]: expected {what} of at most {most} bytes, found {}", text.len()));
        }
    }
    Ok(())
}

impl Tokenizer {
    /// `takes_blanks`: blanks after special tokens belong to them, but for those of `WITHOUT_BLANKS`.
    pub fn new(vocabulary: Vocabulary, scheme: Scheme, takes_blanks: bool) -> Result<Tokenizer, String> {
        check_texts(&vocabulary, "tokenizer.ggml.tokens")?;
        let vocabulary = Arc::new(vocabulary);
        let rstrip = |text: &str| takes_blanks && !WITHOUT_BLANKS.contains(&text);
        let mut encoders = encoders_of_scheme(&vocabulary, scheme)?;
        for plain in std::iter::once(&mut encoders.plain).chain(&mut encoders.continued) {
            let user_defined = vocabulary.tokens.iter().zip(&vocabulary.kinds);
            let user_defined = user_defined
                .filter(|(text, kind)| !text.is_empty() && **kind == TokenKind::UserDefined)
                .map(|(text, _)| AddedToken::from(text.clone(), false).normalized(false).rstrip(rstrip(text)));
            plain.add_tokens(user_defined).map_err(|error| error.to_string())?;
        }
        let mut tokenizer = Tokenizer::finish(vocabulary, encoders.plain, encoders.spelling)?;
        for whole in tokenizer.wholes.iter_mut() {
            whole.rstrip = rstrip(&tokenizer.vocabulary.tokens[whole.id as usize]);
        }
        tokenizer.continued = encoders.continued;
        Ok(tokenizer)
    }

    pub fn from_json(json: TokenizerJson) -> Result<Tokenizer, String> {
        let mut json = json;
        check_texts(&json.vocabulary, "vocabulary")?;
        let vocabulary = Arc::new(std::mem::take(&mut json.vocabulary));
        let model = match std::mem::replace(&mut json.model, JsonModel::Bpe(serde_json::Value::Null)) {
            JsonModel::Bpe(value) => {
                let bpe = serde_json::from_value(value).map_err(|error| format!("model: {error}"))?;
                PlainModel::bpe(vocabulary.clone(), bpe)
            }
            JsonModel::Unigram { scores, byte_fallback } => {
                let unigram = Unigram::new(&vocabulary, &scores, json.unknown, byte_fallback)
                    .map_err(|error| format!("model.vocab: {error}"))?;
                PlainModel::unigram(vocabulary.clone(), unigram)
            }
        };
        let other = |place| -> Result<Option<Plain>, String> {
            Ok(if json.differs(place) { Some(plain_of_json(&json, model.clone(), place)?) } else { None })
        };
        let (inner, continued) = (other(Place::Inner)?, other(Place::Continued)?);
        let plain = plain_of_json(&json, model.clone(), Place::First)?;
        let mut tokenizer = Tokenizer::finish(vocabulary, plain, json.spelling)?;
        tokenizer.inner = inner;
        tokenizer.continued = continued;
        tokenizer.unknown = json.unknown;
        for token in json.added.iter().filter(|token| token.special && (token.lstrip || token.rstrip)) {
            for whole in tokenizer.wholes.iter_mut().filter(|whole| whole.id == token.id) {
                whole.lstrip = token.lstrip;
                whole.rstrip = token.rstrip;
            }
        }
        let around = tokenizer.plain.encode_fast("", true).map_err(|error| format!("post_processor: {error}"))?;
        let count = tokenizer.vocabulary.tokens.len();
        tokenizer.leading = around.get_ids().first().copied().filter(|id| (*id as usize) < count);
        Ok(tokenizer)
    }

    fn finish(vocabulary: Arc<Vocabulary>, plain: Plain, spelling: Spelling) -> Result<Tokenizer, String> {
        let (whole, wholes) = wholes_of(&vocabulary)?;
        let control_texts = vocabulary.control_texts().filter(|text| !text.is_empty()).map(str::to_string).collect();
        Ok(Tokenizer {
            plain,
            inner: None,
            continued: None,
            whole,
            wholes,
            control_texts,
            vocabulary,
            spelling,
            unknown: None,
            leading: None,
        })
    }

    pub fn control_texts(&self) -> &[String] {
        &self.control_texts
    }

    /// Cuts `text` at the control tokens that it spells. The last item has none.
    pub fn split_at_control<'a>(&self, text: &'a str) -> Vec<Found<'a>> {
        let mut found = Vec::new();
        let mut begin = 0;
        let mut is_stripped = false;
        let place_at = |begin| if begin == 0 { Place::First } else { Place::Inner };
        let piece = |begin: usize, end: usize, strip_begin: bool, strip_end: bool| {
            let mut before = &text[begin..end];
            if strip_begin {
                before = before.trim_start();
            }
            if strip_end {
                before = before.trim_end();
            }
            before
        };
        for hit in self.whole.find_iter(text) {
            let whole = &self.wholes[hit.pattern().as_usize()];
            if whole.is_control {
                let before = piece(begin, hit.start(), is_stripped, whole.lstrip);
                found.push(Found { before, place: place_at(begin), control: Some(whole.id) });
                begin = hit.end();
                is_stripped = whole.rstrip;
            }
        }
        let before = piece(begin, text.len(), is_stripped, false);
        found.push(Found { before, place: place_at(begin), control: None });
        found
    }

    /// Appends the ids of `text`, in which nothing is a control token.
    pub fn encode_plain(&self, text: &str, place: Place, ids: &mut Vec<u32>) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        let other = match place {
            Place::First => None,
            Place::Inner => self.inner.as_ref(),
            Place::Continued => self.continued.as_ref(),
        };
        let plain = other.unwrap_or(&self.plain);
        let encoding = plain.encode_fast(text, false).map_err(|error| error.to_string())?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    /// Appends the ids of `text`, in which control tokens' texts are those tokens.
    pub fn encode_with_control(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        for found in self.split_at_control(text) {
            self.encode_plain(found.before, found.place, ids)?;
            ids.extend(found.control);
        }
        Ok(())
    }
}

/// The normaliser of a GGUF vocabulary of unigram pieces.
pub fn unigram_normalizer(map: &[u8], add_space_prefix: bool, remove_extra_spaces: bool) -> Result<UnigramNormalizer, String> {
    let map = CharsMap::new(map).map_err(|error| format!("tokenizer.ggml.precompiled_charsmap: {error}"))?;
    Ok(UnigramNormalizer { map, add_space_prefix, remove_extra_spaces })
}
