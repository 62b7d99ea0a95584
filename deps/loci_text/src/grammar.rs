// SPDX-License-Identifier: Apache-2.0
//! Constrained output: grammars over one vocabulary, compiled with llguidance, and matchers that say which
//! tokens may come next.
//!
//! The trie that llguidance walks has no end-of-sequence token: whether a text may end is reported beside
//! the mask (`State`), and the caller decides which tokens end it. Control tokens are marked, so that no
//! text spells one; a grammar names them (`<|name|>`, `<[id]>`) or they never appear.

use std::sync::{Arc, Mutex};

use llguidance::api::{GrammarInit, GrammarWithLexer, ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, INVALID_TOKEN};
use llguidance::{ParserFactory, TokenParser};
use serde_json::{json, Value};

use crate::schema_bounds;

/// A token longer than this is never allowed: the trie can't hold it.
const TOKEN_BYTES_MAX: usize = 1000;
const TOKENS_MAX: usize = 1 << 24;
const SCHEMA_BYTES_MAX: usize = 512 << 10;
const GRAMMAR_BYTES_MAX: usize = 64 << 10;
/// Our own Lark around what a client gave: most of it is schemas.
const FRAME_BYTES_MAX: usize = SCHEMA_BYTES_MAX;
const CONTENT: &str = "content";
/// Brackets of a grammar's text that may be open at once: its parser and ours recurse.
const NESTING_MAX: usize = 200;
/// Rules may refer to rules in a long chain, which the compiler follows by recursion.
const COMPILER_STACK_BYTES: usize = 256 << 20;
const ERROR_BYTES_MAX: usize = 800;
/// Blanks and line ends between the parts of JSON. Without a bound a model may write them for ever.
const JSON_WHITESPACE: &str = r"[\x20\x0A\x0D\x09]{1,20}";

/// What llguidance puts before the message of a panic.
const PANIC: &str = "panic: ";

fn limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 2_000,
        initial_lexer_fuel: 1_000_000,
        step_lexer_fuel: 200_000,
        step_max_items: 50_000,
        max_lexer_states: 50_000,
        max_grammar_size: 300_000,
        precompute_large_lexemes: true,
        verbose_errors: false,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TokenRole {
    Text,
    Control,
    Never,
}

/// What llguidance must know of a vocabulary. Immutable.
pub struct Environment {
    factory: ParserFactory,
    vocabulary: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// More must follow.
    Open = 0,
    /// The text may end here, or go on.
    MayEnd = 1,
    /// The text ends here: nothing may follow.
    Complete = 2,
    /// The text is not finished, and no token of the vocabulary continues it.
    Stuck = 3,
}

#[derive(Clone, Copy)]
pub enum Kind {
    JsonSchema,
    JsonObject,
    Lark,
    Regex,
    Choice,
}

/// A compiled grammar at its beginning.
pub struct Grammar {
    start: Mutex<TokenParser>,
    vocabulary: usize,
}

pub struct Matcher {
    parser: TokenParser,
    vocabulary: usize,
    state: State,
    broken: bool,
}

fn word_of(bytes: &[u8], role: TokenRole) -> Vec<u8> {
    let marker = TokTrie::SPECIAL_TOKEN_MARKER;
    match role {
        TokenRole::Control if !bytes.is_empty() && bytes.len() < TOKEN_BYTES_MAX => {
            [&[marker], bytes].concat()
        }
        // 0xff begins no UTF-8, and to the trie it marks what controls.
        TokenRole::Text if bytes.len() <= TOKEN_BYTES_MAX && bytes.first() != Some(&marker) => bytes.to_vec(),
        _ => Vec::new(),
    }
}

