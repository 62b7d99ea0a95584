// SPDX-License-Identifier: Apache-2.0
// Growth, and forming a pass.
//
// A pass takes one token of each running decode, and as many waiting requests join as there is budget for
// (Pensieve §4.2); the rest of it are tokens that prompts lack, divided among tenants (core_fair.cc), first
// come first served inside one. Where batches are split (PolicySet::batch) passes of decodes and passes of
// prompts take turns. While decodes run, prompts get as many tokens as are predicted to keep the
// pass within its time (policy/pass_budget.h); while none does, nobody waits for the pass.
//
// Two requests that lack the same block: the first in order claims it for this pass; the other stops
// before it and looks again when the pass is done. So nothing is computed twice, and when the first ends
// the other goes on from where the block was left. The first in order never waits, so nothing deadlocks.
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
  CorePass pass;
  pass.budget = config_.max_batch_tokens;
  form(pass, plan);
  // (A request that is alone waits where moves hold the block that it needs.)
  LOCI_CHECK(!pass.spans.empty() || batch_.empty() || !transfers_.idle(),
             "the first that runs has something to compute");
  if (!pass.spans.empty()) {
    emit(std::move(pass), plan);
  } else if (!queue_.empty() && transfers_.idle()) {
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

void Core::State::add_decodes(CorePass& pass) {
  for (CoreRequest* request : batch_) {
    if (request->phase.is(RequestPhase::kDecode)) add_spans(*request, pass);
  }
}

// What is left of the budget, in tokens and in time.
void Core::State::take_prompts(CorePass& pass, Plan& plan) {
  const std::uint32_t tokens_max = pass.budget;
  CorePrompts wanted = prompts();
  keep_to_time(pass, prompt_runs(), tokens_max);
  admit_waiting(wanted, pass, plan);
  keep_to_time(pass, prompt_runs(), tokens_max);
  add_prompts(wanted, pass);
  // Requests that wait for others' blocks leave some of it.
  while (pass.budget > 0 && !queue_.empty()) {
    CoreRequest& next = *requests_.at(queue_.heads(1).front().request);
    if (!try_admit(next, pass, plan)) break;
    const auto missing = static_cast<std::uint32_t>(missing_tokens(next));
    const PromptRun run{next.length() - missing, missing};
    keep_to_time(pass, {&run, 1}, pass.budget);
    add_spans(next, pass);
  }
}

PassWork Core::State::work_of(const CorePass& pass) const {
  PassWork work;
  bool prompts = false, decodes = false;
  for (const CoreSpan& span : pass.spans) {
    const bool decode = span.token_of.has_value() || span.request->phase.is(RequestPhase::kDecode);
    (decode ? decodes : prompts) = true;
    work.rows.add(span.position, span.count);
  }
  if (decodes) work.kind = prompts ? PassKind::kBoth : PassKind::kDecodes;
  return work;
}

// What running prompts lack, in their order, as if it were their last tokens: those see the most.
std::vector<PromptRun> Core::State::prompt_runs() const {
  std::vector<PromptRun> runs;
  for (const CoreRequest* request : batch_) {
    if (!request->phase.is(RequestPhase::kPrompt) || (request->in_passes > 0 && !flights_.goes_on(*request)))
      continue;
    const auto missing = static_cast<std::uint32_t>(missing_tokens(*request));
    runs.push_back({request->length() - missing, missing});
  }
  return runs;
}

// The budget becomes what fits into the time of a pass, up to `tokens_max`: of `prompts`, then of such as
// begin and have not been admitted yet. Where no decode runs nobody waits for the pass.
void Core::State::keep_to_time(CorePass& pass, std::span<const PromptRun> prompts,
                               std::uint32_t tokens_max) const {
  if (config_.pass_time == kNever) return;
  if (!batch_.any(RequestPhase::kDecode)) return;
  std::vector<PromptRun> runs(prompts.begin(), prompts.end());
  runs.push_back({0, tokens_max});
  pass.budget = pass_times_.fitting(work_of(pass).rows, runs, tokens_max);
}

// Gives every request whose next token opens a new block that block, the earliest arrivals first; where
// there is none, someone gives up theirs.
void Core::State::grow(Plan& plan) {
  for (std::size_t i = 0; i < batch_.size();) {
    CoreRequest& request = batch_[i];
    if (request.length() <= request.blocks.size() * kBlockTokens) {
      ++i;
    } else if (!grow(request)) {
      if (batch_.size() == 1 && !transfers_.idle()) return;
      if (batch_.size() == 1)
        end_without_memory(request, plan);
      else
        suspend(giving_way_.for_growth());
      i = 0;  // the batch has one fewer
    }
  }
}

bool Core::State::grow(CoreRequest& request) {
  BlockPin pin = index_.open_tail(request.blocks.back().block());
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group) && !index_.place(pin, group)) return false;
  }
  request.tail = index_.claim(pin.block());
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const bool holds = pin.holds(group);
    request.tables[group].push_back(holds ? index_.block(pin.block()).parts[group]->slot.slot() : kNoSlot);
  }
  request.blocks.push_back(std::move(pin));
  return true;
}

