// SPDX-License-Identifier: Apache-2.0
// A set of ranks in ascending order, for eviction orders: of hundreds of thousands of blocks, which enter and
// leave with every turn.
//
// Ranks lie in runs, each an array; a tree has the runs. A tree of single ranks would cost a line of the
// cache for each step from its root, and some more where it is balanced again. The blocks of a conversation
// were used at one time, so their ranks are neighbours, and one run has many of them:
//
//     runs       [1a 1b 1c 4a]  [4b 4c 7a 7b]  [9a 9b]       at most four ranks each, here
//     insert 9c     the last insert was in this run, so nothing is searched: [9a 9b 9c]
//     insert 2a     [1a 1b 1c 4a] is full and is divided: [1a 1b] [1c 2a 4a]
//     erase 1a, 1b  the run is empty and goes
//
// A run with fewer than a quarter of the most ranks joins a neighbour if both together have at most half.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "loci/base/check.h"

namespace loci {

// `Rank`: compares; no two are equal. Thread-compatible. O(1) amortised where a call follows one of its kind
// for a near rank, else O(log size).
template <class Rank, std::size_t kMost = 64>
class RankRuns {
 public:
  RankRuns() = default;
  RankRuns(const RankRuns&) = delete;  // it contains an iterator into itself
  RankRuns& operator=(const RankRuns&) = delete;

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // Of a set that is not empty.
  const Rank& first() const { return runs_.begin()->second->ranks.front(); }

  // A rank that will be the first after a few erasures; the first if none is near.
  const Rank& soon() const {
    const Run& run = *runs_.begin()->second;
    return run.ranks[run.count > kSoon ? kSoon : 0];
  }

  // It is not there.
  void insert(const Rank& rank) {
    if (runs_.empty()) grown_ = shrunk_ = runs_.emplace(rank, std::make_unique<Run>()).first;
    auto at = run_of(rank, grown_);
    if (rank < at->first) at = begin_with(rank);
    Run* run = at->second.get();
    Rank* place = std::lower_bound(run->begin(), run->end(), rank);
    LOCI_CHECK(place == run->end() || *place != rank, "a rank is in the order once");
    if (run->count == kMost) {
      // What goes behind all others begins a run, so that runs that nothing comes into are full.
      const bool is_last = place == run->end() && std::next(at) == runs_.end();
      const std::size_t stay = is_last ? kMost : kMost / 2;
      const Rank& begin = is_last ? rank : run->ranks[stay];
      const auto next = runs_.emplace_hint(std::next(at), begin, std::make_unique<Run>());
      move(*run, stay, *next->second);
      if (!(rank < next->first)) at = next;
      run = at->second.get();
      place = std::lower_bound(run->begin(), run->end(), rank);
    }
    std::move_backward(place, run->end(), run->end() + 1);
    *place = rank;
    ++run->count;
    ++size_;
    grown_ = at;
  }

  // It is there.
  void erase(const Rank& rank) {
    LOCI_CHECK(size_ > 0, "only what is in the order leaves it");
    const auto at = run_of(rank, shrunk_);
    Run& run = *at->second;
    Rank* const place = std::lower_bound(run.begin(), run.end(), rank);
    LOCI_CHECK(place != run.end() && *place == rank, "only what is in the order leaves it");
    std::move(place + 1, run.end(), place);
    --run.count;
    --size_;
    shrunk_ = at;
    if (run.count < kMost / 4) join(at);
  }

  // Aborts on a broken invariant: runs are in order, and none is empty. O(size).
  void check_invariants() const {
    std::size_t size = 0;
    for (auto at = runs_.begin(); at != runs_.end(); ++at) {
      const Run& run = *at->second;
      LOCI_CHECK(run.count > 0 && std::is_sorted(run.ranks.begin(), run.ranks.begin() + run.count),
                 "a run is in order");
      LOCI_CHECK(!(run.ranks.front() < at->first), "a run begins where it is said to");
      const auto next = std::next(at);
      LOCI_CHECK(next == runs_.end() || run.ranks[run.count - 1] < next->first, "runs are in order");
      size += run.count;
    }
    LOCI_CHECK(size == size_, "ranks are counted");
  }

 private:
  static constexpr std::size_t kSoon = kMost / 8;
  struct Run {
    std::uint32_t count = 0;
    std::array<Rank, kMost> ranks;
    Rank* begin() { return ranks.data(); }
    Rank* end() { return ranks.data() + count; }
  };
  // By a rank that is not above its first one, but above all of the runs before it.
  using Runs = std::map<Rank, std::unique_ptr<Run>>;

  bool is_in(typename Runs::iterator at, const Rank& rank) {
    if (rank < at->first) return false;
    if (at->second->count == 0) return true;              // the only run, of an empty set
    if (!(*(at->second->end() - 1) < rank)) return true;  // mostly, and the tree is not walked
    const auto next = std::next(at);
    return next == runs_.end() || rank < next->first;
  }
  // Where the rank is, or belongs; the first run where it is below all. Some run is there.
  // `guess`: some run.
  typename Runs::iterator run_of(const Rank& rank, typename Runs::iterator guess) {
    if (is_in(guess, rank)) return guess;
    const auto behind = runs_.upper_bound(rank);
    return behind == runs_.begin() ? behind : std::prev(behind);
  }
  // The first run has room for it, at its begin.
  typename Runs::iterator begin_with(const Rank& rank) {
    const bool grown = grown_ == runs_.begin(), shrunk = shrunk_ == runs_.begin();
    auto node = runs_.extract(runs_.begin());
    node.key() = rank;
    const auto first = runs_.insert(runs_.begin(), std::move(node));
    if (grown) grown_ = first;
    if (shrunk) shrunk_ = first;
    return first;
  }
  // All behind the first `stay` ranks go to the end of `to`.
  static void move(Run& from, std::size_t stay, Run& to) {
    std::move(from.begin() + stay, from.end(), to.end());
    to.count += static_cast<std::uint32_t>(from.count - stay);
    from.count = static_cast<std::uint32_t>(stay);
  }
  // A run with few ranks takes those of its neighbour, or gives its own.
  void join(typename Runs::iterator at) {
    const auto next = std::next(at);
    const auto fits = [&](typename Runs::iterator other) {
      return at->second->count + other->second->count <= kMost / 2;
    };
    if (next != runs_.end() && fits(next)) {
      move(*next->second, 0, *at->second);
      drop(next, at);
    } else if (at != runs_.begin() && fits(std::prev(at))) {
      move(*at->second, 0, *std::prev(at)->second);
      drop(at, std::prev(at));
    } else if (at->second->count == 0) {
      drop(at, next != runs_.end() || at == runs_.begin() ? next : std::prev(at));
    }
  }
  // `instead`: a run beside it; the end: it is the only one.
  void drop(typename Runs::iterator at, typename Runs::iterator instead) {
    if (grown_ == at) grown_ = instead;
    if (shrunk_ == at) shrunk_ = instead;
    runs_.erase(at);
  }

  Runs runs_;
  // Those that the last insert() and erase() were in, or beside; if there is one.
  typename Runs::iterator grown_ = runs_.end(), shrunk_ = runs_.end();
  std::size_t size_ = 0;
};

}  // namespace loci
