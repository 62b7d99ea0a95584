// SPDX-License-Identifier: Apache-2.0
// The invariants of passes in flight, as flights.h lists them.
#include <algorithm>
#include <map>

#include "loci/base/check.h"
#include "loci/engine/core/flights.h"

namespace loci {

void Flights::check_copies(const CorePass& pass) const {
  for (const CoreCopy& copy : pass.copies) {
    const Block& source = index_.block(copy.source.block());
    const Block& target = index_.block(copy.target.block);
    LOCI_CHECK(source.filled >= copy.target.filled, "invariant 3: a copy's source has what is copied");
    // (A tail may have completed it, with slots of its own, since the pass was planned.)
    const bool unseen = target.filled == 0 || (config_.passes_ahead > 0 && target.filled == kBlockTokens);
    LOCI_CHECK(target.appending && unseen && target.pins > 0,
               "invariant 3: a copy's target is reserved and unseen");
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      LOCI_CHECK(copy.source.holds(group) && target.parts[group] && target.parts[group]->holds > 0,
                 "invariant 3: both ends of a copy are held");
    }
    LOCI_CHECK(std::equal(source.tokens.begin(), source.tokens.begin() + copy.target.filled,
                          copy.request->tokens.begin() + (target.depth - 1) * kBlockTokens),
               "invariant 4: a copy is of the same tokens");
  }
}

void Flights::check_invariants(std::span<const CoreRequest* const> requests) const {
  LOCI_CHECK(in_flight_.size() <= std::size_t{1} + config_.passes_ahead, "invariant 9: passes in flight");
  check_copies(put_off_);
  std::map<const CoreRequest*, std::uint32_t> passes;
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    const CorePass& pass = in_flight_[i];
    LOCI_CHECK(i == 0 || in_flight_[i - 1].id.value + 1 == pass.id.value, "invariant 9: passes are in order");
    for (const CoreRequest* request : pass.requests) ++passes[request];
    check_copies(pass);
    if (i > 0) check_following(in_flight_[i - 1], pass);
  }
  for (const CoreRequest* request : requests) {
    const auto found = passes.find(request);
    LOCI_CHECK(request->passes->in_flight == (found == passes.end() ? 0 : found->second),
               "invariant 10: a pass in flight has its requests");
    LOCI_CHECK(!request->has_grown() || (request->passes->in_flight > 0 && request->tail.has_value()),
               "invariant 9: a block is begun ahead behind a tail that a pass fills");
    if (request->passes->in_flight > 0 && !request->lost_a_load()) check_spans(*request);
  }
}

void Flights::check_following(const CorePass& before, const CorePass& pass) const {
  for (const CoreSpan& span : pass.spans) {
    if (span.request == nullptr || span.wasted) continue;
    if (!span.token_of) {
      for (const CoreSpan& from : before.spans) {
        LOCI_CHECK(from.request != span.request || from.position + from.count <= span.position,
                   "invariant 9: a prompt goes on behind what is in flight");
        LOCI_CHECK(from.request != span.request || !from.sample, "invariant 9: what is sampled is followed");
      }
      continue;
    }
    LOCI_CHECK(*span.token_of < before.spans.size(), "invariant 9: a sample is of the pass before");
    const CoreSpan& from = before.spans[*span.token_of];
    LOCI_CHECK(from.request == span.request && from.sample && span.sample && span.count == 1 &&
                   span.position == from.position + from.count && span.position == span.request->length(),
               "invariant 9: what follows a sample is the next token");
    LOCI_CHECK(span.request->follows && !span.request->is_public, "invariant 9: nobody has to see it first");
  }
}

void Flights::check_spans(const CoreRequest& request) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    std::vector<std::uint32_t> filled;
    for (const BlockPin& pin : request.blocks) {
      const bool comes = request.load_phase.is(LoadPhase::kJoined) && transfers_.loading(pin.block(), group);
      filled.push_back(comes              ? kBlockTokens
                       : pin.holds(group) ? index_.block(pin.block()).filled_in(group)
                                          : 0);
    }
    if (request.grown[group]) filled.push_back(0);
    for (const CorePass& pass : in_flight_) check_spans(request, pass, group, filled);
  }
}

// `filled`: by block, what the group has of it when the pass begins, then when it has ended.
void Flights::check_spans(const CoreRequest& request, const CorePass& pass, std::uint32_t group,
                          std::vector<std::uint32_t>& filled) const {
  for (const CoreCopy& copy : pass.copies) {
    if (copy.request != &request) continue;
    std::uint32_t& target = filled[index_.block(copy.target.block).depth - 1];
    target = std::max(target, copy.target.filled);
  }
  for (const CoreSpan& span : pass.spans) {
    if (span.request != &request || span.wasted) continue;
    const std::uint32_t first = span.position / kBlockTokens;
    const std::uint32_t seen = first_visible(config_.groups[group].window, span.position) / kBlockTokens;
    for (std::uint32_t i = seen; i < first; ++i) {
      LOCI_CHECK(filled[i] == kBlockTokens, "invariant 4: a span reads only what is there");
    }
    LOCI_CHECK(filled[first] >= span.position % kBlockTokens, "invariant 4: a span begins where state ends");
    for (std::size_t p = 0; p < span.piece_count; ++p) {
      const std::uint32_t i = first + static_cast<std::uint32_t>(p), begin = i * kBlockTokens;
      const CorePiece& piece = pass.pieces[span.first_piece + p];
      const std::uint32_t after = piece.filled;
      // What is there is not written again: others may read it. (Where somebody else's tail completed the
      // block that the pass fills, that one has slots of its own, and the pass writes to those from before.)
      const bool replaced = piece.claim && index_.block(piece.block).filled == kBlockTokens;
      LOCI_CHECK(filled[i] == 0 || replaced || span.write_from[group] >= begin + std::min(filled[i], after),
                 "invariant 4: a span writes nothing that is there");
      LOCI_CHECK(
          i == request.blocks.size() ? request.grown[group].has_value() : request.blocks[i].holds(group),
          "invariant 2: what a span writes is held");
      filled[i] = std::max(filled[i], after);
    }
  }
}

}  // namespace loci
