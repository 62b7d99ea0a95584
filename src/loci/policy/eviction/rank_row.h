// SPDX-License-Identifier: Apache-2.0
// Ranks that come to a set, or go from it, one after the other in one direction: those of a conversation's
// blocks, which are let go or held from one end to the other (rank_runs.h).
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace loci {

// Thread-compatible. O(1).
template <class Rank>
class RankRow {
 public:
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  // In ascending order.
  const Rank& operator[](std::size_t i) const { return (*ranks_)[descends_ ? count_ - 1 - i : i]; }
  const Rank& least() const { return (*this)[0]; }
  // True: it is not below the least and not above the greatest.
  bool spans(const Rank& rank) const {
    return count_ > 0 && !(rank < least()) && !((*this)[count_ - 1] < rank);
  }
  // False: the row is full, or the rank does not go on in its direction.
  bool add(const Rank& rank) {
    if (count_ == 0 && ranks_ == nullptr) ranks_ = std::make_unique<Ranks>();
    if (count_ == 1) descends_ = rank < (*ranks_)[0];
    if (count_ > 0) {
      const Rank& last = (*ranks_)[count_ - 1];
      if (count_ == kMost || !(descends_ ? rank < last : last < rank)) return false;
    }
    (*ranks_)[count_++] = rank;
    return true;
  }
  void clear() { count_ = 0; }

 private:
  static constexpr std::size_t kMost = 128;
  using Ranks = std::array<Rank, kMost>;

  std::unique_ptr<Ranks> ranks_;  // null: there was none
  std::size_t count_ = 0;
  bool descends_ = false;
};

}  // namespace loci