// Lets go of all blocks, the deepest first. What they hold stays in the index.
void Core::State::stop_running(CoreRequest& request) {
  wish_windows(request);
  request.loads.clear();
  request.load_phase.settle(LoadPhase::kNone);
  request.tail.reset();
  if (request.in_passes > 0 || request.lent != GroupCounts{}) flights_.keep(request);
  while (!request.blocks.empty()) request.blocks.pop_back();
  windows_.give_back(std::exchange(request.promised, {}));
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    request.tables[group].clear();
    request.held[group] = request.first_held[group] = 0;
  }
  queue_.end_running(request.group);
  batch_.leave(request);
  room_changed();
}

// What this pass may add to a block that lacks state: `filled` is what it has before, with the pass's
// copies. Absent: another request fills it in this pass, or the request has no slot for more.
std::optional<CorePiece> Core::State::open_piece(CoreRequest& request, std::uint32_t block_number,
                                                 CorePass& pass) {
  const BlockId block = request.blocks[block_number].block();
  for (const CoreCopy& copy : pass.copies) {
    if (copy.request == &request && copy.target.block == block) return copy.target;
  }
  CorePiece piece{block, index_.block(block).filled, std::nullopt};
  const bool own = request.tail && request.tail->block() == block;
  std::optional<AppendToken> claim = own ? std::nullopt : index_.claim(block);
  if ((!own && !claim) || !windows_.take_parts(request, block_number)) return std::nullopt;
  if (own) return piece;
  piece.claim = pass.claims.size();
  pass.claims.push_back(std::move(*claim));
  return piece;
}

// Whether a span that ends where `block` begins may go on into it: in each group it writes from one
// position on.
bool Core::State::continues(const CoreSpan& span, const Block& block) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (block.filled_in(group) > 0 && span.write_from[group] < span.position + span.count) return false;
  }
  return true;
}

// `piece`: before these tokens are computed.
void Core::State::add_piece(CoreRequest& request, std::uint32_t position, std::uint32_t count,
                            CorePiece piece, bool adjacent, CorePass& pass) const {
  const Block& block = index_.block(piece.block);
  const std::uint32_t begin = position - piece.filled;
  const bool open = adjacent && piece.filled == 0 && continues(pass.spans.back(), block);
  if (!open) pass.spans.push_back({&request, position, 0, false, pass.pieces.size(), 0});
  CoreSpan& span = pass.spans.back();
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const std::uint32_t there = std::max(block.filled_in(group), piece.filled);
    if (!open || there > 0) span.write_from[group] = begin + there;
  }
  span.count += count;
  ++span.piece_count;
  span.sample = span.position + span.count == request.length();
  piece.filled += count;
  pass.pieces.push_back(piece);
  pass.budget -= count;
}

// The first of its blocks that is being loaded.
std::uint32_t Core::State::first_loading(const CoreRequest& request) const {
  const auto found = std::find_if(request.loads.begin(), request.loads.end(), [&](std::uint32_t i) {
    return transfers_.loading(request.blocks[i].block());
  });
  return found == request.loads.end() ? UINT32_MAX : *found;
}

