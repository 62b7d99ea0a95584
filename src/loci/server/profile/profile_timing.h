// SPDX-License-Identifier: Apache-2.0
// Times single passes and copies on a backend's slots. `loci profile` (profile_measure.h) and a server's own
// rough profile (profile_rough.h) are made of these.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/compute/hidden_form.h"
#include "loci/policy/cost_model.h"

namespace loci {

// Slots that nobody else uses: `count` in every group's pool.
struct SpareSlots {
  std::vector<std::uint32_t> first;  // by group
  std::uint32_t count = 0;           // at least 2
};

// Processor time that all threads of this process have used together.
Nanos processor_time();
// The cost model's charge: how much time of computing is lost for each MiB of work that used `processor` time
// for `bytes` bytes. The work ran on any of the machine's processors, while computing uses all of them.
Nanos charge_per_mib(Nanos processor, std::uint64_t bytes);

// Thread-compatible. Nobody else may run passes on the backend while this does.
class PassTimer {
 public:
  PassTimer(Backend& backend, SpareSlots slots) : backend_(backend), slots_(std::move(slots)) {}

  // A pass of one span: `rows` tokens from `position` on, through the first `layers` layers. A context of
  // more blocks than there are slots reads them again and again; the rows' own blocks must fit.
  Nanos run(std::uint32_t position, std::uint32_t rows, std::uint32_t layers, LogitsWanted logits);
  // A pass of so many decodes, each of a sequence of its own with `position` tokens before it, and with
  // logits. At most decodes_max().
  Nanos run_decodes(std::uint32_t position, std::uint32_t count);
  // The part of a pass of one row that projects so many blocks before it, which have come as hidden states;
  // at most projected_max().
  Nanos project(const HiddenForm& form, std::uint32_t blocks);
  std::uint32_t projected_max() const { return slots_.count - 1; }
  std::uint32_t decodes_max(std::uint32_t position) const {
    return slots_.count / (position / kBlockTokens + 1);
  }
  // The most rows that a pass may have.
  std::uint32_t rows_max() const { return (slots_.count - 1) * kBlockTokens; }

 private:
  // Its blocks are the slots from `slot` on.
  Span span_of(std::uint32_t position, std::uint32_t rows, std::uint32_t layers, std::uint64_t slot) const;
  Nanos time(Pass pass);

  Backend& backend_;
  SpareSlots slots_;
  std::vector<SpanResult> results_;
};

// Fills in host_load, host_save and host_charge. For the rate, copies many blocks into the slots and out of
// them as movers do, and waits for the last byte; for the latency, copies a single slice. Copies about
// `bytes` at once. Errors: those of Backend::allocate_host().
Status measure_host_links(Backend& backend, const SpareSlots& slots, std::uint64_t bytes, int tries,
                          CostCurves& curves);

}  // namespace loci
