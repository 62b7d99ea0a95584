// SPDX-License-Identifier: Apache-2.0
// Text to tokens and back. Made from a GGUF vocabulary or a tokenizer.json; the work is done by
// Hugging Face's `tokenizers` behind the C ABI in deps/.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"

namespace loci {

class ModelSource;

// Whether text that spells a control token ("<|im_end|>") becomes that token. User's text never does.
enum class ControlText : std::uint8_t { kAsText, kAsControl };

// Where a piece of text stands: some tokenizers put a blank before a text, or before each piece of it.
enum class TextPlace : std::uint8_t {
  kFirst,      // it begins the text
  kInner,      // it follows a control token
  kContinued,  // it follows text that is tokenised already: nothing is put before it
};

// Immutable and thread-safe; cheap to move.
class Tokenizer {
 public:
  // Of any source: a GGUF file's vocabulary, a directory's tokenizer.json. Errors: kInvalidArgument naming
  // the metadata key or the file and its field, the value and what was expected.
  static Result<Tokenizer> from_source(const ModelSource& source);
  static Result<Tokenizer> from_gguf(const ModelSource& source);
  // From metadata tokenizer.huggingface.json and .config (see hugging_face_source.h). Tokens are as many as
  // the embedding has rows: rows without a token get unused ones, added tokens beyond are left out.
  static Result<Tokenizer> from_tokenizer_json(const ModelSource& source);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  std::uint32_t vocabulary_size() const;
  // Without the automatic beginning-of-sequence token. Errors: kInvalidArgument where `text` is not
  // UTF-8.
  Result<std::vector<TokenId>> encode(std::string_view text, ControlText control) const;
  // A piece of a text, in which nothing becomes a control token. With kContinued the tokens of a vocabulary
  // that normalises text (GGUF's "t5") may spell something else, even a blank before it: whoever needs
  // the text itself compares. Errors: as encode().
  Result<std::vector<TokenId>> encode_piece(std::string_view text, TextPlace place) const;
  // Whether encode_piece() puts a blank before a text.
  bool adds_space(TextPlace place) const;
  // The text of `tokens` alone. Control tokens are skipped unless `control` is kAsControl. Bytes that
  // are no UTF-8 become U+FFFD. Errors: kInvalidArgument for an id outside the vocabulary.
  Result<std::string> decode(std::span<const TokenId> tokens, ControlText control) const;
  // The bytes that one token stands for, not necessarily whole characters ("\xe2\x82"). A control
  // token's are its name.
  std::string token_bytes(TokenId token) const;
  // The same, living as long as the tokenizer.
  std::string_view token_spelling(TokenId token) const;
  bool is_control(TokenId token) const;

  std::optional<TokenId> find(std::string_view token_text) const;  // exact vocabulary entry
  std::optional<TokenId> bos() const;
  std::optional<TokenId> unknown() const;  // what characters without a token become
  bool add_bos() const;  // whether a prompt starts with bos() when its template has not written it
  // End of sequence, end of turn, end of message: generation stops at any of them.
  const std::vector<TokenId>& end_tokens() const;
  // The texts of all control tokens, longest first: what a template may write and a user may not.
  const std::vector<std::string>& control_texts() const;

 private:
  friend class ChatTemplate;     // shares the object behind the C ABI, which outlives both
  friend class GrammarCompiler;  // reads the vocabulary
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  static Result<Tokenizer> finish(std::unique_ptr<State> state);
  std::unique_ptr<const State> state_;
};

// Turns a stream of tokens into text that is always whole UTF-8: bytes of an unfinished character wait
// for the next token. Thread-compatible; the tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(TokenId token);  // control tokens give nothing
  std::string finish();             // what was held back, as U+FFFD

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace loci
