// SPDX-License-Identifier: Apache-2.0
// Which blocks' hidden states are captured, and in which of a fixed number of places: the bookkeeping of
// captures (hidden_captures.h has an example), without their bytes. So the simulator decides as the server
// does what is whole and what gives way (sim/modelled_hidden.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "loci/base/ids.h"
#include "loci/compute/pass.h"
#include "loci/engine/core/core.h"
#include "loci/memory/block_entry.h"
#include "loci/policy/hidden_share.h"

namespace loci {

struct CaptureStats {
  std::uint32_t places = 0;
  std::uint64_t displaced_total = 0;  // captures that gave way to others
  std::uint64_t unplaced_total = 0;   // blocks for which no place was free
};

// How many blocks' hidden states may wait in memory to be written: those of the blocks that a few passes
// complete, but at most an eighth of the device's memory. 0 where none are.
std::uint32_t capture_places(const CoreConfig& core);

// Passes may begin while others are in flight. Each piece ends with add() or lost(): add() is called in the
// order in which the passes began, lost() also before pieces of earlier passes, which then count no more.
//
// Thread-compatible. O(log places) for each block, O(places) where one gives way.
class CapturePlaces {
 public:
  // A span's rows of one block.
  struct Piece {
    std::uint32_t span = 0;
    std::uint32_t token = 0;  // its first token, in the span
    SlotId slot;
    std::uint32_t row = 0;  // of the block
    std::uint32_t count = 0;
    std::uint32_t position = 0;  // of the block
    // Of its rows. If the span's token is fed on the device (Span::token_of), it is not known before the pass
    // ends: then the caller puts it here.
    std::array<TokenId, kBlockTokens> tokens{};
    std::uint64_t pass = 0;  // number of its pass
  };

  // `layers`: of the model; a span that ends below the last one is of no use. `share`: of a sequence's
  // blocks, those that are saved as hidden states.
  CapturePlaces(std::uint32_t layers, std::uint32_t places, const HiddenShare& share);

  // From the next pass on it is these blocks. Captures of others stay until they give way.
  void follow(const HiddenShare& share) { share_ = share; }

  // Call it before the pass. The rows that are of use: of blocks that have all rows before them captured.
  // What the pass copies, or computes without them, is forgotten.
  std::vector<Piece> begin(const Pass& pass);
  // Call it for each piece after the pass. The place to put its rows into; absent: there is none, or the
  // block was forgotten meanwhile.
  std::optional<std::uint32_t> add(const Piece& piece);
  // The same if the piece's span has failed: the block is forgotten.
  void lost(const Piece& piece);

  // Something else is written to the slot.
  void forget(SlotId slot);
  // The place of the block in the slot; absent unless all of it is captured and it has the entry's tokens at
  // the entry's place. It stays until close(), which ends it.
  std::optional<std::uint32_t> open(SlotId slot, const BlockEntry& entry);
  void close(SlotId slot);

  const CaptureStats& stats() const { return stats_; }

 private:
  struct Capture {
    std::uint32_t place = 0;
    std::uint32_t rows = 0;
    std::uint32_t position = 0;  // of the first row
    std::array<TokenId, kBlockTokens> tokens{};
    std::uint64_t written = 0;  // number of the pass that wrote last
    bool open = false;
  };
  // Pieces of passes in flight in one slot.
  struct Coming {
    std::uint32_t pieces = 0;
    std::uint32_t rows = 0;         // of the block, when they have been added; 0: nothing follows them
    std::uint32_t position = 0;     // of the block
    std::uint64_t void_before = 0;  // pieces of passes before this number are not added
  };

  bool follows(const Piece& piece) const;
  // True: the piece counts.
  bool ended(const Piece& piece);
  void drop(std::map<SlotId, Capture>::iterator capture);
  Capture* capture_for(const Piece& piece);

  const std::uint32_t layers_;
  HiddenShare share_;
  std::uint64_t passes_ = 0;
  std::map<SlotId, Capture> captures_;
  std::map<SlotId, Coming> coming_;
  std::vector<std::uint32_t> free_;
  CaptureStats stats_;
};

}  // namespace loci
