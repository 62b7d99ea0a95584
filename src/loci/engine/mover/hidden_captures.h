// SPDX-License-Identifier: Apache-2.0
// Hidden states on their way from passes to the disk: the first stage of HCache's two (§4.2.2). Passes leave
// what the products of K and V consumed; what a pass left of a block goes into a *capture*, one of a fixed
// number of places in host memory, until the block is whole and a mover has written it.
//
// An example, of one block (32 rows):
//
//     pass      rows of it   capture
//     1         0 .. 19      begins: 20 rows
//     2         20           21 rows
//     3         21 .. 31     whole: open() gives it to the mover that saves the block
//
// A capture has each row from the first on, or it is none: a row that was computed without it, a pass that
// failed, a load or a copy into the block's slot end it. Where no place is free the one that was written to
// longest ago and is not read gives way. Whoever finds no whole capture saves keys and values instead, so
// nobody ever waits for one.
//
// Of groups without a window; one group is all that a model has then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "loci/base/host_memory.h"
#include "loci/base/ids.h"
#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/memory/disk/disk_entry.h"

namespace loci {

struct CaptureStats {
  std::uint32_t places = 0;
  std::uint64_t displaced_total = 0;  // captures that gave way to others
  std::uint64_t unplaced_total = 0;   // blocks for which no place was to be had
};

// Thread-safe; passes come from one thread.
class HiddenCaptures {
 public:
  // `places`: blocks. Errors: kResourceExhausted.
  static Result<std::unique_ptr<HiddenCaptures>> make(const BackendInfo& backend, std::uint32_t places);

  // Before the pass: its spans are told to leave what is of use (Span::capture).
  void begin(Pass& pass);
  // After it; `results` are its spans'.
  void end(std::span<const SpanResult> results);

  // Something else is written to the slot.
  void forget(SlotId slot) EXCLUDES(mutex_);
  // The capture of the block in the slot, if it is whole and of the entry's tokens at its place. It stays
  // until close(), which ends it. [layer][token][row].
  std::span<const std::byte> open(SlotId slot, const DiskEntry& entry);
  void close(SlotId slot);

  CaptureStats stats() const;

 private:
  struct Capture {
    std::uint32_t place = 0;
    std::uint32_t rows = 0;
    std::uint32_t position = 0;  // of the first row
    std::array<TokenId, kBlockTokens> tokens{};
    std::uint64_t written = 0;  // the pass
    bool open = false;
  };
  // What a span leaves of a block.
  struct Piece {
    std::uint32_t span = 0;
    std::uint32_t token = 0;  // of the span
    SlotId slot;
    std::uint32_t row = 0;  // of the block
    std::uint32_t count = 0;
    std::uint32_t position = 0;  // of the block
  };

  HiddenCaptures(const BackendInfo& backend, HostMemory memory, std::uint32_t places);
  void drop(std::map<SlotId, Capture>::iterator capture) REQUIRES(mutex_);
  Capture* capture_for(const Piece& piece) REQUIRES(mutex_);
  void add(const Piece& piece, Capture& capture) REQUIRES(mutex_);

  const std::uint32_t layers_;
  const std::uint64_t row_bytes_;
  const HostMemory memory_;
  // Of the pass that runs.
  std::vector<Piece> pieces_;
  std::vector<std::vector<TokenId>> tokens_;     // [span]
  std::vector<std::vector<std::byte>> buffers_;  // [span][layer][token][row]
  std::uint64_t passes_ = 0;

  mutable Mutex mutex_;  // guards the captures' bytes too, but for open ones
  std::map<SlotId, Capture> captures_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_ GUARDED_BY(mutex_);
  CaptureStats stats_ GUARDED_BY(mutex_);
};

}  // namespace loci
