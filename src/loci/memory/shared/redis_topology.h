// SPDX-License-Identifier: Apache-2.0
// The nodes of a Redis Cluster, who has which slot, and who is away. All connections of a store share it.
//
// A node that fails is left alone: what is in its slots is not there until somebody with patience has reached
// it again (tend_redis_cluster(), redis_cluster.h). So a dead or silent node makes one operation wait, and no
// others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/memory/shared/redis_address.h"
#include "loci/memory/shared/redis_resolver.h"
#include "loci/memory/shared/redis_slots.h"

namespace loci {

struct RedisNode {
  RedisNode(RedisAddress at, const Clock& clock)
      : address(std::move(at)), resolver(address.host, address.port, clock) {}
  const RedisAddress address;
  RedisResolver resolver;
  std::atomic<bool> is_away{false};
};

// Thread-safe.
class RedisTopology {
 public:
  using NodePtr = std::shared_ptr<RedisNode>;

  // `seed`: the address that an operator gave; nodes are logged in to as there. `wants_tending` is called,
  // once until tended(), if the map may be old or a node is away.
  RedisTopology(RedisAddress seed, const Clock& clock, std::function<void()> wants_tending);

  // False: the store is a single server, as far as is known.
  bool is_cluster() const { return is_cluster_; }
  void set_cluster() { is_cluster_ = true; }
  // True once: whether it is a cluster's is to be asked.
  bool begin_detection() { return !is_detected_.exchange(true); }

  // Null: nobody has the slot.
  NodePtr node_of(std::uint32_t slot) const;
  // A node that is known, or becomes known now. `said_by`: whoever named it. Null: there are too many.
  NodePtr node_at(const RedisPlace& place, const RedisNode& said_by);
  // Those that have slots, the seed if none has any.
  std::vector<NodePtr> nodes() const;
  const NodePtr& seed() const { return seed_; }

  // Replaces the map. Nodes without slots are forgotten.
  void load(const std::vector<RedisSlotRange>& ranges, const RedisNode& said_by);
  // One slot has another node; the rest of the map may be old too.
  void moved(std::uint32_t slot, NodePtr node);
  void failed(RedisNode& node);
  void reached(RedisNode& node) { node.is_away = false; }
  // The map may be old.
  void want_tending();
  // From now on wants_tending is called again.
  void tended() { is_wanted_ = false; }
  // Nobody waits for a node's name any more, and no node becomes known.
  void stop();

 private:
  NodePtr find_or_make(const RedisPlace& place, const RedisNode& said_by) REQUIRES(mutex_);

  const NodePtr seed_;
  const Clock& clock_;
  const std::function<void()> wants_tending_;
  std::atomic<bool> is_cluster_{false};
  std::atomic<bool> is_detected_{false};
  std::atomic<bool> is_wanted_{false};
  mutable Mutex mutex_;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  std::map<std::pair<std::string, std::uint16_t>, NodePtr> nodes_ GUARDED_BY(mutex_);
  std::vector<NodePtr> slots_ GUARDED_BY(mutex_);            // kRedisSlots
  mutable std::vector<NodePtr> serving_ GUARDED_BY(mutex_);  // nodes() of slots_; empty: not looked for yet
};

}  // namespace loci
