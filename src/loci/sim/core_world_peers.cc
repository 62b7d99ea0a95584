// SPDX-License-Identifier: Apache-2.0
// The world's other servers, peers, that ask this one for state and read it: of blocks that it has, that it
// will have and that nobody has; some leave in the middle. Of each part that they want each round is given
// once and in order, until the last one or until the part is gone; and what is given is the block's state. It
// goes into the store that servers share, from where this server may load it, so that wrong state shows as
// wrong tokens.
#include <utility>

#include "loci/sim/core_world.h"
#include "loci/sim/core_world_require.h"

namespace loci {
namespace {

constexpr std::size_t kKnownKeysMax = 256;

}  // namespace

void World::know(const ChainKey& key) {
  if (known_keys_.size() < kKnownKeysMax) {
    known_keys_.push_back(key);
  } else {
    known_keys_[choose_(kKnownKeysMax)] = key;
  }
}

ChainKey World::some_key() {
  if (!known_keys_.empty() && !one_in(12)) return known_keys_[choose_(known_keys_.size())];
  ChainKey key;
  for (std::uint8_t& byte : key.bytes) byte = static_cast<std::uint8_t>(choose_(256));
  return key;
}

void World::act_as_peer() {
  const std::uint64_t what = choose_(4);
  if (what == 0) {
    PeerQuestion question{.id = PeerReadId(++last_read_), .keys = {}};
    for (std::uint64_t left = choose_(6); left > 0; --left) question.keys.push_back(some_key());
    step(question);
  } else if (what == 1 && !peer_reads_.empty()) {
    const auto read =
        std::next(peer_reads_.begin(), static_cast<std::ptrdiff_t>(choose_(peer_reads_.size())));
    const PeerReadId id = read->first;
    peer_reads_.erase(read);
    left_reads_.insert(id);
    step(PeerLeft{id});
  } else {
    const auto rounds = static_cast<std::uint8_t>(one_in(2) ? 1 : 1 + choose_(4));
    PeerRead read{.id = PeerReadId(++last_read_),
                  .wants = {},
                  .deadline = now_ + rounds * static_cast<Nanos>(choose_(60)),
                  .rounds = rounds};
    WorldPeerRead& wanted = peer_reads_[read.id];
    wanted.rounds = read.rounds;
    for (std::uint64_t left = 1 + choose_(12); left > 0; --left) {
      const auto groups = static_cast<std::uint8_t>(1 + choose_((1u << device_.groups()) - 1));
      read.wants.push_back({some_key(), groups});
      wanted.blocks.push_back({groups, {}});
    }
    history_.peer_parts_wanted += read.wants.size();
    step(read);
  }
}

// Null: the peer has left.
World::WorldPeerRead::Block* World::peer_block(const PeerPlace& place) {
  if (left_reads_.contains(place.read)) return nullptr;
  const auto read = peer_reads_.find(place.read);
  require(read != peer_reads_.end() && place.index < read->second.blocks.size(),
          "what a peer gets it asked for");
  return &read->second.blocks[place.index];
}

void World::see(const PeerGone& gone) {
  WorldPeerRead::Block* const block = peer_block(gone.place);
  if (block == nullptr) return;
  require(gone.groups != 0 && (gone.groups & ~block->groups) == 0,
          "what a peer wants is given once, or is gone");
  block->groups &= static_cast<std::uint8_t>(~gone.groups);
  for (std::uint32_t group = 0; group < device_.groups(); ++group)
    history_.peer_parts_cut += (gone.groups >> group & 1) != 0 && block->round[group] > 0;
}

void World::see_given(const PeerPlace& place, std::uint32_t group) {
  WorldPeerRead::Block* const block = peer_block(place);
  if (block == nullptr) return;
  const PeerRounds& rounds = place.rounds;
  require((block->groups >> group & 1) != 0, "what a peer wants is given once, or is gone");
  require(rounds.of == peer_reads_.at(place.read).rounds && rounds.begin == block->round[group] &&
              rounds.begin < rounds.end && rounds.end <= rounds.of,
          "rounds come in order");
  history_.peer_rounds_given += rounds.begin > 0;
  block->round[group] = rounds.end;
  if (rounds.end < rounds.of) return;
  block->groups &= static_cast<std::uint8_t>(~(1u << group));
  ++history_.peer_parts_given;
}

void World::see_peers(const Plan& plan) {
  for (const PeerAnswer& answer : plan.peer_answers) {
    require(answer.id == PeerReadId(last_read_), "a peer's question is answered at once");
    for (const std::uint8_t groups : answer.groups)
      require(groups >> device_.groups() == 0, "an answer is of groups that there are");
  }
  for (const PeerGone& gone : plan.peer_gone) see(gone);
  for (const Move& move : plan.moves) {
    know(move.entry.key);
    if (!move.peer) continue;
    require(move.to == Tier::kShared && move.from != Tier::kShared && move.rotate_by == 0 &&
                move.form == StateForm::kKeysAndValues,
            "a peer gets this server's own keys and values");
    for (const MovePart& part : move.parts) see_given(*move.peer, part.group);
  }
  std::erase_if(peer_reads_, [](const auto& read) {
    return std::all_of(read.second.blocks.begin(), read.second.blocks.end(),
                       [](const WorldPeerRead::Block& block) { return block.groups == 0; });
  });
}

}  // namespace loci
