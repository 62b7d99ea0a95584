// SPDX-License-Identifier: Apache-2.0
// Decides which of a request's missing blocks are loaded and which are computed: describes them to
// policy/restore_plan.h, and writes its answer into the probes. Called before the request is admitted.
#include <algorithm>

#include "loci/engine/core/core_state.h"

namespace loci {
namespace {

// It is computed, though a tier has it.
void compute_instead(CoreProbe& found) {
  found.load = false;
  found.too_slow = true;
  found.original = kNoBlock;
}

constexpr std::size_t place_of(Tier tier) { return static_cast<std::size_t>(tier); }

}  // namespace

// Tokens of the block whose state is on the device, or will be copied there.
std::uint32_t Core::State::tokens_there(const CoreProbes& probes, std::uint32_t block,
                                        bool with_copies) const {
  const CoreProbe& found = probes.blocks[block];
  const std::uint32_t begin = block * kBlockTokens;
  if (windows_.any()) return probes.start <= begin ? 0 : std::min(kBlockTokens, probes.start - begin);
  if (found.source == CoreProbe::Source::kTakeOver) return found.run;
  if (found.source == CoreProbe::Source::kCopy && with_copies) return found.run;
  return found.node == kNoBlock ? 0 : index_.block(found.node).filled;
}

// What running requests' prompts still ask of the processor, but for their attention.
Nanos Core::State::compute_booked() const {
  const std::uint64_t tokens = std::min<std::uint64_t>(prompts().total, UINT32_MAX);
  return tokens == 0 ? 0 : pass_times_.compute(0, 1) * static_cast<Nanos>(tokens);
}

RestoreProblem Core::State::restore_problem(const CoreRequest& request, CoreProbes& probes) const {
  RestoreProblem problem{
      .compute_booked = compute_booked(), .layers = config_.layers, .whole_tiers = windows_.any()};
  problem.knows_projecting = costs_.project_block() > 0;
  problem.others = static_cast<std::uint32_t>(running_.size() + queue_.size() - 1);
  for (const Tier tier : {Tier::kHost, Tier::kDisk, Tier::kShared})
    problem.links[place_of(tier)] = transfers_.link(tier);
  std::uint64_t rows = 0;
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    CoreProbe& found = probes.blocks[i];
    if (found.load) {
      const Tier from = transfers_.load_tier(found);
      if (transfers_.loading(found.node)) problem.links[place_of(from)].awaited = true;
      if (from == Tier::kDevice || transfers_.loading(found.node)) continue;
      if (!transfers_.overdue(from)) {
        problem.blocks.push_back(transfers_.restorable(found, i));
        problem.blocks.back().compute = pass_times_.compute(i * kBlockTokens, kBlockTokens);
        continue;
      }
      if (!windows_.any()) compute_instead(found);
    }
    const std::uint32_t begin = i * kBlockTokens;
    const std::uint32_t there = tokens_there(probes, i, true);
    const std::uint32_t count = std::min(kBlockTokens, request.length() - begin);
    if (count <= there) continue;
    rows += count - there;
    problem.computed_anyway += pass_times_.compute(begin + there, count - there);
  }
  problem.computed_anyway =
      std::max(problem.computed_anyway, pass_times_.predict({PassKind::kPrompts, {.rows = 1}}));
  const std::uint64_t passes = (rows + config_.max_batch_tokens - 1) / config_.max_batch_tokens;
  problem.first_reading = problem.computed_anyway / static_cast<Nanos>(std::max<std::uint64_t>(passes, 1));
  return problem;
}

// The slowest tier that the plan loads from. (With windows it loads whole tiers.)
Tier Core::State::slowest_loaded(const RestoreProblem& problem, const RestorePlan& plan, Tier slowest) const {
  for (Tier tier = slowest; tier != Tier::kDevice; tier = static_cast<Tier>(place_of(tier) - 1)) {
    bool asked = false, loaded = false;
    for (const RestorableBlock& block : problem.blocks) {
      if (block.from != tier) continue;
      asked = true;
      loaded = loaded || plan.loads(block);
    }
    if (!transfers_.overdue(tier) && (loaded || !asked)) return tier;
  }
  return Tier::kDevice;
}

// `slowest`: that answers. What is to be computed though a tier has it is so in the probes afterwards, and
// `slowest` is what they were made for.
RestoreForecast Core::State::plan_restore_of(const CoreRequest& request, CoreProbes& probes,
                                             Tier& slowest) const {
  const RestoreProblem problem = restore_problem(request, probes);
  const RestorePlan plan = plan_restore(problem, restore_rule_);
  if (windows_.any()) {
    const Tier worth = slowest_loaded(problem, plan, slowest);
    if (worth != slowest) probes = choose(request, true, worth);
    slowest = worth;
  } else {
    for (const RestorableBlock& block : problem.blocks) {
      if (!plan.loads(block)) compute_instead(probes.blocks[block.number]);
    }
    probes.slots = probes.pins = probes.copy_pins = {};
    count_needs(probes);
  }
  return {plan.rule, plan.times.ready, plan.loading_all.ready, plan.computing_all.ready};
}

}  // namespace loci
