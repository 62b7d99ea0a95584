// SPDX-License-Identifier: Apache-2.0
// What tests of worlds begin with.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "loci/sim/world.h"

namespace loci::sim {

// A small model, and a machine without links and pools for it.
inline WorldOptions small_model_world() {
  WorldOptions options;
  options.model.parameters = 1e9;
  options.model.weight_bytes = 2e9;
  options.model.layers = 10;
  options.model.width = 1024;
  options.model.state_width = 512;
  options.machine.product_flops = options.machine.attention_flops = 4e12;
  options.machine.memory_bandwidth = 4e11;
  return options;
}

inline WorldReport run(const Trace& trace, const WorldOptions& options) {
  Result<WorldReport> report = run_world(trace, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return std::move(report).value();
}

}  // namespace loci::sim
