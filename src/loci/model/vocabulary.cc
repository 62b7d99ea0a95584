// SPDX-License-Identifier: Apache-2.0
#include "loci/model/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "loci/model/model_source.h"
#include "loci/model/utf8.h"

namespace loci {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581, SentencePiece's space

Status bad(std::string_view key, std::string message) {
  return invalid_argument(std::move(message), fmt::format("tokenizer.ggml.{}", key));
}

std::string full_key(std::string_view key) { return fmt::format("tokenizer.ggml.{}", key); }

Result<std::optional<TokenId>> read_id(const ModelSource& source, std::string_view key, std::size_t count,
                                       std::optional<TokenId> absent = std::nullopt) {
  if (!source.has(full_key(key))) return absent;
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t id, source.get_uint(full_key(key)));
  // Converters write 2^32 - 1 for "none".
  if (id == std::numeric_limits<std::uint32_t>::max()) return std::optional<TokenId>();
  if (id >= count) return bad(key, fmt::format("expected a token below {}, found {}", count, id));
  return std::optional<TokenId>(TokenId(static_cast<std::uint32_t>(id)));
}

Result<bool> read_flag(const ModelSource& source, std::string_view key, bool absent) {
  if (!source.has(full_key(key))) return absent;
  return source.get_bool(full_key(key));
}

Status read_kind(const ModelSource& source, Vocabulary& vocabulary) {
  LOCI_ASSIGN_OR_RETURN(const std::string model, source.get_string(full_key("model")));
  if (model == "gpt2") {
    vocabulary.kind = VocabularyKind::kByteLevelBpe;
    vocabulary.pre_tokenizer = "default";
    if (source.has(full_key("pre"))) {
      LOCI_ASSIGN_OR_RETURN(vocabulary.pre_tokenizer, source.get_string(full_key("pre")));
    }
    // Byte-level in name alone: blanks are "▁", characters are themselves.
    const std::string& pre = vocabulary.pre_tokenizer;
    if (pre == "gemma4" || pre == "sarvam-moe" || pre == "granite-embed-multi-311m")
      vocabulary.kind = VocabularyKind::kSentencePieceMerges;
  } else if (model == "llama") {
    vocabulary.kind = VocabularyKind::kSentencePiece;
  } else if (model == "t5") {
    vocabulary.kind = VocabularyKind::kUnigram;
  } else if (model == "gemma4") {
    vocabulary.kind = VocabularyKind::kSentencePieceMerges;
  } else {
    const bool is_encoder = model == "bert";
    return bad("model",
               fmt::format("unknown vocabulary '{}'{}; expected one of gpt2 (byte-level BPE), "
                           "llama (SentencePiece BPE), t5 (unigram), gemma4 (SentencePiece BPE with "
                           "merges)",
                           model, is_encoder ? " (WordPiece, of models that generate no text)" : ""));
  }
  return {};
}

// Bytes, as converters write them: an array of 8-bit integers.
Status read_chars_map(const ModelSource& source, Vocabulary& vocabulary) {
  const GgufValue* value = source.find(full_key("precompiled_charsmap"));
  if (value == nullptr) return {};
  const auto* array = std::get_if<GgufArray>(value);
  const auto append = [&]<class T>(const std::vector<T>& elements) {
    if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::int8_t>) {
      vocabulary.chars_map.assign(elements.begin(), elements.end());
      return true;
    } else {
      return false;
    }
  };
  if (array == nullptr || !std::visit(append, array->elements))
    return bad("precompiled_charsmap",
               fmt::format("expected an array of 8-bit integers, found {}", describe_type(*value)));
  return {};
}

Status read_tables(const ModelSource& source, Vocabulary& vocabulary) {
  LOCI_ASSIGN_OR_RETURN(vocabulary.tokens, source.get_strings(full_key("tokens")));
  const std::size_t count = vocabulary.tokens.size();
  if (count == 0 || count > std::numeric_limits<std::int32_t>::max())
    return bad("tokens", fmt::format("expected 1 to 2^31 - 1 tokens, found {}", count));
  vocabulary.types.assign(count, static_cast<std::int32_t>(TokenType::kNormal));
  if (source.has(full_key("token_type"))) {
    LOCI_ASSIGN_OR_RETURN(vocabulary.types, source.get_ints(full_key("token_type")));
    if (vocabulary.types.size() != count)
      return bad("token_type", fmt::format("expected {} types, found {}", count, vocabulary.types.size()));
  }
  for (std::size_t id = 0; id < count; ++id) {
    if (vocabulary.types[id] < 1 || vocabulary.types[id] > 6)
      return bad("token_type",
                 fmt::format("expected 1 to 6 for token {}, found {}", id, vocabulary.types[id]));
    // Converters pad a vocabulary with "[PAD<id>]"; no text is meant to become one.
    if (vocabulary.tokens[id] == fmt::format("[PAD{}]", id))
      vocabulary.types[id] = static_cast<std::int32_t>(TokenType::kUnused);
  }
  if (vocabulary.kind == VocabularyKind::kByteLevelBpe ||
      vocabulary.kind == VocabularyKind::kSentencePieceMerges) {
    LOCI_ASSIGN_OR_RETURN(vocabulary.merges, source.get_strings(full_key("merges")));
  } else {
    LOCI_ASSIGN_OR_RETURN(vocabulary.scores, source.get_floats(full_key("scores")));
    if (vocabulary.scores.size() != count)
      return bad("scores", fmt::format("expected {} scores, found {}", count, vocabulary.scores.size()));
  }
  return {};
}

