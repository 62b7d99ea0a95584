// SPDX-License-Identifier: Apache-2.0
// Loads from host memory, and copies inside the device: one batch after another, each layer by layer, the
// first layer of all its blocks before the second one's (Pensieve §4.3.3, AttentionStore §3.2.1). Where the
// backend copies by itself several layers make a step, so that a copy is long enough for the link, and
// batches follow one another on it without a pause.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "loci/engine/mover/mover_link.h"

namespace loci {

// One thread's, but for the ends of its copies. It must outlive them (Backend::after_loads()). Its targets
// are being filled when it gets them.
class MoverLoads {
 public:
  explicit MoverLoads(const MoverLink& link);

  void add(std::vector<Move> moves, Nanos taken);
  // Begins a step of the first batch; false: there is nothing to do.
  bool step();
  // Copies of batches are on their way.
  bool copying() const { return copying_.load(std::memory_order_acquire) > 0; }
  // What is left fails, and nobody is told.
  void abandon();

 private:
  struct Load {
    Move move;
    bool over = false;
  };
  struct Batch {
    std::vector<Load> loads;
    Nanos taken = 0;
    Nanos begun = kNever;
    std::uint32_t layer = 0;
  };
  struct Place {
    std::uint32_t group = 0;
    std::uint32_t index = 0;
    std::uint32_t run = 1;  // layers of the group that come with this one; 0: it comes with an earlier one
  };

  void bring(Batch& batch, const Place& place);
  Status prepare(const Move& move, const MovePart& part, const Place& place);
  void fail(Load& load, const Status& status, const Batch& batch);
  void end(std::shared_ptr<Batch> batch);
  // When all that was begun has come. In order.
  void after_copies(Copied done);
  void fail_targets(const Move& move) const;

  const MoverLink link_;
  std::vector<Place> places_;  // by layer
  std::deque<std::shared_ptr<Batch>> batches_;
  std::vector<LoadPiece> pieces_;   // of a step
  std::vector<std::byte> scratch_;  // a slice
  std::atomic<std::uint32_t> copying_{0};
  Nanos link_free_at_ = 0;  // when the last batch ended; of the thread that tells
};

}  // namespace loci
