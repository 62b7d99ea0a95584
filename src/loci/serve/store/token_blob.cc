// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/token_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "loci/base/little_endian.h"

namespace loci {

std::string encode_tokens(std::span<const TokenId> tokens) {
  std::uint32_t largest = 0;
  for (const TokenId token : tokens) largest = std::max(largest, token.value);
  const unsigned width = std::max(1u, (static_cast<unsigned>(std::bit_width(largest)) + 7) / 8);
  std::string out;
  out.reserve(1 + tokens.size() * width);
  out.push_back(static_cast<char>(width));
  for (const TokenId token : tokens) {
    const auto token_bytes = little_endian(token.value);
    out.insert(out.end(), token_bytes.begin(), token_bytes.begin() + width);
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
  for (std::size_t at = 0; at < bytes.size(); at += width)
    out.emplace_back(from_little_endian<std::uint32_t>(bytes.substr(at, width)));
  return out;
}

}  // namespace loci
