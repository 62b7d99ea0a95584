// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/long_prompt.h"

#include <algorithm>
#include <vector>

namespace loci {
namespace {

// Of a text that people write, a token has 3 to 5 bytes; so a part has three to five times `most` tokens.
constexpr std::size_t kPartBytesPerToken = 16;
constexpr std::size_t kPartBytesMin = 64 << 10;

// At most so many bytes of the text's beginning, that end with a character.
std::string_view first_part(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end > 0 ? end : bytes_max);
}

}  // namespace

Result<std::optional<std::size_t>> tokens_beyond(const Tokenizer& tokenizer,
                                                 std::span<const std::string_view> texts, ControlText control,
                                                 std::size_t most) {
  const std::size_t part_bytes = std::max(kPartBytesMin, most * kPartBytesPerToken);
  std::size_t bytes = 0;
  for (const std::string_view text : texts) bytes += text.size();
  if (bytes <= part_bytes) return std::optional<std::size_t>();
  std::size_t tokens = 0;
  for (std::string_view left : texts) {
    while (!left.empty()) {
      const std::string_view part = first_part(left, part_bytes);
      LOCI_ASSIGN_OR_RETURN(const std::vector<TokenId> encoded, tokenizer.encode(part, control));
      tokens += encoded.size();
      if (tokens > 2 * most) return std::optional(tokens);
      left.remove_prefix(part.size());
    }
  }
  return std::optional<std::size_t>();
}

}  // namespace loci
