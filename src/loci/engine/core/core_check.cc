// SPDX-License-Identifier: Apache-2.0
// The invariants of the design that concern requests; block_index_check.cc has those of the index.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {

void Core::State::check_invariants() const {
  GroupCounts detached = transfers_.detached();  // slots that are no block's
  GroupCounts lingering{}, promised{};
  for (const auto& [id, request] : requests_) {
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      detached[group] += request->grown[group].has_value();
      promised[group] += request->promised[group];
    }
  }
  for (const CorePass& pass : in_flight_) {
    for (const CoreDetached& slot : pass.detached) {
      ++detached[slot.group];
      lingering[slot.group] += !slot.owner && windowed(slot.group);
    }
    for (const CoreKept& kept : pass.kept) {
      for (std::uint32_t group = 0; group < group_count_; ++group) {
        detached[group] += kept.grown[group].has_value();
        promised[group] += kept.promised[group];
      }
    }
  }
  index_.check_invariants(std::span<const std::uint32_t>(detached).first(group_count_));  // 1, 2, 4, 6
  std::size_t waiting = 0, paused = 0, at_rest = 0;
  for (const auto& [id, request] : requests_) {
    LOCI_CHECK(request->id == id, "a request is found by its id");
    LOCI_CHECK(!request->phase.is(RequestPhase::kEnding) || request->in_passes > 0,
               "invariant 7: what ends waits for its pass alone");
    if (request->runs()) check_request(*request);
    shared_questions_.check_invariants(*request);
    waiting += request->waits();
    paused += request->paused;
    at_rest += request->paused && !request->runs();
  }
  check_pins();
  prefixes_.check_invariants();                    // 1, 2, 4, 5
  transfers_.check_invariants();                   // 3, 4
  windows_.check_invariants(promised, lingering);  // 1
  device_memory_.check_invariants();               // 1
  peer_reads_.check_invariants();
  queue_needs_.check_invariants([this](RequestId id) { return waiting_request(id); });
  distances_.check_invariants();  // 1
  check_passes();
  // 7.
  LOCI_CHECK(
      requests_.size() == at_rest || !in_flight_.empty() || !transfers_.idle() || !before_queue_.empty(),
      "invariant 7: while there are requests, a pass, a move or a question is in flight, or all are paused");
  LOCI_CHECK(paused == paused_ && paused_ <= config_.max_queued,
             "invariant 7: pauses are counted, and bounded");
  queue_.check_invariants();
  std::map<std::string, std::uint32_t> running_by_tenant;
  for (const CoreRequest* request : running_) ++running_by_tenant[request->group];
  for (const auto& [tenant, count] : running_by_tenant) {
    LOCI_CHECK(queue_.running(tenant) == count, "what runs of each tenant is counted");
  }
  LOCI_CHECK(waiting == queue_.size(), "invariant 7: what does not run is in the queue");
  before_queue_.check_invariants();  // 7
  LOCI_CHECK(
      queue_.size() + before_queue_.size() + at_rest <= std::size_t{2} * config_.max_queued + running_max_,
      "invariant 7: a bounded queue");
  LOCI_CHECK(running_.size() + waiting + before_queue_.size() + at_rest == requests_.size() &&
                 running_.size() <= running_max_,
             "invariant 7: a bounded batch");
  LOCI_CHECK(std::is_sorted(running_.begin(), running_.end(),
                            [](auto* a, auto* b) { return a->arrival < b->arrival; }),
             "the batch is in order of arrival");
}

void Core::State::check_request(const CoreRequest& request) const {
  check_tables(request);
  const std::size_t count = request.blocks.size();
  LOCI_CHECK(!request.tail || request.tail->block() == request.blocks.back().block(), "the tail is last");
  ChainKey key = prefixes_.first_key(request);
  BlockId parent = index_.find(key);
  const std::span<const TokenId> tokens(request.tokens);
  for (std::size_t i = 0; i < count; ++i) {
    const BlockId id = request.blocks[i].block();
    const Block& b = index_.block(id);
    if (i > 0 && i == request.public_blocks && !begins_lineage(request.lineage.get(), i)) {  // its own
      key = prefixes_.hasher().gate(key, request.sharing);
      const BlockId gate = index_.find(key);
      LOCI_CHECK(gate != kNoBlock && index_.block(gate).parent == parent, "a gate is below its public block");
      parent = gate;
    }
    if (begins_lineage(request.lineage.get(), i)) {
      key = request.lineage->gate;
      const BlockId gate = index_.find(key);
      const BlockId front = request.blocks[i - 1].block();
      LOCI_CHECK(gate != kNoBlock && index_.block(gate).parent == front, "a lineage is below its front");
      parent = gate;
    }
    // 5.
    LOCI_CHECK(b.parent == parent, "invariant 5: each block is its predecessor's child");
    const auto own = tokens.subspan(i * kBlockTokens);
    if (i + 1 == count && request.tail) {
      LOCI_CHECK(b.kind == BlockKind::kTail && b.appending, "invariant 4: one writer a tail");
      LOCI_CHECK(b.filled <= own.size() && std::equal(own.begin(), own.begin() + b.filled, b.tokens.begin()),
                 "invariant 5: a tail spells its request's tokens");
    } else {
      key = prefixes_.hasher().child(key, own.first(kBlockTokens));
      LOCI_CHECK(b.kind == BlockKind::kFull && b.key == key, "invariant 5: a table spells its tokens");
      LOCI_CHECK(std::equal(b.tokens.begin(), b.tokens.end(), own.begin()),
                 "invariant 5: key and tokens agree");
      if (i < request.public_blocks) {
        LOCI_CHECK(b.filled == kBlockTokens || i < request.whole_blocks,
                   "invariant 4: nobody writes what others have made public");
      }
    }
    parent = id;
  }
}

