// SPDX-License-Identifier: Apache-2.0
// Chooses which share of the blocks goes to the disk as hidden states (HCache): none, all, or the best one
// for this model on this machine. Also says whether hidden states are possible.
#pragma once

#include <cstdint>
#include <string>

#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/engine/core/core.h"
#include "loci/policy/cost_model.h"
#include "loci/policy/hidden_share.h"

namespace loci {

struct HiddenRequest {
  std::string wanted;            // "off", "auto" or "on"
  std::string save;              // as in CoreConfig
  std::uint64_t host_bytes = 0;  // of the tier of host memory
};

struct HiddenChoice {
  HiddenShare share;              // of the blocks
  bool follows = false;           // while the server runs the share follows what loads and passes take
  std::uint64_t slice_bytes = 0;  // 0: there never are any
  std::string reason;             // for people
};

// Where nobody measured projecting, "auto" chooses none, and "on" all: that is the operator's choice, not a
// prediction. Errors: kInvalidArgument naming hidden, if hidden states were asked for and are not possible.
Result<HiddenChoice> choose_hidden(const HiddenRequest& request, const BackendInfo& info,
                                   const CostCurves& curves);

}  // namespace loci
