// SPDX-License-Identifier: Apache-2.0
// The pass that is planned while another is in flight (docs/decisions/passes-ahead.md).
//
// An example, of blocks of four tokens. Request a writes its reply, b has a prompt of twelve tokens:
//
//     pass 1, in flight   a: token 6, samples token 7              b: tokens 0 to 7 of the prompt
//     pass 2, planned     a: token 7, which is on the device       b: tokens 8 to 11, samples token 12
//
// Pass 2 begins as pass 1 ends, and reads a's token where pass 1 left it. Meanwhile the host sees that token.
// Where it ends a's reply, a's span in pass 2 is wasted: it writes behind what is committed, in a slot that a
// leaves to pass 2. Others find b's first two blocks once pass 1 has ended, and the third once pass 2 has.
//
// It begins when the one before it has ended, without waiting for the host to see what that one sampled. So
// it takes along, from one request each,
//   - the token that the pass before samples, at the next position, which is then on the device: if nobody
//     has to see it first, and it cannot be the last for its number;
//   - what prompts lack behind what the pass before computes of them;
//   - what requests lack that are not in the pass before, by the rules of any pass.
// What is committed is what passes that ended have brought: a request's state is let go, saved, found and
// evicted by that alone, so nothing that a pass in flight reads or writes is anybody else's.
//
// When the pass before has ended, the spans that go on from it are like any others, or *wasted*: it was
// poisoned, or its sample ended the request. A request that has ended leaves what it held to the last pass in
// flight, which still reads it and writes behind what is committed.
//
// Nobody is suspended while a pass is in flight. Where somebody would have to give way no second pass is
// planned, and the next one is formed when nothing is in flight.
#include <utility>

#include "loci/engine/core/core_state.h"

namespace loci {

void Core::State::schedule_ahead(Plan& plan) {
  queue_.begin_step(now_);
  if (someone_gives_way()) return;
  CorePass pass = flights_.form(config_.max_batch_tokens);
  const bool formed = form_ahead(pass, plan);
  if (formed && !pass.spans.empty()) return emit(std::move(pass), plan);
  for (const CoreSpan& span : pass.spans) {
    if (span.token_of && tables_.release_next(*span.request)) room_.changed();
  }
  flights_.put_off(std::move(pass));
}

// False: a block is missing that somebody must give up.
bool Core::State::form_ahead(CorePass& pass, Plan& plan) {
  const CorePass& before = flights_.last();
  for (CoreRequest* request : batch_) {
    if (request->passes->in_flight == 0 && BlockTables::wants_block(*request) && !tables_.grow(*request))
      return false;
  }
  for (std::uint32_t i = 0; i < before.spans.size(); ++i) {
    const CoreSpan& span = before.spans[i];
    if (!span.sample || span.request == nullptr || span.wasted || !former_.may_follow(*span.request))
      continue;
    CoreRequest& request = *span.request;
    if (windows_.advance(request)) room_.changed();
    if (request.length() % kBlockTokens == 0) {
      bool promised = true;
      for (std::uint32_t group = 0; group < group_count_; ++group) {
        promised = promised && (!windowed(group) || Windows::has_place(request, group));
      }
      if (!promised) continue;
      if (!tables_.reserve_next(request)) return false;
    }
    former_.add_following(request, i, pass);
  }
  for (CoreRequest* request : batch_) {
    if (request->phase.is(RequestPhase::kDecode) && request->passes->in_flight == 0)
      add_spans(*request, pass);
  }
  // First come, first served: no prompt overtakes one that cannot go on before the pass in flight has ended.
  if (!flights_.prompt_waits()) take_prompts(pass, plan);
  return true;
}

}  // namespace loci
