// SPDX-License-Identifier: Apache-2.0
// All switches by which a server decides: the names of its policies, and their numbers. A set is part of the
// core's configuration, so of every event log; `loci serve` has an option for each, and a scenario of
// `loci sim` a field of the same name. The sets of the papers: baselines.h.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/compute/backend.h"

namespace loci {

// When state is copied to slower tiers: when a block is full (AttentionStore §3.2.2); when it is next to be
// evicted and too little of a pool is free or evictable at once (Pensieve §4.3.2); never.
inline constexpr std::array<std::string_view, 3> kSaveRules = {"through", "ahead", "off"};

// How much of a waiting request's state begins to move to the device: nothing; as much as would otherwise
// hold up its first pass, S_buf (AttentionStore §3.2.1); all of it.
inline constexpr std::array<std::string_view, 3> kPreloadRules = {"off", "buffer", "unbounded"};

// Prompts and decodes are computed in the same passes (Pensieve §4.2), or take turns (its figure 13).
inline constexpr std::array<std::string_view, 2> kBatchRules = {"unified", "split"};

// More requests than ever wait (`max_queued` of a server): looking ahead is bounded by its windows alone
// (lookahead.h).
inline constexpr std::uint32_t kLookaheadUnlimited = 1u << 20;

// Loads ahead of admission: of so many tenants the first request that waits is looked at, in the order in
// which they come (engine/core/preloads.cc). No more can be tried again.
inline constexpr std::uint32_t kPreloadHeads = 32;
inline constexpr std::uint32_t kPreloadRetriesMax = kPreloadHeads;

inline constexpr std::uint32_t kSwapChunkTokensMax = 1024 * kBlockTokens;

struct PolicySet {
  std::string eviction = "value";  // eviction.h; of every tier
  std::string admission = "fcfs";  // admission_order.h
  // Of a tenant's waiting requests, an order that goes by distances looks at so many; at least 1.
  std::uint32_t admission_looks = 32;
  std::string restore = "auto";         // restore_plan.h; "kv" always loads
  bool reuse = true;                    // false: a request finds no state but its own
  std::string save = "through";         // kSaveRules
  std::uint32_t swap_out_percent = 25;  // "ahead": while less than so much of a pool could be had at once
  // What is next to be evicted is judged, and saved, in runs of so many tokens of a sequence (Pensieve
  // §4.3.1); whole blocks.
  std::uint32_t swap_chunk_tokens = kBlockTokens;
  std::uint32_t decode_reserve_percent =
      10;  // of the device's blocks at most, free of admission (Pensieve §4.3.5)
  // Of the requests that wait, at most so many are looked ahead to (AttentionStore §3.3): what they need is
  // evicted last, and brought from disk into host memory. 0: none.
  std::uint32_t lookahead_requests = 32;
  // Of host memory so much at most is available for prefetching: C_mem of AttentionStore's L_pw (§3.3.1).
  std::uint32_t prefetch_percent = 100;
  std::string preload = "unbounded";  // kPreloadRules
  // Of the requests that wait and lack something, the loads of so many are tried again when room or tiers
  // have changed; each may cost a look at all of its blocks.
  std::uint32_t preload_retries = 4;
  std::string batch = "unified";  // kBatchRules
  friend bool operator==(const PolicySet&, const PolicySet&) = default;
};

// "a, b, c".
std::string listed(std::span<const std::string_view> names);

// Errors: kInvalidArgument naming the member, and what it may be.
Status check_policies(const PolicySet& policies);

}  // namespace loci