// Tokens that end a turn whatever else the file says: a model trained on chats emits them. The list is
// llama.cpp's, without the tokens that end only a message (Harmony's) or a part of a file.
constexpr std::array<std::string_view, 18> kEndTexts = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|END_OF_TURN_TOKEN|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<turn|>",
    "<end_of_utterance>",
    "[e~[",
    "<｜end▁of▁sentence｜>",
};

// Tokens that begin a turn: a user who could write them could speak for others.
constexpr std::array<std::string_view, 3> kBeginTexts = {"<|im_start|>", "<|start_header_id|>",
                                                         "<start_of_turn>"};

template <std::size_t kCount>
bool is_one_of(const std::array<std::string_view, kCount>& texts, std::string_view text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

bool has_token(const Vocabulary& vocabulary, std::string_view text) {
  return std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), text) != vocabulary.tokens.end();
}

// Some files type the tokens of turns as ordinary or user-defined. Then a user could write them, and a reply
// would go on after them.
void control_known_texts(Vocabulary& vocabulary) {
  // Gemma's vocabularies have </s> as a tag of HTML beside <eos>, PLaMo's beside their own end.
  const bool is_tag = has_token(vocabulary, "<eos>") || has_token(vocabulary, "<|plamo:eos|>");
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view text = vocabulary.tokens[id];
    const bool is_known = is_one_of(kEndTexts, text) || is_one_of(kBeginTexts, text);
    if (is_known && !(is_tag && text == "</s>"))
      vocabulary.types[id] = static_cast<std::int32_t>(TokenType::kControl);
  }
}

// Of models whose prompts begin with bos unless their file says otherwise.
constexpr std::array<std::string_view, 11> kBosPreTokenizers = {
    "llama-bpe", "llama3", "llama-v3", "falcon3",      "falcon-h1", "pixtral",
    "midm-2.0",  "lfm2",   "tekken",   "jina-v5-nano", "chameleon"};

void add_end(Vocabulary& vocabulary, TokenId id) {
  std::vector<TokenId>& ends = vocabulary.end_tokens;
  if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
}

Status read_special(const ModelSource& source, Vocabulary& vocabulary) {
  const std::size_t count = vocabulary.tokens.size();
  // SentencePiece's own numbers, which converters used to leave out.
  const bool is_sentence_piece = vocabulary.kind == VocabularyKind::kSentencePiece;
  const auto usual = [&](std::uint32_t id) {
    return is_sentence_piece && id < count ? std::optional(TokenId(id)) : std::nullopt;
  };
  LOCI_ASSIGN_OR_RETURN(vocabulary.bos, read_id(source, "bos_token_id", count, usual(1)));
  LOCI_ASSIGN_OR_RETURN(vocabulary.eos, read_id(source, "eos_token_id", count, usual(2)));
  LOCI_ASSIGN_OR_RETURN(vocabulary.unknown, read_id(source, "unknown_token_id", count, usual(0)));
  LOCI_ASSIGN_OR_RETURN(const std::optional<TokenId> eot, read_id(source, "eot_token_id", count));
  LOCI_ASSIGN_OR_RETURN(const std::optional<TokenId> eom, read_id(source, "eom_token_id", count));
  // Some files type these as ordinary or user-defined, and then a user could write them.
  for (const std::optional<TokenId>& id : {vocabulary.bos, vocabulary.eos, eot, eom})
    if (id) vocabulary.types[id->value] = static_cast<std::int32_t>(TokenType::kControl);
  for (const std::optional<TokenId>& id : {vocabulary.eos, eot, eom})
    if (id) add_end(vocabulary, *id);
  control_known_texts(vocabulary);
  add_known_ends(vocabulary);
  const bool starts_with_bos =
      is_sentence_piece || std::find(kBosPreTokenizers.begin(), kBosPreTokenizers.end(),
                                     vocabulary.pre_tokenizer) != kBosPreTokenizers.end();
  LOCI_ASSIGN_OR_RETURN(const bool add_bos, read_flag(source, "add_bos_token", starts_with_bos));
  vocabulary.add_bos = add_bos && vocabulary.bos.has_value();
  const bool is_unigram = vocabulary.kind == VocabularyKind::kUnigram;
  LOCI_ASSIGN_OR_RETURN(const bool add_prefix,
                        read_flag(source, "add_space_prefix", is_sentence_piece || is_unigram));
  vocabulary.add_space_prefix = vocabulary.kind != VocabularyKind::kByteLevelBpe && add_prefix;
  LOCI_ASSIGN_OR_RETURN(vocabulary.remove_extra_spaces, read_flag(source, "remove_extra_whitespaces", false));
  return {};
}

