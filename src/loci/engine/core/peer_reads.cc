// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/peer_reads.h"

#include <algorithm>
#include <iterator>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr std::size_t kWaitingMax = 16'384;         // blocks, of all reads
constexpr Nanos kUnseenAgain = 5 * kNanosPerMilli;  // at what a step did not come to
constexpr std::uint32_t kOnWayMax = 6;  // moves of one read, so that one slow peer leaves room for others

}  // namespace

std::vector<std::uint8_t> PeerReads::answer(std::span<const ChainKey> keys) const {
  std::vector<std::uint8_t> groups;
  groups.reserve(keys.size());
  for (const ChainKey& key : keys) {
    const BlockId id = index_.find(key);
    groups.push_back(id == kNoBlock ? std::uint8_t{0}
                                    : static_cast<std::uint8_t>(transfers_.there_for_peers(id) |
                                                                transfers_.coming_for_peers(id)));
  }
  return groups;
}

void PeerReads::add(const PeerRead& read, Nanos now) {
  Read& added = reads_[read.id];
  added.deadline = read.deadline;
  added.coming_until = now + kComingMax;
  added.finish_from = now + (read.deadline - now) / 2;
  added.rounds = read.rounds;
  for (std::uint32_t i = 0; i < read.wants.size(); ++i) {
    const PeerWant& want = read.wants[i];
    if (want.groups == 0) continue;
    if (waiting_ >= kWaitingMax) {
      gone_.push_back({{read.id, i}, want.groups});
      continue;
    }
    added.waits.push_back({.index = i, .key = want.key, .groups = want.groups});
    ++waiting_;
  }
  if (added.waits.empty() && added.on_way == 0) reads_.erase(read.id);
}

void PeerReads::leave(PeerReadId id) {
  const auto at = reads_.find(id);
  if (at == reads_.end()) return;
  Read& read = at->second;
  waiting_ -= read.waits.size() + read.later.size();
  read.waits.clear();
  read.later.clear();
  read.next = 0;
  if (read.on_way == 0) reads_.erase(at);
}

void PeerReads::ended(PeerReadId id) {
  const auto at = reads_.find(id);
  LOCI_CHECK(at != reads_.end() && at->second.on_way > 0, "what is on its way to a peer is counted");
  if (--at->second.on_way == 0 && at->second.waits_for_none()) reads_.erase(at);
}

// True: it waits no more.
bool PeerReads::serve_block(PeerReadId id, Read& read, Wait& wait, Nanos now,
                            const Transfers::SaveRules& rules) {
  const BlockId block = index_.find(wait.key);
  const auto of_wait = [&](std::uint8_t groups) { return static_cast<std::uint8_t>(groups & wait.groups); };
  const std::uint8_t there = block == kNoBlock ? std::uint8_t{0} : of_wait(transfers_.there_for_peers(block));
  const std::uint8_t coming = block == kNoBlock || now >= read.coming_until
                                  ? std::uint8_t{0}
                                  : of_wait(transfers_.coming_for_peers(block));
  if (const std::uint8_t gone = of_wait(static_cast<std::uint8_t>(~(there | coming))); gone != 0) {
    gone_.push_back({{id, wait.index}, gone});
    wait.groups = of_wait(static_cast<std::uint8_t>(~gone));
  }
  if (there == 0) return wait.groups == 0;
  const auto after = read.finishes ? read.rounds : static_cast<std::uint8_t>(wait.round + 1);
  const PeerPlace place{id, wait.index, {.begin = wait.round, .end = after, .of = read.rounds}};
  const Transfers::Served served = transfers_.serve(block, place, there, rules);
  read.on_way += served.moves;
  wait.groups = of_wait(static_cast<std::uint8_t>(~served.groups));
  if (const auto more = static_cast<std::uint8_t>(served.groups & ~served.to_last); more != 0) {
    read.later.push_back({.index = wait.index, .key = wait.key, .groups = more, .round = after});
    ++waiting_;
  }
  return wait.groups == 0;
}

void PeerReads::drop_waits(PeerReadId id, Read& read) {
  for (const std::deque<Wait>* line : {&read.waits, &read.later}) {
    for (const Wait& wait : *line) gone_.push_back({{id, wait.index}, wait.groups});
    waiting_ -= line->size();
  }
  read.waits.clear();
  read.later.clear();
  read.next = 0;
}

