// SPDX-License-Identifier: Apache-2.0
// Which share of a sequence's blocks is best stored as hidden states: HCache's bubble-free plan (§4.1), over
// blocks in place of layers.
//
// An example, of a model whose hidden states are half of its keys and values. The link brings a block's keys
// and values in 4 ms, its hidden states in 2; projecting takes 3 ms. All hidden, computing is busy for 3 ms a
// block, and the link idles. With 4 of 5 blocks hidden both need 12 ms for five blocks, where keys and values
// need 20:
//
//     link      h h h h kkkk      2+2+2+2+4 = 12
//     compute   ppp ppp ppp ppp   3+3+3+3   = 12
//
// Without hidden states leading blocks can be computed while the others are loaded (policy/restore_plan.h);
// projecting takes that time from them. At 20 ms to compute a block, six blocks come in 20 ms:
//
//     link      kkkk kkkk kkkk kkkk kkkk        5 x 4     = 20
//     compute   cccccccccccccccccccccccc        1 x 20    = 20
//
// So a share s is priced by the best that a restore makes of it. Of a block that is loaded, with IO_H and
// IO_KV the link's time, C_H and C_KV what projecting and loading take of computing,
//     L = s IO_H + (1 - s) IO_KV of the link, P = s C_H + (1 - s) C_KV of computing,
// and with C to compute a block instead it takes P where P >= L, else C L / (C + L - P), when so many leading
// blocks are computed that both end together. Where C is beyond all bounds this is HCache's closed form: all
// blocks where C_H <= IO_H, else IO_KV / (IO_KV + C_H - IO_H) of them.
//
// A turn has new tokens to compute too, and in the time T that this takes the link brings T / (IO_KV - C_KV)
// blocks as keys and values, which cost no projecting. So that many blocks at the beginning of a sequence are
// never hidden, and of those behind them the share s is: then link and computing end together behind short
// contexts and long ones. (T is that of a usual turn, whatever its own context is. Where projecting keeps up
// with the link and contexts of one and two usual lengths are best without such a beginning, there is none.)
//
// Projecting takes computing time from all running requests, while a link is otherwise idle. So blocks are
// stored as hidden states only if a turn of a usual length begins in at most nine tenths of the time.
#pragma once

#include <cstdint>

#include "loci/policy/cost_model.h"

namespace loci {

// Of a sequence's blocks. Those that are hidden lie evenly.
struct HiddenShare {
  std::uint32_t percent = 0;     // of the blocks from `from_block` on; 0: none
  std::uint32_t from_block = 0;  // those before it are keys and values

  // True if the block with that number in its sequence is hidden.
  bool holds(std::uint64_t block) const {
    if (block < from_block) return false;
    const std::uint64_t behind = block - from_block;
    return (behind + 1) * percent / 100 != behind * percent / 100;
  }
  friend bool operator==(const HiddenShare&, const HiddenShare&) = default;
};

// None if projecting was not measured, or hidden states are not smaller. Sizes are of a block.
HiddenShare hidden_share(const CostModel& costs, std::uint64_t kv_bytes, std::uint64_t hidden_bytes);

// The same for a server that runs and has saved its blocks by the share `now`: another share only if a turn
// of a usual length begins with it in at most nine tenths of the time, and none if projecting was not
// measured.
HiddenShare next_hidden_share(const CostModel& costs, std::uint64_t kv_bytes, std::uint64_t hidden_bytes,
                              const HiddenShare& now);

// Bytes a second of the disk's link: on a slower one a usual turn begins sooner with all blocks hidden than
// with all as keys and values, as projecting them, and its own tokens, take less than loading these. 0:
// nobody measured projecting.
std::uint64_t hidden_pays_below(const CostModel& costs, std::uint64_t kv_bytes);

}  // namespace loci
