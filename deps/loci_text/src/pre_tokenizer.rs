//! What tokenizer.ggml.pre names: how text is cut into words before byte-level BPE. Each entry gives
//! the normaliser and pre-tokeniser that the model's own tokenizer.json has.

use serde_json::{json, Value};
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper};

pub struct PreTokenizer {
    pub normalizer: Option<NormalizerWrapper>,
    pub pre_tokenizer: PreTokenizerWrapper,
    /// A word that is a token as a whole is not merged up from its parts.
    pub ignore_merges: bool,
}

/// Patterns that differ from one another in how digits, marks and newlines are cut.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

struct Entry {
    names: &'static [&'static str],
    nfc: bool,
    ignore_merges: bool,
    /// Applied one after the other; each match is a piece of its own.
    steps: &'static [Step],
}

enum Step {
    Pattern(&'static str),
    EachDigit,
    Digits,
    Punctuation,
    /// Bytes become characters of GPT-2's alphabet; the last step where a list does not place it.
    Bytes,
}

const ENTRIES: &[Entry] = &[
    Entry { names: &["gpt-2", "phi-2"], nfc: false, ignore_merges: false, steps: &[Step::Pattern(GPT2)] },
    Entry { names: &["mpt", "olmo"], nfc: true, ignore_merges: false, steps: &[Step::Pattern(GPT2)] },
    Entry {
        names: &["smollm", "starcoder", "refact"],
        nfc: false,
        ignore_merges: false,
        steps: &[Step::EachDigit, Step::Pattern(GPT2)],
    },
    Entry {
        names: &["command-r"],
        nfc: true,
        ignore_merges: false,
        steps: &[Step::EachDigit, Step::Pattern(GPT2)],
    },
    Entry {
        names: &["llama-bpe", "llama3", "llama-v3"],
        nfc: false,
        ignore_merges: true,
        steps: &[Step::Pattern(LLAMA3)],
    },
    Entry { names: &["chatglm-bpe"], nfc: false, ignore_merges: false, steps: &[Step::Pattern(LLAMA3)] },
    Entry { names: &["glm4"], nfc: false, ignore_merges: true, steps: &[Step::Pattern(LLAMA3)] },
    Entry {
        names: &["qwen2", "deepseek-r1-qwen"],
        nfc: true,
        ignore_merges: false,
        steps: &[Step::Pattern(QWEN2)],
    },
    Entry { names: &["qwen35"], nfc: false, ignore_merges: false, steps: &[Step::Pattern(QWEN35)] },
    Entry { names: &["tekken"], nfc: false, ignore_merges: true, steps: &[Step::Pattern(TEKKEN)] },
    Entry { names: &["gpt-4o", "llama4"], nfc: false, ignore_merges: false, steps: &[Step::Pattern(GPT4O)] },
    Entry {
        names: &["deepseek-v3"],
        nfc: false,
        ignore_merges: false,
        steps: &[
            Step::Pattern(r"\p{N}{1,3}"),
            Step::Pattern("[一-龥぀-ゟ゠-ヿ]+"),
            Step::Pattern(DEEPSEEK3),
        ],
    },
    Entry {
        names: &["deepseek-coder"],
        nfc: false,
        ignore_merges: false,
        steps: &[
            Step::Pattern("[\r\n]"),
            Step::Pattern(r"\s?\p{L}+"),
            Step::Pattern(r"\s?\p{P}+"),
            Step::Pattern("[一-龥ࠀ-一가-퟿]+"),
            Step::EachDigit,
        ],
    },
    Entry {
        names: &["falcon"],
        nfc: false,
        ignore_merges: false,
        steps: &[
            Step::Punctuation,
            Step::Pattern(GPT2),
            // The rest sees bytes' characters: "½" is a digit among them.
            Step::Bytes,
            Step::Digits,
            Step::Pattern("[0-9][0-9][0-9]"),
        ],
    },
    Entry {
        // What converters write when they do not know a tokenizer: llama.cpp's fallback.
        names: &["default"],
        nfc: false,
        ignore_merges: false,
        steps: &[
            Step::Pattern(r"[\p{P}\$\+<=>\^~\|]+"),
            Step::Pattern(GPT2),
            Step::Pattern(r"\p{N}+"),
            Step::Pattern("[0-9][0-9][0-9]"),
        ],
    },
];

fn step_json(step: &Step) -> Value {
    match step {
        Step::Pattern(pattern) => {
            json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
        }
        Step::EachDigit => json!({"type": "Digits", "individual_digits": true}),
        Step::Digits => json!({"type": "Digits", "individual_digits": false}),
        Step::Punctuation => json!({"type": "Punctuation", "behavior": "Contiguous"}),
        Step::Bytes => json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false
        }),
    }
}

pub fn known_names() -> String {
    let names: Vec<&str> = ENTRIES.iter().flat_map(|entry| entry.names.iter().copied()).collect();
    names.join(", ")
}

pub fn find(name: &str) -> Result<PreTokenizer, String> {
    let Some(entry) = ENTRIES.iter().find(|entry| entry.names.contains(&name)) else {
        return Err(format!(
            "tokenizer.ggml.pre: unknown pre-tokenizer {name:?}; expected one of {}",
            known_names()
        ));
    };
    let mut steps: Vec<Value> = entry.steps.iter().map(step_json).collect();
    if !entry.steps.iter().any(|step| matches!(step, Step::Bytes)) {
        steps.push(step_json(&Step::Bytes));
    }
    let pre_tokenizer = serde_json::from_value(json!({"type": "Sequence", "pretokenizers": steps}))
        .map_err(|error| format!("pre-tokenizer {name:?}: {error}"))?;
    let normalizer = if entry.nfc {
        Some(serde_json::from_value(json!({"type": "NFC"})).map_err(|error| error.to_string())?)
    } else {
        None
    };
    Ok(PreTokenizer { normalizer, pre_tokenizer, ignore_merges: entry.ignore_merges })
}

/// SentencePiece's way with spaces: "▁" for each, and one before every piece of text.
pub fn sentence_piece_normalizer(add_space_prefix: bool) -> Result<NormalizerWrapper, String> {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let steps = if add_space_prefix {
        vec![json!({"type": "Prepend", "prepend": "▁"}), replace]
    } else {
        vec![replace]
    };
    serde_json::from_value(json!({"type": "Sequence", "normalizers": steps}))
        .map_err(|error| error.to_string())
}
