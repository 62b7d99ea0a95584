// SPDX-License-Identifier: Apache-2.0
// What computing and moving state costs on this machine: the curves that `loci profile` measures, and the
// model over them that every policy asks (Pensieve §4.3.1: attention's cost is profiled at powers of two and
// interpolated; the rest is a constant a token).
//
// Integers throughout: the same curves give the same decisions everywhere.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "loci/base/clock.h"
#include "loci/memory/tier.h"

namespace loci {

// One way of moving bytes. Transfers over one link take their turns.
struct LinkCost {
  Nanos latency = 0;                         // of one transfer
  std::uint64_t bytes_per_second = 1 << 30;  // at least 1
  friend bool operator==(const LinkCost&, const LinkCost&) = default;
};

// How fast many reads of one size come, several at once.
struct ReadRate {
  std::uint64_t bytes = 0;             // of a read
  std::uint64_t bytes_per_second = 0;  // at least 1
  friend bool operator==(const ReadRate&, const ReadRate&) = default;
};

// Plain values; part of the core's configuration and of its log.
struct CostCurves {
  // A prompt's token, all but its attention, in a pass that is full enough for throughput to count.
  Nanos token = 1'500'000;
  // attention[i]: the attention of one token that has 2^i tokens before it; at least one entry. Beyond the
  // last it grows in proportion.
  std::vector<Nanos> attention = {2'000};
  Nanos pass = 10'000'000;  // a pass of one row: reading the weights
  // Making keys and values of a token's hidden states, in all layers, inside a pass; 0: not measured, or the
  // backend has no smaller form (compute/hidden_form.h).
  Nanos projection = 0;
  // Of computing, that loading a MiB takes away, as the processor copies, and verifies what comes from the
  // disk: a quarter of a second a GiB (docs/decisions/tiers.md) on two threads.
  Nanos host_charge = 120'000;
  Nanos disk_charge = 120'000;
  LinkCost host_load = {20'000, std::uint64_t{5} << 30};  // host to device
  LinkCost host_save = {20'000, std::uint64_t{5} << 30};
  LinkCost disk_read = {200'000, std::uint64_t{1} << 30};
  LinkCost disk_write = {200'000, std::uint64_t{1} << 29};
  LinkCost shared_read = {1'000'000, std::uint64_t{1} << 28};  // from a store that servers share;
                                                               // from peers alone: server/load_engine.cc
  friend bool operator==(const CostCurves&, const CostCurves&) = default;
};

// The most that any cost is; larger ones are cut off here, so that a few of them can be added.
inline constexpr Nanos kCostMax = std::numeric_limits<Nanos>::max() / 4;

// Immutable; thread-safe. Every cost is in [0, kCostMax], whatever the curves; but for rounding (under a
// nanosecond a token) it never falls where tokens, the context before them or bytes grow.
class CostModel {
 public:
  // Impossible curves are mended: negative costs become 0, a curve that falls stays level instead, and every
  // link moves at least a byte a second.
  explicit CostModel(CostCurves curves);
  const CostCurves& curves() const { return curves_; }

  // Attention of one token with `before` tokens before it. O(1).
  Nanos attention(std::uint32_t before) const;
  // Computing tokens [begin, begin + count) of a sequence: what its parts cost, summed, but for rounding.
  // Cost(l) of Pensieve is compute(l, kBlockTokens). O(log(begin + count)).
  Nanos compute(std::uint32_t begin, std::uint32_t count) const;
  // A pass over `rows` rows whose contexts have `context` tokens in all: the weights are read once, or the
  // rows computed, whichever takes longer, and each row attends to the mean context.
  Nanos pass(std::uint32_t rows, std::uint64_t context) const;
  // Bringing `bytes` from the tier to the device, alone on the link; 0 from the device.
  Nanos load(Tier from, std::uint64_t bytes) const;
  // Projecting a block's hidden states; 0: nobody measured it.
  Nanos project_block() const;
  // How much computing time loading `bytes` from the tier takes away; 0 from the device.
  Nanos load_charge(Tier from, std::uint64_t bytes) const;
  // Occupation of the link to the tier.
  Nanos save(Tier to, std::uint64_t bytes) const;

 private:
  CostCurves curves_;
};

}  // namespace loci
