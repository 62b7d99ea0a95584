// SPDX-License-Identifier: Apache-2.0
// The papers' policies as sets of this server's policies, to compare with. A paper's set has each policy that
// the paper names; where the paper says nothing, the code says what was chosen. Mechanisms that no switch
// turns off (blocks of 32 tokens, prefixes shared within a tenant, loads layer by layer) are the same under
// every set.
#pragma once

#include <array>
#include <string_view>

#include "loci/base/status.h"
#include "loci/policy/policy_set.h"

namespace loci {

inline constexpr std::array<std::string_view, 4> kBaselines = {"pensieve", "attentionstore", "berkeley-lru",
                                                               "stateless"};

struct Baseline {
  PolicySet policies;
  // The tiers that the paper's system has below the device; what it lacks is not to be used.
  bool host_tier = true;
  bool disk_tier = true;
  bool truncates = false;  // a history that outgrows the context loses its oldest half and keeps its state
};

// Pure. Errors: kInvalidArgument (field "baseline") naming them all.
Result<Baseline> find_baseline(std::string_view name);

}  // namespace loci
