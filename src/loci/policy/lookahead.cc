// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/lookahead.h"

#include <algorithm>
#include <limits>

namespace loci {
namespace {

using Wide = unsigned __int128;

template <class T>
T cut(Wide value) {
  return static_cast<T>(std::min<Wide>(value, static_cast<Wide>(std::numeric_limits<T>::max())));
}

std::uint32_t window(Wide bytes, std::uint64_t session_bytes) {
  return session_bytes == 0 ? 0 : cut<std::uint32_t>(bytes / session_bytes);
}

// T_load L_hist - T_pref L_new
Wide gap(const ReadAhead& ahead) {
  const Wide load = static_cast<Wide>(std::max<Nanos>(ahead.load_token, 0)) * ahead.history_tokens;
  const Wide compute = static_cast<Wide>(std::max<Nanos>(ahead.compute_token, 0)) * ahead.new_tokens;
  return load > compute ? load - compute : 0;
}

}  // namespace

std::uint32_t prefetch_window(std::uint64_t host_bytes, std::uint64_t session_bytes) {
  return window(host_bytes, session_bytes);
}

std::uint32_t eviction_window(std::uint64_t host_bytes, std::uint64_t disk_bytes,
                              std::uint64_t session_bytes) {
  return window(Wide{host_bytes} + disk_bytes, session_bytes);
}

std::uint64_t read_buffer_bytes(const ReadAhead& ahead) {
  // In two steps: bandwidth times time may need 160 bits.
  const Wide time = gap(ahead);
  const Wide whole = time / kNanosPerSecond, part = time % kNanosPerSecond;
  if (whole > std::numeric_limits<std::uint64_t>::max()) return std::numeric_limits<std::uint64_t>::max();
  return cut<std::uint64_t>(whole * ahead.bytes_per_second + part * ahead.bytes_per_second / kNanosPerSecond);
}

Nanos read_buffer_time(const ReadAhead& ahead) { return cut<Nanos>(gap(ahead)); }

std::uint64_t capacity_for_ttl(std::uint64_t sessions_in_ttl, std::uint64_t session_bytes_max) {
  return cut<std::uint64_t>(Wide{sessions_in_ttl} * session_bytes_max);
}

bool expired(Nanos last_used, Nanos now, Nanos ttl) { return now > expires_at(last_used, ttl); }

Nanos expires_at(Nanos last_used, Nanos ttl) {
  const Nanos most = std::numeric_limits<Nanos>::max();
  ttl = std::max<Nanos>(ttl, 0);
  return last_used > most - ttl ? most : last_used + ttl;
}

}  // namespace loci
