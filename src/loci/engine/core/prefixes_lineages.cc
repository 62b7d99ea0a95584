// SPDX-License-Identifier: Apache-2.0
// Lineages: sequences that have dropped a part of their history (docs/decisions/truncation.md).
#include <algorithm>
#include <utility>

#include "loci/engine/core/prefixes.h"

namespace loci {

bool Prefixes::is_public_block(const ChainKey& key) const {
  const BlockId node = index_.find(key);
  return node != kNoBlock && index_.block(node).published > 0;
}

// Whether a sequence of so many tokens begins with the public blocks that it says, and with no other. (Its
// keys are those of its tokens, whatever is public: what follows from them is right, too.)
bool Prefixes::is_current(const PublicBeginning& beginning, std::size_t tokens) const {
  if (public_.empty()) return beginning.blocks == 0;
  for (std::uint32_t block = 0; block < beginning.blocks; ++block)
    if (!is_public_block(beginning.keys[block])) return false;
  if (tokens == 0 || beginning.blocks == (tokens - 1) / kBlockTokens) return true;
  return beginning.blocks < beginning.keys.size() && !is_public_block(beginning.keys[beginning.blocks]);
}

ArrivalKeys Prefixes::keys_of(const Arrival& event, ArrivalKeys made) const {
  const bool is_public = event.scope == SharingScope::kPublic;
  if (!made.made || (!is_public && !is_current(made.beginning, event.prompt.size())))
    made = arrival_keys(config_, hasher_, *chains_, event);
  if (made.lineage) choose_lineages(*made.lineage);
  return made;
}

ForgetKeys Prefixes::keys_of(const Forget& event, ForgetKeys made) const {
  if (made.made && is_current(made.beginning, event.tokens.size())) return made;
  return forget_keys(hasher_, *chains_, event);
}

// Where cuts are small, a turn may make many at once. Then most lineages were never anybody's, and what the
// turn before has kept is in one that the index knows: the others go first, then the oldest.
void Prefixes::choose_lineages(CoreLineage& lineage) const {
  std::vector<CoreLineage::Earlier>& earlier = lineage.earlier;
  std::size_t spare = earlier.size() - std::min(earlier.size(), kLineagesLookedAt);
  if (spare == 0) return;
  std::erase_if(earlier, [&](const CoreLineage::Earlier& one) {
    const bool goes = spare > 0 && index_.find(one.parent) == kNoBlock;
    if (goes) --spare;
    return goes;
  });
  earlier.erase(earlier.begin(), earlier.begin() + static_cast<std::ptrdiff_t>(spare));
}

BlockId Prefixes::original_of(const CoreRequest& request, std::uint32_t block) const {
  if (request.lineage == nullptr || block < request.lineage->front_blocks) return kNoBlock;
  CoreProbe found;
  find_original(*request.lineage, block, {.slowest = Tier::kShared, .originals = !has_windows_}, found);
  return found.original;
}

// The oldest lineage that is looked at and has it: what was computed is rotated seldom, mostly once. In
// groups with a window state is computed anew: a request goes on from what it holds of a whole window.
void Prefixes::find_original(const CoreLineage& lineage, std::uint32_t block, const ProbeRules& rules,
                             CoreProbe& found) const {
  const std::uint32_t index = block - lineage.front_blocks;
  if (!rules.originals) return;
  for (const CoreLineage::Earlier& one : lineage.earlier) {
    if (index < one.first || index - one.first >= one.keys.size()) continue;
    const BlockId id = index_.find(one.keys[index - one.first]);
    if (id == kNoBlock) continue;
    const std::optional<Tier> tier = transfers_.original_tier(id, rules.slowest);
    found.too_slow = found.too_slow || (!tier && transfers_.original_tier(id, Tier::kShared));
    if (!tier) continue;
    found.load = true;
    found.original = id;
    found.shift_blocks = one.shift_blocks;
    return;
  }
}

}  // namespace loci
