// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/recovery.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "loci/base/check.h"
#include "loci/policy/lookahead.h"

namespace loci {
namespace {

constexpr std::uint32_t kSweepNodes = 512;          // looked at in one step
constexpr Nanos kSweepPause = 10 * kNanosPerMilli;  // between the steps of a sweep
// Between two sweeps: whoever promises that state is gone after some days adds no more than this.
constexpr Nanos kSweepsApartMost = 3600 * kNanosPerSecond;
constexpr Nanos kNanosPerMillisecondOfAge = kNanosPerMilli;
// Nodes that are let go are in no cache; those of so many ahead are read meanwhile.
constexpr std::size_t kLetGoAhead = 8;

}  // namespace

Recovery::Recovery(const CoreConfig& config, const ChainKeyHasher& hasher, BlockIndex& index)
    : config_(config), hasher_(hasher), index_(index) {}

std::vector<RecordChange> Recovery::take_over(const Recovered& event, Nanos now) {
  std::vector<RecordChange> forgets;
  for (const RecoveredEntry& found : event.entries) index_.prefetch(found.entry.key);
  for (const RecoveredEntry& found : event.entries) {
    const std::int64_t age =
        std::clamp<std::int64_t>(event.now - found.entry.used_at, 0, kNever / kNanosPerMillisecondOfAge / 4);
    const Nanos used = now - age * kNanosPerMillisecondOfAge;
    const bool too_old = config_.state_ttl != kNever && expired(used, now, config_.state_ttl);
    if (!too_old && take_over(found, used)) continue;
    ++orphans_;
    forgets.push_back({.kind = found.hole ? RecordChange::Kind::kForgetHole : RecordChange::Kind::kForget,
                       .group = found.group,
                       .slot = found.slot,
                       .entry = {}});
  }
  if (event.last) stage_ = Stage::kLetsGo;
  return forgets;
}

bool Recovery::let_go() {
  if (stage_ != Stage::kLetsGo) return false;
  for (std::size_t left = kLetGoInAStep; left > 0 && !taken_.empty(); --left) {
    if (taken_.size() > kLetGoAhead) index_.prefetch(taken_[taken_.size() - 1 - kLetGoAhead].block());
    index_.settle_hole(taken_.back().block());
    taken_.pop_back();
  }
  if (taken_.empty()) stage_ = Stage::kIsOver;
  return stage_ == Stage::kIsOver;
}

// The node above, where the way to it is known.
std::optional<BlockPin> Recovery::open_parent(const BlockEntry& entry) {
  switch (entry.parent_kind) {
    case ParentKind::kRoot:
      if (entry.depth != 1) return std::nullopt;
      return index_.open_root(entry.parent);
    case ParentKind::kGate: {
      const BlockId above = index_.find(entry.above);
      if (above == kNoBlock || index_.block(above).kind != BlockKind::kFull) return std::nullopt;
      return index_.open_gate(above, entry.parent);
    }
    case ParentKind::kBlock: {
      const BlockId parent = index_.find(entry.parent);
      if (parent == kNoBlock || index_.block(parent).kind != BlockKind::kFull) return std::nullopt;
      return index_.pin(parent);
    }
  }
  return std::nullopt;
}

bool Recovery::take_over(const RecoveredEntry& found, Nanos used) {
  const BlockEntry& entry = found.entry;
  const bool known =
      (found.hole || found.group < index_.pool_count(Tier::kDisk)) && index_.has_tier(Tier::kDisk);
  if (!known) return false;
  if (!found.key_is_checked && hasher_.child(entry.parent, entry.tokens) != entry.key) return false;
  std::optional<BlockPin> parent = open_parent(entry);
  if (!parent || index_.block(parent->block()).depth + 1 != entry.depth) return false;
  BlockPin pin = index_.open_full(parent->block(), entry.key, entry.tokens);
  if (index_.block(pin.block()).parent != parent->block()) return false;
  const bool kept = found.hole ? index_.recover_hole(pin.block(), found.slot)
                               : index_.recover_copy(pin.block(), found.group, found.slot, used);
  if (!kept) return false;
  if (!found.hole) ++recovered_;
  taken_.push_back(std::move(pin));
  return true;
}

void Recovery::visit_pins(const std::function<void(const BlockPin&)>& visit) const {
  for (const BlockPin& pin : taken_) visit(pin);
}

void Recovery::add_stats(CoreStats& stats) const {
  stats.recovered_total = recovered_;
  stats.orphans_total = orphans_;
}

void Recovery::check_invariants() const {
  LOCI_CHECK(stage_ != Stage::kTakesOver || taken_.size() >= recovered_,
             "invariant 10: what was taken over is pinned until all is there");
  LOCI_CHECK(stage_ != Stage::kIsOver || taken_.empty(), "invariant 10: nothing is pinned afterwards");
  std::unordered_set<std::uint32_t> seen, above;  // above: parents of those seen
  for (const BlockPin& pin : taken_) {
    const Block& block = index_.block(pin.block());
    LOCI_CHECK(block.kind == BlockKind::kFull && index_.find(block.key) == pin.block(),
               "invariant 4: what was taken over is found under its key");
    LOCI_CHECK(hasher_.child(index_.block(block.parent).key, block.tokens) == block.key,
               "invariant 4: its key is that of its parent and its tokens");
    const bool first = seen.insert(pin.block().value).second;  // else with another group's copy
    LOCI_CHECK(!first || !above.contains(pin.block().value),
               "invariant 6: parents are taken over before their children");
    above.insert(block.parent.value);
  }
}

void StateAge::sweep(BlockIndex& index, Nanos now) {
  if (state_ttl_ == kNever || now < next_sweep_) return;
  const std::uint32_t end = std::min(index.id_bound(), sweep_at_ + kSweepNodes);
  for (; sweep_at_ < end; ++sweep_at_) index.expire(BlockId(sweep_at_), now - state_ttl_);
  const bool whole = sweep_at_ >= index.id_bound();
  if (whole) sweep_at_ = 0;
  next_sweep_ = now + (whole ? std::clamp(state_ttl_ / 8, kSweepPause, kSweepsApartMost) : kSweepPause);
}

}  // namespace loci
