// SPDX-License-Identifier: Apache-2.0
// The invariants that no owner can test alone, by their numbers in core.h; the others are tested by the
// owners whose they are.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {

void Core::State::check_invariants() const {
  check_slots();
  check_pins();
  check_owners();
  check_lives();
}

// 1. Counts the slots that no block has, and those that are promised; the index and the windows compare both
// with theirs.
void Core::State::check_slots() const {
  GroupCounts detached = transfers_.detached();
  const Flights::Kept kept = flights_.kept();
  GroupCounts promised = kept.promised;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    detached[group] += kept.detached[group];
    for (const auto& [id, request] : requests_) {
      detached[group] += request->grown[group].has_value();
      promised[group] += request->windows->promised[group];
    }
  }
  index_.check_invariants(std::span<const std::uint32_t>(detached).first(group_count_));
  windows_.check_invariants(promised, kept.lingering);
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

void Core::State::check_owners() const {
  std::vector<const CoreRequest*> all;
  std::size_t with_deadline = 0;
  std::uint64_t room_seen = 0;
  const std::map<RequestId, GroupCounts> lent = flights_.kept().lent;
  for (const auto& [id, request] : requests_) {
    all.push_back(request.get());
    with_deadline += request->deadline != kNever && !request->phase.is(RequestPhase::kEnding);
    shared_questions_.check_invariants(*request);
    beginnings_.check_invariants(*request, now_);
    preloads_.check_invariants(*request);
    PromptSources::check_invariants(*request);
    room_seen = std::max(room_seen, request->preload->seen);
    const auto lends = lent.find(id);
    Windows::check_lent(*request, lends == lent.end() ? GroupCounts{} : lends->second);
    if (!request->runs()) continue;
    tables_.check_invariants(*request);
    windows_.check_invariants(*request);
    admission_.check_invariants(*request);
  }
  prefixes_.check_invariants();
  transfers_.check_invariants();
  device_memory_.check_invariants();
  peer_reads_.check_invariants();
  queue_needs_.check_invariants([this](RequestId id) { return waiting_request(id); });
  distances_.check_invariants();
  flights_.check_invariants(all);
  pass_times_.check_invariants(flights_.size(), now_);
  arrivals_.check_invariants(all);
  deadlines_.check_invariants(with_deadline);
  queue_.check_invariants();
  before_queue_.check_invariants();
  batch_.check_invariants();
  queue_rate_.check_invariants(now_);
  room_.check_invariants([this](RequestId id) { return waiting_request(id) != nullptr; }, room_seen);
  recovery_.check_invariants();
  forgotten_.check_invariants();
}

// 7. Whoever is here runs, waits or rests; 10. and each owner knows so.
void Core::State::check_lives() const {
  std::size_t waiting = 0, paused = 0, at_rest = 0;
  for (const auto& [id, request] : requests_) {
    LOCI_CHECK(request->id == id, "invariant 10: a request is found by its id");
    LOCI_CHECK(!request->phase.is(RequestPhase::kEnding) || request->passes->in_flight > 0,
               "invariant 7: what ends waits for its pass alone");
    waiting += request->waits();
    paused += request->paused;
    at_rest += request->paused && !request->runs();
  }
  LOCI_CHECK(
      requests_.size() == at_rest || !flights_.empty() || !transfers_.idle() || !before_queue_.empty(),
      "invariant 7: while there are requests, a pass, a move or a question is in flight, or all are paused");
  LOCI_CHECK(paused == paused_ && paused_ <= config_.max_queued,
             "invariant 7: pauses are counted, and bounded");
  std::map<std::string, std::uint32_t> running_by_tenant;
  for (const CoreRequest* request : batch_) ++running_by_tenant[request->tenant];
  for (const auto& [tenant, count] : running_by_tenant) {
    LOCI_CHECK(queue_.running(tenant) == count, "invariant 10: what runs of each tenant is counted");
  }
  LOCI_CHECK(waiting == queue_.size(), "invariant 7: what does not run is in the queue");
  LOCI_CHECK(
      queue_.size() + before_queue_.size() + at_rest <= std::size_t{2} * config_.max_queued + batch_.most(),
      "invariant 7: a bounded queue");
  LOCI_CHECK(batch_.size() + waiting + before_queue_.size() + at_rest == requests_.size(),
             "invariant 7: whoever is here runs, waits or rests");
}

}  // namespace loci
