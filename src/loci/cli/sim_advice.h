// SPDX-License-Identifier: Apache-2.0
// `loci sim --advise`: how much host memory and disk to buy.
#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "loci/base/status.h"
#include "loci/sim/scenario.h"
#include "loci/sim/trace.h"

namespace loci {

struct AdviceFlags {
  bool wanted = false;
  std::string ttft, prices;
};

struct AdviceCommand {
  nlohmann::json scenario;
  std::string file;  // for the scenario's errors
  AdviceFlags flags;
  std::string output;  // a file for the advice as JSON; empty: none
  std::function<Result<sim::Trace>(const sim::Scenario&)> load;
  std::function<Status(const sim::Trace&, const sim::WorldOptions&)> check_memory;
};

// Prints the advice, and progress on standard error. Ends when `stop` is set, with what is known then.
// False: no sizes are known that meet the target.
Result<bool> run_advice(AdviceCommand command, const std::atomic<bool>& stop);

}  // namespace loci
