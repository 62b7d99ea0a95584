// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_topology.h"

#include <algorithm>
#include <set>

namespace loci {

RedisTopology::RedisTopology(RedisAddress seed, const Clock& clock, std::function<void()> wants_tending)
    : seed_(std::make_shared<RedisNode>(std::move(seed), clock)),
      clock_(clock),
      wants_tending_(std::move(wants_tending)),
      slots_(kRedisSlots) {}

RedisTopology::NodePtr RedisTopology::node_of(std::uint32_t slot) const {
  const MutexLock lock(mutex_);
  return slots_[slot];
}

RedisTopology::NodePtr RedisTopology::find_or_make(const RedisPlace& place, const RedisNode& said_by) {
  const std::string& host = place.host.empty() ? said_by.address.host : place.host;
  if (host == seed_->address.host && place.port == seed_->address.port) return seed_;
  NodePtr& node = nodes_[{host, place.port}];
  if (node == nullptr) {
    RedisAddress address = seed_->address;
    address.host = host;
    address.port = place.port;
    node = std::make_shared<RedisNode>(std::move(address), clock_);
  }
  return node;
}

RedisTopology::NodePtr RedisTopology::node_at(const RedisPlace& place, const RedisNode& said_by) {
  const MutexLock lock(mutex_);
  // Those that redirections name are more than a map has only if somebody lies.
  if (is_stopping_ || nodes_.size() >= 2 * kRedisNodesMax) return nullptr;
  return find_or_make(place, said_by);
}

std::vector<RedisTopology::NodePtr> RedisTopology::nodes() const {
  const MutexLock lock(mutex_);
  if (serving_.empty()) {
    for (const NodePtr& node : slots_) {
      if (node != nullptr && (serving_.empty() || serving_.back() != node)) serving_.push_back(node);
    }
    std::sort(serving_.begin(), serving_.end());
    serving_.erase(std::unique(serving_.begin(), serving_.end()), serving_.end());
    if (serving_.empty()) serving_.push_back(seed_);
  }
  return serving_;
}

void RedisTopology::load(const std::vector<RedisSlotRange>& ranges, const RedisNode& said_by) {
  std::vector<NodePtr> slots(kRedisSlots);
  std::vector<NodePtr> served;
  std::vector<NodePtr> forgotten;  // nodes end without the mutex, because their resolvers have their own
  const MutexLock lock(mutex_);
  if (is_stopping_) return;
  for (const RedisSlotRange& range : ranges) {
    const NodePtr node = find_or_make(range.place, said_by);
    std::fill(slots.begin() + range.first, slots.begin() + range.last + 1, node);
  }
  slots_.swap(slots);
  serving_.swap(served);
  const std::set<NodePtr> kept(slots_.begin(), slots_.end());
  for (auto one = nodes_.begin(); one != nodes_.end();) {
    if (kept.contains(one->second)) {
      ++one;
      continue;
    }
    forgotten.push_back(std::move(one->second));
    one = nodes_.erase(one);
  }
}

void RedisTopology::moved(std::uint32_t slot, NodePtr node) {
  std::vector<NodePtr> served;
  {
    const MutexLock lock(mutex_);
    slots_[slot].swap(node);  // the one before ends without the mutex
    serving_.swap(served);
  }
  want_tending();
}

void RedisTopology::failed(RedisNode& node) {
  node.is_away = true;
  want_tending();
}

void RedisTopology::want_tending() {
  if (!is_wanted_.exchange(true)) wants_tending_();
}

void RedisTopology::stop() {
  std::vector<NodePtr> nodes = {seed_};
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    for (const auto& [place, node] : nodes_) nodes.push_back(node);
  }
  for (const NodePtr& node : nodes) node->resolver.stop();
}

}  // namespace loci
