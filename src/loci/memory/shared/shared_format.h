// SPDX-License-Identifier: Apache-2.0
// What a block's part is called in a shared store, and how it is sealed. docs/shared-store.md has the bytes.
//
// A value is a sequence of *packs*, each of some layers' slices, sealed by itself. So a reader of a part of
// the value gets whole packs, verifies each before it is used, and gets the first layers first.
//
//     30 layers of 24 KiB   | pack 0: layers 0-4 | pack 1: 5-9 | ... | pack 5: 25-29 |
//     a pack                | nonce, 12 bytes | 120 KiB, encrypted | tag, 16 bytes |
//
// AES-256-GCM (OpenSSL). Each value has a key of its own, which follows from the cluster's secret, the chain
// key and the group, so a nonce drawn at random never meets another under the same key. What the pack is
// (chain key, group, layers, their size) is bound in as associated data: a pack in another's place does not
// open. Names are keyed hashes of the chain keys, so the store learns none of these.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/memory/chain_key.h"

namespace loci {

// Follow from the cluster's secret and the fingerprint of the state: of the model, and of how its state is
// computed and laid out. So another model's state has other names and does not open.
struct SharedKeys {
  std::array<std::uint8_t, 32> names{};
  std::array<std::uint8_t, 32> seals{};
};

// Layers that share a pool, as the backend's groups: a block's part is `layers` slices.
struct SharedGroup {
  std::uint32_t layers = 0;
  std::uint64_t layer_slice_bytes = 0;
};

// Immutable after construction; thread-safe.
class SharedFormat {
 public:
  SharedFormat(const SharedKeys& keys, std::vector<SharedGroup> groups);

  static constexpr std::uint64_t kSealBytes = 12 + 16;  // that a pack has beside its slices
  // A pack has so many bytes of slices, or less; one slice at least.
  static constexpr std::uint64_t kPackBytesMax = std::uint64_t{128} << 10;

  std::uint32_t group_count() const { return static_cast<std::uint32_t>(groups_.size()); }
  // "loci:1:" and 32 hexadecimal digits.
  std::string name(const ChainKey& key, std::uint32_t group) const;

  struct Pack {
    std::uint32_t first = 0, count = 0;   // layers of the group
    std::uint64_t offset = 0, bytes = 0;  // in the value
  };
  std::uint32_t pack_count(std::uint32_t group) const;
  Pack pack(std::uint32_t group, std::uint32_t index) const;
  std::uint64_t value_bytes(std::uint32_t group) const;
  std::uint64_t slices_bytes(std::uint32_t group, const Pack& pack) const {
    return pack.count * groups_[group].layer_slice_bytes;
  }

  // `block`: the part, layers * layer_slice_bytes. Draws the nonces.
  std::vector<std::byte> seal(const ChainKey& key, std::uint32_t group,
                              std::span<const std::byte> block) const;
  // Opens one pack of a value. `sealed`: any bytes; `slices`: slices_bytes(), undefined after an error.
  // Errors: kDataLoss.
  Status open(const ChainKey& key, std::uint32_t group, const Pack& pack, std::span<const std::byte> sealed,
              std::span<std::byte> slices) const;

 private:
  using SealKey = std::array<std::uint8_t, 32>;
  SealKey seal_key(const ChainKey& key, std::uint32_t group) const;
  std::uint32_t layers_of_pack(std::uint32_t group) const;

  SharedKeys keys_;
  std::vector<SharedGroup> groups_;
};

}  // namespace loci
