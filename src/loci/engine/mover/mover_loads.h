// SPDX-License-Identifier: Apache-2.0
// Loads from host memory, and copies inside the device: one batch after another. Each goes layer by layer,
// the first layer of all its blocks before the second one (Pensieve §4.3.3, AttentionStore §3.2.1). If the
// backend's copies go on after their calls, a step has several layers, so that a copy is long enough for the
// link, and batches follow one another without a pause.
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

// Thread-compatible; the ends of its copies come on other threads, and it must outlive them
// (Backend::after_loads()). Backend::begin_fill() has been called for its targets.
class MoverLoads {
 public:
  explicit MoverLoads(const MoverLink& link);

  void add(std::vector<Move> moves, Nanos taken);
  // Begins a step of the first batch. False: there is nothing to do.
  bool step();
  // True: copies of batches are in flight.
  bool copying() const { return copying_.load(std::memory_order_acquire) > 0; }
  // All remaining moves fail, without being reported.
  void abandon();

 private:
  struct Load {
    Move move;
    bool over = false;
  };
  struct Batch {
    std::vector<Load> loads;
    Nanos deadline = 0;
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
  // Calls `done` when all copies that were begun have arrived. Calls come in order.
  void after_copies(Copied done);
  void fail_targets(const Move& move) const;

  const MoverLink link_;
  std::vector<Place> places_;  // by layer
  std::deque<std::shared_ptr<Batch>> batches_;
  std::vector<LoadPiece> pieces_;   // pieces of one step
  std::vector<std::byte> scratch_;  // room for one slice
  std::atomic<std::uint32_t> copying_{0};
  Nanos link_free_at_ = 0;  // when the last batch ended; only for the thread that reports ends
};

}  // namespace loci
