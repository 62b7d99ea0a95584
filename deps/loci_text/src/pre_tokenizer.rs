// SPDX-License-Identifier: Apache-2.0
//! What tokenizer.ggml.pre names: how text is cut into words before byte-level BPE. Each entry gives
//! the normaliser and pre-tokeniser that the model's own tokenizer.json has.

use serde_json::{json, Value};
use tokenizers::NormalizerWrapper;

use crate::cutter::{self, Cutter};

pub struct PreTokenizer {
    pub normalizer: Option<NormalizerWrapper>,
    pub pre_tokenizer: Cutter,
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

/// Like QWEN2, where digits were cut off before.
const MINICPM5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const KIMI_K2: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// TEKKEN with English contractions.
const YOUTU: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SPARK: &str = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\r\n]|\\s+(?!\\S)|\\s+";
/// Words between blanks and punctuation, of BLOOM and its kin.
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const THREE_DIGITS: &str = r"\p{N}{1,3}";
const CJK: &str = "[一-龥぀-ゟ゠-ヿ]+";
/// Letters of scripts that have case.
const CASED: &str = "\\s?[A-Za-z\u{B5}À-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u{1F7D}ᾀ-ᾴᾶ-ᾼ\u{1FBE}ῂ-ῄῆ-ῌῐ-\u{1FD3}ῖ-\u{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";

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

const fn entry(names: &'static [&'static str], steps: &'static [Step]) -> Entry {
    Entry { names, nfc: false, ignore_merges: false, steps }
}
/// Where the tokenizer composes characters first (NFC).
const fn composed(names: &'static [&'static str], steps: &'static [Step]) -> Entry {
    Entry { names, nfc: true, ignore_merges: false, steps }
}
/// Where a word that is a token as a whole is not merged up from its parts.
const fn whole_words(names: &'static [&'static str], steps: &'static [Step]) -> Entry {
    Entry { names, nfc: false, ignore_merges: true, steps }
}

const ENTRIES: &[Entry] = &[
    entry(
        &[
            "gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "exaone4", "trillion", "granite-docling", "jais",
            "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code", "roberta-bpe",
            "modern-bert",
        ],
        &[Step::Pattern(GPT2)],
    ),
    composed(&["mpt", "olmo"], &[Step::Pattern(GPT2)]),
    entry(
        &["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[Step::EachDigit, Step::Pattern(GPT2)],
    ),
    composed(&["command-r"], &[Step::EachDigit, Step::Pattern(GPT2)]),
    whole_words(
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
        &[Step::Pattern(LLAMA3)],
    ),
    entry(&["chatglm-bpe", "dbrx", "smaug-bpe"], &[Step::Pattern(LLAMA3)]),
    whole_words(&["glm4", "glm5"], &[Step::Pattern(LLAMA3)]),
    whole_words(&["minicpm5"], &[Step::Pattern(THREE_DIGITS), Step::Pattern(MINICPM5)]),
    entry(&["jais-2"], &[Step::Pattern(JAIS2)]),
    composed(&["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2"], &[Step::Pattern(QWEN2)]),
    entry(&["hunyuan", "solar-open", "grok-2"], &[Step::Pattern(QWEN2)]),
    entry(&["laguna"], &[Step::Pattern(r"[^\n]+|[\n]+"), Step::Pattern(QWEN2)]),
    entry(&["ufakzeka"], &[Step::Pattern(UFAKZEKA)]),
    entry(&["seed-coder"], &[Step::Pattern(SEED_CODER)]),
    entry(&["bailingmoe", "bailingmoe2", "llada-moe"], &[Step::Pattern(BAILING)]),
    entry(&["exaone-moe"], &[Step::Pattern(EXAONE_MOE)]),
    entry(&["qwen35"], &[Step::Pattern(QWEN35)]),
    whole_words(&["tekken"], &[Step::Pattern(TEKKEN)]),
    entry(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[Step::Pattern(GPT4O)]),
    whole_words(&["granite-embed-multi-97m"], &[Step::Pattern(GPT4O)]),
    entry(
        &["tiny_aya", "cohere2moe"],
        &[Step::Pattern(cutter::GROUPS_BEFORE_BOUNDARY), Step::Pattern(GPT4O)],
    ),
    entry(&["kimi-k2"], &[Step::Pattern(KIMI_K2)]),
    entry(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[Step::Pattern(THREE_DIGITS), Step::Pattern(CJK), Step::Pattern(DEEPSEEK3)],
    ),
    entry(
        &["spark2_5"],
        &[Step::Pattern(THREE_DIGITS), Step::Pattern(CJK), Step::Pattern(SPARK), Step::EachDigit],
    ),
    whole_words(
        &["youtu"],
        &[
            Step::Pattern("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
            Step::Pattern(YOUTU),
        ],
    ),
    entry(
        &["afmoe"],
        &[
            Step::Digits,
            Step::Pattern(cutter::GROUPS_AT_END),
            Step::Pattern("[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+"),
            Step::Pattern(DEEPSEEK3),
        ],
    ),
    entry(
        &["deepseek-coder"],
        &[
            Step::Pattern("[\r\n]"),
            Step::Pattern(r"\s?\p{L}+"),
            Step::Pattern(r"\s?\p{P}+"),
            Step::Pattern("[一-龥ࠀ-一가-퟿]+"),
            Step::EachDigit,
        ],
    ),
    entry(
        &["deepseek-llm"],
        &[
            Step::Pattern("[\r\n]"),
            Step::Pattern(CASED),
            Step::Pattern("\\s?[!-/:-~！-／：-～‘-‟　-。]+"),
            Step::Pattern(cutter::BLANKS_AT_END),
            Step::Pattern("[一-龥ࠀ-一가-퟿]+"),
            Step::Digits,
        ],
    ),
    entry(&["poro-chat", "bloom", "gpt3-finnish"], &[Step::Pattern(BLOOM)]),
    entry(&["viking"], &[Step::Pattern(BLOOM), Step::EachDigit]),
    entry(&["superbpe"], &[Step::Pattern(r"\p{N}+"), Step::Pattern(cutter::BEFORE_GROUPS)]),
    entry(
        &["chameleon"],
        &[
            Step::Pattern("<sentinel:[0-9]+>"),
            Step::Pattern("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
            Step::Pattern(r"([\t\n]|    |  )"),
            Step::EachDigit,
            Step::Pattern(r"[\p{P}!-/:-@\[-`{-~]"),
            Step::Pattern(GPT2),
        ],
    ),
    entry(
        &["falcon"],
        &[
            Step::Punctuation,
            Step::Pattern(GPT2),
            // The rest sees bytes' characters: "½" is a digit among them.
            Step::Bytes,
            Step::Digits,
            Step::Pattern("[0-9][0-9][0-9]"),
        ],
    ),
    // What converters write when they do not know a tokenizer: llama.cpp's fallback.
    entry(
        &["default"],
        &[
            Step::Pattern(r"[\p{P}\$\+<=>\^~\|]+"),
            Step::Pattern(GPT2),
            Step::Pattern(r"\p{N}+"),
            Step::Pattern("[0-9][0-9][0-9]"),
        ],
    ),
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
    let pre_tokenizer = Cutter::from_json(json!({"type": "Sequence", "pretokenizers": steps}))
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

/// Lines and runs of newlines, each a word of its own: for vocabularies whose words hold blanks.
pub fn newline_runs() -> Result<Cutter, String> {
    Cutter::from_json(json!({
        "type": "Split", "pattern": {"Regex": r"[^\n]+|[\n]+"}, "behavior": "Isolated", "invert": false
    }))
}
