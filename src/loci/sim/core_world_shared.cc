// SPDX-License-Identifier: Apache-2.0
// The world's shared store. It answers late or never, claims blocks that it lacks, denies blocks that it has,
// and loses blocks at random. But every block that it brings is the one that was stored under that name,
// because values are sealed.
#include <algorithm>
#include <iterator>
#include <utility>

#include "loci/sim/core_world.h"
#include "loci/sim/core_world_require.h"

namespace loci {

// Zeros: it is not there.
World::Contents World::shared_contents(const Move& move, const MovePart& part) const {
  const auto found = shared_.find({move.entry.key, part.group});
  return found == shared_.end() ? Contents{} : found->second;
}

// What is there when the store is asked for it counts, not what was there when the move was planned.
bool World::decide_shared(WorldMove& begun) {
  const Move& move = begun.move;
  require(move.to == Tier::kDevice, "what the store has comes to the device");
  for (std::size_t i = 0; i < move.parts.size(); ++i) {
    begun.source[i] = shared_contents(move, move.parts[i]);
    if (begun.source[i][0] != 0) continue;
    begun.result = one_in(2) ? MoveResult::kGone : MoveResult::kDamaged;
    ++history_.shared_lies;
    return false;
  }
  ++history_.shared_loads;
  return true;
}

void World::see(const SharedAsk& ask) {
  require(!ask.keys.empty() && ask.time_limit > 0, "a question asks for something, and has a limit");
  require(client(ask.request).tokens.size() > ask.keys.size() * kBlockTokens,
          "only whole blocks are asked for");
  asks_.push_back(ask);
}

void World::answer_one() {
  const auto at = asks_.begin() + static_cast<std::ptrdiff_t>(choose_(asks_.size()));
  const SharedAsk ask = std::move(*at);
  asks_.erase(at);
  if (one_in(16)) {  // nobody answers, and the time for it passes
    now_ += ask.time_limit;
    step(Tick{});
    return;
  }
  SharedAnswer answer{.request = ask.request, .groups = {}};
  for (const ChainKey& key : ask.keys) {
    std::uint8_t bits = 0;
    for (std::uint32_t group = 0; group < device_.groups(); ++group)
      bits |= static_cast<std::uint8_t>(shared_.contains({key, group}) << group);
    const bool beside_peers = options_.config.writes_shared && options_.config.shared_rounds > 0;
    if (beside_peers) bits |= static_cast<std::uint8_t>(choose_(1u << kLayerGroupsMax) << kLayerGroupsMax);
    answer.groups.push_back(one_in(20) ? static_cast<std::uint8_t>(choose_(256)) : bits);
  }
  if (one_in(80)) answer.groups.pop_back();
  step(answer);
}

void World::lose_some() {
  for (std::uint64_t left = choose_(4); left > 0 && !shared_.empty(); --left)
    shared_.erase(std::next(shared_.begin(), static_cast<std::ptrdiff_t>(choose_(shared_.size()))));
  if (one_in(10)) shared_.clear();
}

CoreWorldOptions random_shared_world(const Chooser& choose) {
  CoreWorldOptions options = random_tier_world(choose);
  const bool others = choose(3) != 0;  // tiers below the device, beside the store
  const auto remembered = static_cast<std::uint32_t>(1 + choose(choose(2) == 0 ? 8 : 200));
  for (CoreGroup& group : options.config.groups) {
    group.shared_blocks = remembered;
    if (!others) group.host_blocks = group.disk_blocks = 0;
  }
  if (!others) options.config.hole_records = options.config.hidden.disk_blocks = 0;
  options.config.costs.shared_read = {static_cast<Nanos>(choose(200)),
                                      choose(2) == 0 ? 1'000'000'000'000u : 1'000'000u};
  options.config.writes_shared = choose(4) != 0;  // else there are peers alone
  options.config.shared_rounds = static_cast<std::uint32_t>(choose(2) == 0 ? 0 : choose(6));
  options.restarts = true;
  return options;
}

}  // namespace loci
