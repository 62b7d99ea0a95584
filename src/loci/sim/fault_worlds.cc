// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/fault_worlds.h"

#include <algorithm>
#include <array>

#include "loci/base/check.h"
#include "loci/engine/core/link_breaker.h"
#include "loci/policy/admission_order.h"
#include "loci/policy/eviction.h"
#include "loci/policy/policy_set.h"
#include "loci/policy/restore_plan.h"

namespace loci::sim {
namespace {

class Maker {
 public:
  Maker(Random& random, WorldSize size) : random_(random), large_(size == WorldSize::kLarge) {}

  FaultWorld make() {
    FaultWorld world;
    make_machine(world.options);
    make_memory(world.options.core);
    make_policies(world.options.core);
    world.options.core.costs = PassModel(world.options.model, world.options.machine).curves();
    world.options.check = !large_;
    if (one_in(3)) world.options.overflow = one_in(2) ? Overflow::kTruncate : Overflow::kCut;
    if (one_in(3)) world.options.deadline = number(10, 10'000) * kNanosPerMilli;
    make_requests(world.trace, world.options.core.context_tokens);
    make_faults(world.options.faults);
    return world;
  }

  FaultWorld make_lone() {
    FaultWorld world = make();
    if (!one_in(3)) return world;
    FaultOptions& faults = world.options.faults;
    faults.disk_slow_at = number(0, 20'000) * kNanosPerMilli;
    faults.disk_speed = one_in(2) ? 0 : number(1, 500) / 1000.0;
    // What is given up sooner is no silence (LinkBreaker::kSilenceMin), and is asked for again without end.
    faults.disk_limit = std::max(number(100, 12'000) * kNanosPerMilli, LinkBreaker::kSilenceMin);
    return world;
  }

  FaultWorld make_hidden() {
    FaultWorld world = make_lone();
    WorldOptions& options = world.options;
    CoreConfig& core = options.core;
    CoreGroup& group = core.groups.front();
    const std::uint32_t scale = large_ ? 40 : 1;
    group.host_blocks = 0;
    group.disk_blocks = scale * number(1, 100);
    core.hole_records = number(0, group.disk_blocks / 2);
    const std::uint64_t row_of_kv = group.block_bytes / (std::uint64_t{core.layers} * kBlockTokens);
    options.model.hidden_row_bytes = number(1, static_cast<std::uint32_t>(row_of_kv) - 1);
    core.hidden = {
        .disk_blocks = scale * number(1, 100),
        .block_bytes = options.model.hidden_token_bytes() * kBlockTokens,
        .share = {.percent = one_in(3) ? 100 : number(0, 100), .from_block = one_in(2) ? 0 : number(1, 8)},
        .follows = one_in(2)};
    core.save = "through";
    if (one_in(2)) core.restore = one_in(2) ? "hcache" : "hidden";
    options.machine.projection_flops = one_in(2) ? 0 : number(1, 100) * 1e11;
    if (one_in(4)) options.machine.hidden_saving = HiddenSaving::kDirect;
    options.machine.small_write = number(0, 500) * 1'000;
    if (one_in(3)) options.machine.projecting = Projecting::kOnArrival;
    options.device_keeps = one_in(2);
    core.costs = PassModel(options.model, options.machine).curves();
    if (one_in(3)) core.costs.projection = number(0, 100'000);  // what it believes
    return world;
  }

  FaultWorld make_cluster() {
    FaultWorld world = make();
    ClusterOptions& cluster = world.options.cluster;
    cluster.instances = number(2, 5);
    cluster.fronts = number(1, 3);
    if (one_in(2)) cluster.policy = kPolicies[random_.below(kPolicies.size())];
    cluster.peers = !one_in(4);
    if (cluster.peers && one_in(2)) cluster.prefills = number(1, cluster.instances - 1);
    cluster.reads_early = !one_in(4);
    if (one_in(2)) cluster.handover = Handover::kAlways;
    cluster.network = {static_cast<Nanos>(number(0, 5'000)) * 1'000,
                       number(1, 1'000) * std::uint64_t{1'000'000}};
    cluster.peer_rounds = static_cast<std::uint8_t>(number(1, kPeerRoundsMax));
    cluster.peer_rounds_bytes = 0;
    // Little enough for gaps.
    cluster.published = {.chunks_max = number(1, large_ ? 2'000 : 200),
                         .of_block_max = number(1, 8),
                         .events_kept = number(1, 300)};
    if (!large_) cluster.tree_entries_max = 1 << 14;  // more than all prompts of a small world have
    FaultOptions& faults = world.options.faults;
    faults.restarts = number(500, 20'000) * kNanosPerMilli;
    if (!one_in(4)) faults.away = number(1, 10'000) * kNanosPerMilli;
    if (!one_in(3)) faults.disk_lost = one_in(3) ? 1 : 0.5;
    return world;
  }

 private:
  static constexpr std::array kPolicies = {RoutingPolicy::kPromptTree, RoutingPolicy::kSession,
                                           RoutingPolicy::kLeastLoad};

  std::uint32_t number(std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(random_.below(high - low + 1));
  }
  bool one_in(std::uint32_t n) { return random_.below(n) == 0; }
  template <class Names>
  auto one_of(const Names& names) {
    return names[random_.below(names.size())];
  }

  void make_machine(WorldOptions& options) {
    options.model.parameters = 1e9;
    options.model.weight_bytes = 2e9;
    options.model.layers = number(1, 10);
    options.model.width = 1024;
    options.model.state_width = 512;
    Machine& machine = options.machine;
    machine.product_flops = machine.attention_flops = 4e12;
    machine.memory_bandwidth = 4e11;
    for (LinkCost* link : {&machine.host_load, &machine.host_save})
      *link = {static_cast<Nanos>(number(0, 50'000)), number(1, 100) * 100'000'000ull};
    for (LinkCost* link : {&machine.disk_read, &machine.disk_write})
      *link = {static_cast<Nanos>(number(0, 200'000)), number(1, 100) * 10'000'000ull};
    machine.duplex_percent = number(50, 100);
    machine.disk_shared = one_in(2);
    machine.split_passes = one_in(4);
    options.core.layers = options.model.layers;
  }

  void make_memory(CoreConfig& core) {
    const std::uint32_t scale = large_ ? 40 : 1;
    CoreGroup group{.block_count = scale * number(4, 40)};
    if (!one_in(4)) group.host_blocks = scale * number(1, 80);
    if (!one_in(4)) group.disk_blocks = scale * number(1, 200);
    core.hole_records = number(0, group.disk_blocks / 2);
    core.context_tokens = number(16, std::min(group.block_count, 200u) * kBlockTokens);
    group.block_bytes = std::uint64_t{core.layers} * 2 * 512 * 2 * kBlockTokens;
    core.groups = {group};
    core.max_batch_tokens = number(16, 600);
    core.max_running = number(1, large_ ? 64 : 8);
    core.max_queued = number(1, large_ ? 500 : 12);
    core.saves_max = number(1, 16);
    if (one_in(2)) core.pass_time = number(1, 200) * kNanosPerMilli;
    if (one_in(4)) core.state_ttl = number(1, 100) * kNanosPerSecond;
  }

  void make_policies(CoreConfig& core) {
    core.eviction = one_of(kEvictionPolicies);
    core.admission = one_of(kAdmissionOrders);
    if (one_in(2)) core.restore = one_of(kRestoreRules);
    if (one_in(3)) core.save = "ahead";
    core.admission_looks = number(1, 6);
    core.decode_reserve_percent = number(0, 40);
    core.swap_out_percent = number(0, 100);
    core.lookahead_requests = number(0, 20);
    core.seed = random_.next();
    // Of that seed, not of the world's: so what seeds show otherwise stayed as it was when these came.
    Random random(core.seed);
    core.prefetch_percent = std::array{0u, 40u, 100u}[random.below(3)];
    core.preload_retries = std::array{0u, 4u, kPreloadRetriesMax}[random.below(3)];
  }

  // Conversations behind one of a few beginnings; now and then many come at once.
  void make_requests(Trace& trace, std::uint32_t context) {
    trace.name = "faults";
    const std::uint32_t talks = large_ ? number(50, 200) : number(2, 12);
    const std::uint32_t longest = std::max(1u, context / number(2, 12));
    Nanos at = 0;
    for (std::uint32_t c = 0; c < talks; ++c) {
      if (!one_in(4)) at += number(0, 2'000) * kNanosPerMilli;
      Conversation talk;
      const std::uint32_t turns = number(1, 5);
      for (std::uint32_t t = 0; t < turns; ++t) {
        Turn turn{.at = t == 0 ? at : 0, .pieces = {{random_.next(), number(1, longest)}}};
        if (t == 0 && one_in(2)) turn.pieces.insert(turn.pieces.begin(), {number(1, 3), number(1, longest)});
        if (t > 0) turn.after = number(0, 5'000) * kNanosPerMilli;
        turn.reply_tokens = number(1, std::min(longest, 60u));
        if (one_in(8)) turn.cancel_after = number(0, 3'000) * kNanosPerMilli;
        talk.turns.push_back(std::move(turn));
      }
      trace.conversations.push_back(std::move(talk));
    }
  }

  void make_faults(FaultOptions& faults) {
    faults.seed = random_.next();
    if (!one_in(5)) {
      faults.well = number(1, 5'000) * kNanosPerMilli;
      faults.ill = number(1, 5'000) * kNanosPerMilli;
      faults.slow = one_in(3) ? 1 : number(2, 1'000);
      faults.fails = one_in(3) ? 0 : number(1, 100) / 100.0;
    }
    if (one_in(2)) faults.restarts = number(500, 20'000) * kNanosPerMilli;
  }

  Random& random_;
  bool large_;
};

}  // namespace

FaultWorld random_fault_world(Random& random, WorldSize size) { return Maker(random, size).make_lone(); }

FaultWorld random_hidden_world(Random& random, WorldSize size) { return Maker(random, size).make_hidden(); }

FaultWorld random_cluster_world(Random& random, WorldSize size) { return Maker(random, size).make_cluster(); }

WorldReport run_fault_world(const FaultWorld& world) {
  WorldReport report = run_world(world.trace, world.options).value();
  LOCI_CHECK(report.requests.size() == world.trace.requests(), "every turn of the trace has a record");
  for (const RequestRecord& record : report.requests) {
    LOCI_CHECK(record.outcome != Outcome::kWaits, "every request ends");
    std::uint64_t found = 0;
    for (const std::uint32_t tokens : record.from) found += tokens;
    LOCI_CHECK(record.hidden <= record.from[2], "hidden states are of the disk");
    LOCI_CHECK(found <= record.prompt_tokens, "no more is found than a prompt has");
  }
  return report;
}

}  // namespace loci::sim
