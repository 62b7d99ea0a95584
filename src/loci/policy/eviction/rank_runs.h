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
// A conversation's ranks come and go one after the other, in either direction. Such a row waits until
// somebody asks for what it changes, or for something else than its next rank, and is merged into the runs at
// once:
//
//     erase 4b, 4c, insert 9c, 9d     goes 4b 4c, comes 9c 9d; the runs are as before
//     first()                         1a: nothing that waits is before it
//     erase 1a                        it is the first, and goes from its run
//     insert 2a                       9c 9d ascend, and 2a does not go on there: they are merged first
//
// So a rank costs a few instructions; else it takes a search and moves its neighbours. A run need not begin
// where its array does, so that whichever side of a place has fewer ranks moves. Ranks are plain values.
//
// A run with fewer than a quarter of the most ranks joins a neighbour if both together have at most half.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>

#include "loci/base/check.h"
#include "loci/policy/eviction/rank_row.h"

namespace loci {

// `Rank`: plain; compares; no two are equal. Thread-compatible. O(1) amortised where a call follows one of
// its kind for a near rank, else O(log size).
template <class Rank, std::size_t kMost = 64>
class RankRuns {
  static_assert(std::is_trivially_copyable_v<Rank>);
  using Row = RankRow<Rank>;

 public:
  RankRuns() = default;
  RankRuns(const RankRuns&) = delete;  // it contains an iterator into itself
  RankRuns& operator=(const RankRuns&) = delete;

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // Of a set that is not empty.
  const Rank& first() {
    if (!gone_.empty() && (runs_.empty() || !(head() < gone_.least()))) settle_gone();
    const bool has_come = !come_.empty() && (runs_.empty() || come_.least() < head());
    return has_come ? come_.least() : head();
  }

  // A rank that will probably be the first after a few erasures. Of a set that is not empty.
  const Rank& soon() const {
    if (runs_.empty()) return come_.least();
    Run& run = *runs_.begin()->second;
    return run.begin()[run.count > kSoon ? kSoon : 0];
  }

  // It is not there. (If it is, a later call aborts.)
  void insert(const Rank& rank) {
    if (gone_.spans(rank)) settle_gone();
    if (!come_.add(rank)) {
      settle_come();
      come_.add(rank);
    }
    ++size_;
  }

  // It is there. (If not, a later call aborts.)
  void erase(const Rank& rank) {
    LOCI_CHECK(size_ > 0, "only what is in the order leaves it");
    --size_;
    if (come_.spans(rank)) settle_come();
    if (!runs_.empty() && head() == rank) {
      const auto first = runs_.begin();
      first->second->erase(first->second->begin(), 1);
      has_shrunk(first);
    } else if (!gone_.add(rank)) {
      settle_gone();
      gone_.add(rank);
    }
  }

