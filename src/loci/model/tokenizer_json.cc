// SPDX-License-Identifier: Apache-2.0
// Tokenizers of Hugging Face directories: tokenizer.json says how text is cut, tokenizer_config.json and
// generation_config.json which tokens begin and end it.
#include <fmt/format.h>

#include <algorithm>

#include "loci/model/json_file.h"
#include "loci/model/model_source.h"
#include "loci/model/tokenizer_state.h"

namespace loci {
namespace {

constexpr const char* kConfigName = "tokenizer_config.json";

// What the directory says about special tokens.
struct SpecialTokens {
  std::optional<std::string> bos, eos;  // texts
  std::optional<bool> add_bos;
  std::vector<std::uint32_t> ends;
  std::optional<std::uint32_t> bos_id;
};

// "bos_token": a text, or {"content": text, ...}.
Result<std::optional<std::string>> token_text(const JsonFields& config, const char* name) {
  const nlohmann::json* value = config.find(name);
  if (value == nullptr) return std::optional<std::string>();
  if (value->is_object()) {
    LOCI_ASSIGN_OR_RETURN(std::string text, JsonFields(*value, config.field(name)).get_string("content"));
    return std::optional<std::string>(std::move(text));
  }
  LOCI_ASSIGN_OR_RETURN(std::string text, config.get_string(name));
  return std::optional<std::string>(std::move(text));
}

Result<SpecialTokens> read_special(const ModelSource& source) {
  SpecialTokens special;
  if (source.has("tokenizer.huggingface.config")) {
    LOCI_ASSIGN_OR_RETURN(const std::string text, source.get_string("tokenizer.huggingface.config"));
    const Result<nlohmann::json> parsed = parse_model_json(text);
    if (!parsed.ok()) return invalid_argument(parsed.status().message(), kConfigName);
    const JsonFields config(*parsed, kConfigName);
    LOCI_ASSIGN_OR_RETURN(special.bos, token_text(config, "bos_token"));
    LOCI_ASSIGN_OR_RETURN(special.eos, token_text(config, "eos_token"));
    if (config.has("add_bos_token")) {
      LOCI_ASSIGN_OR_RETURN(special.add_bos, config.get_bool("add_bos_token"));
    }
  }
  if (source.has("tokenizer.ggml.end_token_ids")) {
    LOCI_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids,
                          source.get_ints("tokenizer.ggml.end_token_ids"));
    for (const std::int32_t id : ids)
      if (id >= 0) special.ends.push_back(static_cast<std::uint32_t>(id));
  }
  if (source.has("tokenizer.ggml.bos_token_id")) {
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t id, source.get_uint("tokenizer.ggml.bos_token_id"));
    special.bos_id = static_cast<std::uint32_t>(std::min<std::uint64_t>(id, UINT32_MAX));
  }
  return special;
}

Result<TextTokenizer> parse(const std::string& json, const SpecialTokens& special, std::uint32_t rows) {
  std::vector<loci_text_view> control;
  for (const std::optional<std::string>* text : {&special.bos, &special.eos})
    if (*text) control.push_back(text_view(**text));
  std::vector<std::uint32_t> ids = special.ends;
  if (special.bos_id) ids.push_back(*special.bos_id);
  loci_text_tokenizer* handle = nullptr;
  loci_text_bytes error{};
  if (loci_text_tokenizer_from_json(text_view(json), control.data(), control.size(), ids.data(), ids.size(),
                                    rows, &handle, &error) != 0) {
    // "model.vocab[3]: what is wrong"
    const std::string message = take_text(error);
    const std::size_t colon = message.find(": ");
    const bool has_field = colon != std::string::npos && message.find(' ') > colon;
    if (!has_field) return invalid_argument(message, "tokenizer.json");
    if (message.starts_with("tokenizer.json"))
      return invalid_argument(message.substr(colon + 2), "tokenizer.json");
    return invalid_argument(message.substr(colon + 2), "tokenizer.json: " + message.substr(0, colon));
  }
  return TextTokenizer(handle);
}

