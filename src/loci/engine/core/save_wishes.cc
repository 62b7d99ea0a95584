// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/save_wishes.h"

#include <algorithm>
#include <span>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr std::size_t kWishesMax = 4096;  // of a line; beyond it the oldest are dropped
constexpr std::size_t kTailsMax = 64;     // the same of tails, which are looked at one by one

}  // namespace

void SaveWishes::add(Line line, BlockId id, SaveScope scope, StateForm form) {
  Wishes& wishes = of(line);
  if (wishes.size() >= kWishesMax) {
    wishes.pop_front();
    ++dropped_;
  }
  wishes.push_back({id, index_.block(id).key, scope, form});
}

void SaveWishes::add_first(Line line, BlockId id, SaveScope scope) {
  Wishes& wishes = of(line);
  // It would be the oldest.
  if (wishes.size() >= kWishesMax) {
    ++dropped_;
  } else {
    wishes.push_front({id, index_.block(id).key, scope});
  }
}

std::optional<SaveWishes::Wish> SaveWishes::take(Line line) {
  Wishes& wishes = of(line);
  while (!wishes.empty()) {
    const Wish wish = wishes.front();
    wishes.pop_front();
    const Block& block = index_.block(wish.block);
    if (block.kind == BlockKind::kFull && block.key == wish.key) return wish;
  }
  return std::nullopt;
}

SaveWishes::TailWish SaveWishes::tail_wish(BlockId id, const ChainKey& key) const {
  const Block& tail = index_.block(id);
  return {id, index_.block(tail.parent).key, key,
          partial_tokens(std::span<const TokenId>(tail.tokens).first(tail.filled))};
}

void SaveWishes::add_tail(TailWish wish) {
  if (tails_.size() >= kTailsMax) {
    tails_.pop_front();
    ++dropped_;
  }
  tails_.push_back(std::move(wish));
}

bool SaveWishes::is_there(const TailWish& wish) const {
  const Block& tail = index_.block(wish.tail);
  const std::uint32_t held = tokens_held(wish.tokens);
  return tail.kind == BlockKind::kTail && tail.filled == held &&
         index_.block(tail.parent).key == wish.parent &&
         std::equal(wish.tokens.begin(), wish.tokens.begin() + held, tail.tokens.begin());
}

std::size_t SaveWishes::waiting() const {
  std::size_t count = tails_.size();
  for (const Wishes& wishes : lines_) count += wishes.size();
  return count;
}

void SaveWishes::check_invariants() const {
  for (const Line line : {Line::kFromDevice, Line::kFromHost, Line::kToShared, Line::kWindows}) {
    LOCI_CHECK(of(line).size() <= kWishesMax, "invariant 7: wishes are bounded");
    for (const Wish& wish : of(line)) {
      LOCI_CHECK(line == Line::kFromDevice || wish.form == StateForm::kKeysAndValues,
                 "invariant 4: only the device has a choice of forms");
    }
  }
  LOCI_CHECK(tails_.size() <= kTailsMax, "invariant 7: wishes of tails are bounded");
  for (const TailWish& wish : tails_) {
    const std::uint32_t held = tokens_held(wish.tokens);
    LOCI_CHECK(held > 0 && held < kBlockTokens, "invariant 4: a tail is saved as a partial block");
  }
}

}  // namespace loci
