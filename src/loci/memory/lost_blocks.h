// SPDX-License-Identifier: Apache-2.0
// Remembers why blocks have gone, so that a miss can be explained. Bounded: the oldest are forgotten. No
// decision depends on it.
//
// One table of 131,072 reasons would move all of them to a larger one in one step, which takes milliseconds.
// So there are many tables, by the first bits of the key, which is random; each moves a thousand at most.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <unordered_map>

#include "loci/memory/chain_key.h"
#include "loci/memory/miss_reason.h"

namespace loci {

// Thread-compatible. O(1).
class LostBlocks {
 public:
  explicit LostBlocks(std::size_t capacity) : capacity_(capacity) {}

  void add(const ChainKey& key, MissReason reason) {
    const std::uint64_t name = word(key);
    if (!of(name).insert_or_assign(name, reason).second) return;
    order_.push_back(name);
    if (order_.size() <= capacity_) return;
    of(order_.front()).erase(order_.front());
    order_.pop_front();
  }
  MissReason reason(const ChainKey& key) const {
    const std::uint64_t name = word(key);
    const Reasons& reasons = reasons_[name % kTables];
    const auto found = reasons.find(name);
    return found == reasons.end() ? MissReason::kNeverSeen : found->second;
  }

 private:
  using Reasons = std::unordered_map<std::uint64_t, MissReason>;  // never iterated
  static constexpr std::size_t kTables = 128;

  Reasons& of(std::uint64_t name) { return reasons_[name % kTables]; }
  static std::uint64_t word(const ChainKey& key) {
    std::uint64_t value;
    std::memcpy(&value, key.bytes.data(), sizeof value);
    return value;
  }
  std::size_t capacity_;
  std::deque<std::uint64_t> order_;
  std::array<Reasons, kTables> reasons_;
};

}  // namespace loci
