// SPDX-License-Identifier: Apache-2.0
// What is to be saved when its turn comes: blocks that were computed or left by a request, and the ends of
// sequences. A wish holds nothing: a block that has gone meanwhile is passed over, and with too many wishes
// the oldest are dropped, because no token waits for a save.
//
//     add(kFromDevice, A)  add(kFromDevice, B)     waiting: A B
//     A is evicted
//     take(kFromDevice) -> B                       A is not there any more
//     take(kWindows) -> C                          no slot is free of promises
//     keep_first(kWindows, C)                      C and those behind it wait; kFromDevice goes on
//
// It owns the wishes. It requires that blocks are there when they are wished, and that keep_first() and
// keep_tails() get what take() and take_tails() have just given. It calls only the index. Invariants, which
// check_invariants() tests (core.h has all):
//   4. A tail's wish has the tokens of a partial block. Only what is saved from the device has a choice of
//      forms.
//   7. The wishes are bounded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "loci/memory/block_index.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/state_form.h"

namespace loci {

enum class SaveScope : std::uint8_t {
  kWithoutWindows,  // of a block that fills: what is behind a window soon is not worth saving
  kAllGroups,
};

// Thread-compatible; used by whoever steps the core. O(log blocks) for each wish that a call looks at.
class SaveWishes {
 public:
  // `index` must outlive it.
  explicit SaveWishes(const BlockIndex& index) : index_(index) {}

  // Those from the device and from host memory go to the next tier. Where groups have windows, what requests
  // left there waits for room of its own, and holds up no other wish.
  enum class Line : std::uint8_t { kFromDevice, kFromHost, kToShared, kWindows };
  struct Wish {
    BlockId block;
    ChainKey key;
    SaveScope scope = SaveScope::kWithoutWindows;
    StateForm form = StateForm::kKeysAndValues;
  };
  void add(Line line, BlockId id, SaveScope scope, StateForm form);
  // Its turn is the next.
  void add_first(Line line, BlockId id, SaveScope scope);
  // Puts back the one that take() has just given, since it cannot be saved yet.
  void keep_first(Line line, const Wish& wish) { of(line).push_front(wish); }
  bool empty(Line line) const { return of(line).empty(); }
  // The first whose block is there; absent: none is.
  std::optional<Wish> take(Line line);

  // The end of a sequence: `tail` is to be saved as the partial block of that key while it is unchanged.
  struct TailWish {
    BlockId tail;
    ChainKey parent;
    ChainKey key;
    BlockTokens tokens;  // partial
  };
  TailWish tail_wish(BlockId tail, const ChainKey& key) const;
  void add_tail(BlockId tail, const ChainKey& key) { add_tail(tail_wish(tail, key)); }
  bool has_tails() const { return !tails_.empty(); }
  // All of them. They cannot all be saved yet: the others are given back by keep_tails().
  std::deque<TailWish> take_tails() { return std::exchange(tails_, {}); }
  void keep_tails(std::deque<TailWish> tails) { tails_ = std::move(tails); }
  bool is_there(const TailWish& wish) const;

  std::size_t waiting() const;
  // How many were dropped because others came.
  std::uint64_t dropped() const { return dropped_; }

  // Aborts on a broken invariant. O(wishes).
  void check_invariants() const;

 private:
  void add_tail(TailWish wish);

  using Wishes = std::deque<Wish>;
  const Wishes& of(Line line) const { return lines_[static_cast<std::size_t>(line)]; }
  Wishes& of(Line line) { return lines_[static_cast<std::size_t>(line)]; }

  const BlockIndex& index_;
  std::array<Wishes, 4> lines_;
  std::deque<TailWish> tails_;
  std::uint64_t dropped_ = 0;
};

}  // namespace loci
