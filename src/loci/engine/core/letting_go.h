// SPDX-License-Identifier: Apache-2.0
// Blocks of sequences that have ended. They are let go in portions: each goes into two or three orders of
// eviction, and a batch may end with hundreds of thousands of tokens at once.
//
// An example, with portions of three blocks. a, of four blocks, and b, of three, end in one step:
//
//     add(a)          a4 a3 a2: the deepest first, so that no holes arise      left: a1
//     add(b)          b3: the next turn may go on with it                      left: a1   b1 b2
//     let_go_some()   in the next step: a1, then b2 and b1                     left: nothing
//
// Where somebody lacks room let_go_all() comes first.
//
// It owns the pins of these blocks. It requires that each step begins with let_go_some(), that nobody gives
// way before let_go_all(), and that the pins are dropped before the index. It calls the index, by the pins.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "loci/memory/block_index.h"

namespace loci {

// Thread-compatible; used by the core's thread. O(log blocks) for each block that is let go.
class LettingGo {
 public:
  // A step begins. True: something was let go that ended in an earlier one.
  bool let_go_some() {
    left_of_step_ = kBlocksInAStep;
    return let_go();
  }
  // `blocks`: of one sequence, in order.
  void add(std::vector<BlockPin> blocks) {
    if (blocks.empty()) return;
    left_of_step_ = std::max<std::size_t>(left_of_step_, 1);
    drop(blocks);
    if (!blocks.empty()) leaving_.push_back(std::move(blocks));
  }
  // True: something was let go.
  bool let_go_all() {
    left_of_step_ = SIZE_MAX;
    return let_go();
  }
  // True: something is left to the next step.
  bool has_more() const { return !leaving_.empty(); }

  void visit_pins(const std::function<void(const BlockPin&)>& visit) const {
    for (const std::vector<BlockPin>& blocks : leaving_) std::ranges::for_each(blocks, visit);
  }

 private:
  // Each costs about half a microsecond where the index is large.
  static constexpr std::size_t kBlocksInAStep = 16;

  void drop(std::vector<BlockPin>& blocks) {
    for (; !blocks.empty() && left_of_step_ > 0; --left_of_step_) blocks.pop_back();
  }
  bool let_go() {
    const bool any = !leaving_.empty();
    while (!leaving_.empty() && left_of_step_ > 0) {
      drop(leaving_.front());
      if (leaving_.front().empty()) leaving_.pop_front();
    }
    return any;
  }

  std::deque<std::vector<BlockPin>> leaving_;  // the first to go first; none is empty
  std::size_t left_of_step_ = kBlocksInAStep;
};

}  // namespace loci
