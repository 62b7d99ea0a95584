// SPDX-License-Identifier: Apache-2.0
// A tenant: whoever uses the server under one name, by any number of keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace loci {

inline constexpr std::uint32_t kTenantWeightMax = 1000;
inline constexpr std::uint32_t kTenantRateMax = 1'000'000'000;
inline constexpr std::uint64_t kStoredBytesDefault = std::uint64_t{1} << 30;
inline constexpr std::uint32_t kStoredConversationsDefault = 100'000;
inline constexpr std::uint32_t kConcurrentReadsDefault = 128;

// What a tenant that has a key may use. Absent: no limit.
struct TenantLimits {
  std::optional<std::uint32_t> requests_per_minute;
  std::optional<std::uint32_t> tokens_per_minute;  // of prompts and replies
  std::optional<std::uint32_t> concurrent_requests;
  // Of what is stored, or being made; at one server. Absent where there is no file of keys alone.
  std::optional<std::uint32_t> concurrent_reads;
  std::uint32_t weight = 1;           // its share of the machine where tenants compete; 1 to kTenantWeightMax
  std::uint32_t queue_percent = 100;  // of the places in the queue that it may hold; 1 to 100
  // What it may keep in the store of conversations; beyond, its own that were longest at rest go.
  std::uint64_t stored_bytes = kStoredBytesDefault;
  std::uint32_t stored_conversations = kStoredConversationsDefault;  // a chain of responses is one
  // Of so many places in the queue, those that it may hold; 0: no bound of its own.
  std::uint32_t queued_max(std::size_t places) const {
    if (queue_percent >= 100) return 0;
    return static_cast<std::uint32_t>(std::max<std::size_t>(places * queue_percent / 100, 1));
  }
  friend bool operator==(const TenantLimits&, const TenantLimits&) = default;
};

// Immutable. One for each key: keys of one tenant have the same id and limits.
struct Tenant {
  std::string id = "default";  // the owner of its state and of its conversations
  TenantLimits limits;
  bool is_operator = false;  // the key may declare prefixes public
};

}  // namespace loci
