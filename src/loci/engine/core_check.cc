// The invariants of the design that concern requests; block_index_check.cc has those of the index.
#include <algorithm>
#include <vector>

#include "loci/base/check.h"
#include "loci/engine/core_state.h"

namespace loci {

void Core::State::check_invariants() const {
  index_.check_invariants();  // 1, 2, 4, 6
  std::size_t waiting = 0;
  for (const auto& [id, request] : requests_) {
    LOCI_CHECK(request->id == id, "a request is found by its id");
    LOCI_CHECK(!request->in_pass || in_flight_, "a pass in flight has its requests");
    LOCI_CHECK(!request->ending || request->in_pass, "invariant 7: what ends waits for its pass alone");
    if (request->running) {
      check_request(*request);
    } else {
      ++waiting;
    }
  }
  check_pins();
  if (in_flight_) check_pass(*in_flight_);
  // 7.
  LOCI_CHECK(requests_.empty() || in_flight_, "invariant 7: while there are requests, a pass is in flight");
  LOCI_CHECK(waiting == queue_.size(), "invariant 7: what does not run is in the queue");
  LOCI_CHECK(queue_.size() <= std::size_t{config_.max_queued} + running_max_, "invariant 7: a bounded queue");
  LOCI_CHECK(running_.size() + waiting == requests_.size() && running_.size() <= running_max_,
             "invariant 7: a bounded batch");
  LOCI_CHECK(std::is_sorted(running_.begin(), running_.end(),
                            [](auto* a, auto* b) { return a->arrival < b->arrival; }),
             "the batch is in order of arrival");
}

void Core::State::check_request(const CoreRequest& request) const {
  const std::size_t count = request.blocks.size();
  LOCI_CHECK(count == request.table.size() && count > 0, "a slot for every block");
  LOCI_CHECK(!request.tail || request.tail->block() == request.blocks.back().block(), "the tail is last");
  ChainKey key = hasher_.root(request.group);
  BlockId parent = index_.find(key);
  const std::span<const TokenId> tokens(request.tokens);
  for (std::size_t i = 0; i < count; ++i) {
    const BlockId id = request.blocks[i].block();
    const Block& b = index_.block(id);
    // 2.
    LOCI_CHECK(b.pins > 0 && b.device && b.device->slot.slot() == request.table[i],
               "invariant 2: what a running request needs is pinned, in the slot it knows");
    // 5.
    LOCI_CHECK(b.parent == parent, "invariant 5: each block is its predecessor's child");
    const auto own = tokens.subspan(i * kBlockTokens);
    if (i + 1 == count && request.tail) {
      LOCI_CHECK(b.kind == BlockKind::kTail && b.device->appending, "invariant 4: one writer a tail");
      LOCI_CHECK(
          b.filled() <= own.size() && std::equal(own.begin(), own.begin() + b.filled(), b.tokens.begin()),
          "invariant 5: a tail spells its request's tokens");
    } else {
      key = hasher_.child(key, own.first(kBlockTokens));
      LOCI_CHECK(b.kind == BlockKind::kFull && b.key == key, "invariant 5: a table spells its tokens");
      LOCI_CHECK(std::equal(b.tokens.begin(), b.tokens.end(), own.begin()),
                 "invariant 5: key and tokens agree");
    }
    if (i < request.whole_blocks) LOCI_CHECK(b.filled() == kBlockTokens, "whole blocks lack nothing");
    parent = id;
  }
}

// 2. Pins are those of running requests and of copies in flight, no more and no fewer.
void Core::State::check_pins() const {
  std::vector<std::uint32_t> pins(index_.id_bound(), 0);
  for (const CoreRequest* request : running_) {
    for (const BlockPin& pin : request->blocks) ++pins[pin.block().value];
  }
  if (in_flight_) {
    for (const CoreCopy& copy : in_flight_->copies) ++pins[copy.source.block().value];
  }
  for (std::uint32_t i = 0; i < pins.size(); ++i) {
    LOCI_CHECK(index_.block(BlockId(i)).pins == pins[i], "invariant 2: every pin has its holder");
  }
}

void Core::State::check_pass(const CorePass& pass) const {
  for (const CoreCopy& copy : pass.copies) {
    // 3.
    const Block& source = index_.block(copy.source.block());
    const Block& target = index_.block(copy.target.block);
    LOCI_CHECK(source.filled() >= copy.target.filled, "invariant 3: a copy's source has what is copied");
    LOCI_CHECK(target.device->appending && target.filled() == 0 && target.pins > 0,
               "invariant 3: a copy's target is reserved and unseen");
    LOCI_CHECK(std::equal(source.tokens.begin(), source.tokens.begin() + copy.target.filled,
                          copy.request->tokens.begin() + (target.facts.depth - 1) * kBlockTokens),
               "invariant 4: a copy is of the same tokens");
  }
  for (const CoreRequest* request : pass.requests) {
    // 4. Before each span everything is there, or is brought by the pass before it.
    std::vector<std::uint32_t> filled;
    for (const BlockPin& pin : request->blocks) filled.push_back(index_.block(pin.block()).filled());
    for (const CoreCopy& copy : pass.copies) {
      if (copy.request == request)
        filled[index_.block(copy.target.block).facts.depth - 1] = copy.target.filled;
    }
    for (const CoreSpan& span : pass.spans) {
      if (span.request != request) continue;
      const std::uint32_t first = span.position / kBlockTokens;
      for (std::uint32_t i = 0; i < first; ++i) {
        LOCI_CHECK(filled[i] == kBlockTokens, "invariant 4: a span reads only what is there");
      }
      LOCI_CHECK(filled[first] == span.position % kBlockTokens,
                 "invariant 4: a span begins where state ends");
      for (std::size_t p = 0; p < span.piece_count; ++p) {
        filled[first + p] = pass.pieces[span.first_piece + p].filled;
      }
    }
  }
}

}  // namespace loci
