// SPDX-License-Identifier: Apache-2.0
// Saves to host memory, to the disk and to the shared store, in this order. They proceed in small steps,
// between which loads get their turn. Bytes on their way to the disk are copies in bounded buffers
// (AttentionStore §3.2.2's write buffer). If the backend's copies go on after their calls, a block goes to
// host memory in one piece. Only a few are in flight, so that a load soon gets the link (Pensieve §5,
// "Prioritize data retrieval over eviction").
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

// Thread-compatible; the ends of its writes and copies come on other threads, and it must outlive them
// (Backend::after_saves()).
class MoverSaves {
 public:
  // `disk` and `shared` may be null if no move writes there.
  MoverSaves(const MoverLink& link, BlockSource* disk, BlockSource* shared);

  void add(std::vector<Move> moves);
  // Copies some layers of the first save to host memory; if there is none, of the first one to the disk, else
  // to the shared store. False: it can do nothing until something has ended.
  bool step();
  // When step() may have something to do again though nothing has ended: rows of hidden states are still
  // being copied. kNever: not before something has ended. Of the last step(): ask only behind one.
  Nanos wanted_at() const { return awaits_rows_ ? link_.desk.now() + kRowsAwaited : kNever; }
  // Drops all saves that are not written whole, because the mover ends. The disk forgets what is in their
  // slots. The core has given up what was there before, and can't name it any more: a later start would find
  // it even if its conversation has been deleted meanwhile.
  void abandon();

 private:
  struct Save {
    Move move;
    Nanos begun = kNever;
    std::uint32_t part = 0;
    std::uint32_t index = 0;  // index of the layer in the part's group
    std::vector<std::byte> buffer;
    std::shared_ptr<MoverWrite> write;  // for a write to the disk or the shared store
    std::uint64_t passes = 0;           // of hidden states: that had ended when it began
  };
  // The saves to one of the stores.
  struct Lane {
    BlockSource* const source;
    std::deque<Save> saves;
    std::atomic<std::uint64_t> buffered{0};  // bytes of saves that have begun
    explicit Lane(BlockSource* to) : source(to) {}
  };

  static constexpr Nanos kRowsAwaited = kNanosPerMilli;

  bool step_host();
  bool step(Lane& lane);
  // The rows of passes that had ended when it began are copied.
  bool has_rows(const Save& save);
  // Writes the block's captured hidden states.
  void write_hidden(Save& save, Lane& lane);
  void end_host(const Save& save, MoveResult result);
  // Copies some layers of the save's part, or begins to copy them. True: those were the last.
  Result<bool> copy(Save& save);
  std::span<std::byte> target_of(Save& save, const MovePart& part, LayerRange layers) const;
  void clear_behind(Save& save) const;
  void write(Save& save, Lane& lane);
  void finish(const MoverWrite& write, Lane& lane);

  const MoverLink link_;
  const std::uint64_t step_bytes_;
  std::deque<Save> to_host_;
  Lane to_disk_, to_shared_;
  bool awaits_rows_ = false;               // a save stands first whose rows are not copied
  std::atomic<std::uint64_t> copying_{0};  // bytes of saves to host memory that have begun
  Nanos link_free_at_ = 0;  // when the last save to host memory ended; only for the thread that reports ends
};

}  // namespace loci
