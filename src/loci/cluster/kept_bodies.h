// SPDX-License-Identifier: Apache-2.0
// What a front keeps of requests whose replies have begun, so that another instance can continue them: bodies
// and tokens, bounded together. Bodies are divided among the keys of clients: those of one key, with its
// tokens, take at most kTimesRest times what nobody holds, so there is room for one that comes later. Of 100
// bytes, if each wants all it can get:
//
//     held by a   by b   by c   by nobody
//          80       .      .      20         a holds four times the rest
//          80      16      .       4
//          80      16      3       1
//          50      16      3      31         some of a's replies have ended: others may grow
//
// Tokens, four bytes each, take what is left: what has begun goes on. The first kFreeBytes of each request
// are not counted; connections bound them.
//
// It is ByteBudget's rule (serve/http/byte_budget.h), except that what has begun may grow past its key's
// share, and that one thing alone may not take all that is left.
//
// Thread-compatible: the network thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "loci/cluster/routed_request.h"
#include "loci/serve/http/byte_budget.h"

namespace loci {

class KeptBodies {
 public:
  static constexpr std::uint64_t kFreeBytes = ByteBudget::kFreeBytes;  // what instances do not count either
  static constexpr std::uint64_t kTimesRest = ByteBudget::kTimesRest;

  explicit KeptBodies(std::uint64_t bytes_max) : left_(bytes_max) {}

  // What is kept of one request; gives it back when it ends. The pool must outlive it.
  class Charge {
   public:
    // `tenant`: prompt_key_of() its request.
    Charge(KeptBodies& pool, const PromptKey& tenant) : pool_(&pool), tenant_(tenant) {}
    ~Charge() { pool_->give_back(tenant_, bytes_); }
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;

    // So many bytes are kept now, never fewer than before. False: there is no room for them, and nothing has
    // changed. O(log tenants).
    bool grow_to(std::uint64_t bytes) {
      const std::uint64_t wanted = std::max(bytes_, bytes - std::min(bytes, kFreeBytes));
      if (!pool_->take(tenant_, wanted - bytes_, bytes_ == 0)) return false;
      bytes_ = wanted;
      return true;
    }

   private:
    KeptBodies* pool_;
    PromptKey tenant_;
    std::uint64_t bytes_ = 0;
  };

 private:
  bool take(const PromptKey& tenant, std::uint64_t bytes, bool is_divided) {
    if (bytes == 0) return true;
    const auto found = held_.find(tenant);
    const std::uint64_t held = found == held_.end() ? 0 : found->second;
    if (bytes > left_) return false;
    if (is_divided && (held + bytes) / kTimesRest > left_ - bytes) return false;
    left_ -= bytes;
    held_[tenant] = held + bytes;
    return true;
  }
  void give_back(const PromptKey& tenant, std::uint64_t bytes) {
    if (bytes == 0) return;
    left_ += bytes;
    const auto found = held_.find(tenant);
    if ((found->second -= bytes) == 0) held_.erase(found);
  }

  std::uint64_t left_;                       // that nobody holds
  std::map<PromptKey, std::uint64_t> held_;  // by tenant; more than 0
};

}  // namespace loci
