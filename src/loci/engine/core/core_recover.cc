// SPDX-License-Identifier: Apache-2.0
// What outlives a process and what outlives its use: putting the disk's entries back into the index, and
// dropping state that nobody used for long (AttentionStore §3.3.2's TTL).
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"
#include "loci/policy/lookahead.h"

namespace loci {
namespace {

constexpr std::uint32_t kSweepNodes = 4096;         // looked at in one step
constexpr Nanos kSweepPause = 10 * kNanosPerMilli;  // between the steps of a sweep
constexpr Nanos kNanosPerMillisecondOfAge = kNanosPerMilli;

}  // namespace

void Core::State::on(const Recovered& event, Plan& plan) {
  for (const RecoveredEntry& found : event.entries) recover(found, event.now, plan);
  if (!event.last) return;
  // The deepest first: so a hole that leads nowhere is seen to.
  for (const BlockPin& pin : recovering_) index_.settle_hole(pin.block());
  while (!recovering_.empty()) recovering_.pop_back();
  recovered_ = true;
}

// The node above, where the way to it is known.
std::optional<BlockPin> Core::State::open_recovered_parent(const DiskEntry& entry) {
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

void Core::State::recover(const RecoveredEntry& found, std::int64_t now, Plan& plan) {
  const DiskEntry& entry = found.entry;
  const auto forget = [&] {
    ++totals_.orphans_total;
    plan.notes.push_back({.kind = found.hole ? DiskNote::Kind::kForgetHole : DiskNote::Kind::kForget,
                          .group = found.group,
                          .slot = found.slot,
                          .entry = {}});
  };
  const std::int64_t age =
      std::clamp<std::int64_t>(now - entry.used_at, 0, kNever / kNanosPerMillisecondOfAge / 4);
  const Nanos used = now_ - age * kNanosPerMillisecondOfAge;
  const bool too_old = config_.state_ttl != kNever && expired(used, now_, config_.state_ttl);
  const bool known = found.hole ? has_disk_ : found.group < group_count_ && has_disk_;
  if (!known || too_old || hasher_.child(entry.parent, entry.tokens) != entry.key) return forget();
  std::optional<BlockPin> parent = open_recovered_parent(entry);
  if (!parent || index_.block(parent->block()).depth + 1 != entry.depth) return forget();
  BlockPin pin = index_.open_full(parent->block(), entry.key, entry.tokens);
  if (index_.block(pin.block()).parent != parent->block()) return forget();
  const bool kept = found.hole ? index_.recover_hole(pin.block(), found.slot)
                               : index_.recover_copy(pin.block(), found.group, found.slot, used);
  if (!kept) return forget();
  if (!found.hole) ++totals_.recovered_total;
  recovering_.push_back(std::move(pin));
}

// --- time to live ---

void Core::State::sweep() {
  if (config_.state_ttl == kNever || now_ < next_sweep_) return;
  const std::uint32_t end = std::min(index_.id_bound(), sweep_at_ + kSweepNodes);
  for (; sweep_at_ < end; ++sweep_at_) index_.expire(BlockId(sweep_at_), now_ - config_.state_ttl);
  const bool whole = sweep_at_ >= index_.id_bound();
  if (whole) sweep_at_ = 0;
  next_sweep_ = now_ + (whole ? std::max(config_.state_ttl / 8, kSweepPause) : kSweepPause);
}

}  // namespace loci
