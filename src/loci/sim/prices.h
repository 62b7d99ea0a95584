// SPDX-License-Identifier: Apache-2.0
// Prices of memory and the sizes on offer, from a JSON file (docs/simulation.md describes it).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/sim/tier_search.h"

namespace loci::sim {

inline constexpr std::size_t kSizesMax = 64;  // of one tier

// Sizes count only memory for state, in units of 10^9 bytes.
struct Prices {
  std::string currency;
  double machine_hour = 0;  // of everything of a machine that is not chosen here
  double host_gb_hour = 0;
  double disk_gb_hour = 0;
  std::vector<double> host_gb;  // ascending
  std::vector<double> disk_gb;
  // Costs of the sizes in so many machines, without what else these cost.
  TierCosts costs(std::uint32_t machines) const;
};

// If the file lists no sizes, they are 0 and sizes that double, up to the first that holds `state_gb`, the
// state of the whole trace. Errors: kInvalidArgument "FILE: FIELD: expected ..., found ...".
Result<Prices> parse_prices(const nlohmann::json& json, const std::string& file, double state_gb);

}  // namespace loci::sim
