// SPDX-License-Identifier: Apache-2.0
// A core's configuration: the first record of an event log.
#include "loci/engine/log/event_log_codec.h"

#include <fmt/format.h>

#include <algorithm>

#include "loci/engine/log/log_bytes.h"

namespace loci {
namespace {

void put(LogWriter& w, const LinkCost& link) {
  w.number(link.latency);
  w.number(link.bytes_per_second);
}

}  // namespace

void put(LogWriter& w, const CostCurves& costs) {
  w.number(costs.token);
  w.list(costs.attention, [&](Nanos cost) { w.number(cost); });
  w.number(costs.pass);
  w.number(costs.projection);
  w.number(costs.host_charge);
  w.number(costs.disk_charge);
  for (const LinkCost& link :
       {costs.host_load, costs.host_save, costs.disk_read, costs.disk_write, costs.shared_read})
    put(w, link);
}

void get(LogReader& r, CostCurves& costs) {
  costs.token = r.number<Nanos>("token");
  r.list(costs.attention, 8, "attention", [&](Nanos& cost) { cost = r.number<Nanos>("attention"); });
  if (costs.attention.empty()) r.fail("attention", "expected at least one cost, found none");
  costs.pass = r.number<Nanos>("pass");
  costs.projection = r.number<Nanos>("projection");
  costs.host_charge = r.number<Nanos>("host_charge");
  costs.disk_charge = r.number<Nanos>("disk_charge");
  for (LinkCost* link :
       {&costs.host_load, &costs.host_save, &costs.disk_read, &costs.disk_write, &costs.shared_read}) {
    link->latency = r.number<Nanos>("latency");
    link->bytes_per_second = r.number<std::uint64_t>("bytes_per_second");
  }
}

namespace {

void put(LogWriter& w, const PolicySet& policies) {
  w.text(policies.eviction);
  w.text(policies.admission);
  w.number(policies.admission_looks);
  w.text(policies.restore);
  w.flag(policies.reuse);
  w.text(policies.save);
  w.number(policies.swap_out_percent);
  w.number(policies.swap_chunk_tokens);
  w.number(policies.decode_reserve_percent);
  w.number(policies.lookahead_requests);
  w.number(policies.prefetch_percent);
  w.text(policies.preload);
  w.number(policies.preload_retries);
  w.text(policies.batch);
}

void get(LogReader& r, PolicySet& policies) {
  policies.eviction = r.text("eviction");
  policies.admission = r.text("admission");
  policies.admission_looks = r.number<std::uint32_t>("admission_looks");
  policies.restore = r.text("restore");
  policies.reuse = r.flag("reuse");
  policies.save = r.text("save");
  policies.swap_out_percent = r.number<std::uint32_t>("swap_out_percent");
  policies.swap_chunk_tokens = r.number<std::uint32_t>("swap_chunk_tokens");
  policies.decode_reserve_percent = r.number<std::uint32_t>("decode_reserve_percent");
  policies.lookahead_requests = r.number<std::uint32_t>("lookahead_requests");
  policies.prefetch_percent = r.number<std::uint32_t>("prefetch_percent");
  policies.preload = r.text("preload");
  policies.preload_retries = r.number<std::uint32_t>("preload_retries");
  policies.batch = r.text("batch");
}

// What a disk holds from before and what peers ask name blocks by keys that another process has made, which
// its secret alone can check.
bool hears_keys(const CoreConfig& config) {
  return std::any_of(config.groups.begin(), config.groups.end(),
                     [](const CoreGroup& group) { return group.disk_blocks > 0 || group.shared_blocks > 0; });
}

}  // namespace

void encode_config(const CoreConfig& config, LoggedSecret secret, std::string& out) {
  LogWriter w(out);
  w.list(config.groups, [&](const CoreGroup& group) {
    w.number(group.window);
    w.number(group.block_count);
    w.number(group.host_blocks);
    w.number(group.disk_blocks);
    w.number(group.shared_blocks);
    w.number(group.block_bytes);
  });
  w.number(config.layers);
  w.number(config.context_tokens);
  w.number(config.max_batch_tokens);
  w.number(config.max_running);
  w.number(config.max_queued);
  w.number(config.passes_ahead);
  w.bytes(config.model_fingerprint);
  w.number(config.seed);
  put(w, static_cast<const PolicySet&>(config));
  w.number(config.saves_max);
  w.number(config.hole_records);
  w.flag(config.writes_shared);
  w.number(config.shared_rounds);
  w.number(config.hidden.disk_blocks);
  w.number(config.hidden.block_bytes);
  w.number(config.hidden.share.percent);
  w.number(config.hidden.share.from_block);
  w.flag(config.hidden.follows);
  w.number(config.state_ttl);
  w.number(config.pass_time);
  put(w, config.costs);
  const bool keyed = secret == LoggedSecret::kKept && hears_keys(config);
  w.flag(keyed);
  if (keyed) w.bytes(config.chain_secret);
}

Result<LoggedConfig> decode_config(std::string_view bytes) {
  LogReader r(bytes);
  LoggedConfig logged;
  CoreConfig& config = logged.core;
  const auto count = r.number<std::uint32_t>("groups");
  if (count == 0 || count > kLayerGroupsMax) {
    r.fail("groups", fmt::format("expected 1 to {}, found {}", kLayerGroupsMax, count));
  }
  for (std::uint32_t group = 0; group < std::min(count, kLayerGroupsMax); ++group) {
    CoreGroup& g = config.groups.emplace_back();
    g.window = r.number<std::uint32_t>("window");
    g.block_count = r.number<std::uint32_t>("block_count");
    g.host_blocks = r.number<std::uint32_t>("host_blocks");
    g.disk_blocks = r.number<std::uint32_t>("disk_blocks");
    g.shared_blocks = r.number<std::uint32_t>("shared_blocks");
    g.block_bytes = r.number<std::uint64_t>("block_bytes");
  }
  config.layers = r.number<std::uint32_t>("layers");
  config.context_tokens = r.number<std::uint32_t>("context_tokens");
  config.max_batch_tokens = r.number<std::uint32_t>("max_batch_tokens");
  config.max_running = r.number<std::uint32_t>("max_running");
  config.max_queued = r.number<std::uint32_t>("max_queued");
  config.passes_ahead = r.number<std::uint32_t>("passes_ahead");
  r.bytes(config.model_fingerprint, "model_fingerprint");
  config.seed = r.number<std::uint64_t>("seed");
  get(r, static_cast<PolicySet&>(config));
  config.saves_max = r.number<std::uint32_t>("saves_max");
  config.hole_records = r.number<std::uint32_t>("hole_records");
  config.writes_shared = r.flag("writes_shared");
  config.shared_rounds = r.number<std::uint32_t>("shared_rounds");
  config.hidden.disk_blocks = r.number<std::uint32_t>("hidden");
  config.hidden.block_bytes = r.number<std::uint64_t>("hidden");
  config.hidden.share.percent = r.number<std::uint32_t>("hidden");
  config.hidden.share.from_block = r.number<std::uint32_t>("hidden");
  config.hidden.follows = r.flag("hidden");
  config.state_ttl = r.number<Nanos>("state_ttl");
  config.pass_time = r.number<Nanos>("pass_time");
  get(r, config.costs);
  const bool has_secret = r.flag("has_secret");
  if (has_secret && !hears_keys(config))
    r.fail("has_secret", "expected none without a disk or others that share");
  if (has_secret) r.bytes(config.chain_secret, "chain_secret");
  if (!has_secret && hears_keys(config)) logged.secret = LoggedSecret::kLeftOut;
  LOCI_RETURN_IF_ERROR(r.finish("config"));
  return logged;
}

}  // namespace loci
