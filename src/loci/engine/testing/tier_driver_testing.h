// SPDX-License-Identifier: Apache-2.0
// A core with tiers below the device, stepped by hand.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/policy/cost_model.h"
#include "loci/policy/pass_budget.h"

namespace loci {

// The configuration of a core whose tiers hold this many blocks each.
inline CoreConfig tier_config(std::uint32_t device, std::uint32_t host, std::uint32_t disk) {
  CoreConfig config;
  config.groups = {
      {.window = 0, .block_count = device, .host_blocks = host, .disk_blocks = disk, .block_bytes = 1000}};
  config.layers = 2;
  config.context_tokens = device * kBlockTokens;
  config.decode_reserve_percent = 0;
  config.eviction = "lru";
  config.hole_records = disk;
  return config;
}

// Steps a core. It runs no pass and moves nothing, but reports that they have ended; passes end after the
// time that the core's costs predict.
class TierDriver {
 public:
  explicit TierDriver(const CoreConfig& config, bool recovered = true)
      : core(Core::make(config).value()),
        groups(static_cast<std::uint32_t>(config.groups.size())),
        costs(config.costs) {
    if (recovered) step(Recovered{{}, 0, true});
  }

  const Plan& step(const Event& event) {
    plan = core.step(now, event);
    core.check_invariants();
    moves.insert(moves.end(), plan.moves.begin(), plan.moves.end());
    record_changes.insert(record_changes.end(), plan.record_changes.begin(), plan.record_changes.end());
    for (const RecordChange& change : plan.record_changes)
      if (change.kind == RecordChange::Kind::kForget) disk.erase({change.group, change.slot});
    if (plan.pass) {
      in_flight = plan;
      for (const Span& span : plan.pass->spans) rows += span.tokens.size();
    }
    for (const Output& output : plan.outputs) {
      if (const auto* started = std::get_if<Started>(&output)) starts.push_back(*started);
      if (const auto* restored = std::get_if<Restored>(&output)) restores.push_back(*restored);
      if (const auto* finished = std::get_if<Finished>(&output)) ends.push_back(*finished);
    }
    return plan;
  }
  const Plan& arrive(std::uint64_t id, const Tokens& prompt, std::uint32_t max_new = 1,
                     const std::string& group = "group") {
    return step(Arrival{RequestId(id), group, prompt, max_new, 0, {}, kNever});
  }
  // Ends the pass in flight; the span of request `poisoned` has failed.
  const Plan& done(std::uint64_t poisoned = 0) {
    const Plan flight = *std::exchange(in_flight, {});
    PassRows work;
    for (const Span& span : flight.pass->spans)
      work.add(span.position, static_cast<std::uint32_t>(span.tokens.size()));
    if (passes_take_time) now += costs.pass(work.rows, work.context);
    const auto failed = std::ranges::find(flight.spans, RequestId(poisoned), &SpanPlan::request);
    return step(pass_done(flight, TokenId(7), static_cast<std::size_t>(failed - flight.spans.begin())));
  }
  // Ends all moves that have begun.
  void end_moves(MoveResult result = MoveResult::kDone, Nanos took = 0) {
    while (!moves.empty()) {
      MovesEnded ended;
      for (const Move& move : std::exchange(moves, {})) {
        if (move.to == Tier::kDisk && result == MoveResult::kDone) {
          on_disk.push_back(move);
          for (const MovePart& part : move.parts)
            disk[{pool_of(part.group, move.form, groups), part.to}] = move;
        }
        ended.moves.push_back({move.id, result, took});
      }
      step(ended);
    }
  }
  void finish() {
    while (in_flight || !moves.empty()) {
      end_moves();
      if (in_flight) done();
    }
  }
  // Runs a request from its prompt to its end, with all moves that follow.
  void run(std::uint64_t id, const Tokens& prompt, const std::string& group = "group") {
    arrive(id, prompt, 1, group);
    finish();
  }
  // Request 1's `saved` tokens are on the disk alone, because request 2 has taken the whole device of
  // `device` tokens. Request 3 decodes from the next pass on.
  void decode_after_saves(std::uint32_t saved, std::uint32_t device) {
    run(1, run_of(0, saved));
    run(2, run_of(5000, device));
    arrive(3, run_of(9000, 10), 50);
    done();
  }
  std::string spans() const { return spans_of(plan); }
  std::size_t count(Tier from, Tier to) const {
    return static_cast<std::size_t>(std::count_if(
        moves.begin(), moves.end(), [&](const Move& m) { return m.from == from && m.to == to; }));
  }
  std::uint32_t missed(MissReason reason) const {
    return starts.back().sources.computed[static_cast<std::size_t>(reason)];
  }

  Core core;
  std::uint32_t groups;
  CostModel costs;
  bool passes_take_time = true;
  Nanos now = 0;
  Plan plan;
  std::optional<Plan> in_flight;
  std::vector<Move> moves;  // that have not ended
  std::vector<RecordChange> record_changes;
  std::vector<Move> on_disk;
  std::map<std::pair<std::uint32_t, SlotId>, Move> disk;  // by pool and slot, what was moved there
  std::vector<Started> starts;
  std::vector<Restored> restores;
  std::vector<Finished> ends;
  std::size_t rows = 0;  // rows that all passes have computed
};

// A request that continues a history which was cut: the tokens of `dropped` are not computed.
inline Arrival cut_arrival(std::uint64_t id, const Tokens& history, const TokenRange& dropped) {
  Arrival arrival{RequestId(id), "group", history, 1, 0, {}, kNever};
  arrival.dropped = {dropped};
  return arrival;
}

// What a process with this configuration leaves on the disk of one conversation.
inline std::vector<RecoveredEntry> left_on_disk(const CoreConfig& config, const Tokens& prompt) {
  std::vector<RecoveredEntry> entries;
  TierDriver d(config);
  d.run(1, prompt);
  for (const Move& move : d.on_disk) entries.push_back({move.entry, 0, false, move.parts.front().to});
  return entries;
}

}  // namespace loci
