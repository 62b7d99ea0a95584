// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/token_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace loci {

std::string encode_tokens(std::span<const TokenId> tokens) {
  std::uint32_t largest = 0;
  for (const TokenId token : tokens) largest = std::max(largest, token.value);
  const unsigned width = std::max(1u, (static_cast<unsigned>(std::bit_width(largest)) + 7) / 8);
  std::string out;
  out.reserve(1 + tokens.size() * width);
  out.push_back(static_cast<char>(width));
  for (const TokenId token : tokens) {
    for (unsigned byte = 0; byte < width; ++byte) out.push_back(static_cast<char>(token.value >> (8 * byte)));
  }
  return out;
}

Result<std::vector<TokenId>> decode_tokens(std::string_view bytes) {
  const unsigned width = bytes.empty() ? 0 : static_cast<unsigned char>(bytes.front());
  if (width < 1 || width > 4 || (bytes.size() - 1) % width != 0) {
    return data_loss(
        fmt::format("stored tokens: expected 1 to 4 bytes each, found {} bytes of which the "
                    "first says {}",
                    bytes.size(), width));
  }
  bytes.remove_prefix(1);
  std::vector<TokenId> out;
  out.reserve(bytes.size() / width);
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    std::uint32_t value = 0;
    for (unsigned byte = 0; byte < width; ++byte)
      value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + byte])) << (8 * byte);
    out.push_back(TokenId(value));
  }
  return out;
}

}  // namespace loci
