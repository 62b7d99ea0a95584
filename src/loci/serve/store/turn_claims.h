// SPDX-License-Identifier: Apache-2.0
// One turn of a conversation at a time: on this server by a lock, over all servers that share the store by a
// claim there, which is renewed while the turn is made.
#pragma once

#include <spdlog/logger.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/serve/store/conversation_locks.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/workers/worker_pool.h"

namespace loci {

// Renews this server's claims, and gives back those of turns that have ended. Thread-safe. Turns share it,
// because one may end after the store's threads have.
class TurnClaims : public std::enable_shared_from_this<TurnClaims> {
 public:
  TurnClaims(WorkerPool& store_thread, ConversationStore& store, std::shared_ptr<spdlog::logger> log)
      : store_thread_(&store_thread), store_(store), log_(std::move(log)) {}

  // Renews every `period` until the store's threads end: a third of the lease.
  void start(Nanos period);
  // The claim is renewed until it is released.
  void hold(std::int64_t claim);
  // Gives the claim back, on a thread of the store's. Where that fails it ends with its lease.
  void release(std::string tenant, std::string conversation, std::int64_t claim);
  // Gives the store's threads no more work. Claims then end with their leases, or with this server.
  void stop();

 private:
  std::vector<std::int64_t> held();

  Mutex mutex_;
  WorkerPool* store_thread_ GUARDED_BY(mutex_);               // null after stop()
  std::unordered_set<std::int64_t> held_ GUARDED_BY(mutex_);  // claims of turns that are being made
  ConversationStore& store_;
  const std::shared_ptr<spdlog::logger> log_;
};

// A turn that is being made. Dropping it lets the next one begin. A default one holds nothing. Network
// thread.
class HeldTurn {
 public:
  HeldTurn() = default;
  HeldTurn(ConversationLock lock, std::shared_ptr<TurnClaims> claims, std::string tenant,
           std::string conversation, std::int64_t claim)
      : lock_(std::move(lock)),
        claims_(std::move(claims)),
        tenant_(std::move(tenant)),
        conversation_(std::move(conversation)),
        claim_(claim) {
    if (claims_ && claim_ != 0) claims_->hold(claim_);
  }
  HeldTurn(HeldTurn&& other) noexcept { swap(other); }
  HeldTurn& operator=(HeldTurn&& other) noexcept {
    HeldTurn taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~HeldTurn() {
    if (claims_ && claim_ != 0) claims_->release(std::move(tenant_), std::move(conversation_), claim_);
  }

  // What StoredTurn::claim is to be.
  std::int64_t claim() const { return claim_; }

 private:
  void swap(HeldTurn& other) noexcept {
    std::swap(lock_, other.lock_);
    std::swap(claims_, other.claims_);
    std::swap(tenant_, other.tenant_);
    std::swap(conversation_, other.conversation_);
    std::swap(claim_, other.claim_);
  }

  ConversationLock lock_;
  std::shared_ptr<TurnClaims> claims_;
  std::string tenant_, conversation_;
  std::int64_t claim_ = 0;
};

}  // namespace loci
