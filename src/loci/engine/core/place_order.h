// SPDX-License-Identifier: Apache-2.0
// The places of the requests in the look-ahead window, in order; it tells whether a place is among the first
// n.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>

namespace loci {

// When a request is expected to be admitted (EvictionFacts::wanted), and its arrival.
using QueuePlace = std::pair<std::uint32_t, std::uint64_t>;

// Thread-compatible. Calls cost O(log places); a change of n also costs as many steps as n changes.
class PlaceOrder {
 public:
  PlaceOrder() = default;
  PlaceOrder(const PlaceOrder&) = delete;  // it contains an iterator into itself
  PlaceOrder& operator=(const PlaceOrder&) = delete;

  void insert(const QueuePlace& place) {
    places_.insert(place);
    if (end_ == places_.end() || place < *end_) ++before_;
    settle();
  }
  void erase(const QueuePlace& place) {
    const auto found = places_.find(place);
    if (in_first(place))
      --before_;
    else if (found == end_)
      ++end_;
    places_.erase(found);
    settle();
  }
  void set_first(std::size_t count) {
    first_ = count;
    settle();
  }
  // For a place that is there: true if fewer than `count` places are before it.
  bool in_first(const QueuePlace& place) const { return end_ == places_.end() || place < *end_; }
  bool empty() const { return places_.empty(); }
  std::size_t size() const { return places_.size(); }
  bool contains(const QueuePlace& place) const { return places_.contains(place); }

 private:
  void settle() {
    for (; before_ > first_; --before_) --end_;
    for (; before_ < first_ && end_ != places_.end(); ++before_) ++end_;
  }

  std::set<QueuePlace> places_;
  std::set<QueuePlace>::iterator end_ = places_.end();  // the end of the first places; `before_` places are
                                                        // before it
  std::size_t before_ = 0;
  std::size_t first_ = 0;
};

}  // namespace loci
