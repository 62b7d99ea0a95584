// SPDX-License-Identifier: Apache-2.0
// Reads the typed fields of one JSON object. The first error sticks and later reads do nothing, so a
// parser reads all its fields in a row and asks once. Every error names the field, what was expected
// with its limits, and the value that was found. A field that is null counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/number_range.h"
#include "loci/base/status.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Thread-compatible; `object` must outlive the reader.
class FieldReader {
 public:
  // `path` names the object inside the request ("stream_options"); empty for the request itself.
  explicit FieldReader(const Json& object, std::string path = {});

  // nullptr where the field is absent, null, or an error has occurred.
  const Json* find(std::string_view name) const;

  void boolean(std::string_view name, bool& out);
  void number(std::string_view name, const NumberRange& range, float& out);
  // Numbers without a fraction count as integers (5.0).
  void integer(std::string_view name, std::int64_t low, std::int64_t high, std::optional<std::int64_t>& out);
  void unsigned_integer(std::string_view name, std::uint32_t low, std::uint32_t high, std::uint32_t& out);
  void text(std::string_view name, std::string& out);

  // "expected X; got <value>" under the field's full name.
  void expected(std::string_view name, std::string_view what, const Json& got);
  void fail(std::string_view name, std::string message);
  void fail(Status status);

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  // "stream_options.include_usage"
  std::string full_name(std::string_view name) const;

 private:
  const Json& object_;
  std::string path_;
  Status status_;
};

// The value as an integer, if it is a number without a fraction that std::int64_t holds.
std::optional<std::int64_t> as_integer(const Json& value);

}  // namespace loci
