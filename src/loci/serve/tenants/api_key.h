// SPDX-License-Identifier: Apache-2.0
// API keys and what is kept of them. A key is 256 random bits, so one fast hash suffices: there is nothing
// to guess. Keys that people choose (in the environment) are hashed the same way, in memory alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

// BLAKE2b-256 of a key.
struct KeyHash {
  std::array<std::uint8_t, 32> bytes{};
  friend auto operator<=>(const KeyHash&, const KeyHash&) = default;
};

// All of these: thread-safe.

// "loci-" and 43 letters, digits, '-' and '_'. Errors: kInternal (no random numbers).
Result<std::string> make_api_key();
KeyHash hash_api_key(std::string_view key);
// "blake2b-256:" and 64 hexadecimal digits.
std::string to_text(const KeyHash& hash);
// Errors: kInvalidArgument (field "hash").
Result<KeyHash> parse_key_hash(std::string_view text);

}  // namespace loci
