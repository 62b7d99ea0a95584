// SPDX-License-Identifier: Apache-2.0
// Times single passes and copies on a backend's slots: what `loci profile` (profile_measure.h) and a server's
// own rough profile (profile_rough.h) measure with.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/policy/cost_model.h"

namespace loci {

// Slots that nobody else uses, so many in every group's pool.
struct SpareSlots {
  std::vector<std::uint32_t> first;  // by group
  std::uint32_t count = 0;           // at least 2
};

// Time of the processor that this process has used, all its threads together.
Nanos processor_time();
// Of computing, that work takes away which costs so much of the processor for so many bytes: the cost model's
// charge of a MiB. The work is anywhere on the machine's processors, and computing is on all of them.
Nanos charge_per_mib(Nanos processor, std::uint64_t bytes);

// Thread-compatible; the backend's passes are this one's while it runs.
class PassTimer {
 public:
  PassTimer(Backend& backend, SpareSlots slots) : backend_(backend), slots_(std::move(slots)) {}

  // A pass of one span: `rows` tokens from `position` on, through the first `layers` layers. A context of
  // more blocks than there are slots reads them again and again; the rows' own blocks must fit.
  Nanos run(std::uint32_t position, std::uint32_t rows, std::uint32_t layers, LogitsWanted logits);
  // The most rows that a pass may have.
  std::uint32_t rows_max() const { return (slots_.count - 1) * kBlockTokens; }

 private:
  Backend& backend_;
  SpareSlots slots_;
  std::vector<SpanResult> results_;
};

// Fills in host_load, host_save and host_charge: many blocks into the slots and out of them, as movers bring
// and take them, until the last byte is there; the latency: a single slice. `bytes`: about so many at once.
// Errors: as Backend::allocate_host().
Status measure_host_links(Backend& backend, const SpareSlots& slots, std::uint64_t bytes, int tries,
                          CostCurves& curves);

}  // namespace loci
