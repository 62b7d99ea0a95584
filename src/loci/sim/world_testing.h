// SPDX-License-Identifier: Apache-2.0
// What tests of worlds begin with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
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

// The same with pools of so many blocks, and links between them.
inline WorldOptions small_world_with_host(std::uint32_t device, std::uint32_t host) {
  WorldOptions options = small_model_world();
  options.machine.host_load = options.machine.host_save = {1'000, 5'000'000'000};
  options.core.groups = {{.block_count = device,
                          .host_blocks = host,
                          .block_bytes = options.model.token_bytes() * kBlockTokens}};
  options.core.layers = options.model.layers;
  options.core.context_tokens = 4096;
  options.core.max_running = 8;
  options.core.max_queued = 1000;
  options.core.costs = PassModel(options.model, options.machine).curves();
  return options;
}

inline WorldReport run(const Trace& trace, const WorldOptions& options) {
  Result<WorldReport> report = run_world(trace, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return std::move(report).value();
}

}  // namespace loci::sim