// 2. What a request needs is held, in the slot it knows: in groups without window all, in the others what
// the next token to be computed sees.
void Core::State::check_tables(const CoreRequest& request) const {
  const auto count = static_cast<std::uint32_t>(request.blocks.size());
  LOCI_CHECK(count > 0 && request.whole_blocks <= count, "a running request has blocks");
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    LOCI_CHECK(request.tables[group].size() == count, "a place in the table for every block");
    std::uint32_t held = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const bool holds = request.blocks[i].holds(group);
      const std::optional<DevicePart>& part = index_.block(request.blocks[i].block()).parts[group];
      const SlotId slot = holds ? part->slot.slot() : kNoSlot;
      LOCI_CHECK(request.tables[group][i] == slot, "invariant 2: a table has the slots that are held");
      held += holds;
      if (!windowed(group)) {
        LOCI_CHECK(holds, "invariant 2: what a running request needs is held");
      } else {
        LOCI_CHECK(!holds || i >= request.first_held[group], "what was let go is not held");
      }
      const bool seen = !windowed(group) || i >= request.first_held[group];
      if (i < request.whole_blocks && seen) {
        const bool comes = transfers_.loading(request.blocks[i].block(), group);
        LOCI_CHECK(
            holds && (part->filled == kBlockTokens || comes || request.load_phase.is(LoadPhase::kLost)),
            "whole blocks lack nothing that is seen");
      }
    }
    if (windowed(group)) {
      held += request.grown[group].has_value();
      LOCI_CHECK(held == request.held[group] && held <= request.promised[group],
                 "invariant 1: no request holds more than it was promised");
    }
  }
}

// 2. Pins are those of running requests and of copies in flight, no more and no fewer.
void Core::State::check_pins() const {
  std::vector<std::uint32_t> pins(index_.id_bound(), 0);
  std::vector<GroupCounts> holds(index_.id_bound(), GroupCounts{});
  const auto count = [&](const BlockPin& pin) {
    ++pins[pin.block().value];
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      holds[pin.block().value][group] += pin.holds(group);
    }
  };
  for (const CoreRequest* request : running_) {
    for (const BlockPin& pin : request->blocks) count(pin);
  }
  prefixes_.visit_pins(count);
  for (const CorePass& pass : in_flight_) {
    for (const CoreCopy& copy : pass.copies) count(copy.source);
    for (const CoreKept& kept : pass.kept) {
      for (const BlockPin& pin : kept.blocks) count(pin);
    }
  }
  transfers_.visit_pins(count);
  recovery_.visit_pins(count);
  for (std::uint32_t i = 0; i < pins.size(); ++i) {
    const Block& b = index_.block(BlockId(i));
    LOCI_CHECK(b.pins == pins[i], "invariant 2: every pin has its holder");
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (b.parts[group]) {
        LOCI_CHECK(b.parts[group]->holds == holds[i][group], "invariant 2: every hold has its holder");
      }
    }
  }
}

void Core::State::check_pass(const CorePass& pass) const {
  for (const CoreCopy& copy : pass.copies) {
    // 3.
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

// 9. Passes end in order, and no more than the configuration says are in flight. What goes on from a sample
// follows the span that samples it, one token behind it, in the pass before, and takes nothing that is
// committed.
void Core::State::check_passes() const {
  LOCI_CHECK(in_flight_.size() <= std::size_t{1} + config_.passes_ahead, "invariant 9: passes in flight");
  std::map<const CoreRequest*, std::uint32_t> passes;
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    const CorePass& pass = in_flight_[i];
    LOCI_CHECK(i == 0 || in_flight_[i - 1].id.value + 1 == pass.id.value, "invariant 9: passes are in order");
    for (const CoreRequest* request : pass.requests) ++passes[request];
    check_pass(pass);
    if (i > 0) check_following(in_flight_[i - 1], pass);
  }
  for (const auto& [id, request] : requests_) {
    const auto found = passes.find(request.get());
    LOCI_CHECK(request->in_passes == (found == passes.end() ? 0 : found->second),
               "a pass in flight has its requests");
    LOCI_CHECK(!request->has_grown() || (request->in_passes > 0 && request->tail.has_value()),
               "invariant 9: a block is begun ahead behind a tail that a pass fills");
    if (request->in_passes > 0 && !request->passes_bring_nothing()) check_spans(*request);
  }
}

void Core::State::check_following(const CorePass& before, const CorePass& pass) const {
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

// 4. Before each span all that its tokens see is there, or is brought by the passes before it, or by its own.
void Core::State::check_spans(const CoreRequest& request) const {
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
void Core::State::check_spans(const CoreRequest& request, const CorePass& pass, std::uint32_t group,
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
