// SPDX-License-Identifier: Apache-2.0
// Which share of the blocks goes to the disk as hidden states (HCache): none, all, or what is best for this
// model on this machine; and whether they can.
#pragma once

#include <cstdint>
#include <string>

#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/engine/core/core.h"
#include "loci/policy/cost_model.h"

namespace loci {

struct HiddenRequest {
  std::string wanted;            // "off", "auto" or "on"
  std::string save;              // as of CoreConfig
  std::uint64_t host_bytes = 0;  // of the tier of host memory
};

struct HiddenChoice {
  std::uint32_t percent = 0;  // of the blocks; 0: none
  std::uint64_t slice_bytes = 0;
  std::string reason;  // for people
};

// Errors: kInvalidArgument naming hidden, where they are asked for and cannot be.
Result<HiddenChoice> choose_hidden(const HiddenRequest& request, const BackendInfo& info,
                                   const CostCurves& curves);

// Blocks that a few passes complete, whose hidden states wait to be written; at most an eighth of the
// device's memory.
std::uint32_t capture_places(const CoreConfig& core);

}  // namespace loci
