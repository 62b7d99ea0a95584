// SPDX-License-Identifier: Apache-2.0
// What memory costs and in which sizes it can be had, from a JSON file (docs/simulation.md describes it).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/sim/tier_search.h"

namespace loci::sim {

inline constexpr std::size_t kSizesMax = 64;  // of a tier

// Sizes are in 10^9 bytes for state.
struct Prices {
  std::string currency;
  double machine_hour = 0;  // of all that is not chosen here
  double host_gb_hour = 0;
  double disk_gb_hour = 0;
  std::vector<double> host_gb;  // ascending
  std::vector<double> disk_gb;
  TierCosts costs() const;  // of the sizes, without the machine
};

// Where the file lists no sizes: none, and powers of two up to the first that holds `state_gb`, what the
// whole trace could leave. Errors: kInvalidArgument "FILE: FIELD: expected ..., found ...".
Result<Prices> parse_prices(const nlohmann::json& json, const std::string& file, double state_gb);

}  // namespace loci::sim
