// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/shared_questions.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr Nanos kAskMin = 20 * kNanosPerMilli, kAskMax = 250 * kNanosPerMilli;

}  // namespace

std::optional<SharedAsk> SharedQuestions::ask(CoreRequest& request) const {
  // (What is public keeps all state of its blocks, also what windows have moved past, which others let go.)
  const bool asks = !request.is_public || !places_.any_windows();
  if (!asks || !config_.reuse || !transfers_.shared_readable()) return std::nullopt;
  const std::vector<ChainKey>& keys = prefixes_.keys_of(request);
  SharedAsk ask{.request = request.id, .keys = {}};
  Nanos compute = 0;
  const std::uint32_t start = places_.any_windows() ? start_here(request) : 0;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const BlockId node = index_.find(keys[i]);
    if (node != kNoBlock && is_here(node, places_.groups_seen(start, i))) continue;
    request.question.change().asked.push_back(i);
    ask.keys.push_back(keys[i]);
    compute = std::min(kAskMax, compute + pass_times_.compute(i * kBlockTokens, kBlockTokens));
  }
  if (ask.keys.empty()) return std::nullopt;
  ask.time_limit = std::clamp(compute, kAskMin, kAskMax);
  return ask;
}

// Where it goes on with what this server has.
std::uint32_t SharedQuestions::start_here(const CoreRequest& request) const {
  CoreProbes probes = prefixes_.probe(request, {.slowest = Tier::kDisk, .originals = false});
  places_.choose_start(probes, Tier::kDisk, nullptr, UINT32_MAX);
  return probes.start;
}

bool SharedQuestions::is_here(BlockId node, GroupSet groups) const {
  for (std::uint32_t group = 0; group < config_.groups.size(); ++group)
    if (has_group(groups, group) && !index_.reachable(node, group, Tier::kDisk)) return false;
  return true;
}

bool SharedQuestions::take_answer(CoreRequest& request, std::span<const std::uint8_t> groups) {
  if (request.question->asked.empty() || groups.size() != request.question->asked.size()) return false;
  remember(request, groups);
  request.question.change() = {.asked = {}, .answered = true};
  return true;
}

// The index has what the answer says: a node for each block that the store has, and for those on the way.
void SharedQuestions::remember(CoreRequest& request, std::span<const std::uint8_t> groups) {
  const auto group_count = static_cast<std::uint32_t>(config_.groups.size());
  std::vector<std::uint8_t> has(request.names->keys.size(), 0);
  std::size_t end = 0;  // behind the last block that it has
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::uint32_t block = request.question->asked[i];
    has[block] = groups[i];
    const auto found = static_cast<GroupSet>(groups[i] & kEveryGroup);
    forget(request.names->keys[block], found);
    if (found != 0) end = block + 1;
  }
  const CoreProbes probes = prefixes_.probe(request, {.originals = false});
  // (What is public may have changed since, and with it what its blocks hang from.)
  for (std::size_t i = 0; i < end; ++i) {
    if (probes.blocks[i].key != request.names->keys[i]) return;
  }
  std::vector<BlockPin> path;
  path.push_back(prefixes_.open_parent(probes));
  for (std::size_t i = probes.public_blocks; i < end; ++i) {
    if (begins_lineage(probes.lineage, i)) {
      const BlockId above = i > probes.public_blocks ? path.back().block() : probes.blocks[i - 1].node;
      path.push_back(index_.open_gate(above, probes.lineage->gate));
    }
    const auto tokens = std::span<const TokenId>(request.tokens).subspan(i * kBlockTokens, kBlockTokens);
    const BlockId block =
        path.emplace_back(index_.open_full(path.back().block(), request.names->keys[i], tokens)).block();
    for (std::uint32_t group = 0; group < group_count; ++group) {
      if ((has[i] >> group & 1) == 0) continue;
      const bool is_known = index_.block(block).copy(Tier::kShared, group) != nullptr;
      if (!is_known && !index_.reserve_copy(block, Tier::kShared, group)) continue;
      if (!is_known) index_.finish_copy(block, Tier::kShared, group, true);
      // (Where there is no store all of it comes from peers, over the one link of the tier.)
      const bool at_peer = config_.writes_shared && (has[i] >> (kLayerGroupsMax + group) & 1) != 0;
      index_.set_at_peer(block, group, at_peer);
    }
  }
  while (!path.empty()) path.pop_back();  // the deepest first
}

// What the index has of the block in the store, and the store has not.
void SharedQuestions::forget(const ChainKey& key, std::uint8_t found) {
  const BlockId node = index_.find(key);
  if (node == kNoBlock) return;
  const BlockPin pin = index_.pin(node);
  for (std::uint32_t group = 0; group < config_.groups.size(); ++group) {
    const LowerCopy* copy = index_.block(node).copy(Tier::kShared, group);
    if ((found >> group & 1) == 0 && copy != nullptr && copy->readers == 0)
      index_.drop_copy(node, Tier::kShared, group, MissReason::kEvicted);
  }
}

void SharedQuestions::check_invariants(const CoreRequest& request) const {
  LOCI_CHECK(
      std::ranges::adjacent_find(request.question->asked, std::greater_equal{}) ==
              request.question->asked.end() &&
          (request.question->asked.empty() || request.question->asked.back() < request.names->keys.size()),
      "invariant 7: a question is about blocks of its request");
  LOCI_CHECK(request.question->asked.empty() || !request.question->answered,
             "invariant 7: who was answered asks nothing");
}

}  // namespace loci
