// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/baselines.h"

#include <fmt/format.h>

namespace loci {
namespace {

// "Stateful Large Language Model Serving with Pensieve".
Baseline pensieve() {
  return {.policies = {.eviction = "retention",       // §4.3.1: V = Cost(l) / T, leading chunks first
                       .admission = "fcfs",           // §4.2
                       .restore = "pensieve",         // §4.3.3, §4.3.4: swap in what the host has, recompute
                       .save = "ahead",               // §4.3.2
                       .swap_out_percent = 25,        // §4.3.2
                       .swap_chunk_tokens = 32,       // §4.3.1
                       .decode_reserve_percent = 10,  // §4.3.5
                       .lookahead_requests = 0,       // §4.3: the queue is not looked at
                       .preload = "off",              // §4.3.3: swapping in begins with the batch
                       .batch = "unified"},           // §4.2
          .disk_tier = false};                        // table 3: CPU and GPU
}

// "AttentionStore: Cost-effective Attention Reuse across Multi-turn Conversations".
Baseline attention_store() {
  return {.policies = {.eviction = "lookahead",                    // §3.3.2
                       .admission = "fcfs",                        // §3.3.1: a queue of jobs
                       .restore = "kv",                            // §3.1: what is kept is loaded
                       .save = "through",                          // §3.2.2
                       .decode_reserve_percent = 0,                // none is named
                       .lookahead_requests = kLookaheadUnlimited,  // §3.3: as far as L_pw and L_ew
                       .prefetch_percent = 100,                    // §3.3.1: none is set aside
                       .preload = "buffer",                        // §3.2.1: S_buf
                       .batch = "split"},  // §4.2: a job prefills before it joins others that decode
          .truncates = true};              // §3.4
}

// "Prefix caching" (Berkeley), which is built on vLLM.
Baseline berkeley_lru() {
  return {.policies = {.eviction = "lru",   // §VII.C: its benchmarks' cache policy
                       .admission = "fpf",  // §VII.C: its benchmarks' order; §V.F
                       .restore = "kv",     // §V.C: what was swapped out is swapped in
                       .save = "through",   // §V.C: what is evicted from the GPU is in the CPU's memory
                       .decode_reserve_percent = 0,                // none is named
                       .lookahead_requests = kLookaheadUnlimited,  // §V.G: by the system's capacity
                       .preload = "unbounded",                     // §V.G: from CPU to GPU ahead of time
                       .batch = "split"}};                         // vLLM's (Pensieve §4.2)
}

// What the papers measure themselves against: vLLM in Pensieve §6.1, RE in AttentionStore §4.1.
Baseline stateless() {
  return {.policies = {.eviction = "lru",
                       .admission = "fcfs",
                       .restore = "recompute",
                       .reuse = false,  // Pensieve §2.2: slots are freed as soon as a request finishes
                       .save = "off",
                       .decode_reserve_percent = 0,
                       .lookahead_requests = 0,
                       .preload = "off",
                       .batch = "split"},  // Pensieve §3.2
          .host_tier = false,
          .disk_tier = false};
}

}  // namespace

Result<Baseline> find_baseline(std::string_view name) {
  if (name == "pensieve") return pensieve();
  if (name == "attentionstore") return attention_store();
  if (name == "berkeley-lru") return berkeley_lru();
  if (name == "stateless") return stateless();
  return invalid_argument(fmt::format("expected one of {}, found '{}'", listed(kBaselines), name),
                          "baseline");
}

}  // namespace loci