// The vocabulary that the handle has, with unused tokens up to `rows`.
Vocabulary vocabulary_of(const loci_text_tokenizer* handle, const loci_text_description& about,
                         std::uint32_t rows) {
  Vocabulary vocabulary;
  vocabulary.kind =
      about.byte_level != 0 ? VocabularyKind::kByteLevelBpe : VocabularyKind::kSentencePieceMerges;
  vocabulary.add_space_prefix = about.strips_space != 0;
  for (std::uint32_t id = 0; id < about.token_count; ++id) {
    std::int32_t type = 0;
    const loci_text_view token = loci_text_tokenizer_token(handle, id, &type);
    vocabulary.tokens.emplace_back(reinterpret_cast<const char*>(token.data), token.size);
    vocabulary.types.push_back(type);
  }
  for (auto id = static_cast<std::uint32_t>(about.token_count); id < rows; ++id) {
    vocabulary.tokens.push_back(fmt::format("[PAD{}]", id));
    vocabulary.types.push_back(static_cast<std::int32_t>(TokenType::kUnused));
  }
  return vocabulary;
}

void add_special(const SpecialTokens& special, const loci_text_description& about, Vocabulary& vocabulary) {
  const auto find = [&](const std::optional<std::string>& text) -> std::optional<TokenId> {
    if (!text) return std::nullopt;
    const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), *text);
    if (found == vocabulary.tokens.end()) return std::nullopt;
    return TokenId(static_cast<std::uint32_t>(found - vocabulary.tokens.begin()));
  };
  vocabulary.bos = find(special.bos);
  if (!vocabulary.bos && special.bos_id && *special.bos_id < vocabulary.tokens.size())
    vocabulary.bos = TokenId(*special.bos_id);
  vocabulary.eos = find(special.eos);
  if (vocabulary.eos) vocabulary.end_tokens.push_back(*vocabulary.eos);
  for (const std::uint32_t id : special.ends) {
    if (id >= vocabulary.tokens.size()) continue;
    if (!vocabulary.eos) vocabulary.eos = TokenId(id);
    std::vector<TokenId>& ends = vocabulary.end_tokens;
    if (std::find(ends.begin(), ends.end(), TokenId(id)) == ends.end()) ends.emplace_back(id);
  }
  add_known_ends(vocabulary);
  if (about.unknown_token >= 0) vocabulary.unknown = TokenId(static_cast<std::uint32_t>(about.unknown_token));
  const bool leads = vocabulary.bos && about.leading_token == std::int64_t{vocabulary.bos->value};
  vocabulary.add_bos = vocabulary.bos && special.add_bos.value_or(leads);
}

}  // namespace

Result<Tokenizer> Tokenizer::from_tokenizer_json(const ModelSource& source) {
  constexpr const char* kKey = "tokenizer.huggingface.json";
  if (!source.has(kKey))
    return invalid_argument("expected this file beside config.json, found none", "tokenizer.json");
  LOCI_ASSIGN_OR_RETURN(const std::string json, source.get_string(kKey));
  LOCI_ASSIGN_OR_RETURN(const SpecialTokens special, read_special(source));
  const TensorView* embedding = source.find_tensor("token_embd.weight");
  const std::uint64_t rows = embedding == nullptr ? 0 : embedding->rows;
  if (rows > UINT32_MAX) return invalid_argument("expected fewer rows than 2^32", "token_embd.weight");
  auto state = std::make_unique<State>();
  LOCI_ASSIGN_OR_RETURN(state->handle, parse(json, special, static_cast<std::uint32_t>(rows)));
  loci_text_description about{};
  loci_text_tokenizer_describe(state->handle.get(), &about);
  state->vocabulary = vocabulary_of(state->handle.get(), about, static_cast<std::uint32_t>(rows));
  add_special(special, about, state->vocabulary);
  return finish(std::move(state));
}

}  // namespace loci
