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

// How much of a history of `bytes`, which takes `load` to bring, must be on the device before computing the
// new tokens begins, which takes `prefill`, so that no layer of them waits: S_buf = B (T_load L_hist - T_pref
// L_new) (§3.2.1), rounded up; 0 where computing hides the loading.
std::uint64_t read_buffer(std::uint64_t bytes, Nanos load, Nanos prefill);

// State that nobody has used for longer than `ttl` (§4.3.5). A TTL below 0 is 0: at once.
bool expired(Nanos last_used, Nanos now, Nanos ttl);
// When it will have expired; kNever if that would be later than any time.
Nanos expires_at(Nanos last_used, Nanos ttl);

}  // namespace loci
