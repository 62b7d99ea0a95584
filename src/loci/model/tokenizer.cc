// SPDX-License-Identifier: Apache-2.0
#include "loci/model/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "loci/model/model_source.h"
#include "loci/model/tokenizer_state.h"
#include "loci/model/utf8.h"

namespace loci {
namespace {

std::vector<loci_text_view> views_of(const std::vector<std::string>& texts) {
  std::vector<loci_text_view> views;
  views.reserve(texts.size());
  for (const std::string& text : texts) views.push_back(text_view(text));
  return views;
}

std::int32_t abi_kind(VocabularyKind kind) {
  switch (kind) {
    case VocabularyKind::kByteLevelBpe: return LOCI_TEXT_BYTE_LEVEL_BPE;
    case VocabularyKind::kSentencePiece: return LOCI_TEXT_SENTENCE_PIECE;
    case VocabularyKind::kUnigram: return LOCI_TEXT_UNIGRAM;
    case VocabularyKind::kSentencePieceMerges: return LOCI_TEXT_SENTENCE_PIECE_MERGES;
  }
  LOCI_CHECK(false, "a VocabularyKind outside its enumeration");
  return 0;
}

Result<TextTokenizer> make_handle(const Vocabulary& vocabulary) {
  const std::vector<loci_text_view> tokens = views_of(vocabulary.tokens);
  const std::vector<loci_text_view> merges = views_of(vocabulary.merges);
  loci_text_vocabulary view{};
  view.kind = abi_kind(vocabulary.kind);
  view.add_space_prefix = vocabulary.add_space_prefix ? 1 : 0;
  view.remove_extra_spaces = vocabulary.remove_extra_spaces ? 1 : 0;
  view.special_takes_blanks = vocabulary.special_takes_blanks ? 1 : 0;
  view.chars_map = text_view(vocabulary.chars_map);
  view.pre_tokenizer = text_view(vocabulary.pre_tokenizer);
  view.tokens = tokens.data();
  view.token_types = vocabulary.types.data();
  view.scores = vocabulary.scores.empty() ? nullptr : vocabulary.scores.data();
  view.token_count = tokens.size();
  view.merges = merges.data();
  view.merge_count = merges.size();
  view.unknown_token = vocabulary.unknown ? std::int64_t{vocabulary.unknown->value} : -1;
  loci_text_tokenizer* handle = nullptr;
  loci_text_bytes error{};
  if (loci_text_tokenizer_create(&view, &handle, &error) != 0)
    return take_error(error, "tokenizer.ggml.model");
  return TextTokenizer(handle);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::from_gguf(const ModelSource& source) {
  auto state = std::make_unique<State>();
  LOCI_ASSIGN_OR_RETURN(state->vocabulary, read_vocabulary(source));
  Vocabulary& vocabulary = state->vocabulary;
  // Refuses tokens that are not UTF-8, which what follows relies on.
  LOCI_ASSIGN_OR_RETURN(state->handle, make_handle(vocabulary));
  vocabulary.merges = {};
  vocabulary.scores = {};
  vocabulary.chars_map = {};
  return finish(std::move(state));
}

Result<Tokenizer> Tokenizer::finish(std::unique_ptr<State> state) {
  const Vocabulary& vocabulary = state->vocabulary;
  LOCI_ASSIGN_OR_RETURN(state->bytes, token_bytes_of(vocabulary));
  for (std::uint32_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id];
    state->ids.emplace(token, id);
    if (vocabulary.is_control(id) && !token.empty()) state->control_texts.push_back(token);
  }
  std::stable_sort(state->control_texts.begin(), state->control_texts.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  State& made = *state;
  Tokenizer tokenizer(std::move(state));
  for (const TextPlace place : {TextPlace::kFirst, TextPlace::kInner, TextPlace::kContinued}) {
    const auto tokens = tokenizer.encode_piece("a", place);
    made.adds_space[static_cast<std::size_t>(place)] =
        tokens.ok() && !tokens->empty() && tokenizer.token_spelling(tokens->front()).starts_with(' ');
  }
  return tokenizer;
}

Result<Tokenizer> Tokenizer::from_source(const ModelSource& source) {
  return source.format() == SourceFormat::kGguf ? from_gguf(source) : from_tokenizer_json(source);
}

std::uint32_t Tokenizer::vocabulary_size() const {
  return static_cast<std::uint32_t>(state_->vocabulary.tokens.size());
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, ControlText control) const {
  loci_text_ids ids{};
  loci_text_bytes error{};
  const int with_control = control == ControlText::kAsControl ? 1 : 0;
  if (loci_text_tokenizer_encode(state_->handle.get(), text_view(text), with_control, &ids, &error) != 0)
    return take_error(error, "text");
  return take_tokens(ids);
}

Result<std::vector<TokenId>> Tokenizer::encode_piece(std::string_view text, TextPlace place) const {
  loci_text_ids ids{};
  loci_text_bytes error{};
  if (loci_text_tokenizer_encode_piece(state_->handle.get(), text_view(text),
                                       static_cast<std::int32_t>(place), &ids, &error) != 0)
    return take_error(error, "text");
  return take_tokens(ids);
}

bool Tokenizer::adds_space(TextPlace place) const {
  return state_->adds_space[static_cast<std::size_t>(place)];
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> tokens, ControlText control) const {
  std::string bytes;
  for (const TokenId token : tokens) {
    if (token.value >= vocabulary_size())
      return invalid_argument(
          fmt::format("expected a token below {}, found {}", vocabulary_size(), token.value), "tokens");
    if (control == ControlText::kAsText && is_control(token)) continue;
    bytes += state_->bytes[token.value];
  }
  // The space that encoding put before the text.
  std::string_view rest = bytes;
  if (state_->vocabulary.add_space_prefix && rest.starts_with(' ')) rest.remove_prefix(1);
  std::string text;
  text.reserve(rest.size());
  append_utf8_final(rest, text);
  return text;
}

std::string Tokenizer::token_bytes(TokenId token) const {
  return token.value < vocabulary_size() ? state_->bytes[token.value] : std::string();
}

std::string_view Tokenizer::token_spelling(TokenId token) const {
  return token.value < vocabulary_size() ? std::string_view(state_->bytes[token.value]) : std::string_view();
}

bool Tokenizer::is_control(TokenId token) const {
  return token.value < vocabulary_size() && state_->vocabulary.is_control(token.value);
}

std::optional<TokenId> Tokenizer::find(std::string_view token_text) const {
  const auto found = state_->ids.find(token_text);
  if (found == state_->ids.end()) return std::nullopt;
  return TokenId(found->second);
}

std::optional<TokenId> Tokenizer::bos() const { return state_->vocabulary.bos; }
std::optional<TokenId> Tokenizer::unknown() const { return state_->vocabulary.unknown; }
bool Tokenizer::add_bos() const { return state_->vocabulary.add_bos; }
const std::vector<TokenId>& Tokenizer::end_tokens() const { return state_->vocabulary.end_tokens; }
const std::vector<std::string>& Tokenizer::control_texts() const { return state_->control_texts; }

std::string StreamDecoder::push(TokenId token) {
  std::string text;
  if (tokenizer_->is_control(token)) return text;
  pending_ += tokenizer_->token_bytes(token);
  pending_.erase(0, append_utf8(pending_, text));
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  append_utf8_final(pending_, text);
  pending_.clear();
  return text;
}

}  // namespace loci
