// SPDX-License-Identifier: Apache-2.0
// The nodes of the index by their ids, in pieces of memory for 128 each: nodes stay where they are as more
// come, and one is found by its piece's place, without a search. (Pieces are small enough for the allocator
// to reuse what others have freed: memory that the system gives for the first time costs a step microseconds
// for each page, and milliseconds for a large one.)
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace loci {

// Values that are added at the end and never removed. Thread-compatible. O(1) a call, amortised.
template <class T>
class BlockList {
 public:
  BlockList() = default;
  BlockList(const BlockList&) = delete;
  BlockList& operator=(const BlockList&) = delete;
  ~BlockList() {
    for (std::size_t i = 0; i < size_; ++i) (*this)[i].~T();
    for (T* piece : pieces_) ::operator delete(piece, kAlign);
  }

  std::size_t size() const { return size_; }
  // Makes room for `count` values and writes it once, so that the system gives its pages now and not in a
  // step. O(count).
  void reserve(std::size_t count) {
    while (pieces_.size() * kPiece < count) {
      add_piece();
      std::memset(static_cast<void*>(pieces_.back()), 0, kPiece * sizeof(T));
    }
  }
  T& operator[](std::size_t i) { return pieces_[i / kPiece][i % kPiece]; }
  const T& operator[](std::size_t i) const { return pieces_[i / kPiece][i % kPiece]; }

  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (size_ == pieces_.size() * kPiece) add_piece();
    T* added = ::new (pieces_[size_ / kPiece] + size_ % kPiece) T(std::forward<Args>(args)...);
    ++size_;
    return *added;
  }

 private:
  static constexpr std::size_t kPiece = 128;
  static constexpr std::align_val_t kAlign{alignof(T)};

  void add_piece() { pieces_.push_back(static_cast<T*>(::operator new(kPiece * sizeof(T), kAlign))); }

  std::vector<T*> pieces_;
  std::size_t size_ = 0;
};

}  // namespace loci