// Phi-3's tokenizer takes the blanks after its special tokens as part of them. GGUF has no key for that, so
// llama.cpp goes by the model's name, and so does this.
bool takes_blanks(const ModelSource& source) {
  Result<std::string> name = source.get_string("general.name");
  if (!name.ok()) return false;
  for (char& c : *name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return name->find("phi-3") != std::string::npos || name->find("phi3") != std::string::npos;
}

// GPT-2's byte alphabet: printable bytes stand for themselves, the others for U+0100 and on, in order.
std::unordered_map<char32_t, char> byte_alphabet() {
  std::unordered_map<char32_t, char> alphabet;
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae);
    alphabet.emplace(is_printable ? byte : next++, static_cast<char>(byte));
  }
  return alphabet;
}

std::string from_byte_alphabet(std::string_view token, const std::unordered_map<char32_t, char>& alphabet) {
  std::string bytes;
  while (!token.empty()) {
    const Utf8Character character = first_character(token);
    const auto found = alphabet.find(character.value);
    if (found == alphabet.end()) {
      bytes += token.substr(0, character.bytes);
    } else {
      bytes += found->second;
    }
    token.remove_prefix(character.bytes);
  }
  return bytes;
}

std::string with_spaces(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    if (token.starts_with(kSpaceMark)) {
      bytes += ' ';
      token.remove_prefix(kSpaceMark.size());
    } else {
      bytes += token.front();
      token.remove_prefix(1);
    }
  }
  return bytes;
}

// "<0x0A>"
std::optional<std::string> named_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto parsed = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (parsed.ec != std::errc() || parsed.ptr != token.data() + 5) return std::nullopt;
  return std::string(1, static_cast<char>(value));
}

}  // namespace

Result<Vocabulary> read_vocabulary(const ModelSource& source) {
  Vocabulary vocabulary;
  LOCI_RETURN_IF_ERROR(read_kind(source, vocabulary));
  LOCI_RETURN_IF_ERROR(read_tables(source, vocabulary));
  if (vocabulary.kind == VocabularyKind::kUnigram) LOCI_RETURN_IF_ERROR(read_chars_map(source, vocabulary));
  LOCI_RETURN_IF_ERROR(read_special(source, vocabulary));
  vocabulary.special_takes_blanks = takes_blanks(source);
  return vocabulary;
}

void add_known_ends(Vocabulary& vocabulary) {
  // In Harmony (GPT-OSS) <|end|> ends one message of a turn that goes on.
  const bool is_harmony = has_token(vocabulary, "<|return|>") && has_token(vocabulary, "<|call|>") &&
                          has_token(vocabulary, "<|channel|>");
  for (std::uint32_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view text = vocabulary.tokens[id];
    if (!vocabulary.is_control(id)) continue;
    if (is_harmony ? text == "<|return|>" || text == "<|call|>" || text == "<|endoftext|>"
                   : is_one_of(kEndTexts, text))
      add_end(vocabulary, TokenId(id));
  }
}

Result<std::vector<std::string>> token_bytes_of(const Vocabulary& vocabulary) {
  const std::unordered_map<char32_t, char> alphabet = byte_alphabet();
  const bool is_sentence_piece = vocabulary.kind != VocabularyKind::kByteLevelBpe;
  std::vector<std::string> bytes;
  bytes.reserve(vocabulary.tokens.size());
  for (std::uint32_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id];
    const auto type = static_cast<TokenType>(vocabulary.types[id]);
    if (vocabulary.is_control(id)) {
      bytes.push_back(token);
    } else if (is_sentence_piece && type == TokenType::kByte) {
      std::optional<std::string> byte = named_byte(token);
      if (!byte)
        return bad("tokens", fmt::format("expected <0xNN> for byte token {}, found '{}'", id, token));
      bytes.push_back(std::move(*byte));
    } else if (is_sentence_piece) {
      bytes.push_back(with_spaces(token));
    } else {
      bytes.push_back(type == TokenType::kUserDefined ? token : from_byte_alphabet(token, alphabet));
    }
  }
  return bytes;
}

}  // namespace loci
