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
  const Flights::Kept kept = flights_.kept();
  GroupCounts promised = kept.promised;
  for (std::uint32_t group = 0; group < group_count_; ++group) detached[group] += kept.detached[group];
  for (const auto& [id, request] : requests_) {
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      detached[group] += request->grown[group].has_value();
      promised[group] += request->promised[group];
    }
  }
  index_.check_invariants(std::span<const std::uint32_t>(detached).first(group_count_));  // 1, 2, 4, 6
  std::size_t waiting = 0, paused = 0, at_rest = 0;
  std::vector<const CoreRequest*> all;
  for (const auto& [id, request] : requests_) {
    all.push_back(request.get());
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
  prefixes_.check_invariants();                         // 1, 2, 4, 5
  transfers_.check_invariants();                        // 3, 4
  windows_.check_invariants(promised, kept.lingering);  // 1
  device_memory_.check_invariants();                    // 1
  peer_reads_.check_invariants();
  queue_needs_.check_invariants([this](RequestId id) { return waiting_request(id); });
  distances_.check_invariants();   // 1
  flights_.check_invariants(all);  // 2, 3, 4, 9
  // 7.
  LOCI_CHECK(
      requests_.size() == at_rest || !flights_.empty() || !transfers_.idle() || !before_queue_.empty(),
      "invariant 7: while there are requests, a pass, a move or a question is in flight, or all are paused");
  LOCI_CHECK(paused == paused_ && paused_ <= config_.max_queued,
             "invariant 7: pauses are counted, and bounded");
  queue_.check_invariants();
  std::map<std::string, std::uint32_t> running_by_tenant;
  for (const CoreRequest* request : batch_) ++running_by_tenant[request->group];
  for (const auto& [tenant, count] : running_by_tenant) {
    LOCI_CHECK(queue_.running(tenant) == count, "what runs of each tenant is counted");
  }
  LOCI_CHECK(waiting == queue_.size(), "invariant 7: what does not run is in the queue");
  before_queue_.check_invariants();  // 7
  LOCI_CHECK(
      queue_.size() + before_queue_.size() + at_rest <= std::size_t{2} * config_.max_queued + batch_.most(),
      "invariant 7: a bounded queue");
  LOCI_CHECK(batch_.size() + waiting + before_queue_.size() + at_rest == requests_.size(),
             "invariant 7: whoever is here runs, waits or rests");
  batch_.check_invariants();  // 7
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

// 2. Each pin has a holder: a running request, a public prefix, a pass in flight, a move, or what is being
// recovered.
void Core::State::check_pins() const {
  std::vector<std::uint32_t> pins(index_.id_bound(), 0);
  std::vector<GroupCounts> holds(index_.id_bound(), GroupCounts{});
  const auto count = [&](const BlockPin& pin) {
    ++pins[pin.block().value];
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      holds[pin.block().value][group] += pin.holds(group);
    }
  };
  for (const CoreRequest* request : batch_) {
    for (const BlockPin& pin : request->blocks) count(pin);
  }
  prefixes_.visit_pins(count);
  flights_.visit_pins(count);
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

}  // namespace loci
