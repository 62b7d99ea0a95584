// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/flights.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"

namespace loci {

std::optional<OperationId> Flights::first_id() const {
  return in_flight_.empty() ? std::nullopt : std::optional(in_flight_.front().id);
}

std::optional<OperationId> Flights::last_id() const {
  return in_flight_.empty() ? std::nullopt : std::optional(in_flight_.back().id);
}

// --- a pass begins and ends ---

void Flights::enlist(CorePass& pass, CoreRequest& request) const {
  RequestPasses& passes = request.passes.change();
  if (passes.last == pass.id) return;
  passes.last = pass.id;
  pass.requests.push_back(&request);
  ++passes.in_flight;
  if (config_.passes_ahead == 0) return;
  passes.computes_from[passes.in_flight - 1] = request.length();
  passes.computes_to = 0;
}

std::size_t Flights::copies() const {
  std::size_t count = put_off_.copies.size();
  for (const CorePass& pass : in_flight_) count += pass.copies.size();
  return count;
}

CorePass Flights::form(std::uint32_t budget) {
  CorePass pass = std::exchange(put_off_, {});
  pass.budget = budget;
  return pass;
}

void Flights::put_off(CorePass pass) {
  for (CoreCopy& copy : pass.copies) {
    if (copy.target.claim) {
      put_off_.claims.push_back(std::exchange(pass.claims[*copy.target.claim], std::nullopt));
      copy.target.claim = put_off_.claims.size() - 1;
    }
    put_off_.copies.push_back(std::move(copy));
  }
}

const CorePass& Flights::begin(CorePass formed) {
  LOCI_CHECK(may_begin(), "no more passes are in flight than the configuration says");
  CorePass& pass = in_flight_.emplace_back(std::move(formed));
  pass.id = OperationId(++begun_);
  pass.requests.reserve(pass.copies.size() + pass.spans.size());
  for (const CoreCopy& copy : pass.copies) enlist(pass, *copy.request);
  for (const CoreSpan& span : pass.spans) {
    enlist(pass, *span.request);
    if (config_.passes_ahead == 0) continue;
    RequestPasses& passes = span.request->passes.change();
    std::uint32_t& from = passes.computes_from[passes.in_flight - 1];
    from = std::min(from, span.position);
    passes.computes_to = span.position + span.count;
  }
  return pass;
}

CorePass Flights::take_first(OperationId id, std::size_t spans) {
  LOCI_CHECK(!in_flight_.empty() && in_flight_.front().id == id,
             "the first pass in flight is the one that ends");
  LOCI_CHECK(in_flight_.front().spans.size() == spans, "each span of a pass has an outcome");
  CorePass pass = std::move(in_flight_.front());
  in_flight_.pop_front();
  return pass;
}

// A request's spans stand together, and later ones read what earlier ones have written. Those before the
// first block that was being loaded count also where that did not come.
void Flights::judge(CorePass& ended, std::span<const SpanOutcome> outcomes) {
  const CoreRequest* poisoned = nullptr;
  for (std::size_t i = 0; i < ended.spans.size(); ++i) {
    CoreSpan& span = ended.spans[i];
    if (span.request == nullptr || span.wasted) continue;
    CoreRequest& request = *span.request;
    const bool missed = request.lost_a_load() && span.reads_arriving;
    if (request.lost_a_load()) waste(request);
    if ((!outcomes[i].ok || missed) && &request != poisoned) {
      poisoned = &request;
      ++request.passes.change().poisoned;
      if (!request.load_phase.is(LoadPhase::kLost)) request.load_phase.settle(LoadPhase::kHeldBack);
      waste(request);
    }
    if (&request == poisoned) continue;
    request.passes.change().poisoned = 0;
    // (What is before the hole is no progress: who gives way would ask for the same again.)
    if (!request.load_phase.is(LoadPhase::kLost)) request.without_disk = false;
    span.counts = true;
  }
}

Flights::Returned Flights::end(CorePass& ended) {
  if (!in_flight_.empty()) {
    CorePass& next = in_flight_.front();
    for (const auto& [to, from] : next.inherits) next.claims[to] = std::move(ended.claims[from]);
    next.inherits.clear();
  }
  ended.claims.clear();
  Returned out;
  out.any = !ended.kept.empty() || !ended.detached.empty();
  for (const CoreDetached& detached : ended.detached) {
    if (!detached.owner)
      windows_.end_lingering(detached.group);
    else if (windowed(detached.group))
      out.lent.emplace_back(*detached.owner, detached.group);
  }
  ended.detached.clear();
  for (CoreKept& kept : ended.kept) {
    while (!kept.blocks.empty()) kept.blocks.pop_back();  // the deepest first
    windows_.give_back(kept.promised);
  }
  ended.kept.clear();
  return out;
}

// --- going on behind the pass in flight ---

bool Flights::goes_on(const CoreRequest& request) const {
  return !windows_.any() && request.passes->in_flight == 1 && request.phase.is(RequestPhase::kPrompt) &&
         !request.lost_a_load() && !request.passes->wasted && request.passes->computes_to > 0 &&
         request.passes->computes_to < request.length();
}

bool Flights::prompt_waits() const {
  return std::ranges::any_of(last().requests, [&](const CoreRequest* request) {
    return request->phase.is(RequestPhase::kPrompt) && request->passes->computes_to < request->length() &&
           !goes_on(*request);
  });
}

std::optional<CorePiece> Flights::left_begun(const CoreRequest& request, std::uint32_t block_number) const {
  const BlockId block = request.blocks[block_number].block();
  const CorePass& before = last();
  if (request.passes->computes_to > block_number * kBlockTokens) {
    const auto piece = std::find_if(before.pieces.rbegin(), before.pieces.rend(),
                                    [&](const CorePiece& p) { return p.block == block; });
    LOCI_CHECK(piece != before.pieces.rend(), "what a pass computes is in its pieces");
    return *piece;
  }
  for (const CoreCopy& copy : before.copies) {
    if (copy.request == &request && copy.target.block == block) return copy.target;
  }
  return std::nullopt;
}

CorePiece Flights::go_on_with(CorePiece begun, CorePass& pass) {
  if (!begun.claim) return begun;  // the request's own tail
  pass.inherits.emplace_back(pass.claims.size(), *begun.claim);
  begun.claim = pass.claims.size();
  pass.claims.emplace_back();
  return begun;
}

void Flights::open_grown(const CoreRequest& request, BlockId block) {
  for (CorePass& pass : in_flight_) {
    for (const CoreSpan& span : pass.spans) {
      if (span.request == &request) pass.pieces[span.first_piece].block = block;
    }
  }
}

// --- what does not go on ---

// Of those in flight: what is behind a span that does not count brings nothing.
void Flights::waste(CoreRequest& request) {
  for (CorePass& pass : in_flight_) {
    for (CoreSpan& span : pass.spans) {
      if (span.request != &request || span.wasted) continue;
      span.wasted = request.passes.change().wasted = true;
      ++spans_wasted_;
    }
  }
}

void Flights::forget_copies(const CoreRequest& request) {
  std::erase_if(put_off_.copies, [&](const CoreCopy& copy) {
    if (copy.request != &request) return false;
    if (copy.target.claim) put_off_.claims[*copy.target.claim].reset();
    return true;
  });
}

void Flights::keep(CoreRequest& request) {
  waste(request);
  for (CorePass& pass : in_flight_) {
    std::erase(pass.requests, &request);
    for (CoreSpan& span : pass.spans) {
      if (span.request == &request) span.request = nullptr;
    }
  }
  in_flight_.back().kept.push_back(
      {std::exchange(request.blocks, {}), std::exchange(request.grown, {}), windows_.hand_over(request)});
}

void Flights::detach(CoreRequest& request, std::uint32_t group, std::optional<SlotReservation> slot) {
  if (!slot || in_flight_.empty()) return;
  windows_.lend(request, group);
  in_flight_.back().detached.push_back({request.id, group, std::move(*slot)});
}

void Flights::detach(std::uint32_t group, SlotReservation slot) {
  windows_.begin_lingering(group);
  in_flight_.back().detached.push_back({std::nullopt, group, std::move(slot)});
}

// --- what the machine above asks ---

Flights::Kept Flights::kept() const {
  Kept out;
  for (const CorePass& pass : in_flight_) {
    for (const CoreDetached& slot : pass.detached) {
      ++out.detached[slot.group];
      if (!windowed(slot.group)) continue;
      if (slot.owner)
        ++out.lent[*slot.owner][slot.group];
      else
        ++out.lingering[slot.group];
    }
    for (const CoreKept& kept : pass.kept) {
      for (std::uint32_t group = 0; group < group_count_; ++group) {
        out.detached[group] += kept.grown[group].has_value();
        out.promised[group] += kept.promised[group];
      }
    }
  }
  return out;
}

void Flights::visit_pins(const std::function<void(const BlockPin&)>& visit) const {
  for (const CoreCopy& copy : put_off_.copies) visit(copy.source);
  for (const CorePass& pass : in_flight_) {
    for (const CoreCopy& copy : pass.copies) visit(copy.source);
    for (const CoreKept& kept : pass.kept) {
      for (const BlockPin& pin : kept.blocks) visit(pin);
    }
  }
}

}  // namespace loci