impl Environment {
    pub fn new(tokens: &[&[u8]], roles: &[TokenRole]) -> Result<Self, String> {
        if tokens.is_empty() || tokens.len() >= TOKENS_MAX {
            return Err(format!("expected 1 to {} tokens, found {}", TOKENS_MAX - 1, tokens.len()));
        }
        let words: Vec<Vec<u8>> =
            tokens.iter().zip(roles).map(|(bytes, role)| word_of(bytes, *role)).collect();
        let info = TokRxInfo::new(words.len() as u32, INVALID_TOKEN);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)));
        let slices = SlicedBiasComputer::json_slices();
        let mut factory =
            ParserFactory::new(&env, InferenceCapabilities::default(), &slices).map_err(describe)?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Environment { factory, vocabulary: words.len() })
    }

    /// Errors say what is wrong with `text`, or with `frame`: Lark in which the rule `content`, which it does not
    /// have, is what `text` says. Without a frame the whole is what `text` says.
    pub fn compile(&self, kind: Kind, text: &str, frame: &str) -> Result<Grammar, String> {
        check_size(kind, text)?;
        if frame.len() > FRAME_BYTES_MAX {
            return Err(format!("expected at most {FRAME_BYTES_MAX} bytes, found {}", frame.len()));
        }
        // A thread of its own: what recurses over the grammar must not end the process.
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("loci-grammar".to_string())
                .stack_size(COMPILER_STACK_BYTES)
                .spawn_scoped(scope, || self.compile_here(kind, text, frame))
                .map_err(|error| format!("no thread for the compiler: {error}"))?
                .join()
                .unwrap_or_else(|panic| Err(crate::panic_message(panic)))
        })
    }

    fn compile_here(&self, kind: Kind, text: &str, frame: &str) -> Result<Grammar, String> {
        let content = top_level(kind, text)?;
        let init = GrammarInit::Serialized(if frame.is_empty() { content } else { framed(frame, content)? });
        let mut parser = self.factory.create_parser_from_init_default(init).map_err(describe_grammar)?;
        parser.start_without_prompt();
        // The first mask is computed here, so that a lexer that is too large is an error of the grammar, and
        // what it has built is copied to each matcher.
        let mut words = vec![0; self.vocabulary.div_ceil(32)];
        let mut matcher = Matcher::starting(parser.deep_clone(), self.vocabulary);
        if matcher.mask(&mut words)? == State::Stuck {
            return Err("no text of this vocabulary satisfies it".to_string());
        }
        if matcher.state == State::Open || matcher.state == State::MayEnd {
            parser = matcher.parser;
        }
        Ok(Grammar { start: Mutex::new(parser), vocabulary: self.vocabulary })
    }
}

impl Grammar {
    pub fn matcher(&self) -> Result<Matcher, String> {
        // A copy with a lexer of its own: what one text makes it build must not count against another's limits.
        let parser = self.start.lock().map_err(|_| "a copy of this grammar failed".to_string())?.deep_clone();
        Ok(Matcher::starting(parser, self.vocabulary))
    }
}

impl Matcher {
    fn starting(parser: TokenParser, vocabulary: usize) -> Self {
        Matcher { parser, vocabulary, state: State::Open, broken: false }
    }

    /// Sets the bits of the tokens that may come next. What fails, or panics, leaves the matcher unusable.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<State, String> {
        self.enter()?;
        words.fill(0);
        if self.state != State::Complete {
            self.state = if self.parser.is_accepting() { State::MayEnd } else { State::Open };
            match self.parser.compute_mask() {
                Ok(set) => {
                    for (word, bits) in words.iter_mut().zip(set.as_slice()) {
                        *word = *bits;
                    }
                    clear_beyond(words, self.vocabulary);
                }
                Err(_) if self.parser.stop_reason() == StopReason::NoExtensionBias => {
                    self.state = if self.state == State::MayEnd { State::Complete } else { State::Stuck };
                }
                Err(error) => return Err(describe(error)),
            }
        }
        self.broken = false;
        Ok(self.state)
    }

    /// `token` comes next. An error: the mask does not allow it.
    pub fn accept(&mut self, token: u32) -> Result<State, String> {
        self.enter()?;
        if self.state == State::Complete {
            return Err(format!("token {token}: nothing may follow, the text is complete"));
        }
        self.parser.consume_token(token).map_err(describe)?;
        self.state = if self.parser.check_stop().map_err(describe)? {
            State::Complete
        } else if self.parser.is_accepting() {
            State::MayEnd
        } else {
            State::Open
        };
        self.broken = false;
        Ok(self.state)
    }

    fn enter(&mut self) -> Result<(), String> {
        if self.broken || self.state == State::Stuck {
            return Err("the matcher has failed before".to_string());
        }
        self.broken = true;
        Ok(())
    }
}

fn clear_beyond(words: &mut [u32], count: usize) {
    for (index, word) in words.iter_mut().enumerate() {
        let left = count.saturating_sub(index * 32);
        if left < 32 {
            *word &= (1u32 << left) - 1;
        }
    }
}

