// SPDX-License-Identifier: Apache-2.0
// Random worlds: chooses all options of core_world.h at random.
#include <algorithm>
#include <array>

#include "loci/policy/admission_order.h"
#include "loci/policy/eviction.h"
#include "loci/policy/policy_set.h"
#include "loci/sim/core_world.h"

namespace loci {

CoreWorldOptions random_world(const Chooser& choose) {
  const auto number = [&](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(choose(high - low + 1));
  };
  CoreWorldOptions options;
  CoreConfig& config = options.config;
  const std::uint32_t blocks = number(1, choose(2) == 0 ? 6 : 24);
  config.groups = {{.window = 0, .block_count = blocks}};
  config.layers = number(1, 4);
  config.context_tokens = number(2, blocks * kBlockTokens * 3 / 2);
  if (choose(2) == 0) config.context_tokens = blocks * kBlockTokens;
  config.max_batch_tokens = number(1, choose(2) == 0 ? 16 : 120);
  config.max_running = number(1, 8);
  config.max_queued = number(1, 6);
  config.decode_reserve_percent = number(0, 40);
  config.eviction = kEvictionPolicies[choose(kEvictionPolicies.size())];
  config.admission = kAdmissionOrders[choose(kAdmissionOrders.size())];
  if (choose(3) == 0) config.restore = kRestoreRules[choose(kRestoreRules.size())];
  config.admission_looks = number(1, 6);
  config.reuse = choose(8) != 0;
  config.batch = kBatchRules[choose(kBatchRules.size())];
  config.seed = choose(1000);
  if (choose(2) == 0) config.pass_time = number(1, 400) * kNanosPerMilli;
  options.events = number(20, 400);
  options.vocabulary = number(1, 3);
  options.tenants = number(1, 4);
  options.live_max = number(1, 10);
  options.turn_tokens_max = number(0, 70);
  options.new_tokens_max = number(1, 80);
  options.cancels = choose(2) == 0;
  options.deadlines = choose(3) == 0;
  options.poison_one_in = choose(2) == 0 ? 0 : number(1, 30);
  options.grammar_end_one_in = choose(3) == 0 ? number(5, 60) : 0;
  options.drain = choose(3) == 0;
  options.publics = config.reuse && choose(3) == 0;
  options.pauses = choose(3) == 0;
  options.memory_rooms = choose(3) == 0;
  if (choose(3) == 0) {  // decodes that run out of blocks together
    config.context_tokens = blocks * kBlockTokens;
    config.max_running = number(3, 8);
    config.max_batch_tokens = number(8, 200);
    config.decode_reserve_percent = number(0, 15);
    options.live_max = 10;
    options.turn_tokens_max = number(0, 40);
    options.new_tokens_max = blocks * kBlockTokens;
    options.deadlines = options.cancels = false;
  }
  return options;
}

CoreWorldOptions random_window_world(const Chooser& choose) {
  CoreWorldOptions options = random_world(choose);
  const auto number = [&](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(choose(high - low + 1));
  };
  std::vector<CoreGroup>& groups = options.config.groups;
  const std::uint32_t blocks = groups.front().block_count;
  const std::uint64_t shape = choose(4);
  if (shape == 0) groups.clear();  // all layers have a window
  const auto pool = [&] { return choose(2) == 0 ? number(1, 2 + blocks) : number(4, 30); };
  const std::uint32_t window = choose(3) == 0 ? number(1, 200) : 32 * number(1, 3);
  groups.push_back({.window = window, .block_count = pool()});
  if (shape == 3 && window > 1) {
    groups.push_back({.window = number(1, window - 1), .block_count = pool()});
  }
  return options;
}

namespace {

// How far requests that wait are brought what they need.
void draw_loads_ahead(const Chooser& choose, CoreConfig& config) {
  constexpr std::array<std::uint32_t, 3> kPercents = {0, 40, 100};
  constexpr std::array<std::uint32_t, 3> kRetries = {0, 4, kPreloadRetriesMax};
  config.preload = kPreloadRules[choose(kPreloadRules.size())];
  config.prefetch_percent = kPercents[choose(kPercents.size())];
  config.preload_retries = kRetries[choose(kRetries.size())];
}

}  // namespace

CoreWorldOptions random_tier_world(const Chooser& choose) {
  const auto number = [&](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(choose(high - low + 1));
  };
  CoreWorldOptions options = choose(3) == 0 ? random_window_world(choose) : random_world(choose);
  CoreConfig& config = options.config;
  const std::uint64_t tiers = choose(3);
  for (CoreGroup& group : config.groups) {
    if (tiers != 1) group.host_blocks = number(1, 30);
    if (tiers != 0) group.disk_blocks = number(1, 60);
    group.block_bytes = 1000;
  }
  config.hole_records = number(0, 20);
  config.save = choose(2) == 0 ? "through" : kSaveRules[choose(kSaveRules.size())];
  config.swap_out_percent = number(0, 100);
  config.swap_chunk_tokens = kBlockTokens * number(1, 4);
  draw_loads_ahead(choose, config);
  config.saves_max = number(1, 8);
  config.lookahead_requests = config.saves_max / 2;  // from 0, so that the queue outgrows the window
  config.state_ttl = choose(4) == 0 ? 200 * kNanosPerMilli : kNever;
  config.costs.token = choose(4) == 0 ? number(0, 3) : 100;
  config.costs.pass = number(0, 200);
  config.costs.host_charge = choose(2) == 0 ? 0 : static_cast<Nanos>(choose(2'000'000));
  config.costs.disk_charge = choose(2) == 0 ? 0 : static_cast<Nanos>(choose(2'000'000));
  for (LinkCost* link : {&config.costs.host_load, &config.costs.disk_read}) {
    // The last one brings a block in about the time of computing one: plans mix both.
    const std::array<std::uint64_t, 4> rates = {
        1'000'000'000'000, 10'000'000'000, number(1, 20) * 100'000'000ull, number(1, 20) * 100'000'000ull};
    *link = {static_cast<Nanos>(choose(3) == 0 ? number(0, 4'000) : 0), rates[choose(rates.size())]};
  }
  options.passes_take_time = choose(4) != 0;
  if (choose(2) == 0) config.restore = kRestoreRules[choose(kRestoreRules.size())];
  const CoreGroup& first = config.groups.front();
  if (config.groups.size() == 1 && first.window == 0 && first.host_blocks == 0 && choose(2) == 0) {
    config.hidden = {.disk_blocks = number(1, 40),
                     .block_bytes = number(1, 999),
                     .share = {.percent = number(0, 100), .from_block = number(0, 4)},
                     .follows = choose(2) == 0};
    config.costs.projection = choose(2) == 0 ? 0 : static_cast<Nanos>(choose(100));
  }
  options.move_fails_one_in = choose(2) == 0 ? 0 : number(2, 30);
  options.restarts = choose(2) == 0;
  if (choose(2) == 0) {  // long histories on a small device
    config.groups.front().block_count = number(3, 8);
    config.context_tokens = config.groups.front().block_count * kBlockTokens;
    options.live_max = number(1, 4);
    options.publics = options.deadlines = false;
  }
  return options;
}

namespace {

// Half of the layers have a window that reaches to the first token until a conversation is long, so plans
// load a part.
CoreWorldOptions random_wide_window_world(const Chooser& choose) {
  CoreWorldOptions options = random_restore_world(choose);
  CoreConfig& config = options.config;
  CoreGroup wide = config.groups.front();
  wide.window = config.context_tokens / 2 + static_cast<std::uint32_t>(choose(config.context_tokens / 2));
  config.groups.push_back(wide);
  if (choose(3) == 0) {
    config.passes_ahead = 1;
    config.batch = "unified";
  }
  return options;
}

}  // namespace

CoreWorldOptions random_window_tier_world(const Chooser& choose) {
  if (choose(5) == 0) return random_wide_window_world(choose);
  const auto number = [&](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(choose(high - low + 1));
  };
  CoreWorldOptions options = random_window_world(choose);
  CoreConfig& config = options.config;
  const std::uint64_t tiers = choose(3);
  for (CoreGroup& group : config.groups) {
    group.block_count = group.window != 0 ? number(4, 16) : choose(2) == 0 ? number(6, 24) : number(24, 80);
    if (tiers != 1) group.host_blocks = number(10, 60);
    if (tiers != 0) group.disk_blocks = number(40, 200);
    group.block_bytes = 1000;
  }
  config.context_tokens = kBlockTokens * number(4, 12);
  config.hole_records = number(0, 100);
  config.save = choose(4) == 0 ? "ahead" : "through";
  config.swap_out_percent = number(0, 100);
  draw_loads_ahead(choose, config);
  config.restore = choose(2) == 0 ? "kv" : kRestoreRules[choose(kRestoreRules.size())];
  config.saves_max = number(1, 32);
  config.costs.token = 100;
  for (LinkCost* link : {&config.costs.host_load, &config.costs.disk_read})
    *link = {static_cast<Nanos>(number(0, 400)), number(1, 20) * 1'000'000'000ull};
  if (choose(3) == 0) {
    config.passes_ahead = 1;
    config.batch = "unified";
  }
  options.passes_take_time = choose(2) == 0;
  options.events = number(100, 400);
  options.tenants = number(1, 2);
  options.live_max = number(1, 5);
  options.turn_tokens_max = number(1, 100);
  options.new_tokens_max = number(1, 60);
  options.deadlines = options.drain = options.publics = false;
  options.move_fails_one_in = choose(3) == 0 ? number(4, 30) : 0;
  options.restarts = choose(3) != 0;
  return options;
}

CoreWorldOptions random_restore_world(const Chooser& choose) {
  const auto number = [&](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(choose(high - low + 1));
  };
  CoreWorldOptions options = random_world(choose);
  CoreConfig& config = options.config;
  const std::uint32_t blocks = number(8, 20);
  const std::uint64_t tiers = choose(3);
  config.groups = {{.window = 0, .block_count = blocks, .block_bytes = 1000}};
  if (tiers != 1) config.groups.front().host_blocks = number(10, 60);
  if (tiers != 0) config.groups.front().disk_blocks = number(30, 100);
  config.context_tokens = blocks * kBlockTokens;
  config.max_batch_tokens = number(32, 200);
  config.max_running = number(1, 3);
  config.hole_records = number(0, 40);
  config.save = choose(4) == 0 ? "ahead" : "through";
  config.restore = kRestoreRules[choose(kRestoreRules.size())];
  config.costs.token = 100;
  config.costs.attention = {0, 0, 0, 0, 0, static_cast<Nanos>(choose(20))};
  config.costs.pass = number(0, 200);
  config.costs.host_charge = static_cast<Nanos>(choose(1'000'000));
  config.costs.disk_charge = static_cast<Nanos>(choose(1'000'000));
  for (LinkCost* link : {&config.costs.host_load, &config.costs.disk_read})
    *link = {static_cast<Nanos>(number(0, 400)), number(1, 15) * 100'000'000ull};
  options.passes_take_time = true;
  options.events = number(200, 400);
  options.tenants = number(1, 2);
  options.live_max = choose(2) == 0 ? 1 : number(2, 4);
  options.first_tokens_max = blocks * kBlockTokens;
  options.turn_tokens_max = number(1, 100);
  options.new_tokens_max = number(1, 60);
  options.deadlines = options.drain = options.publics = false;
  options.move_fails_one_in = choose(2) == 0 ? 0 : number(4, 30);
  options.restarts = choose(2) == 0;
  return options;
}

CoreWorldOptions random_cut_world(const Chooser& choose) {
  const std::uint64_t kind = choose(4);
  CoreWorldOptions options = kind == 0   ? random_restore_world(choose)
                             : kind == 1 ? random_shared_world(choose)
                                         : random_tier_world(choose);
  const auto number = [&](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(choose(high - low + 1));
  };
  options.cuts = true;
  CoreConfig& config = options.config;
  config.reuse = true;
  // Turns are short beside the context, so that much of what a cut leaves was there before; and there is room
  // for more than one context, so that originals last.
  config.context_tokens = kBlockTokens * number(6, 16);
  for (CoreGroup& group : config.groups) group.block_count = std::max(group.block_count, number(20, 80));
  if (choose(2) == 0) config.restore = "kv";
  draw_loads_ahead(choose, config);
  config.lookahead_requests = number(0, 8);
  config.max_running = number(1, 3);  // so that some wait, and are looked ahead to
  config.max_batch_tokens = number(16, 120);
  options.events = number(150, 500);
  options.tenants = number(1, 2);
  options.vocabulary = 3;
  options.live_max = number(2, 6);
  options.turn_tokens_max = number(20, 70);
  options.new_tokens_max = number(1, 30);
  if (choose(3) == 0) {
    config.passes_ahead = 1;
    config.batch = "unified";
  }
  return options;
}

CoreWorldOptions random_ahead_world(const Chooser& choose) {
  const std::uint64_t kind = choose(4);
  CoreWorldOptions options = kind == 0   ? random_world(choose)
                             : kind == 1 ? random_window_world(choose)
                             : kind == 2 ? random_tier_world(choose)
                                         : random_restore_world(choose);
  options.config.passes_ahead = 1;
  options.config.batch = "unified";
  return options;
}

}  // namespace loci
