// SPDX-License-Identifier: Apache-2.0
// The world's other servers, peers, that ask this one for state and read it: of blocks that it has, that it
// will have and that nobody has; some leave in the middle. Each part that they want is given once or is gone,
// and what is given is the block's state. It goes into the store that servers share, from where this server
// may load it, so that wrong state shows as wrong tokens.
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
    PeerRead read{
        .id = PeerReadId(++last_read_), .wants = {}, .deadline = now_ + static_cast<Nanos>(choose_(60))};
    std::vector<std::uint8_t>& wanted = peer_reads_[read.id];
    for (std::uint64_t left = 1 + choose_(12); left > 0; --left) {
      const auto groups = static_cast<std::uint8_t>(1 + choose_((1u << device_.groups()) - 1));
      read.wants.push_back({some_key(), groups});
      wanted.push_back(groups);
    }
    history_.peer_parts_wanted += read.wants.size();
    step(read);
  }
}

// Of the parts that a peer wants, these have got an end.
void World::end_parts(const PeerPlace& place, std::uint8_t groups) {
  if (left_reads_.contains(place.read)) return;
  const auto read = peer_reads_.find(place.read);
  require(read != peer_reads_.end() && place.index < read->second.size(), "what a peer gets it asked for");
  std::uint8_t& wanted = read->second[place.index];
  require(groups != 0 && (groups & ~wanted) == 0, "what a peer wants is given once, or is gone");
  wanted &= static_cast<std::uint8_t>(~groups);
}

void World::see_peers(const Plan& plan) {
  for (const PeerAnswer& answer : plan.peer_answers) {
    require(answer.id == PeerReadId(last_read_), "a peer's question is answered at once");
    for (const std::uint8_t groups : answer.groups)
      require(groups >> device_.groups() == 0, "an answer is of groups that there are");
  }
  for (const PeerGone& gone : plan.peer_gone) end_parts(gone.place, gone.groups);
  for (const Move& move : plan.moves) {
    know(move.entry.key);
    if (!move.peer) continue;
    require(move.to == Tier::kShared && move.from != Tier::kShared && move.rotate_by == 0 &&
                move.form == StateForm::kKeysAndValues,
            "a peer gets this server's own keys and values");
    for (const MovePart& part : move.parts) {
      end_parts(*move.peer, static_cast<std::uint8_t>(1u << part.group));
      ++history_.peer_parts_given;
    }
  }
  std::erase_if(peer_reads_, [](const auto& read) {
    return std::all_of(read.second.begin(), read.second.end(),
                       [](std::uint8_t groups) { return groups == 0; });
  });
}

}  // namespace loci
