// SPDX-License-Identifier: Apache-2.0
// Where a store that speaks Redis's protocol is: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or
// rediss:// for TLS. An IPv6 address is in brackets; user and password may have %-escapes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

struct RedisAddress {
  std::string host;
  std::uint16_t port = 6379;
  std::string user, password;  // empty: none
  std::uint32_t database = 0;
  bool tls = false;

  // For people and logs: without user and password.
  std::string shown() const;
  friend bool operator==(const RedisAddress&, const RedisAddress&) = default;
};

// Errors: kInvalidArgument, saying which part is wrong; no message has the password.
Result<RedisAddress> parse_redis_address(std::string_view url);

}  // namespace loci
