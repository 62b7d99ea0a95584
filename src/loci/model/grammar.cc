// SPDX-License-Identifier: Apache-2.0
#include "loci/model/grammar.h"

#include <algorithm>
#include <iterator>

#include "loci/model/ascii_classes.h"
#include "loci/model/gbnf.h"
#include "loci/model/text_handles.h"
#include "loci/model/tokenizer_state.h"

namespace loci {
namespace {

// Of the cache. A compiled grammar takes from some kilobytes to some megabytes.
constexpr std::size_t kCachedMax = 64;
constexpr std::size_t kCachedBytesMax = std::size_t{4} << 20;  // of texts

// What it takes of the cache: at least as much as each of so many has.
std::size_t weight_of(const GrammarSource& source) {
  return std::max(source.bytes(), kCachedBytesMax / kCachedMax);
}

std::int32_t abi_kind(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::kJsonSchema: return LOCI_TEXT_GRAMMAR_JSON_SCHEMA;
    case GrammarKind::kJsonObject: return LOCI_TEXT_GRAMMAR_JSON_OBJECT;
    case GrammarKind::kLark:
    case GrammarKind::kGbnf: return LOCI_TEXT_GRAMMAR_LARK;  // which it is turned into
    case GrammarKind::kRegex: return LOCI_TEXT_GRAMMAR_REGEX;
    case GrammarKind::kChoice: return LOCI_TEXT_GRAMMAR_CHOICE;
  }
  LOCI_CHECK(false, "a GrammarKind outside its enumeration");
  return 0;
}

MatchState match_state(std::int32_t state) {
  switch (state) {
    case LOCI_TEXT_MATCHER_OPEN: return MatchState::kOpen;
    case LOCI_TEXT_MATCHER_MAY_END: return MatchState::kMayEnd;
    case LOCI_TEXT_MATCHER_COMPLETE: return MatchState::kComplete;
    default: return MatchState::kStuck;
  }
}

std::uint8_t role_of(const Vocabulary& vocabulary, std::uint32_t id) {
  if (vocabulary.is_control(id)) return LOCI_TEXT_TOKEN_CONTROL;
  const bool unused = static_cast<TokenType>(vocabulary.types[id]) == TokenType::kUnused;
  return unused ? LOCI_TEXT_TOKEN_NEVER : LOCI_TEXT_TOKEN_TEXT;
}

}  // namespace

void GrammarMatcher::Deleter::operator()(loci_text_matcher* handle) const {
  loci_text_matcher_destroy(handle);
}
void Grammar::Deleter::operator()(loci_text_grammar* handle) const { loci_text_grammar_destroy(handle); }
void GrammarCompiler::Deleter::operator()(loci_text_grammar_env* handle) const {
  loci_text_grammar_env_destroy(handle);
}

Result<MatchState> GrammarMatcher::mask(std::span<std::uint32_t> mask) {
  std::int32_t state = 0;
  loci_text_bytes error{};
  if (loci_text_matcher_mask(handle_.get(), mask.data(), mask.size(), &state, &error) != 0)
    return Status(StatusCode::kResourceExhausted, take_text(error));
  return match_state(state);
}

Result<MatchState> GrammarMatcher::accept(TokenId token) {
  std::int32_t state = 0;
  loci_text_bytes error{};
  if (loci_text_matcher_accept(handle_.get(), token.value, &state, &error) != 0)
    return internal_error(take_text(error));
  return match_state(state);
}

Result<GrammarMatcher> Grammar::matcher() const {
  loci_text_matcher* handle = nullptr;
  loci_text_bytes error{};
  if (loci_text_matcher_create(handle_.get(), &handle, &error) != 0) return internal_error(take_text(error));
  return GrammarMatcher(handle);
}

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer) : vocabulary_(tokenizer.state_.get()) {}
GrammarCompiler::~GrammarCompiler() = default;

Result<const loci_text_grammar_env*> GrammarCompiler::environment() {
  const MutexLock lock(environment_mutex_);
  if (environment_ == nullptr) {
    const Vocabulary& vocabulary = vocabulary_->vocabulary;
    std::vector<loci_text_view> tokens;
    std::vector<std::uint8_t> roles;
    for (std::uint32_t id = 0; id < vocabulary.tokens.size(); ++id) {
      tokens.push_back(text_view(vocabulary_->bytes[id]));
      roles.push_back(role_of(vocabulary, id));
    }
    loci_text_grammar_env* handle = nullptr;
    loci_text_bytes error{};
    if (loci_text_grammar_env_create(tokens.data(), roles.data(), tokens.size(), &handle, &error) != 0)
      return internal_error("the vocabulary can't be used with grammars: " + take_text(error));
    environment_.reset(handle);
  }
  return environment_.get();
}

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSource& source,
                                                                const GrammarOwner& owner) {
  const Key key{.owner = owner, .source = source};
  if (std::shared_ptr<const Grammar> found = find(key)) return found;
  LOCI_ASSIGN_OR_RETURN(const loci_text_grammar_env* const environment, this->environment());
  std::string rewritten;
  if (source.kind == GrammarKind::kGbnf) {
    LOCI_ASSIGN_OR_RETURN(rewritten, gbnf_to_lark(source.text));
  }
  if (source.kind == GrammarKind::kRegex) rewritten = with_ascii_classes(source.text);
  const std::string& text = rewritten.empty() ? source.text : rewritten;
  loci_text_grammar* handle = nullptr;
  loci_text_bytes error{};
  if (loci_text_grammar_compile(environment, abi_kind(source.kind), text_view(text), text_view(source.frame),
                                &handle, &error) != 0)
    return invalid_argument(take_text(error));
  const auto size = static_cast<std::uint32_t>(vocabulary_->vocabulary.tokens.size());
  const std::shared_ptr<const Grammar> grammar(new Grammar(handle, size));
  keep(key, grammar);
  return grammar;
}

std::shared_ptr<const Grammar> GrammarCompiler::find(const Key& key) {
  const MutexLock lock(cache_mutex_);
  const auto found = cached_.find(key);
  if (found == cached_.end()) return nullptr;
  cache_.splice(cache_.begin(), cache_, found->second);
  return found->second->grammar;
}

void GrammarCompiler::keep(const Key& key, const std::shared_ptr<const Grammar>& grammar) {
  const MutexLock lock(cache_mutex_);
  // Another thread may have compiled the same; a text that fills the cache is not worth it.
  if (key.source.bytes() > kCachedBytesMax / 4 || cached_.contains(key)) return;
  cache_.push_front(Cached{key, grammar});
  cached_.emplace(key, cache_.begin());
  weights_[key.owner.tenant] += weight_of(key.source);
  weight_ += weight_of(key.source);
  while (weight_ > kCachedBytesMax) drop_one();
}

// Of the tenant with the most, what it used least recently: so nobody drives out all of another's.
void GrammarCompiler::drop_one() {
  const auto most = std::ranges::max_element(weights_, {}, [](const auto& one) { return one.second; });
  const auto is_its = [&](const Cached& one) { return one.key.owner.tenant == most->first; };
  const auto last = std::prev(std::find_if(cache_.rbegin(), cache_.rend(), is_its).base());
  const std::size_t weight = weight_of(last->key.source);
  weight_ -= weight;
  if ((most->second -= weight) == 0) weights_.erase(most);
  cached_.erase(last->key);
  cache_.erase(last);
}

}  // namespace loci
