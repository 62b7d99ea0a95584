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

}  // namespace

std::uint32_t prefetch_window(std::uint64_t host_bytes, std::uint64_t session_bytes) {
  return window(host_bytes, session_bytes);
}

std::uint32_t eviction_window(std::uint64_t host_bytes, std::uint64_t disk_bytes,
                              std::uint64_t session_bytes) {
  return window(Wide{host_bytes} + disk_bytes, session_bytes);
}

std::uint64_t read_buffer(std::uint64_t bytes, Nanos load, Nanos prefill) {
  if (load <= std::max<Nanos>(prefill, 0)) return 0;
  const auto time = static_cast<Wide>(load);
  const Wide ahead = time - static_cast<Wide>(std::max<Nanos>(prefill, 0));
  return cut<std::uint64_t>((Wide{bytes} * ahead + time - 1) / time);
}

bool expired(Nanos last_used, Nanos now, Nanos ttl) { return now > expires_at(last_used, ttl); }

Nanos expires_at(Nanos last_used, Nanos ttl) {
  ttl = std::max<Nanos>(ttl, 0);
  return last_used > kNever - ttl ? kNever : last_used + ttl;
}

}  // namespace loci
