// SPDX-License-Identifier: Apache-2.0
// Bytes and durations for people: parses values of flags, and prints values for logs and tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

// "4GiB", "512M", "1.5g", "1048576": binary multiples; case does not matter, and "iB" and "B" are optional.
// Errors: kInvalidArgument naming `field` and the accepted form.
Result<std::uint64_t> parse_bytes(std::string_view text, std::string_view field);
std::string format_bytes(std::uint64_t bytes);  // "4.0 GiB"

// "250ms", "30s", "10m", "2h", "30d"; a number alone is seconds. Result in nanoseconds.
Result<std::int64_t> parse_duration(std::string_view text, std::string_view field);
std::string format_duration(std::int64_t nanoseconds);  // "1.25 s"

// "8MiB", "75s": texts that the parsers above read back exactly.
std::string exact_bytes(std::uint64_t bytes);
std::string exact_duration(std::int64_t nanoseconds);

// "12,345"
std::string format_count(std::uint64_t count);

}  // namespace loci
