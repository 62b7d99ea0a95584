// SPDX-License-Identifier: Apache-2.0
// Chain keys: the name of a block is a keyed hash of all tokens up to its end, so equal keys mean equal
// prefixes and nobody without the secret can forge one (a forged key would show one tenant another's
// state). The root key holds what makes state incompatible: the model, who shares the state, the size of a
// block and the version of the numerics.
//
// BLAKE2b, keyed, 128 bits, from libsodium. About 0.4 µs a block.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "loci/base/ids.h"
#include "loci/compute/backend.h"

namespace loci {

// The version of the numerics, which decides the bits of state; grows when a kernel's order of operations
// changes.
inline constexpr std::uint32_t kNumericsVersion = 2;

struct ChainKey {
  std::array<std::uint8_t, 16> bytes{};
  friend constexpr auto operator<=>(const ChainKey&, const ChainKey&) = default;
  // (The default compares by a call.)
  friend bool operator==(const ChainKey& a, const ChainKey& b) {
    std::array<std::uint64_t, 2> left, right;
    std::memcpy(left.data(), a.bytes.data(), sizeof left);
    std::memcpy(right.data(), b.bytes.data(), sizeof right);
    return ((left[0] ^ right[0]) | (left[1] ^ right[1])) == 0;
  }
};

// For hash tables. The bytes look random already, and cannot be chosen by who lacks the secret.
struct ChainKeyHash {
  std::size_t operator()(const ChainKey& key) const noexcept {
    std::uint64_t word;
    std::memcpy(&word, key.bytes.data(), sizeof word);
    return static_cast<std::size_t>(word);
  }
};

// Immutable after construction; thread-safe.
class ChainKeyHasher {
 public:
  ChainKeyHasher(const std::array<std::uint8_t, 32>& secret,
                 const std::array<std::uint8_t, 16>& model_fingerprint);

  // The parent of the first blocks of those who share state: `sharing` names them (a tenant, with a salt).
  ChainKey root(std::string_view sharing) const;
  // The parent of the first blocks of public prefixes, which all share.
  ChainKey public_root() const;
  // The parent of their own blocks that follow the public block of that key. So no name's key is another's,
  // whatever the tokens.
  ChainKey gate(const ChainKey& public_block, std::string_view sharing) const;
  // The parent of their blocks that follow a cut: the lineage of a sequence that has dropped the tokens
  // [dropped_begin, dropped_end) of the lineage in which the block before dropped_end has the key `dropped`.
  // That key stands for all that was there, so what is kept of one history is never taken for what is kept of
  // another, nor for the state of the bare tokens, which has no such parent.
  ChainKey lineage(const ChainKey& dropped, std::uint32_t dropped_begin, std::uint32_t dropped_end,
                   std::string_view sharing) const;
  // `tokens`: the kBlockTokens tokens of the block.
  ChainKey child(const ChainKey& parent, std::span<const TokenId> tokens) const;

 private:
  ChainKey key_of(std::uint8_t domain, const ChainKey& parent, std::string_view sharing) const;

  std::array<std::uint8_t, 32> secret_;
  std::array<std::uint8_t, 16> model_fingerprint_;
};

}  // namespace loci
