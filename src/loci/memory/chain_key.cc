// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/chain_key.h"

#include <sodium.h>

#include <algorithm>

#include "loci/base/check.h"
#include "loci/base/little_endian.h"

namespace loci {
namespace {

// The first byte of what is hashed keeps roots and children apart.
enum class Domain : std::uint8_t { kRoot = 1, kChild = 2, kPublicRoot = 3, kGate = 4, kLineage = 5 };

void put_u32(std::uint8_t* at, std::uint32_t value) { std::ranges::copy(little_endian(value), at); }

}  // namespace

ChainKeyHasher::ChainKeyHasher(const std::array<std::uint8_t, 32>& secret,
                               const std::array<std::uint8_t, 16>& model_fingerprint)
    : secret_(secret), model_fingerprint_(model_fingerprint) {
  LOCI_CHECK(sodium_init() >= 0, "libsodium failed to start");
}

ChainKey ChainKeyHasher::key_of(std::uint8_t domain, const ChainKey& parent, std::string_view sharing) const {
  std::array<std::uint8_t, 1 + 4 + 4 + 16 + 16> head{};
  head[0] = domain;
  put_u32(&head[1], kBlockTokens);
  put_u32(&head[5], kNumericsVersion);
  std::memcpy(&head[9], model_fingerprint_.data(), model_fingerprint_.size());
  std::memcpy(&head[25], parent.bytes.data(), parent.bytes.size());

  ChainKey key;
  crypto_generichash_state state;
  crypto_generichash_init(&state, secret_.data(), secret_.size(), key.bytes.size());
  crypto_generichash_update(&state, head.data(), head.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(sharing.data()), sharing.size());
  crypto_generichash_final(&state, key.bytes.data(), key.bytes.size());
  return key;
}

ChainKey ChainKeyHasher::root(std::string_view sharing) const {
  return key_of(static_cast<std::uint8_t>(Domain::kRoot), {}, sharing);
}

ChainKey ChainKeyHasher::public_root() const {
  return key_of(static_cast<std::uint8_t>(Domain::kPublicRoot), {}, {});
}

ChainKey ChainKeyHasher::gate(const ChainKey& public_block, std::string_view sharing) const {
  return key_of(static_cast<std::uint8_t>(Domain::kGate), public_block, sharing);
}

ChainKey ChainKeyHasher::lineage(const ChainKey& dropped, std::uint32_t dropped_begin,
                                 std::uint32_t dropped_end, std::string_view sharing) const {
  // The range has a fixed length, so that no group's name reads as a part of it.
  std::array<std::uint8_t, 1 + 16 + 4 + 4> head{};
  head[0] = static_cast<std::uint8_t>(Domain::kLineage);
  std::memcpy(&head[1], dropped.bytes.data(), dropped.bytes.size());
  put_u32(&head[17], dropped_begin);
  put_u32(&head[21], dropped_end);

  ChainKey key;
  crypto_generichash_state state;
  crypto_generichash_init(&state, secret_.data(), secret_.size(), key.bytes.size());
  crypto_generichash_update(&state, head.data(), head.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(sharing.data()), sharing.size());
  crypto_generichash_final(&state, key.bytes.data(), key.bytes.size());
  return key;
}

ChainKey ChainKeyHasher::child(const ChainKey& parent, std::span<const TokenId> tokens) const {
  LOCI_CHECK(tokens.size() == kBlockTokens, "a block's key needs all of its tokens");
  std::array<std::uint8_t, 1 + 16 + 4 * kBlockTokens> text;
  text[0] = static_cast<std::uint8_t>(Domain::kChild);
  std::memcpy(&text[1], parent.bytes.data(), parent.bytes.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) put_u32(&text[17 + 4 * i], tokens[i].value);

  ChainKey key;
  crypto_generichash(key.bytes.data(), key.bytes.size(), text.data(), text.size(), secret_.data(),
                     secret_.size());
  return key;
}

}  // namespace loci
