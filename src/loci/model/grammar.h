// SPDX-License-Identifier: Apache-2.0
// Constrained output: a grammar defines which texts a reply may be, and a matcher tells which tokens may come
// next. The Rust crate llguidance does the work, behind the C ABI in deps/
// (docs/decisions/structured-output.md).
//
// A text that a grammar allows may be cut into tokens in every way that the vocabulary has. Text never
// produces a control token; a Lark grammar names those that it wants (`<|im_end|>`, or by id `<[2]>`). The
// end of a reply is not a token of the grammar. A matcher tells where the text may end (MatchState), and the
// sampler decides which tokens end it.
#pragma once

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/model/tokenizer.h"

struct loci_text_grammar;
struct loci_text_grammar_env;
struct loci_text_matcher;

namespace loci {

enum class GrammarKind : std::uint8_t {
  kJsonSchema,  // text: the schema; a reply's properties are in the schema's order
  kJsonObject,  // any JSON object; text: empty
  kLark,        // text: llguidance's Lark, or its JSON form {"grammars": [...]}
  kRegex,   // text: a regular expression (Rust's syntax, no look-around; \d, \w, \s of ASCII) that the whole
            // reply matches
  kChoice,  // text: a JSON array of strings, of which the reply is one
  kGbnf,    // text: llama.cpp's GBNF (gbnf.h)
};

struct GrammarSource {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text;
  // Not empty: llguidance's Lark in which the rule `content`, which it lacks, stands for what `text` allows.
  // The reply is a text of this grammar then. `text` is not the JSON form of several grammars.
  std::string frame = {};
  std::size_t bytes() const { return text.size() + frame.size(); }
  friend auto operator<=>(const GrammarSource&, const GrammarSource&) = default;
};

enum class MatchState : std::uint8_t {
  kOpen,      // more must follow
  kMayEnd,    // the text may end here, or go on
  kComplete,  // the text ends here: nothing may follow
  kStuck,     // the text is unfinished, but no token of the vocabulary can continue it
};

// The state of one reply. Thread-compatible. After an error every call fails.
class GrammarMatcher {
 public:
  // Which tokens may come next: bit id % 32 of mask[id / 32]. `mask` has mask_words() words; no bit is set if
  // nothing may follow. It takes from microseconds to some milliseconds, depending on the grammar and the
  // place in it. Errors: kResourceExhausted if the grammar is too ambiguous or too large for the bounds of
  // one token.
  Result<MatchState> mask(std::span<std::uint32_t> mask);
  // Says that `token` comes next; takes some microseconds. Errors: kInternal if the mask does not allow it.
  Result<MatchState> accept(TokenId token);

 private:
  friend class Grammar;
  struct Deleter {
    void operator()(loci_text_matcher* handle) const;
  };
  explicit GrammarMatcher(loci_text_matcher* handle) : handle_(handle) {}
  std::unique_ptr<loci_text_matcher, Deleter> handle_;
};

// A compiled grammar. Immutable and thread-safe; choices and requests with the same grammar share it.
class Grammar {
 public:
  // A matcher at the grammar's beginning, independent of all others. It takes some tens of microseconds.
  Result<GrammarMatcher> matcher() const;
  std::uint32_t vocabulary() const { return vocabulary_; }
  std::uint32_t mask_words() const { return (vocabulary_ + 31) / 32; }

 private:
  friend class GrammarCompiler;
  struct Deleter {
    void operator()(loci_text_grammar* handle) const;
  };
  Grammar(loci_text_grammar* handle, std::uint32_t vocabulary) : handle_(handle), vocabulary_(vocabulary) {}
  std::unique_ptr<loci_text_grammar, Deleter> handle_;
  std::uint32_t vocabulary_;
};

inline bool mask_allows(std::span<const std::uint32_t> mask, TokenId token) {
  return token.value / 32 < mask.size() && ((mask[token.value / 32] >> (token.value % 32)) & 1u) != 0;
}

// For whom a grammar is compiled. Whoever has most of what is kept gives up first, whatever its salts.
struct GrammarOwner {
  std::string tenant;
  std::string salt = {};
  friend auto operator<=>(const GrammarOwner&, const GrammarOwner&) = default;
};

// Compiles grammars for one vocabulary and keeps those that were used last. What one owner had compiled is
// compiled again for another, so that the time tells nobody what others have sent. Thread-safe. The first
// call of compile() builds tables of the vocabulary, which takes some tenths of a second.
class GrammarCompiler {
 public:
  // The tokenizer, or what it was moved to, must outlive the compiler.
  explicit GrammarCompiler(const Tokenizer& tokenizer);
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Takes from a millisecond to a second, so call it on a worker. Errors: kInvalidArgument, saying what is
  // wrong with the text; the caller adds the field that it came from.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSource& source, const GrammarOwner& owner = {});

 private:
  struct Key {
    GrammarOwner owner;
    GrammarSource source;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Cached {
    Key key;
    std::shared_ptr<const Grammar> grammar;
  };
  struct Deleter {
    void operator()(loci_text_grammar_env* handle) const;
  };

  Result<const loci_text_grammar_env*> environment();
  std::shared_ptr<const Grammar> find(const Key& key);
  void keep(const Key& key, const std::shared_ptr<const Grammar>& grammar);
  void drop_one() REQUIRES(cache_mutex_);

  const Tokenizer::State* vocabulary_;
  Mutex environment_mutex_;
  std::unique_ptr<loci_text_grammar_env, Deleter> environment_ GUARDED_BY(environment_mutex_);

  Mutex cache_mutex_;
  std::list<Cached> cache_ GUARDED_BY(cache_mutex_);  // the one used last comes first
  std::map<Key, std::list<Cached>::iterator> cached_ GUARDED_BY(cache_mutex_);
  std::map<std::string, std::size_t> weights_ GUARDED_BY(cache_mutex_);  // of tenants with any
  std::size_t weight_ GUARDED_BY(cache_mutex_) = 0;                      // of all
};

}  // namespace loci
