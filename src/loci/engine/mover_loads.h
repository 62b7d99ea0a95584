// Loads from host memory, and copies inside the device: one batch after another, each layer by layer, the
// first layer of all its blocks before the second one's (Pensieve §4.3.2, AttentionStore §3.2.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "loci/engine/mover_link.h"

namespace loci {

// One thread's. Its targets are being filled when it gets them.
class MoverLoads {
 public:
  explicit MoverLoads(const MoverLink& link);

  void add(std::vector<Move> moves, Nanos taken);
  // Brings one layer of the first batch; false: there is nothing to do.
  bool step();
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
  };

  Status bring(const Move& move, const MovePart& part, std::uint32_t layer);
  void fail(Load& load, const Status& status, const Batch& batch);
  void fail_targets(const Move& move) const;

  const MoverLink link_;
  std::vector<Place> places_;  // by layer
  std::deque<Batch> batches_;
  std::vector<std::byte> scratch_;  // a slice
};

}  // namespace loci
