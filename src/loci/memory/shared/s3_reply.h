// SPDX-License-Identifier: Apache-2.0
// What an S3 store says: the lines before a body, and the XML of an error. All of it is a stranger's bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace loci {

// The status line and header of the last answer that began; an interim one (100) is forgotten by the next.
struct S3Head {
  std::uint32_t code = 0;                // 0: no status line came
  std::optional<std::uint64_t> length;   // of the body
  std::optional<std::uint64_t> first;    // of a part (206): where it begins
  std::optional<std::uint64_t> total;    // of a part: the whole object's bytes
  std::optional<std::int64_t> date;      // when the store answered, seconds since 1970
  std::optional<std::int64_t> modified;  // when the object was written
  std::string region;                    // of the bucket; empty: not said

  // One line, with or without its end.
  void take(std::string_view line);
  // The bytes of the whole object.
  std::optional<std::uint64_t> object_bytes() const { return code == 206 ? total : length; }
  // Seconds since the object was written, by the store's own clock; absent: not said.
  std::optional<std::int64_t> age() const;
};

// Printable ASCII, of a bounded length; empty: not said.
struct S3Error {
  std::string code, message, region;
  // "CODE: message", or as much as there is.
  std::string text() const;
};
S3Error parse_s3_error(std::string_view body);

// Without the blanks and ends of lines around it.
std::string_view s3_trimmed(std::string_view text);

// "Sun, 06 Nov 1994 08:49:37 GMT", and no other form.
std::optional<std::int64_t> parse_http_date(std::string_view text);

}  // namespace loci
