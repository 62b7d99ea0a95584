// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/modelled_peers.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "loci/base/check.h"
#include "loci/cluster/peers/peer_rounds.h"

namespace loci::sim {
namespace {

// As peers' reads have them (cluster/peers/peer_store.h).
constexpr Nanos kReadLimit = 8 * kNanosPerSecond;
constexpr Nanos kHere = 1'000;  // until an instance hears that nobody has a block

}  // namespace

void ModelledPeers::send(Message message, Nanos after) {
  messages_.emplace(++last_, std::move(message));
  agenda_.add({agenda_.now() + after, Happens::kPeers, 0, last_});
}

void ModelledPeers::take_from(std::uint32_t instance) { take(instance, instances_[instance]->take_outbox()); }

void ModelledPeers::take(std::uint32_t instance, Outbox out) {
  for (SharedAsk& ask : out.asks) {
    const std::uint64_t number = ++last_;
    Question question{instance, instances_[instance]->process(), std::move(ask), {}};
    question.groups.resize(question.ask.keys.size());
    questions_.emplace(number, std::move(question));
    if (instance < ways_.first_asking) {
      send({.says = Says::kAnswer, .of = number, .indices = {}}, kHere);
      continue;
    }
    ++counts_.asks;
    send({.says = Says::kAsk, .of = number, .indices = {}}, latency_);
  }
  if (!out.loads.empty()) begin_reads(instance, out.loads);
  for (const PeerGone& gone : out.gone) {
    if (!reads_.contains(gone.place.read.value)) continue;
    send({.says = Says::kGone, .of = gone.place.read.value, .indices = {gone.place.index}}, latency_);
  }
  for (const Outbox::Given& given : out.given) {
    counts_.given += given.bytes;
    const bool is_wanted = reads_.contains(given.place.read.value);
    if (!is_wanted || !given.is_whole) counts_.lost += given.bytes;
    if (!is_wanted) continue;
    Message message{.says = given.is_whole ? Says::kCome : Says::kGone,
                    .of = given.place.read.value,
                    .indices = {given.place.index},
                    .bytes = given.is_whole ? given.bytes : 0,
                    .began = given.began,
                    .rounds = given.place.rounds};
    on_way_ += message.bytes;
    send(std::move(message), latency_);
  }
}

void ModelledPeers::begin_reads(std::uint32_t reader, const std::vector<Move>& loads) {
  std::map<std::uint32_t, Read> of_giver;
  for (const Move& load : loads) {
    const PeerPlaceOf place = places_[reader].find(load.entry.key);
    const std::uint32_t giver = place.peer == 0 ? reader : place.peer - 1;  // itself: nobody has it
    Read& read = of_giver[giver];
    read.left.insert(static_cast<std::uint32_t>(read.moves.size()));
    read.moves.push_back(load.id);
    std::uint8_t groups = 0;
    for (const MovePart& part : load.parts) groups |= static_cast<std::uint8_t>(1u << part.group);
    read.wants.push_back({load.entry.key, groups});
  }
  for (auto& [giver, read] : of_giver) {
    const std::uint64_t number = ++last_;
    read.reader = reader;
    read.giver = giver;
    read.rounds = peer_rounds(read.moves.size() * ways_.block_bytes, ways_.rounds, ways_.rounds_bytes);
    read.first_round.resize(read.moves.size());
    if (giver == reader) {
      std::vector<std::uint32_t> all(read.moves.size());
      std::iota(all.begin(), all.end(), 0);
      send({.says = Says::kGone, .of = number, .indices = std::move(all)}, kHere);
    } else {
      send({.says = Says::kRead, .of = number, .indices = {}}, latency_);
      send({.says = Says::kLate, .of = number, .indices = {}}, kReadLimit);
    }
    reads_.emplace(number, std::move(read));
  }
}

void ModelledPeers::arrive(std::uint64_t message) {
  auto node = messages_.extract(message);
  LOCI_CHECK(!node.empty(), "a message arrives once");
  const Message& one = node.mapped();
  switch (one.says) {
    case Says::kAsk: ask_all(one.of); break;
    case Says::kAnswer: answer(one.of); break;
    case Says::kRead: read(one.of); break;
    case Says::kCome: end(one.of, one, MoveResult::kDone); break;
    case Says::kGone: end(one.of, one, MoveResult::kGone); break;
    case Says::kLate: give_up(one.of); break;
    case Says::kLeave:
      if (instances_[one.giver]->lives() && instances_[one.giver]->process() == one.process)
        instances_[one.giver]->step(PeerLeft{PeerReadId(one.of)});
      break;
  }
}

// Each peer answers at once; of those that have as much the first one counts.
void ModelledPeers::ask_all(std::uint64_t number) {
  Question& question = questions_.at(number);
  for (std::uint32_t i = 0; i < instances_.size(); ++i) {
    ModelledInstance& peer = *instances_[i];
    if (i == question.asker || !peer.lives()) continue;
    peer.step(PeerQuestion{PeerReadId(++last_), question.ask.keys});
    Outbox out = peer.take_outbox();
    LOCI_CHECK(out.answers.size() == 1, "a peer's question is answered at once");
    const std::vector<std::uint8_t> groups = std::move(out.answers.front().groups);
    take(i, std::move(out));
    for (std::size_t k = 0; k < groups.size(); ++k) {
      if (std::popcount(groups[k]) <= std::popcount(question.groups[k])) continue;
      question.groups[k] = groups[k];
      places_[question.asker].set(question.ask.keys[k], {.peer = i + 1, .groups = groups[k]});
    }
  }
  send({.says = Says::kAnswer, .of = number, .indices = {}}, latency_);
}

void ModelledPeers::answer(std::uint64_t number) {
  const Question question = std::move(questions_.extract(number).mapped());
  ModelledInstance& asker = *instances_[question.asker];
  if (!asker.lives() || asker.process() != question.process) return;
  asker.step(SharedAnswer{question.ask.request, question.groups});
}

void ModelledPeers::read(std::uint64_t number) {
  const auto at = reads_.find(number);
  if (at == reads_.end()) return;  // the reader died
  Read& read = at->second;
  ModelledInstance& giver = *instances_[read.giver];
  if (!giver.lives()) {
    const Message none{.says = Says::kGone, .of = number, .indices = {read.left.begin(), read.left.end()}};
    return send(none, latency_);
  }
  read.is_with_giver = true;
  giver.step(
      PeerRead{PeerReadId(number), read.wants, agenda_.now() + kReadLimit - 2 * latency_, read.rounds});
}

void ModelledPeers::end(std::uint64_t number, const Message& message, MoveResult result) {
  on_way_ -= message.bytes;
  const auto at = reads_.find(number);
  if (at == reads_.end()) {
    counts_.lost += message.bytes;
    return;
  }
  Read& read = at->second;
  counts_.got += message.bytes;
  const std::uint32_t reader = read.reader;
  const bool is_layers = result == MoveResult::kDone && message.rounds.end < message.rounds.of;
  for (const std::uint32_t index : message.indices) {
    if (result == MoveResult::kDone && message.rounds.begin == 0) read.first_round[index] = agenda_.now();
  }
  if (is_layers) return;
  struct Ended {
    OperationId move;
    Nanos first_round = 0;
  };
  const std::uint32_t rounds = read.rounds;
  std::vector<Ended> moves;
  for (const std::uint32_t index : message.indices) {
    if (read.left.erase(index) > 0) moves.push_back({read.moves[index], read.first_round[index]});
  }
  LOCI_CHECK(!moves.empty() || rounds > 1 || result == MoveResult::kGone, "a block comes once");
  if (read.left.empty()) reads_.erase(at);
  counts_.blocks_got += result == MoveResult::kDone ? moves.size() : 0;
  counts_.blocks_gone += result == MoveResult::kDone ? 0 : moves.size();
  for (const Ended& one : moves) {
    instances_[reader]->end_peer_load(one.move, result, message.began > 0 ? message.began : agenda_.now(),
                                      rounds, one.first_round);
  }
}

// The read's time is over: what has not come does not come.
void ModelledPeers::give_up(std::uint64_t number) {
  const auto at = reads_.find(number);
  if (at == reads_.end()) return;
  const std::uint32_t giver = at->second.giver;
  send({.says = Says::kLeave,
        .of = number,
        .indices = {},
        .giver = giver,
        .process = instances_[giver]->process()},
       latency_);
  const Message rest{
      .says = Says::kGone, .of = number, .indices = {at->second.left.begin(), at->second.left.end()}};
  end(number, rest, MoveResult::kGone);
}

void ModelledPeers::died(std::uint32_t instance) {
  places_[instance] = {};
  for (auto at = reads_.begin(); at != reads_.end();) {
    const Read& read = at->second;
    if (read.reader == instance) {
      if (read.is_with_giver && instances_[read.giver]->lives()) {
        send({.says = Says::kLeave,
              .of = at->first,
              .indices = {},
              .giver = read.giver,
              .process = instances_[read.giver]->process()},
             latency_);
      }
      at = reads_.erase(at);
      continue;
    }
    if (read.giver == instance && read.is_with_giver) {
      send({.says = Says::kGone, .of = at->first, .indices = {read.left.begin(), read.left.end()}}, latency_);
    }
    ++at;
  }
}

void ModelledPeers::check(bool ended) const {
  LOCI_CHECK(counts_.given == counts_.got + counts_.lost + on_way_, "bytes that are given come or are lost");
  LOCI_CHECK(!ended || (reads_.empty() && on_way_ == 0), "each read ends");
}

}  // namespace loci::sim