  // Aborts on a broken invariant: runs are in order, and none is empty. O(size).
  void check_invariants() {
    settle_gone();
    settle_come();
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
    // It will be searched, and half of it moved: nothing of it is in a cache where it was not used just now.
    void prefetch() const {
      constexpr std::size_t kLine = 64;
      const char* const lines = reinterpret_cast<const char*>(this);
      for (std::size_t at = 0; at < sizeof(Run); at += kLine) __builtin_prefetch(lines + at, 1);
    }
    Rank* begin() { return ranks.data() + first; }
    Rank* end() { return begin() + count; }
    // Where the rank is, or belongs: mostly behind all others; else nobody can foretell on which side of the
    // middle.
    Rank* place_of(const Rank& rank) {
      if (count == 0 || *(end() - 1) < rank) return end();
      Rank* at = begin();
      for (std::size_t left = count; left > 1;) {
        const std::size_t half = left / 2;
        at += *(at + half - 1) < rank ? half : 0;
        left -= half;
      }
      return at;
    }
    // Puts `more` of the row's ranks, from `from` on, where they belong. There is room.
    void insert(const Row& row, std::size_t from, std::size_t more) {
      Rank* place = place_of(row[from]);
      LOCI_CHECK(place == end() || *place != row[from], "a rank is in the order once");
      if (place == end() || row[from + more - 1] < *place) {
        place = open(place, more);
        for (std::size_t i = 0; i < more; ++i) place[i] = row[from + i];
        return;
      }
      const std::size_t number = place - begin();
      Rank* at = open(end(), more);
      place = begin() + number;
      for (Rank* to = end(); more > 0;) {
        const Rank& next = row[from + more - 1];
        if (at != place && next < *(at - 1)) {
          *--to = *--at;
          continue;
        }
        LOCI_CHECK(at == place || *(at - 1) != next, "a rank is in the order once");
        *--to = next;
        --more;
      }
    }
    // Makes a gap for `more` ranks, and returns where it begins.
    Rank* open(Rank* place, std::size_t more) {
      const std::size_t before = place - begin(), behind = count - before;
      if (before < behind && first >= more) {
        move(begin(), before, begin() - more);
        first -= static_cast<std::uint32_t>(more);
      } else {
        if (first + count + more > kMost) center(more);
        move(begin() + before, behind, begin() + before + more);
      }
      count += static_cast<std::uint32_t>(more);
      return begin() + before;
    }
    // Moves all ranks so that half of the room that is left with `more` of them is before the first one.
    void center(std::size_t more) {
      const std::size_t at = (kMost - count - more) / 2;
      move(begin(), count, ranks.data() + at);
      first = static_cast<std::uint32_t>(at);
    }
    static void move(const Rank* from, std::size_t many, Rank* to) {
      std::memmove(static_cast<void*>(to), from, many * sizeof(Rank));
    }
    void erase(Rank* place, std::size_t fewer) {
      const std::size_t before = place - begin(), behind = count - before - fewer;
      if (before < behind) {
        move(begin(), before, begin() + fewer);
        first += static_cast<std::uint32_t>(fewer);
      } else {
        move(place + fewer, behind, place);
      }
      count -= static_cast<std::uint32_t>(fewer);
      if (count == 0) first = 0;
    }
    // Takes out those of the row's ranks, from `from` on, that are not above its last one. Returns how many.
    std::size_t erase(const Row& row, std::size_t from) {
      Rank* to = place_of(row[from]);
      const Rank last = *(end() - 1);
      std::size_t next = from;
      Rank* at = to;
      while (next < row.size() && !(last < row[next])) {
        if (*at == row[next])
          ++next;
        else
          *to++ = *at;
        LOCI_CHECK(++at != end() || next == row.size() || last < row[next],
                   "only what is in the order leaves it");
      }
      LOCI_CHECK(next > from, "only what is in the order leaves it");
      erase(to, at - to);
      return next - from;
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

  // Of a set with runs.
  const Rank& head() const { return *runs_.begin()->second->begin(); }
  void has_shrunk(typename Runs::iterator at) {
    shrunk_ = at;
    if (at->second->count < kMost / 4) join(at);
  }
  void settle_gone() {
    for (std::size_t i = 0; i < gone_.size();) {
      LOCI_CHECK(!runs_.empty(), "only what is in the order leaves it");
      // (What follows in the row is mostly in the next run.)
      const bool is_next = i > 0 && !is_in(shrunk_, gone_[i]) && std::next(shrunk_) != runs_.end();
      const auto at = run_of(gone_[i], is_next ? std::next(shrunk_) : shrunk_);
      at->second->prefetch();
      i += at->second->erase(gone_, i);
      has_shrunk(at);
    }
    gone_.clear();
  }
  void settle_come() {
    for (std::size_t i = 0; i < come_.size();) {
      const Rank& rank = come_[i];
      if (runs_.empty()) grown_ = shrunk_ = runs_.emplace(rank, std::make_unique<Run>()).first;
      auto at = is_in(grown_, rank) ? grown_ : run_for(rank);
      if (at != grown_) at->second->prefetch();
      if (rank < at->first) at = begin_with(at, rank);
      if (at->second->count == kMost) {
        const Rank* place = at->second->place_of(rank);
        LOCI_CHECK(place == at->second->end() || *place != rank, "a rank is in the order once");
        at = make_room(at, rank, place == at->second->end());
      }
      const auto next = std::next(at);
      std::size_t more = std::min(come_.size() - i, kMost - at->second->count);
      while (next != runs_.end() && !(come_[i + more - 1] < next->first)) more = (more + 1) / 2;
      at->second->insert(come_, i, more);
      i += more;
      grown_ = at;
    }
    come_.clear();
  }
  bool is_in(typename Runs::iterator at, const Rank& rank) {
    if (rank < at->first) return false;
    if (at->second->count == 0) return true;              // the only run, which is new
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

  Row come_, gone_;  // that wait; no rank is in both
  Runs runs_;
  // Those that the last insert() and erase() were in, or beside; if there is one.
  typename Runs::iterator grown_ = runs_.end(), shrunk_ = runs_.end();
  std::size_t size_ = 0;
};

}  // namespace loci
