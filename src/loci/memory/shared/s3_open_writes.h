// SPDX-License-Identifier: Apache-2.0
// Of which blocks objects are being written, so that no deletion is overtaken by one: a deletion waits until
// they have ended. A write without an answer may yet be carried out by the store, so for some time its block
// counts as *late*, and a deletion of it is done again when that is over.
//
//     PUT a ............ timed out     a is late for two minutes
//     DELETE a           done          and again after these two minutes, unless this server has begun to
//                                      write a anew: then what is there is wanted
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "loci/base/clock.h"
#include "loci/memory/chain_key.h"

namespace loci {

// On the client's thread. Calls cost O(log blocks).
class S3OpenWrites {
 public:
  static constexpr std::size_t kLateMax = 65'536;  // blocks; beyond it the oldest is forgotten

  S3OpenWrites(Nanos late, const Clock& clock) : late_(late), clock_(clock) {}

  void begin(const ChainKey& key) {
    ++open_[key];
    repeats_.erase(key);
  }
  // What is renewed keeps its bytes, which may be those of a late write.
  void begin_renewal(const ChainKey& key) { ++open_[key]; }
  // `answered`: the store said what it did, to each try.
  void end(const ChainKey& key, bool answered) {
    if (--open_[key] == 0) open_.erase(key);
    if (answered) return;
    const Nanos until = clock_.now() + late_;
    late_until_[key] = until;
    order_.emplace_back(until, key);
    while (order_.size() > kLateMax || (!order_.empty() && order_.front().first <= clock_.now()))
      forget_first();
  }
  bool is_open(const ChainKey& key) const { return open_.contains(key); }
  // 0: it is not late.
  Nanos late_until(const ChainKey& key) const {
    const auto found = late_until_.find(key);
    return found == late_until_.end() || found->second <= clock_.now() ? 0 : found->second;
  }
  // A deletion of the block is to be done again at this time.
  void repeat_deletion(const ChainKey& key, Nanos at) { repeats_[key] = at; }
  // It is time. False: the block was written anew since, or another repeat comes later.
  bool take_repeat(const ChainKey& key, Nanos at) {
    const auto found = repeats_.find(key);
    if (found == repeats_.end() || found->second != at) return false;
    repeats_.erase(found);
    return true;
  }

 private:
  void forget_first() {
    const auto [until, key] = order_.front();
    order_.pop_front();
    const auto found = late_until_.find(key);
    if (found != late_until_.end() && found->second == until) late_until_.erase(found);
  }

  const Nanos late_;
  const Clock& clock_;
  std::map<ChainKey, std::uint32_t> open_;  // how many
  std::map<ChainKey, Nanos> late_until_;
  std::map<ChainKey, Nanos> repeats_;  // deletions that are done again, by when
  std::deque<std::pair<Nanos, ChainKey>> order_;
};

}  // namespace loci
