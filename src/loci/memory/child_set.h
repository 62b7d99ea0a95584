// SPDX-License-Identifier: Apache-2.0
// A node's children, in order. Nearly every node has at most one child: the next block of its only
// conversation. The set holds an only child itself, and a tree holds two or more.
//
//     {}   insert 7   {7}   insert 4   tree {4 7}   erase 7   {4}
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "loci/base/ids.h"
#include "loci/memory/eviction_order.h"

namespace loci {

// `Order`: compares children, and what can be looked for with them; made from an `Of`, which outlives the
// set. It may change for a child only while that is the only one, or in no set. Thread-compatible. O(1) with
// one child, else O(log size).
template <class Order, class Of>
class ChildSet {
  using Tree = std::set<BlockId, Order>;

 public:
  explicit ChildSet(const Of* of) : of_(of) {}

  // In the order. Valid until a child comes or goes.
  class Iterator {
   public:
    using iterator_category = std::bidirectional_iterator_tag;
    using value_type = BlockId;
    using difference_type = std::ptrdiff_t;
    using pointer = const BlockId*;
    using reference = const BlockId&;
    Iterator() = default;
    reference operator*() const { return only_ != nullptr ? *only_ : *at_; }
    Iterator& operator++() {
      only_ != nullptr ? static_cast<void>(++only_) : static_cast<void>(++at_);
      return *this;
    }
    Iterator operator++(int) { return std::exchange(*this, std::next(*this)); }
    Iterator& operator--() {
      only_ != nullptr ? static_cast<void>(--only_) : static_cast<void>(--at_);
      return *this;
    }
    Iterator operator--(int) { return std::exchange(*this, std::prev(*this)); }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    friend class ChildSet;
    explicit Iterator(const BlockId* only) : only_(only) {}
    explicit Iterator(typename Tree::const_iterator at) : at_(at) {}
    const BlockId* only_ = nullptr;  // or behind it; null: in the tree
    typename Tree::const_iterator at_{};
  };

  bool empty() const { return only_ == kNoBlock && tree_ == nullptr; }
  std::size_t size() const { return tree_ != nullptr ? tree_->size() : empty() ? 0 : 1; }
  Iterator begin() const { return tree_ != nullptr ? Iterator(tree_->cbegin()) : Iterator(&only_); }
  Iterator end() const {
    return tree_ != nullptr ? Iterator(tree_->cend()) : Iterator(&only_ + (empty() ? 0 : 1));
  }
  template <class Key>
  Iterator lower_bound(const Key& key) const {
    if (tree_ != nullptr) return Iterator(tree_->lower_bound(key));
    return empty() || order()(only_, key) ? end() : begin();
  }
  template <class Key>
  Iterator upper_bound(const Key& key) const {
    if (tree_ != nullptr) return Iterator(tree_->upper_bound(key));
    return empty() || !order()(key, only_) ? end() : begin();
  }
  template <class Key>
  std::pair<Iterator, Iterator> equal_range(const Key& key) const {
    return {lower_bound(key), upper_bound(key)};
  }
  template <class Key>
  Iterator find(const Key& key) const {
    const auto [from, to] = equal_range(key);
    return from == to ? end() : from;
  }
  bool contains(BlockId child) const { return find(child) != end(); }

  // False: one that is equal is there.
  bool insert(BlockId child) {
    if (tree_ != nullptr) return tree_->insert(child).second;
    if (empty()) {
      only_ = child;
      return true;
    }
    if (find(child) != end()) return false;
    tree_ = std::make_unique<Tree>(order());
    tree_->insert(std::exchange(only_, kNoBlock));
    return tree_->insert(child).second;
  }
  // False: it is not there.
  bool erase(BlockId child) {
    if (tree_ == nullptr) {
      if (empty() || only_ != child) return false;
      only_ = kNoBlock;
      return true;
    }
    if (tree_->erase(child) == 0) return false;
    if (tree_->size() == 1) {
      only_ = *tree_->begin();
      tree_.reset();
    }
    return true;
  }

 private:
  Order order() const { return Order(of_); }

  const Of* of_;
  std::unique_ptr<Tree> tree_;  // of two or more; null: there are fewer
  BlockId only_ = kNoBlock;
};

}  // namespace loci
