// SPDX-License-Identifier: Apache-2.0
// In which order requests grow and a pass is filled (block_tables.h and pass_former.h have how).
//
// A pass takes one token of each running decode, and as many waiting requests join as there is budget for
// (Pensieve §4.2); the rest of it are tokens that prompts lack, divided among tenants
// (PassFormer::add_prompts()), first come first served inside one. Where batches are split (PolicySet::batch)
// passes of decodes and passes of prompts take turns.
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {

void Core::State::schedule(Plan& plan) {
  if (!flights_.empty()) return schedule_ahead(plan);
  queue_.begin_step(now_);
  for (std::size_t i = batch_.size(); i > 0; --i) {
    if (batch_[i - 1].gives_way()) suspend(batch_[i - 1]);
  }
  grow(plan);
  make_room();
  CorePass pass = flights_.form(config_.max_batch_tokens);
  pass.spans.reserve(batch_.size());
  pass.pieces.reserve(batch_.size());
  form(pass, plan);
  // (A request that is alone waits where moves hold the block that it needs.)
  LOCI_CHECK(!pass.spans.empty() || batch_.empty() || !transfers_.idle(),
             "the first that runs has something to compute");
  if (!pass.spans.empty()) return emit(std::move(pass), plan);
  flights_.put_off(std::move(pass));
  if (!queue_.empty() && transfers_.idle()) {
    schedule(plan);  // the first that waited did not fit, and has ended
  }
}

void Core::State::form(CorePass& pass, Plan& plan) {
  if (!split_ || decodes_next_) add_decodes(pass);
  decodes_next_ = false;
  if (split_ && !pass.spans.empty()) return;
  take_prompts(pass, plan);
  if (split_ && pass.spans.empty()) return add_decodes(pass);
  decodes_next_ = split_;
}

void Core::State::add_spans(CoreRequest& request, CorePass& pass) {
  if (former_.add_spans(request, pass)) room_.changed();
}

void Core::State::add_decodes(CorePass& pass) {
  for (CoreRequest* request : batch_) {
    if (request->phase.is(RequestPhase::kDecode)) add_spans(*request, pass);
  }
}

// What is left of the budget, in tokens and in time.
void Core::State::take_prompts(CorePass& pass, Plan& plan) {
  const std::uint32_t tokens_max = pass.budget;
  CorePrompts wanted = former_.prompts();
  former_.keep_to_time(pass, wanted.runs, tokens_max);
  std::uint64_t booked = wanted.total;
  const std::size_t running = batch_.size();
  admit_waiting(wanted, booked, pass, plan);
  if (batch_.size() > running && former_.has_time_limit()) wanted.runs = former_.prompt_runs();
  former_.keep_to_time(pass, std::move(wanted.runs), tokens_max);
  if (former_.add_prompts(wanted, pass)) room_.changed();
  // Requests that wait for others' blocks leave some of it.
  while (pass.budget > 0 && !batch_.full() && !queue_.empty()) {
    CoreRequest& next = *requests_.at(queue_.heads(1).front().request);
    if (!try_admit(next, booked, pass, plan)) break;
    const auto missing = static_cast<std::uint32_t>(former_.missing_tokens(next));
    former_.keep_to_time(pass, {PromptRun{next.length() - missing, missing}}, pass.budget);
    add_spans(next, pass);
  }
}

// Gives every request whose next token opens a new block that block, the earliest arrivals first; where
// there is none, someone gives up theirs.
void Core::State::grow(Plan& plan) {
  for (std::size_t i = 0; i < batch_.size();) {
    CoreRequest& request = batch_[i];
    if (!BlockTables::wants_block(request)) {
      ++i;
    } else if (!tables_.grow(request)) {
      if (batch_.size() == 1 && !transfers_.idle()) return;
      if (batch_.size() == 1)
        end_without_memory(request, plan);
      else
        suspend(giving_way_.for_growth());
      i = 0;  // the batch has one fewer
    }
  }
}

void Core::State::emit(CorePass formed, Plan& plan) {
  const Nanos patience = former_.patience_of(formed);
  pass_times_.begin(former_.work_of(formed), patience != kWaitsForEver, now_);
  ++totals_.passes_total;
  totals_.passes_ahead_total += !flights_.empty();
  totals_.tokens_computed_total += former_.write(flights_.begin(std::move(formed)), patience, plan);
}

}  // namespace loci
