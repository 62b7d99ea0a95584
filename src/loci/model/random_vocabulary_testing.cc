// SPDX-License-Identifier: Apache-2.0
#include "loci/model/random_vocabulary_testing.h"

#include <set>
#include <string_view>
#include <utility>

namespace loci {
namespace {

constexpr std::string_view kWords[] = {" the", " and", " of",  " to",   " in",  " is",    " that",    " it",
                                       " was", " for", "ing",  "er",    "ed",   "ion",    "es",       " you",
                                       " we",  " he",  " are", " with", "user", "system", "assistant"};

// GPT-2's printable stand-in for a byte: itself where it is printable in Latin-1, else the next free
// code point from U+0100 on. All are below U+0800.
std::string byte_text(unsigned byte) {
  const auto printable = [](unsigned b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  unsigned code = byte;
  if (!printable(byte)) {
    code = 256;
    for (unsigned b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 128) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

class Builder {
 public:
  explicit Builder(std::uint32_t limit) : limit_(limit) {}
  bool full() const { return vocabulary_.tokens.size() >= limit_; }
  void add(std::string text, std::int32_t type) {
    known_.insert(text);
    vocabulary_.tokens.push_back(std::move(text));
    vocabulary_.token_types.push_back(type);
  }
  // Adds the token `left` + `right`, both of which exist, unless it is there or the vocabulary is full.
  void merge(const std::string& left, const std::string& right) {
    if (full() || known_.contains(left + right)) return;
    vocabulary_.merges.push_back(left + " " + right);
    add(left + right, 1);
  }
  BpeVocabulary take() { return std::move(vocabulary_); }

 private:
  std::size_t limit_;
  BpeVocabulary vocabulary_;
  std::set<std::string> known_;
};

void add_words(Builder& builder) {
  for (const std::string_view word : kWords) {
    std::string start = byte_text(static_cast<unsigned char>(word[0]));
    for (const char letter : word.substr(1)) {
      const std::string next = byte_text(static_cast<unsigned char>(letter));
      builder.merge(start, next);
      start += next;
    }
  }
}

void add_short_strings(Builder& builder) {
  constexpr unsigned kFirst = 32, kLast = 126;
  for (int length = 2; length <= 3; ++length) {
    for (unsigned a = kFirst; a <= kLast; ++a) {
      for (unsigned b = kFirst; b <= kLast && !builder.full(); ++b) {
        if (length == 2) {
          builder.merge(byte_text(a), byte_text(b));
          continue;
        }
        const std::string pair = byte_text(a) + byte_text(b);
        for (unsigned c = kFirst; c <= kLast; ++c) builder.merge(pair, byte_text(c));
      }
    }
  }
}

}  // namespace

const char* const kChatMlTemplate =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif "
    "%}";

BpeVocabulary make_bpe_vocabulary(std::uint32_t size) {
  Builder builder(size == 0 ? UINT32_MAX : size);
  for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) builder.add(control, 3);
  for (unsigned byte = 0; byte < 256; ++byte) builder.add(byte_text(byte), 1);
  add_words(builder);
  if (size != 0) add_short_strings(builder);
  return builder.take();
}

void add_bpe_vocabulary(GgufWriter& writer, BpeVocabulary vocabulary) {
  writer.add("tokenizer.ggml.model", std::string("gpt2"));
  writer.add("tokenizer.ggml.pre", std::string("smollm"));
  writer.add_strings("tokenizer.ggml.tokens", std::move(vocabulary.tokens));
  writer.add_ints("tokenizer.ggml.token_type", std::move(vocabulary.token_types));
  writer.add_strings("tokenizer.ggml.merges", std::move(vocabulary.merges));
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
}

}  // namespace loci
