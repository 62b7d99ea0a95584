// SPDX-License-Identifier: Apache-2.0
// Of which blocks objects are being written, so that no deletion is overtaken by one: a deletion waits until
// they have ended. A write without an answer may yet be carried out by the store, so for some time its block
// counts as *late*, and a deletion of it is done again when that is over.
//
//     PUT a ............ timed out     a is late for two minutes
//     DELETE a           done          and again after these two minutes, unless this server has written a
//                                      anew since the deletion began: then what is there is wanted
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

  // A write or renewal.
  void begin(const ChainKey& key) { ++open_[key]; }
  // `answered`: the store said what it did, to each try. `is_wanted`: it was to write, and the store has what
  // it was to. (What is renewed keeps its bytes, which may be those of a late write.)
  void end(const ChainKey& key, bool answered, bool is_wanted) {
    if (--open_[key] == 0) open_.erase(key);
    if (is_wanted) {
      repeats_.erase(key);
      if (const auto deleted = deletions_.find(key); deleted != deletions_.end())
        deleted->second.is_wanted = true;
    }
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
  void begin_deletion(const ChainKey& key) { ++deletions_[key].count; }
  // True: the block was written anew meanwhile.
  bool end_deletion(const ChainKey& key) {
    const auto found = deletions_.find(key);
    const bool is_wanted = found->second.is_wanted;
    if (--found->second.count == 0) deletions_.erase(found);
    return is_wanted;
  }
  // A deletion of the block is to be done again at this time.
  void repeat_deletion(const ChainKey& key, Nanos at) { repeats_[key] = at; }
  bool has_repeat(const ChainKey& key, Nanos at) const {
    const auto found = repeats_.find(key);
    return found != repeats_.end() && found->second == at;
  }
  std::size_t repeats() const { return repeats_.size(); }
  // It is time. False: the block was written anew since, or another repeat comes later.
  bool take_repeat(const ChainKey& key, Nanos at) { return has_repeat(key, at) && repeats_.erase(key) > 0; }

 private:
  struct Deletions {
    std::uint32_t count = 0;  // under way
    bool is_wanted = false;   // it was written since the first of them began
  };

  void forget_first() {
    const auto [until, key] = order_.front();
    order_.pop_front();
    const auto found = late_until_.find(key);
    if (found != late_until_.end() && found->second == until) late_until_.erase(found);
  }

  const Nanos late_;
  const Clock& clock_;
  std::map<ChainKey, std::uint32_t> open_;  // how many
  std::map<ChainKey, Deletions> deletions_;
  std::map<ChainKey, Nanos> late_until_;
  std::map<ChainKey, Nanos> repeats_;  // deletions that are done again, by when
  std::deque<std::pair<Nanos, ChainKey>> order_;
};

}  // namespace loci
