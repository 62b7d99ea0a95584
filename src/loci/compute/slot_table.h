// SPDX-License-Identifier: Apache-2.0
// The slots of a sequence's blocks, in a table that grows while passes on other threads read what it had.
//
// A pass of 64 contexts of 128K tokens names 262,144 slots. A SlotTable belongs to whoever grows it; a
// SharedSlots is what it began with at some moment, and costs a count of holders instead of a copy:
//
//     SlotTable t            t: 7 3 9
//     a = t.share(2)         t: 7 3 9       a: 7 3         both read one buffer
//     t.push_back(4)         t: 7 3 9 4     a: 7 3         in place: nobody reads behind the second
//     t.set(2, 8)            t: 7 3 8 4     a: 7 3         in place, too
//     t.set(0, 5)            t: 5 3 8 4     a: 7 3         a reads the first: t has a buffer of its own now
//
// Thread-safety: a SlotTable belongs to one thread. A SharedSlots never changes; as one that is copied has a
// length of its own, and nothing below it is written any more, any thread may read and drop it without a
// lock, whatever the table does meanwhile. Whoever hands it to another thread must do so with a lock or its
// like, as with any value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/ids.h"

namespace loci {

// Slots that never change. A copy shares them.
class SharedSlots {
 public:
  SharedSlots() = default;
  SharedSlots(std::span<const SlotId> slots)
      : slots_(std::make_shared_for_overwrite<SlotId[]>(slots.size())), size_(slots.size()) {
    std::ranges::copy(slots, std::const_pointer_cast<SlotId[]>(slots_).get());
  }
  SharedSlots(const std::vector<SlotId>& slots) : SharedSlots(std::span(slots)) {}
  SharedSlots(std::initializer_list<SlotId> slots) : SharedSlots(std::span(slots.begin(), slots.size())) {}

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  SlotId operator[](std::size_t block) const { return slots_.get()[block]; }
  SlotId back() const { return slots_.get()[size_ - 1]; }
  const SlotId* begin() const { return slots_.get(); }
  const SlotId* end() const { return slots_.get() + size_; }

 private:
  friend class SlotTable;
  SharedSlots(std::shared_ptr<const SlotId[]> slots, std::size_t size)
      : slots_(std::move(slots)), size_(size) {}

  std::shared_ptr<const SlotId[]> slots_;  // shared by the table and by all passes that read from it
  std::size_t size_ = 0;
};

// Grows and changes. Invariants:
//   1. size() and what is shared fit into the buffer.
//   2. Of a buffer that was shared up to a length, nothing below that length is written.
class SlotTable {
 public:
  SlotTable() = default;
  SlotTable(SlotTable&& other) noexcept { *this = std::move(other); }
  SlotTable& operator=(SlotTable&& other) noexcept {
    slots_ = std::move(other.slots_);
    room_ = std::exchange(other.room_, 0);
    size_ = std::exchange(other.size_, 0);
    shared_ = std::exchange(other.shared_, 0);
    return *this;
  }

  std::size_t size() const { return size_; }
  SlotId operator[](std::size_t block) const { return slots_.get()[block]; }

  // Room for so many, as push_back() makes it in steps. O(size) where it lacks any.
  void reserve(std::size_t room) {
    if (room > room_) move_to(room);
  }
  // O(1), amortised.
  void push_back(SlotId slot) {
    if (size_ == room_ || size_ < shared_) move_to(std::max(room_, size_ + size_ / 2 + kRoomLeast));
    slots_.get()[size_++] = slot;
  }
  void pop_back() { --size_; }
  // O(1); O(size) if somebody may still read what is replaced, once for all changes until the next share().
  void set(std::size_t block, SlotId slot) {
    LOCI_CHECK(block < size_, "a table has a place for the block");
    if (slots_.get()[block] == slot) return;
    if (block < shared_) move_to(room_);
    slots_.get()[block] = slot;
  }
  void clear() { *this = SlotTable(); }

  // The first `count` slots, as they are now. O(1).
  SharedSlots share(std::size_t count) {
    LOCI_CHECK(count <= size_, "a table reaches to what is shared of it");
    shared_ = std::max(shared_, count);
    return {slots_, count};
  }

 private:
  static constexpr std::size_t kRoomLeast = 8;

  // Into a buffer that nobody shares.
  void move_to(std::size_t room) {
    auto slots = std::make_shared_for_overwrite<SlotId[]>(room);
    std::copy_n(slots_.get(), size_, slots.get());
    slots_ = std::move(slots);
    room_ = room;
    shared_ = 0;
  }

  std::shared_ptr<SlotId[]> slots_;  // [room_]
  std::size_t room_ = 0;
  std::size_t size_ = 0;
  std::size_t shared_ = 0;  // of this buffer, the longest that was shared
};

}  // namespace loci