fn check_size(kind: Kind, text: &str) -> Result<(), String> {
    let bytes_max = match kind {
        Kind::JsonSchema | Kind::JsonObject | Kind::Choice => SCHEMA_BYTES_MAX,
        Kind::Lark | Kind::Regex => GRAMMAR_BYTES_MAX,
    };
    if text.len() > bytes_max {
        return Err(format!("expected at most {bytes_max} bytes, found {}", text.len()));
    }
    if !matches!(kind, Kind::Lark | Kind::Regex) {
        return Ok(()); // serde_json bounds its own depth
    }
    let mut open = 0usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > NESTING_MAX {
            return Err(format!("expected at most {NESTING_MAX} nested brackets"));
        }
    }
    Ok(())
}

fn top_level(kind: Kind, text: &str) -> Result<TopLevelGrammar, String> {
    Ok(match kind {
        Kind::JsonSchema => TopLevelGrammar::from_json_schema(schema(text)?),
        Kind::JsonObject => TopLevelGrammar::from_json_schema(with_whitespace(json!({"type": "object"}))),
        Kind::Lark => {
            let top = TopLevelGrammar::from_lark_or_grammar_list(text).map_err(describe)?;
            for grammar in &top.grammars {
                grammar.json_schema.as_ref().map_or(Ok(()), schema_bounds::check)?;
                grammar.lark_grammar.as_ref().map_or(Ok(()), |lark| schema_bounds::check_embedded(lark))?;
            }
            top
        }
        Kind::Regex => TopLevelGrammar::from_regex(text),
        Kind::Choice => TopLevelGrammar::from_regex(&choice(text)?),
    })
}

/// The parts are compiled into one grammar, whose bounds they share.
fn framed(frame: &str, mut content: TopLevelGrammar) -> Result<TopLevelGrammar, String> {
    schema_bounds::check_embedded(frame)?;
    let [one] = content.grammars.as_mut_slice() else {
        return Err(format!("expected one grammar, found a list of {}", content.grammars.len()));
    };
    one.name = Some(CONTENT.to_string());
    let mut outer = GrammarWithLexer::from_lark(format!("{frame}\n{CONTENT}: @{CONTENT}\n"));
    outer.name = None;
    content.grammars.insert(0, outer);
    Ok(content)
}

fn schema(text: &str) -> Result<Value, String> {
    let schema: Value = serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
    schema_bounds::check(&schema)?;
    match schema {
        Value::Object(_) => Ok(with_whitespace(schema)),
        Value::Bool(true) => Ok(with_whitespace(json!({}))),
        Value::Bool(false) => Err("false allows nothing".to_string()),
        _ => Err("expected a JSON schema: an object or true".to_string()),
    }
}

fn with_whitespace(mut schema: Value) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        fields.entry("x-guidance").or_insert_with(|| json!({"whitespace_pattern": JSON_WHITESPACE}));
    }
    schema
}

/// A regular expression for one of a JSON array of texts.
fn choice(text: &str) -> Result<String, String> {
    let texts: Vec<String> =
        serde_json::from_str(text).map_err(|error| format!("expected an array of strings: {error}"))?;
    if texts.is_empty() {
        return Err("expected at least one choice".to_string());
    }
    let escaped: Vec<String> = texts.iter().map(|one| regex_syntax::escape(one)).collect();
    Ok(format!("(?:{})", escaped.join("|")))
}

/// Of an error while compiling. llguidance catches its own panics. The known ones come from messages that quote a
/// long value.
fn describe_grammar(error: impl std::fmt::Display) -> String {
    let message = describe(error);
    if message.starts_with(PANIC) {
        return "could not be read: a keyword probably has a long value of a type that it does not take".to_string();
    }
    in_one_line(&message)
}

/// Without the lines that show where in the grammar it is, which the client may not have written. What is wrong with
/// a regular expression stands below a picture of it.
fn in_one_line(message: &str) -> String {
    const REGEX: &str = "regex parse error:";
    let first = message.lines().next().unwrap_or(message);
    let cause = message.lines().find_map(|line| line.strip_prefix("error: "));
    match (first.find(REGEX), cause) {
        (Some(at), Some(cause)) => format!("{}{REGEX} {cause}", &first[..at]),
        _ => first.to_string(),
    }
}

/// llguidance's message without its state, grammar and backtraces.
fn describe(error: impl std::fmt::Display) -> String {
    let mut message = format!("{error:#}");
    for mark in ["\n<non-verbose/>", "\n<state>", "\n<backtrace>"] {
        if let Some(at) = message.find(mark) {
            message.truncate(at);
        }
    }
    if message.len() > ERROR_BYTES_MAX {
        let mut end = ERROR_BYTES_MAX;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str("...");
    }
    message
}
