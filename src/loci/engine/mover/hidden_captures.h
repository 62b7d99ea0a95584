// SPDX-License-Identifier: Apache-2.0
// Hidden states on their way from passes to the disk: the first of HCache's two stages (§4.2.2). Passes
// return the inputs of the products of K and V. The rows of a block go into a *capture*, one of a fixed
// number of places in host memory, and stay there until the block is whole and a mover has written it.
//
// An example, of one block (32 rows):
//
//     pass      rows of it   capture
//     1         0 .. 19      begins: 20 rows
//     2         20           21 rows
//     3         21 .. 31     whole: open() gives it to the mover that saves the block
//
// A capture has all rows from the first on. It ends if a row is computed without it, if a pass fails, or if
// something is loaded or copied into the block's slot. A block whose place says that it will be saved as keys
// and values has none (policy/hidden_share.h). If no place is free, the capture that was written
// longest ago and is not being read gives way. If a block has no whole capture its keys and values are saved
// instead, so nobody waits for a capture to become whole.
//
// A pass may begin while another is in flight. If its tokens are the samples of the pass before, they become
// known with the end of that one.
//
// Only for models without windows, which have one layer group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "loci/base/host_memory.h"
#include "loci/base/ids.h"
#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/engine/mover/capture_places.h"
#include "loci/memory/block_entry.h"

namespace loci {

struct HiddenCapturesOptions {
  std::uint32_t places = 1;  // the number of blocks
  HiddenShare share;         // which blocks are captured, at first
  // The most rows that wait to be copied, of passes that have ended; one pass alone may have more. What a
  // pass beyond it has captured is dropped.
  std::uint64_t waiting_rows = 4096;
  // The most bytes of buffers that are kept for passes to come; one alone may have more.
  std::uint64_t spare_bytes = std::uint64_t{256} << 20;
  // The copying thread calls it before it copies a pass's rows of a block. It may wait. With it tests make
  // copying slow.
  std::function<void()> before_copy;
};

// The thread that calls begin() and end() copies no rows. The backend writes them into buffers that come from
// Backend::allocate_host(); a thread of this class copies them from there to the captures. If it falls
// behind, what a pass has captured is dropped.
//
// Thread-safe; begin() and end() are called by one thread.
class HiddenCaptures {
 public:
  // The backend must outlive it. Errors: kResourceExhausted.
  static Result<std::unique_ptr<HiddenCaptures>> make(Backend& backend, HiddenCapturesOptions options);
  ~HiddenCaptures();

  // From the next pass on these blocks are captured.
  void follow(const HiddenShare& share) EXCLUDES(mutex_);

  // Call it before the pass: it sets Span::capture of the spans whose hidden states are of use.
  void begin(Pass& pass) EXCLUDES(mutex_);
  // Call it after the pass that began first; `results` are those of its spans.
  void end(std::span<const SpanResult> results) EXCLUDES(mutex_);

  // Call it when something else is written to the slot.
  void forget(SlotId slot) EXCLUDES(mutex_);
  // How many passes have ended, and whether the first so many of them are copied. Before that a block that
  // they computed may lack rows.
  std::uint64_t ended() const EXCLUDES(mutex_);
  bool is_copied(std::uint64_t passes) const EXCLUDES(mutex_);
  // The capture of the block in the slot, [layer][token][row]; empty unless it is whole and has the entry's
  // tokens at the entry's place. It stays until close(), which ends it. Waits for no pass: where one that
  // computes the same block again is being copied, it is empty.
  std::span<const std::byte> open(SlotId slot, const BlockEntry& entry) EXCLUDES(mutex_);
  void close(SlotId slot) EXCLUDES(mutex_);

  // Of the passes that are copied by now; it does not wait for others.
  CaptureStats stats() const EXCLUDES(mutex_);

 private:
  // A pass in flight, or one that has ended and whose rows are to be copied.
  struct Begun {
    std::vector<CapturePlaces::Piece> pieces;
    std::vector<std::optional<std::uint32_t>> token_of;  // [span]
    std::vector<std::uint64_t> first_row;                // [span]: of its tokens in the buffer
    std::uint64_t rows = 0;                              // of all spans that are captured
    HostMemory buffer;                                   // [layer][rows][row]
    std::vector<bool> whole;                             // [piece]: it may be added
  };

  HiddenCaptures(Backend& backend, HostMemory memory, HiddenCapturesOptions options);
  // False: there is no memory.
  bool make_room(Begun& begun) EXCLUDES(mutex_);
  // The spare buffer that suits so many bytes best; an empty one if there is none.
  HostMemory take_spare(std::uint64_t bytes) REQUIRES(mutex_);
  // Returns the buffers that are not kept: to be freed without the mutex.
  [[nodiscard]] std::vector<HostMemory> give_back(HostMemory buffer) REQUIRES(mutex_);
  // False: its token is not known, because the pass before has not sampled it.
  bool learn_token(const Begun& pass, CapturePlaces::Piece& piece) const;
  void run() EXCLUDES(mutex_);  // the thread
  void keep(const Begun& pass) EXCLUDES(mutex_);
  void copy(const Begun& pass, const CapturePlaces::Piece& piece, std::uint32_t place) const;

  Backend& backend_;
  const HiddenCapturesOptions options_;
  const std::uint32_t layers_;
  const std::uint64_t row_bytes_;
  // Of places that are not open only the thread writes the bytes, and nobody reads them. While it writes a
  // block's, the block is not opened.
  const HostMemory memory_;
  // Only for the thread that calls begin() and end():
  std::deque<Begun> begun_;
  std::vector<std::optional<TokenId>> samples_;  // [span] of the pass that ended last

  mutable Mutex mutex_;
  Condition changed_;
  CapturePlaces places_ GUARDED_BY(mutex_);
  // Those that the thread has not begun to copy. Each has a row, so they are no more than waiting_rows, or
  // one.
  std::deque<Begun> ended_ GUARDED_BY(mutex_);
  std::uint64_t ended_total_ GUARDED_BY(mutex_) = 0;   // were put there; they are copied in that order
  std::uint64_t copied_total_ GUARDED_BY(mutex_) = 0;  // of these, also if there was nothing to copy
  std::optional<SlotId> writing_ GUARDED_BY(mutex_);   // the block whose rows are being copied
  // Buffers of passes that are copied or dropped, the one that was given back last at the end. One more is
  // allocated only if none is spare. When no pass waits to be copied no more are kept than passes are in
  // flight, or a few.
  std::vector<HostMemory> spare_ GUARDED_BY(mutex_);
  std::uint64_t spare_bytes_ GUARDED_BY(mutex_) = 0;
  std::size_t in_use_ GUARDED_BY(mutex_) = 0;          // buffers of passes in flight, and of those that wait
  std::uint64_t waiting_rows_ GUARDED_BY(mutex_) = 0;  // of passes that have ended and are not copied
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace loci
