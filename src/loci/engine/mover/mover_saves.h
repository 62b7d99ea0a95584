// SPDX-License-Identifier: Apache-2.0
// Saves to host memory, to the disk and to the shared store, in this order. They go on in small steps,
// between which loads are seen to, and with bounded buffers: what is on its way to the disk is a copy
// (AttentionStore §3.2.2's write buffer). Where the backend copies by itself a block goes to host memory in
// one piece, and few are on their way, so that a load that comes soon has the link (Pensieve §5, "Prioritize
// data retrieval over eviction").
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "loci/engine/mover/mover_link.h"
#include "loci/memory/block_source.h"

namespace loci {

struct MoverWrite;

// One thread's, but for the ends of its writes and copies. It must outlive them (Backend::after_saves()).
class MoverSaves {
 public:
  // Each may be null where no move writes there.
  MoverSaves(const MoverLink& link, BlockSource* disk, BlockSource* shared);

  void add(std::vector<Move> moves);
  // Copies some layers of the first save to host memory, or else to the disk, or else to the shared store;
  // false: there is nothing that it could do before something ended.
  bool step();

 private:
  struct Save {
    Move move;
    Nanos begun = kNever;
    std::uint32_t part = 0;
    std::uint32_t index = 0;  // of the layer in the part's group
    std::vector<std::byte> buffer;
    std::shared_ptr<MoverWrite> write;  // to a source
  };
  // What a source is to write.
  struct Lane {
    BlockSource* const source;
    std::deque<Save> saves;
    std::atomic<std::uint64_t> buffered{0};  // bytes of saves that have begun
    explicit Lane(BlockSource* to) : source(to) {}
  };

  bool step_host();
  bool step(Lane& lane);
  // Writes what was captured of the block.
  void write_hidden(Save& save, Lane& lane);
  void end_host(const Save& save, MoveResult result);
  // Copies some layers of the save's part, or begins to; true: those were the last.
  Result<bool> copy(Save& save);
  std::span<std::byte> target_of(Save& save, const MovePart& part, LayerRange layers) const;
  void clear_behind(Save& save) const;
  void write(Save& save, Lane& lane);
  void finish(const MoverWrite& write, Lane& lane);

  const MoverLink link_;
  const std::uint64_t step_bytes_;
  std::deque<Save> to_host_;
  Lane to_disk_, to_shared_;
  std::atomic<std::uint64_t> copying_{0};  // bytes of saves to host memory that have begun
  Nanos link_free_at_ = 0;  // when the last save to host memory ended; of the thread that tells
};

}  // namespace loci
