// SPDX-License-Identifier: Apache-2.0
// What a pass has brought, and how requests end.
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {

void Core::State::commit(const PassDone& done, Plan& plan) {
  CorePass pass = flights_.take_first(done.pass, done.spans.size());
  pass_times_.end(now_);

  for (const CoreCopy& copy : pass.copies) commit_piece(*copy.request, copy.target, pass);
  pass.copies.clear();  // and with it the pins on the sources
  const CoreRequest* poisoned = nullptr;
  std::vector<std::pair<CoreRequest*, const SpanOutcome*>> samples;
  for (std::size_t i = 0; i < pass.spans.size(); ++i) {
    const CoreSpan& span = pass.spans[i];
    if (span.request == nullptr || span.wasted) continue;
    // A request's spans stand together, and later ones read what earlier ones have written. Those before the
    // first block that was being loaded stand also where that did not come.
    const bool missed = span.request->load_phase.is(LoadPhase::kLost) ||
                        (span.request->load_phase.is(LoadPhase::kMissed) && span.reads_arriving);
    if (span.request->load_phase.is(LoadPhase::kMissed)) flights_.waste(*span.request);
    if ((!done.spans[i].ok || missed) && span.request != poisoned) {
      poisoned = span.request;
      ++span.request->poisoned_passes;
      if (!span.request->load_phase.is(LoadPhase::kLost))
        span.request->load_phase.settle(LoadPhase::kHeldBack);
      flights_.waste(*span.request);
    }
    if (span.request == poisoned) continue;
    span.request->poisoned_passes = 0;
    span.request->without_disk = false;
    for (std::size_t p = 0; p < span.piece_count; ++p) {
      commit_piece(*span.request, pass.pieces[span.first_piece + p], pass);
    }
    if (!span.sample) continue;
    const SpanOutcome& outcome = done.spans[i];
    LOCI_CHECK(outcome.sample.has_value() || outcome.end != GrammarEnd::kGoesOn, "a sample was asked for");
    if (!span.request->phase.is(RequestPhase::kEnding)) samples.emplace_back(span.request, &outcome);
  }
  end_flight(pass);

  for (CoreRequest* request : pass.requests) {
    --request->in_passes;
    if (request->load_phase.is(LoadPhase::kMissed)) request->load_phase.become(LoadPhase::kJoined);
    if (config_.passes_ahead > 0) leave_pass(*request);
    if (request->phase.is(RequestPhase::kEnding)) {
      end(*request, request->end_reason, plan);
    } else if (request->poisoned_passes >= kPoisonedPassesMax) {
      end(*request, FinishReason::kFailed, plan);
    }
  }
  for (const auto& [request, outcome] : samples) take_sample(*request, *outcome, plan);
}

void Core::State::commit_piece(CoreRequest& request, const CorePiece& piece, const CorePass& pass) {
  if (piece.claim) {
    index_.fill(*pass.claims[*piece.claim], piece.filled);
    if (piece.filled == kBlockTokens) wish_copies(piece.block);
    return;
  }
  const std::uint32_t had = index_.block(piece.block).filled;
  const std::size_t begin = (request.blocks.size() - 1) * kBlockTokens;
  index_.append(*request.tail,
                std::span<const TokenId>(request.tokens).subspan(begin + had, piece.filled - had));
  if (piece.filled == kBlockTokens) complete_tail(request);
}

// The tail is whole: it becomes a block that others find by its key, or gives way to one that is there.
void Core::State::complete_tail(CoreRequest& request) {
  const std::size_t number = request.blocks.size() - 1;
  const Block& tail = index_.block(request.blocks[number].block());
  const ChainKey key = prefixes_.hasher().child(index_.block(tail.parent).key, tail.tokens);
  Completion completion = index_.complete(std::move(request.blocks[number]), std::move(*request.tail), key);
  request.tail.reset();
  request.blocks[number] = std::move(completion.pin);
  const BlockId block = request.blocks[number].block();
  const std::optional<OperationId> last_pass = flights_.last_id();
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const SlotId slot = index_.block(block).parts[group]->slot.slot();
    request.tables[group][number] = slot;
    // A pass in flight goes on with the slots that were there when it was planned.
    flights_.detach(request, group, std::move(completion.dropped[group]));
    if (!completion.replaced[group]) continue;
    transfers_.keep_slot(block, group, completion.replaced[group], last_pass);
    flights_.detach(request, group, std::move(completion.replaced[group]));
    for (CoreRequest* other : batch_) {
      if (number < other->blocks.size() && other->blocks[number].block() == block &&
          other->blocks[number].holds(group)) {
        other->tables[group][number] = slot;
      }
    }
  }
  wish_copies(block);
}

// The block has been computed.
void Core::State::wish_copies(BlockId block) {
  if (through_) transfers_.wish_save(block, Tier::kDevice, Transfers::SaveScope::kWithoutWindows);
  transfers_.wish_share(block, Transfers::SaveScope::kWithoutWindows);
}

void Core::State::take_sample(CoreRequest& request, const SpanOutcome& outcome, Plan& plan) {
  if (request.is_public) {  // the prompt's state is there, and that is all
    keep_public(request);
    return end(request, FinishReason::kStop, plan);
  }
  if (outcome.end == GrammarEnd::kFailed) return end(request, FinishReason::kGrammar, plan);
  if (!outcome.sample) return end(request, FinishReason::kStop, plan);
  const TokenId token = *outcome.sample;
  request.tokens.push_back(token);
  request.phase.settle(RequestPhase::kDecode);
  ++totals_.tokens_generated_total;
  charge(request, 1);
  plan.outputs.emplace_back(TokenSampled{request.id, token});
  const bool stops = request.new_tokens() >= request.min_new_tokens &&
                     std::binary_search(request.stop_tokens.begin(), request.stop_tokens.end(), token);
  if (stops || outcome.end == GrammarEnd::kComplete) {
    end(request, FinishReason::kStop, plan);
  } else if (request.new_tokens() >= request.max_new_tokens ||
             request.length() >= windows_.sequence_tokens_max()) {
    end(request, FinishReason::kLength, plan);
  } else if (config_.passes_ahead > 0 && request.has_grown()) {
    open_ahead(request);
  }
}

void Core::State::end_when_free(CoreRequest& request, FinishReason reason, Plan& plan) {
  if (request.phase.is(RequestPhase::kEnding)) return;
  if (request.in_passes == 0) {
    end(request, reason, plan);
    return;
  }
  request.phase.become(RequestPhase::kEnding);
  request.end_reason = reason;
  deadlines_.drop(request);
}

void Core::State::end(CoreRequest& request, FinishReason reason, Plan& plan) {
  if (request.runs()) {
    wish_save_tail(request);
    std::vector<BlockId> own;
    if (!config_.reuse) {
      for (const BlockPin& pin : request.blocks) own.push_back(pin.block());
    }
    stop_running(request);
    // Nobody will ever find it. (What a pass in flight still has stays, and is evicted.)
    for (auto block = own.rbegin(); block != own.rend(); ++block) index_.forget(*block);
  } else if (request.before_queue_until) {
    before_queue_.leave(request);
  } else if (request.waits()) {
    leave_queue(request);
    room_.changed();
  }
  if (request.paused) --paused_;
  deadlines_.drop(request);
  plan.outputs.emplace_back(Finished{
      request.id, reason,
      Usage{request.prompt_tokens, request.cached_tokens, request.new_tokens(), request.suspensions}});
  queue_rate_.ended(now_, !queue_.empty());
  requests_.erase(request.id);
}

}  // namespace loci