// Adds what the request lacks, from the left: a span for every range.
void Core::State::add_spans(CoreRequest& request, CorePass& pass) {
  if (windows_.advance(request)) room_changed();
  const bool joined = joins(request, pass);
  if (windows_.any() && !joined) return;
  const auto block_count = static_cast<std::uint32_t>(request.blocks.size());
  const std::uint32_t arriving = first_loading(request);
  bool adjacent = false;                      // to the last span's end
  const bool behind = request.in_passes > 0;  // what the pass in flight computes of it
  const std::uint32_t first = behind ? request.computes_to / kBlockTokens : request.whole_blocks;
  for (std::uint32_t i = first; i < block_count && pass.budget > 0; ++i) {
    const std::uint32_t begin = i * kBlockTokens;
    const std::uint32_t wanted = std::min(kBlockTokens, request.length() - begin);
    const std::optional<CorePiece> begun = behind ? flights_.left_begun(request, i) : std::nullopt;
    if (index_.block(request.blocks[i].block()).filled >= wanted) {
      if (windows_.any() && !windows_.take_parts(request, i)) break;
      adjacent = false;
      continue;
    }
    if (transfers_.loading(request.blocks[i].block())) {
      // In groups with a window all that the request waits for is before what it computes.
      if (windows_.any() || !joined) break;
      adjacent = false;
      continue;
    }
    const std::optional<CorePiece> piece =
        begun ? Flights::go_on_with(*begun, pass) : open_piece(request, i, pass);
    if (!piece) break;
    const std::uint32_t count = std::min(wanted - piece->filled, pass.budget);
    add_piece(request, begin + piece->filled, count, *piece, adjacent, pass);
    pass.spans.back().reads_arriving = i > arriving;
    adjacent = true;
    if (piece->filled + count < wanted) break;
  }
}

void Core::State::emit(CorePass formed, Plan& plan) {
  Pass& out = plan.pass.emplace();
  out.patience = patience_of(formed);
  pass_times_.begin(work_of(formed), out.patience != kWaitsForEver, now_);
  ++totals_.passes_total;
  totals_.passes_ahead_total += !flights_.empty();
  const CorePass& pass = flights_.begin(std::move(formed));
  out.id = pass.id;
  const auto slot = [this](BlockId block, std::uint32_t group) {
    return index_.block(block).parts[group]->slot.slot();
  };
  for (const CoreCopy& copy : pass.copies) {
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      out.copies.push_back(
          {slot(copy.source.block(), group), slot(copy.target.block, group), copy.target.filled, group});
    }
  }
  out.spans.reserve(pass.spans.size());
  plan.spans.reserve(pass.spans.size());
  for (const CoreSpan& span : pass.spans) {
    const CoreRequest& request = *span.request;
    Span& s = out.spans.emplace_back();
    s.token_of = span.token_of;
    if (span.token_of) {
      s.tokens.assign(1, TokenId(0));
    } else {
      const auto first = request.tokens.begin() + span.position;
      s.tokens.assign(first, first + span.count);
    }
    s.position = span.position;
    s.layers = {0, config_.layers};
    const std::uint32_t blocks = (span.position + span.count + kBlockTokens - 1) / kBlockTokens;
    s.tables.resize(group_count_);
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      const std::vector<SlotId>& table = request.tables[group];
      s.tables[group].blocks.assign(table.begin(),
                                    table.begin() + std::min<std::ptrdiff_t>(blocks, std::ssize(table)));
      if (table.size() < blocks) s.tables[group].blocks.push_back(request.grown[group]->slot());
      const std::uint32_t write_from = span.write_from[group];
      s.tables[group].write_from = write_from > span.position ? write_from : 0;
    }
    s.logits = span.sample ? LogitsWanted::kLast : LogitsWanted::kNone;
    plan.spans.push_back({request.id, span.sample});
    totals_.tokens_computed_total += span.count;
  }
}

}  // namespace loci
