// SPDX-License-Identifier: Apache-2.0
// Taking a request that waits into the batch: restores.h says what it finds, admission.h whether that fits.
#include <algorithm>
#include <optional>
#include <utility>

#include "loci/engine/core/core_state.h"

namespace loci {

// Takes a request that waits into the batch. False: the batch is full or blocks are missing. `booked`: the
// tokens that running prompts lack, before and after.
bool Core::State::try_admit(CoreRequest& request, std::uint64_t& booked, CorePass& pass, Plan& plan) {
  if (room_.is_blocked(request.id) || batch_.full()) return false;
  if (windows_.any())
    booked = former_.prompt_tokens();  // admission and passes evict what others have not held
  Restores::Rules rules{.slowest = restores_.slowest_for(request), .in_flight = !flights_.empty()};
  CoreProbes probes = restores_.choose(request, rules);
  const RestoreForecast forecast =
      restores_.plan(request, probes, rules, Restores::load_beside(request, batch_, queue_, booked));
  Admission::Beside beside{.others_run = !batch_.empty(), .copies = pass.copies.size() + flights_.copies()};
  for (std::uint32_t group = 0; beside.others_run && group < group_count_; ++group)
    beside.kept[group] = admission_.reserve(group, request);
  if (request.lineage) admission_.fit_originals(probes, beside);
  rules.copies = admission_.copies_fit(probes, beside);
  if (windows_.any() && !rules.copies) probes = restores_.without_copies(request, probes, rules);
  if (!admission_.admissible(probes, beside) || !admission_.keeps_to_room(probes, beside)) {
    // A request that is alone has all but what is public and, for a while, what moves or what a pass in
    // flight keeps: arrivals that need more than a pool were refused.
    if (batch_.empty() && transfers_.idle() && flights_.empty())
      end_without_memory(request, plan);
    else
      room_.block(request.id);
    return false;
  }
  FoundSources found = restores_.sources(request, probes, rules.copies);
  request.to_project = restores_.to_project(request, probes);
  found.sum.restore = forecast;
  queue_.begin_running(request.tenant);
  take_off_queue(request);
  const bool first = !request.was_admitted();
  const std::vector<BlockPin> originals = admission_.hold_originals(probes);
  admission_.take(request, probes, rules.copies, pass);
  request.phase.become(RequestPhase::kPrompt);
  batch_.enter(request);
  // (What is loaded for it others need not compute.)
  const bool for_others = tables_.begin_loads(request, probes);
  booked = for_others ? former_.prompt_tokens() : booked + former_.missing_tokens(request);
  if (first) start(request, std::move(found), plan);
  return true;
}

void Core::State::start(CoreRequest& request, FoundSources found, Plan& plan) {
  ContextSources& from = found.sum;
  for (const std::uint32_t i : request.loads) {
    const Nanos ends = transfers_.arrives_at(request.blocks[i].block());
    from.predicted_load = std::max(from.predicted_load, ends - now_);
  }
  charge(request, request.prompt_tokens - from.cached());
  plan.outputs.emplace_back(Started{request.id, from.cached(), from});
  PromptSources::start(request, std::move(found));
}

// Once it has its first sample, or ends before that.
void Core::State::settle_sources(CoreRequest& request, Plan& plan) {
  if (const std::optional<ContextSources> from = sources_.settle(request))
    plan.outputs.emplace_back(Restored{request.id, *from});
}

}  // namespace loci
