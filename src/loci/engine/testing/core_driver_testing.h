// SPDX-License-Identifier: Apache-2.0
// Drives a core for tests that look at its passes and at what requests are told.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"

namespace loci {

// Every sample is `token`. The invariants are checked after each step.
class CoreDriver {
 public:
  explicit CoreDriver(const CoreConfig& config) : core(Core::make(config).value()) {}

  const Plan& step(const Event& event) {
    plan = core.step(now, event);
    core.check_invariants();
    if (plan.pass) in_flight = plan;
    outputs.insert(outputs.end(), plan.outputs.begin(), plan.outputs.end());
    return plan;
  }
  const Plan& arrive(std::uint64_t id, const Tokens& prompt, std::uint32_t max_new = 1,
                     Nanos deadline = kNever) {
    Arrival arrival{RequestId(id), "group", prompt, max_new, 0, {}, deadline};
    return step(arrival);
  }
  // Ends the pass in flight; span `poisoned` has failed.
  const Plan& done(std::size_t poisoned = SIZE_MAX) {
    return step(pass_done(*std::exchange(in_flight, {}), token, poisoned));
  }
  void finish() {
    while (in_flight) done();
  }
  template <class T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const Output& output : outputs) {
      if (const auto* o = std::get_if<T>(&output)) found.push_back(*o);
    }
    return found;
  }
  Finished finished(std::uint64_t id) const {
    for (const Finished& f : all<Finished>()) {
      if (f.request == RequestId(id)) return f;
    }
    ADD_FAILURE() << "request " << id << " has not finished";
    return {};
  }
  std::string spans() const { return spans_of(plan); }

  Core core;
  Nanos now = 0;
  TokenId token{7};
  Plan plan;
  std::optional<Plan> in_flight;
  std::vector<Output> outputs;
};

}  // namespace loci
