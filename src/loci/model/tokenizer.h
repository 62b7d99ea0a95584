// SPDX-License-Identifier: Apache-2.0
// Text to tokens and back. It is made from a GGUF vocabulary or a tokenizer.json. Hugging Face's `tokenizers`
// does the work, behind the C ABI in deps/.
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

// Where a piece of text stands. It matters because some tokenizers put a blank before a text, or before each
// piece of it.
enum class TextPlace : std::uint8_t {
  kFirst,      // at the beginning of the text
  kInner,      // after a control token
  kContinued,  // after text that is tokenised already: no blank is put before it
};

// Immutable and thread-safe; cheap to move.
class Tokenizer {
 public:
  // From any source: a GGUF file's vocabulary or a directory's tokenizer.json. Errors: kInvalidArgument
  // naming the metadata key, or the file and its field, the value and what was expected.
  static Result<Tokenizer> from_source(const ModelSource& source);
  static Result<Tokenizer> from_gguf(const ModelSource& source);
  // From metadata tokenizer.huggingface.json and .config (see hugging_face_source.h). There are as many
  // tokens as the embedding has rows: rows without a token get unused tokens, and added tokens beyond the
  // rows are left out.
  static Result<Tokenizer> from_tokenizer_json(const ModelSource& source);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  std::uint32_t vocabulary_size() const;
  // The tokens of `text`, without the automatic beginning-of-sequence token. Errors: kInvalidArgument if
  // `text` is not UTF-8.
  Result<std::vector<TokenId>> encode(std::string_view text, ControlText control) const;
  // The tokens of a piece of a text; nothing in it becomes a control token. If a vocabulary normalises text
  // (GGUF's "t5"), the tokens of a piece with kContinued may spell something else, even with a blank before
  // it. A caller that needs the exact text must compare. Errors: those of encode().
  Result<std::vector<TokenId>> encode_piece(std::string_view text, TextPlace place) const;
  // Whether encode_piece() puts a blank before a text.
  bool adds_space(TextPlace place) const;
  // The text of `tokens`. Control tokens are skipped unless `control` is kAsControl. Bytes that are not UTF-8
  // become U+FFFD. Errors: kInvalidArgument for an id outside the vocabulary.
  Result<std::string> decode(std::span<const TokenId> tokens, ControlText control) const;
  // The bytes that one token stands for; they need not be whole characters ("\xe2\x82"). Those of a control
  // token are its name.
  std::string token_bytes(TokenId token) const;
  // The same; it stays valid as long as the tokenizer.
  std::string_view token_spelling(TokenId token) const;
  bool is_control(TokenId token) const;

  std::optional<TokenId> find(std::string_view token_text) const;  // the token with exactly this text
  std::optional<TokenId> bos() const;
  std::optional<TokenId> unknown() const;  // the token for characters that have none
  bool add_bos() const;  // whether a prompt starts with bos() even if its template does not write it
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

// Turns a stream of tokens into text that is always whole UTF-8: the bytes of an unfinished character wait
// for the next token. Thread-compatible; the tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(TokenId token);  // a control token gives no text
  std::string finish();             // the bytes that were held back, as U+FFFD

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace loci
