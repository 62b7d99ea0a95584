// SPDX-License-Identifier: Apache-2.0
// Remembers why blocks have gone, so that a miss can be explained. Bounded: the oldest are forgotten. No
// decision depends on it.
#pragma once

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
    const auto [found, fresh] = reasons_.insert_or_assign(word(key), reason);
    if (!fresh) return;
    order_.push_back(found->first);
    if (order_.size() <= capacity_) return;
    reasons_.erase(order_.front());
    order_.pop_front();
  }
  MissReason reason(const ChainKey& key) const {
    const auto found = reasons_.find(word(key));
    return found == reasons_.end() ? MissReason::kNeverSeen : found->second;
  }

 private:
  static std::uint64_t word(const ChainKey& key) {
    std::uint64_t value;
    std::memcpy(&value, key.bytes.data(), sizeof value);
    return value;
  }
  std::size_t capacity_;
  std::deque<std::uint64_t> order_;
  std::unordered_map<std::uint64_t, MissReason> reasons_;  // never iterated
};

}  // namespace loci
