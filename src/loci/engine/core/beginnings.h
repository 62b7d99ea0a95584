// SPDX-License-Identifier: Apache-2.0
// The ends of sequences are brought back (docs/decisions/partial-blocks.md). What a request leaves of its
// last block, which is not whole, is saved as a partial block. A request that goes on from one that a slower
// tier alone has waits until that is on the device; there it is a sibling like others, and its tokens are
// copied.
//
// An example, of blocks of four tokens. The turn "abcdef" ended, and the process with it. What the disk has:
//
//     root - abcd - ef..       ef..: a partial block, which holds two tokens
//
// The next turn is "abcdefghi". Its block "efgh" is not known; the partial block has its first two tokens.
//
//     arrival        begin(): load ef..; wait            (no longer than kWaitMax)
//                    Preloads: load abcd behind it
//     ef.. has come  has_come(): enter the queue
//     admission      "efgh" gets a slot, and a copy of "ef"
//     pass           compute "gh", "i"
//
// Without windows, when "efgh" is saved the partial block goes: at most one is kept of a sequence.
//
// A model with windows goes on from one place, where every group has what the next token sees. So there the
// last such place is looked for, and it may be the end of an earlier turn. Layers that see all, and layers
// that see 8 tokens, after "abcdefghijklmn" and a process that was killed in the middle of the next turn:
//
//     all            abcd  efgh  ijkl  mnop  qrst  uvwx       whole blocks, saved as they filled
//                                      mn..
//     window of 8          efgh  ijkl  mn..                   saved when the first turn ended
//
//     "n" was that turn's last token, and the next one sees "hijklmn". The next turn begins like the one that
//     was killed. All its blocks are known, but after "mnop" there is nothing that the window sees. It goes
//     on at "o", from a copy of "mn".
//
// It owns which beginning a request has looked for (RequestBeginning). It requires that the request
// waits. It calls the index, the transfers, the prefixes, the places, the device's memory, Restores and
// Admission. Invariants, which check_invariants() tests (core.h has all):
//   4. What was found begins with tokens of the request, more than the device had, at their position.
//   7. Who waits for a beginning has found one, and waits no longer than kWaitMax.
#pragma once

#include <cstdint>

#include "loci/base/clock.h"
#include "loci/engine/core/admission.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/device_memory.h"
#include "loci/engine/core/places.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/restores.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(blocks · log(children)) of the request
// where no group has a window, else O(blocks · ends), of those that are kept of its sequence; unless noted.
class Beginnings {
 public:
  static constexpr Nanos kWaitMax = 500 * kNanosPerMilli;  // as a pass waits for loads where nobody decodes

  // All eight must outlive it.
  Beginnings(const CoreConfig& config, BlockIndex& index, Transfers& transfers, const Prefixes& prefixes,
             const Places& places, const DeviceMemory& device_memory, const Restores& restores,
             Admission& admission)
      : config_(config),
        index_(index),
        transfers_(transfers),
        prefixes_(prefixes),
        places_(places),
        device_memory_(device_memory),
        restores_(restores),
        admission_(admission) {}

  // Begins to load the first tokens of the request's first unknown block (with windows, of the last block at
  // whose beginning the request can go on), if a slower tier has them and they are worth it. True: they are
  // on their way. `in_flight`: a pass is.
  bool begin(CoreRequest& request, bool in_flight);
  // True: the load has ended, whether it brought the block or not. O(1).
  bool has_come(const CoreRequest& request) const;

  // Of any request. Aborts on a broken invariant. O(a block's tokens).
  void check_invariants(const CoreRequest& request, Nanos now) const;

 private:
  std::optional<CoreBeginning> find(const CoreRequest& request, const CoreProbes& probes, Tier slowest) const;
  // Of a known block: a group's state of it is nowhere, and it has a sibling, whose first tokens may serve.
  bool is_computed(const CoreProbes& probes, std::uint32_t number, Tier slowest) const;

  const CoreConfig& config_;
  BlockIndex& index_;
  Transfers& transfers_;
  const Prefixes& prefixes_;
  const Places& places_;
  const DeviceMemory& device_memory_;
  const Restores& restores_;
  Admission& admission_;
};

}  // namespace loci
