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
// A conversation's ranks leave at the beginning of their run and enter at its end. So a run need not begin
// where its array does, and whichever side of a place has fewer ranks moves.
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
  const Rank& first() const { return *runs_.begin()->second->begin(); }

  // A rank that will be the first after a few erasures; the first if none is near.
  const Rank& soon() const {
    Run& run = *runs_.begin()->second;
    return run.begin()[run.count > kSoon ? kSoon : 0];
  }

  // It is not there.
  void insert(const Rank& rank) {
    if (runs_.empty()) grown_ = shrunk_ = runs_.emplace(rank, std::make_unique<Run>()).first;
    auto at = is_in(grown_, rank) ? grown_ : run_for(rank);
    if (rank < at->first) at = begin_with(at, rank);
    Run* run = at->second.get();
    Rank* place = run->place_of(rank);
    LOCI_CHECK(place == run->end() || *place != rank, "a rank is in the order once");
    if (run->count == kMost) {
      at = make_room(at, rank, place == run->end());
      run = at->second.get();
      place = run->place_of(rank);
    }
    run->insert(place, rank);
    ++size_;
    grown_ = at;
  }

  // It is there.
  void erase(const Rank& rank) {
    LOCI_CHECK(size_ > 0, "only what is in the order leaves it");
    const auto at = run_of(rank, shrunk_);
    Run& run = *at->second;
    Rank* const place = run.place_of(rank);
    LOCI_CHECK(place != run.end() && *place == rank, "only what is in the order leaves it");
    run.erase(place);
    --size_;
    shrunk_ = at;
    if (run.count < kMost / 4) join(at);
  }

  // Aborts on a broken invariant: runs are in order, and none is empty. O(size).
  void check_invariants() const {
    std::size_t size = 0;
    for (auto at = runs_.begin(); at != runs_.end(); ++at) {
      Run& run = *at->second;
      LOCI_CHECK(run.count > 0 && run.first + run.count <= kMost && std::is_sorted(run.begin(), run.end()),
                 "a run is in order");
      LOCI_CHECK(!(*run.begin() < at->first), "a run begins where it is said to");
      const auto next = std::next(at);
      LOCI_CHECK(next == runs_.end() || *(run.end() - 1) < next->first, "runs are in order");
      size += run.count;
    }
    LOCI_CHECK(size == size_, "ranks are counted");
  }

 private:
  static constexpr std::size_t kSoon = kMost / 8;
  static constexpr int kLastRuns = 3;
  struct Run {
    std::uint32_t first = 0;  // of the array; those before it are nobody's
    std::uint32_t count = 0;
    std::array<Rank, kMost> ranks;
    Rank* begin() { return ranks.data() + first; }
    Rank* end() { return begin() + count; }
    // Where the rank is, or belongs: mostly at one of the ends.
    Rank* place_of(const Rank& rank) {
      if (count == 0 || !(*begin() < rank)) return begin();
      Rank* const last = end() - 1;
      if (!(rank < *last)) return *last < rank ? end() : last;
      return std::lower_bound(begin(), last, rank);
    }
    bool reaches_end() const { return first + count == kMost; }
    // It has room.
    void insert(Rank* place, const Rank& rank) {
      if (reaches_end() || (first > 0 && place - begin() < end() - place)) {
        std::move(begin(), place, begin() - 1);
        --first;
        --place;
      } else {
        std::move_backward(place, end(), end() + 1);
      }
      *place = rank;
      ++count;
    }
    void erase(Rank* place) {
      if (place - begin() < end() - place - 1) {
        std::move_backward(begin(), place, place + 1);
        ++first;
      } else {
        std::move(place + 1, end(), place);
      }
      if (--count == 0) first = 0;
    }
    // All behind the first `stay` ranks go to the end of `to`, which has room.
    void give(std::size_t stay, Run& to) {
      if (to.first > 0) std::move(to.begin(), to.end(), to.ranks.data());
      to.first = 0;
      std::move(begin() + stay, end(), to.end());
      to.count += static_cast<std::uint32_t>(count - stay);
      count = static_cast<std::uint32_t>(stay);
    }
  };
  // By a rank that is not above its first one, but above all of the runs before it.
  using Runs = std::map<Rank, std::unique_ptr<Run>>;

  bool is_in(typename Runs::iterator at, const Rank& rank) {
    if (rank < at->first) return false;
    if (at->second->count == 0) return true;              // the only run, of an empty set
    if (!(*(at->second->end() - 1) < rank)) return true;  // mostly, and the tree is not walked
    if (at == std::prev(runs_.end())) return true;        // what was used just now goes behind all others
    return rank < std::next(at)->first;
  }
  // Where the rank is, or belongs; the first run where it is below all. Some run is there.
  // `guess`: some run.
  typename Runs::iterator run_of(const Rank& rank, typename Runs::iterator guess) {
    if (is_in(guess, rank)) return guess;
    const auto behind = runs_.upper_bound(rank);
    return behind == runs_.begin() ? behind : std::prev(behind);
  }
  // The same for a rank that comes. Mostly it is of something that was used just now, and belongs into one of
  // the last runs; of those that a search of the tree passes most are in no cache.
  typename Runs::iterator run_for(const Rank& rank) {
    auto at = runs_.end();
    for (int i = 0; i < kLastRuns && at != runs_.begin(); ++i) {
      if (!(rank < (--at)->first)) return at;
    }
    return run_of(rank, at);
  }
  // The run in which the rank finds room, as this one, where it belongs, is full.
  typename Runs::iterator make_room(typename Runs::iterator at, const Rank& rank, bool is_behind) {
    const auto behind = std::next(at);
    const bool is_last = behind == runs_.end();
    if (is_behind && !is_last && behind->second->count < kMost) return begin_with(behind, rank);
    // What goes behind all others begins a run, so that runs that nothing comes into are full.
    Run& run = *at->second;
    const std::size_t stay = is_behind && is_last ? kMost : kMost / 2;
    const Rank begin = stay == kMost ? rank : run.begin()[stay];
    const auto next = runs_.emplace_hint(behind, begin, std::make_unique<Run>());
    run.give(stay, *next->second);
    return rank < next->first ? at : next;
  }
  // From now on the run, which is the first or stands behind one without room, begins with the rank.
  typename Runs::iterator begin_with(typename Runs::iterator at, const Rank& rank) {
    const bool grown = grown_ == at, shrunk = shrunk_ == at;
    const auto next = std::next(at);
    auto node = runs_.extract(at);
    node.key() = rank;
    at = runs_.insert(next, std::move(node));
    if (grown) grown_ = at;
    if (shrunk) shrunk_ = at;
    return at;
  }
  // A run with few ranks takes those of its neighbour, or gives its own.
  void join(typename Runs::iterator at) {
    const auto next = std::next(at);
    const auto fits = [&](typename Runs::iterator other) {
      return at->second->count + other->second->count <= kMost / 2;
    };
    if (next != runs_.end() && fits(next)) {
      next->second->give(0, *at->second);
      drop(next, at);
    } else if (at != runs_.begin() && fits(std::prev(at))) {
      at->second->give(0, *std::prev(at)->second);
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