void PeerReads::serve_read(PeerReadId id, Read& read, Nanos now, const Transfers::SaveRules& rules) {
  if (read.deadline <= now) return drop_waits(id, read);
  if (!read.finishes && read.finish_from <= now) finish_blocks(read);
  // Of what has begun some bytes are there already.
  if (read.finishes) serve_later(id, read, now, rules);
  serve_waits(id, read, now, rules);
  if (!read.finishes) serve_later(id, read, now, rules);
}

void PeerReads::finish_blocks(Read& read) {
  read.finishes = true;
  std::ranges::stable_sort(read.later, {}, &Wait::index);
}

// Once round, from where the last step stopped.
void PeerReads::serve_waits(PeerReadId id, Read& read, Nanos now, const Transfers::SaveRules& rules) {
  for (std::size_t left = read.waits.size(); left > 0; --left) {
    if (read.on_way >= kOnWayMax || !transfers_.may_serve()) return;
    if (looks_ >= kLooksMax) {
      looked_at_all_ = false;
      return;
    }
    if (read.next >= read.waits.size()) read.next = 0;
    const auto wait = read.waits.begin() + static_cast<std::ptrdiff_t>(read.next);
    if (serve_block(id, read, *wait, now, rules)) {
      read.waits.erase(wait);
      --waiting_;
    } else {
      ++looks_;
      ++read.next;
    }
  }
  read.next = 0;  // what stands first is wanted first
}

// Each begins, is gone, or waits from now on as one that has not begun does.
void PeerReads::serve_later(PeerReadId id, Read& read, Nanos now, const Transfers::SaveRules& rules) {
  while (!read.later.empty() && read.on_way < kOnWayMax && transfers_.may_serve()) {
    Wait wait = read.later.front();
    read.later.pop_front();
    if (serve_block(id, read, wait, now, rules)) {
      --waiting_;
    } else {
      read.waits.push_back(wait);
    }
  }
}

void PeerReads::serve(Nanos now, const Transfers::SaveRules& rules) {
  looks_ = 0;
  looked_at_all_ = true;
  if (waiting_ == 0) return;
  auto at = reads_.upper_bound(served_last_);
  for (std::size_t left = reads_.size(); left > 0; --left) {
    if (at == reads_.end()) at = reads_.begin();
    // (The next step begins behind the last one that this step looked into, so that one with many waits in
    // vain holds up no other; each goes on from its own place.)
    const bool begins = looks_ < kLooksMax;
    serve_read(at->first, at->second, now, rules);
    if (begins) served_last_ = at->first;
    at = at->second.waits_for_none() && at->second.on_way == 0 ? reads_.erase(at) : std::next(at);
  }
}

void PeerReads::refuse_all() {
  for (auto at = reads_.begin(); at != reads_.end();) {
    drop_waits(at->first, at->second);
    at = at->second.on_way == 0 ? reads_.erase(at) : std::next(at);
  }
}

Nanos PeerReads::next_deadline(Nanos now) const {
  Nanos next = kNever;
  for (const auto& [id, read] : reads_) {
    if (read.waits_for_none()) continue;
    next =
        std::min(next, now < read.coming_until ? std::min(read.coming_until, read.deadline) : read.deadline);
  }
  return looked_at_all_ || waiting_ == 0 ? next : std::min(next, now + kUnseenAgain);
}

void PeerReads::check_invariants() const {
  std::size_t waiting = 0;
  std::uint32_t on_way = 0;
  for (const auto& [id, read] : reads_) {
    LOCI_CHECK(!read.waits_for_none() || read.on_way > 0, "invariant 7: a read that nobody waits for ends");
    for (const std::deque<Wait>* line : {&read.waits, &read.later}) {
      for (const Wait& wait : *line) {
        LOCI_CHECK(wait.groups != 0 && wait.round < read.rounds,
                   "invariant 7: a wait is for a group, and a round that there is");
      }
      waiting += line->size();
    }
    for (const Wait& wait : read.later) LOCI_CHECK(wait.round > 0, "invariant 7: its first round has begun");
    on_way += read.on_way;
  }
  LOCI_CHECK(waiting == waiting_, "invariant 10: what waits is counted");
  LOCI_CHECK(on_way == transfers_.serves_in_flight(), "invariant 10: what is on its way is in flight");
}

}  // namespace loci
