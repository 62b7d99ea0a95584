// SPDX-License-Identifier: Apache-2.0
// How far ahead into the queue to look, and how much capacity that takes: the formulas of AttentionStore.
// Pure functions; nothing overflows.
#pragma once

#include <cstdint>

#include "loci/base/clock.h"

namespace loci {

// The waiting requests whose state may be brought from disk into host memory ahead of their turn:
// L_pw = C_mem / S_kv (§3.3.1). `host_bytes`: available for that; `session_bytes`: the mean state of a
// session; 0 (none is known): the window is empty.
std::uint32_t prefetch_window(std::uint64_t host_bytes, std::uint64_t session_bytes);

// The waiting requests whose state is spared: L_ew = (C_mem + C_disk) / S_kv (§3.3.2).
std::uint32_t eviction_window(std::uint64_t host_bytes, std::uint64_t disk_bytes,
                              std::uint64_t session_bytes);

// What must be loaded before a prompt's pass begins so that no layer waits for its load (§3.2.1):
// S_buf = B (T_load L_hist - T_pref L_new). 0: computing takes longer than loading.
struct ReadAhead {
  std::uint64_t bytes_per_second = 0;  // B, of the link
  Nanos load_token = 0;                // T_load: one token's state over the link
  std::uint32_t history_tokens = 0;    // L_hist, to be loaded
  Nanos compute_token = 0;             // T_pref: computing one token
  std::uint32_t new_tokens = 0;        // L_new, to be computed
};
std::uint64_t read_buffer_bytes(const ReadAhead& ahead);
// The time that filling the buffer takes: how much earlier the load has to begin.
Nanos read_buffer_time(const ReadAhead& ahead);

// The most that all sessions seen within a TTL can hold: CCpUT = DSpUT * CCpS (§4.3.5). With so much (in
// the paper's measurement with a quarter of it) nothing is lost before it expires.
std::uint64_t capacity_for_ttl(std::uint64_t sessions_in_ttl, std::uint64_t session_bytes_max);

// State that nobody has used for longer than `ttl` (§4.3.5). A TTL below 0 is 0: at once.
bool expired(Nanos last_used, Nanos now, Nanos ttl);
// When it will be; the latest time there is where that is not before the end of time.
Nanos expires_at(Nanos last_used, Nanos ttl);

}  // namespace loci
