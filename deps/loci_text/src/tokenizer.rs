//! Text to token ids. One `tokenizers` object encodes plain text; control tokens are found by a
//! separate matcher, so plain text can never become one.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerImpl,
};

use crate::pre_tokenizer;
use crate::vocabulary::{PlainModel, TokenKind, Vocabulary};

type Plain = TokenizerImpl<
    PlainModel,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

pub enum Scheme<'a> {
    ByteLevel { pre: &'a str, merges: &'a [&'a str] },
    SentencePiece { scores: &'a [f32], add_space_prefix: bool, unknown: Option<u32> },
}

pub struct Tokenizer {
    plain: Plain,
    /// Every token that is matched as a whole in raw text, leftmost-longest as in `tokenizers`.
    whole: AhoCorasick,
    /// Of pattern i of `whole`: its id, and whether it is a control token.
    whole_ids: Vec<(u32, bool)>,
    control_texts: Vec<String>,
}

/// A control token that was found in a text, with the text before it.
pub struct Found<'a> {
    pub before: &'a str,
    pub control: Option<u32>,
}

impl Tokenizer {
    pub fn new(vocabulary: Vocabulary, scheme: Scheme) -> Result<Tokenizer, String> {
        let vocabulary = Arc::new(vocabulary);
        let mut whole_texts: Vec<&str> = Vec::new();
        let mut whole_ids = Vec::new();
        let mut user_defined = Vec::new();
        let mut control_texts = Vec::new();
        for (id, (text, kind)) in vocabulary.tokens.iter().zip(&vocabulary.kinds).enumerate() {
            if text.is_empty() || !(kind.is_control() || *kind == TokenKind::UserDefined) {
                continue;
            }
            whole_texts.push(text);
            whole_ids.push((id as u32, kind.is_control()));
            if kind.is_control() {
                control_texts.push(text.clone());
            } else {
                user_defined.push(AddedToken::from(text.clone(), false).normalized(false));
            }
        }
        let whole = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&whole_texts)
            .map_err(|error| error.to_string())?;
        let mut plain = match scheme {
            Scheme::ByteLevel { pre, merges } => {
                let found = pre_tokenizer::find(pre)?;
                let model = PlainModel::byte_level(vocabulary.clone(), merges, found.ignore_merges)?;
                let mut plain = Plain::new(model);
                plain.with_normalizer(found.normalizer).map_err(|error| error.to_string())?;
                plain.with_pre_tokenizer(Some(found.pre_tokenizer));
                plain
            }
            Scheme::SentencePiece { scores, add_space_prefix, unknown } => {
                let model = PlainModel::sentence_piece(vocabulary.clone(), scores, unknown)?;
                let mut plain = Plain::new(model);
                plain
                    .with_normalizer(Some(pre_tokenizer::sentence_piece_normalizer(add_space_prefix)?))
                    .map_err(|error| error.to_string())?;
                plain
            }
        };
        plain.add_tokens(user_defined).map_err(|error| error.to_string())?;
        Ok(Tokenizer { plain, whole, whole_ids, control_texts })
    }

    pub fn control_texts(&self) -> &[String] {
        &self.control_texts
    }

    /// Cuts `text` at the control tokens that it spells. The last item has none.
    pub fn split_at_control<'a>(&self, text: &'a str) -> Vec<Found<'a>> {
        let mut found = Vec::new();
        let mut begin = 0;
        for hit in self.whole.find_iter(text) {
            let (id, is_control) = self.whole_ids[hit.pattern().as_usize()];
            if is_control {
                found.push(Found { before: &text[begin..hit.start()], control: Some(id) });
                begin = hit.end();
            }
        }
        found.push(Found { before: &text[begin..], control: None });
        found
    }

    /// Appends the ids of `text`, in which nothing is a control token.
    pub fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        let encoding = self.plain.encode_fast(text, false).map_err(|error| error.to_string())?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    /// Appends the ids of `text`, in which control tokens' texts are those tokens.
    pub fn encode_with_control(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        for found in self.split_at_control(text) {
            self.encode_plain(found.before, ids)?;
            ids.extend(found.control);
        }
        Ok(())
    }
}
