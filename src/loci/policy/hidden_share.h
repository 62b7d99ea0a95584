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
// With C_H the time to project, IO_H and IO_KV to load: where C_H > IO_H the share is
// IO_KV / (IO_KV + C_H - IO_H); else all of them, and leading tokens may be computed meanwhile
// (policy/restore_plan.h).
//
// Projecting is computing, which all who run lose, while a link is free: so nothing is stored as hidden
// states that would not be restored in nine tenths of the time.
#pragma once

#include <cstdint>

#include "loci/policy/cost_model.h"

namespace loci {

// Of 100; 0 where nobody measured projecting, or the form is not smaller. Sizes are a block's.
std::uint32_t hidden_share_percent(const CostModel& costs, std::uint64_t kv_bytes,
                                   std::uint64_t hidden_bytes);

// Bytes a second of the disk's link: on a slower one all hidden blocks come sooner than all as keys and
// values, as projecting a block takes less than loading its keys and values. 0: nobody measured projecting.
std::uint64_t hidden_pays_below(const CostModel& costs, std::uint64_t kv_bytes);

}  // namespace loci
