// SPDX-License-Identifier: Apache-2.0
//! Cuts text into words, as published pre-tokenizers do. A few of their patterns look ahead to the end of a run
//! from each of its characters, so a run of n digits or blanks takes n² steps. Those are recognised by their
//! text, and the same cuts are found in one walk:
//!
//!   "1234567 x"  groups of three digits from the right: "1" "234" "567" " x"
//!   "x  "        blanks at the end: "x" "  "
//!
//! Regular expressions still say what a digit, a blank and a word's character are.

use serde_json::Value;
use tokenizers::pattern::Pattern;
use tokenizers::utils::SysRegex;
use tokenizers::{
    Offsets, PreTokenizedString, PreTokenizer, PreTokenizerWrapper, SplitDelimiterBehavior,
};

/// Of SuperBPE: cuts before each group of three digits.
pub const BEFORE_GROUPS: &str = r"(?=(\d{3})+(?!\d))";
/// Of Cohere: groups of three digits in a run that ends a word.
pub const GROUPS_BEFORE_BOUNDARY: &str = r"\d{1,3}(?=(?:\d{3})*\b)";
/// Of AFMoE: groups of three digits in a run that ends the text.
pub const GROUPS_AT_END: &str = r"\p{N}{1,3}(?=(?:\p{N}{3})*\z)";
/// Of DeepSeek LLM: blanks at the end of the text or of a line.
pub const BLANKS_AT_END: &str = r"\s+$";

#[derive(Clone, Copy)]
enum Walk {
    BeforeGroups,
    GroupsBeforeBoundary,
    GroupsAtEnd,
    BlanksAtEnd,
}

struct Linear {
    walk: Walk,
    runs: SysRegex,
    word_character: SysRegex,
}

enum Step {
    Published(PreTokenizerWrapper),
    Linear(Linear),
}

/// Steps that are applied one after the other.
pub struct Cutter(Vec<Step>);

impl Cutter {
    /// `value`: as "pre_tokenizer" of a tokenizer.json.
    pub fn from_json(value: Value) -> Result<Cutter, String> {
        let mut steps = Vec::new();
        collect(value, &mut steps)?;
        Ok(Cutter(steps))
    }
}

fn collect(mut value: Value, steps: &mut Vec<Step>) -> Result<(), String> {
    if value.get("type").and_then(Value::as_str) == Some("Sequence") {
        if let Some(Value::Array(list)) = value.get_mut("pretokenizers") {
            return std::mem::take(list).into_iter().try_for_each(|item| collect(item, steps));
        }
    }
    steps.push(match walk_of(&value) {
        Some(walk) => Step::Linear(Linear::new(walk)?),
        None => Step::Published(serde_json::from_value(value).map_err(|error| error.to_string())?),
    });
    Ok(())
}

fn walk_of(step: &Value) -> Option<Walk> {
    let is = |name: &str, text: &str| step.get(name).and_then(Value::as_str) == Some(text);
    if !is("type", "Split") || !is("behavior", "Isolated") || step.get("invert") != Some(&Value::Bool(false)) {
        return None;
    }
    match step.get("pattern")?.get("Regex")?.as_str()? {
        BEFORE_GROUPS => Some(Walk::BeforeGroups),
        GROUPS_BEFORE_BOUNDARY => Some(Walk::GroupsBeforeBoundary),
        GROUPS_AT_END => Some(Walk::GroupsAtEnd),
        BLANKS_AT_END => Some(Walk::BlanksAtEnd),
        _ => None,
    }
}

impl Linear {
    fn new(walk: Walk) -> Result<Linear, String> {
        let runs = match walk {
            Walk::BeforeGroups | Walk::GroupsBeforeBoundary => r"\d+",
            Walk::GroupsAtEnd => r"\p{N}+",
            Walk::BlanksAtEnd => r"\s+",
        };
        let regex = |pattern| SysRegex::new(pattern).map_err(|error| error.to_string());
        Ok(Linear { walk, runs: regex(runs)?, word_character: regex(r"\w")? })
    }

    /// Whether the text's first character belongs to a word.
    fn begins_with_word(&self, text: &str) -> bool {
        let first = text.chars().next().map_or(0, char::len_utf8);
        self.word_character.find_iter(&text[..first]).next().is_some()
    }

    /// Adds the places in the run `start..end` where `text` is cut.
    fn cut_run(&self, text: &str, start: usize, end: usize, cuts: &mut Vec<usize>) {
        match self.walk {
            Walk::BeforeGroups => cut_groups(text, start, end, cuts),
            Walk::GroupsBeforeBoundary if self.begins_with_word(&text[end..]) => {}
            Walk::GroupsAtEnd if end < text.len() => {}
            Walk::GroupsBeforeBoundary | Walk::GroupsAtEnd => {
                cuts.push(start);
                cut_groups(text, start, end, cuts);
                cuts.push(end);
            }
            // A line ends before its newline, so of a run in the middle the part before its last one is cut off.
            Walk::BlanksAtEnd if end < text.len() => match text[start..end].rfind('\n') {
                None | Some(0) => {}
                Some(at) => cuts.extend([start, start + at]),
            },
            Walk::BlanksAtEnd => cuts.push(start),
        }
    }
}

/// Cuts before every third character, counted from the right.
fn cut_groups(text: &str, start: usize, end: usize, cuts: &mut Vec<usize>) {
    let run = &text[start..end];
    let count = run.chars().count();
    cuts.extend(
        run.char_indices().enumerate().filter(|(index, _)| (count - index) % 3 == 0).map(|(_, (at, _))| start + at),
    );
}

impl Pattern for &Linear {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        let mut cuts = Vec::new();
        for (start, end) in self.runs.find_iter(inside) {
            self.cut_run(inside, start, end, &mut cuts);
        }
        cuts.push(inside.len());
        let mut pieces = Vec::with_capacity(cuts.len());
        let mut begin = 0;
        for cut in cuts {
            // Each piece is a word of its own, whether the pattern would match it or not.
            if cut > begin || inside.is_empty() {
                pieces.push(((begin, cut), false));
                begin = cut;
            }
        }
        Ok(pieces)
    }
}

impl PreTokenizer for Cutter {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        for step in &self.0 {
            match step {
                Step::Published(published) => published.pre_tokenize(text)?,
                Step::Linear(linear) => {
                    text.split(|_, piece| piece.split(linear, SplitDelimiterBehavior::Isolated))?
                }
            }
        }
        Ok(())
    }
}
