// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/field_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

std::string describe(const NumberRange& range) {
  return fmt::format("a number {} {:g} and at most {:g}", range.low_excluded ? "greater than" : "of at least",
                     range.low, range.high);
}

}  // namespace

FieldReader::FieldReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object_.is_object()) {
    status_ = invalid_argument(fmt::format("expected a JSON object; got {}", json_excerpt(object_)), path_);
  }
}

std::string FieldReader::full_name(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* FieldReader::find(std::string_view name) const {
  if (!ok()) return nullptr;
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

void FieldReader::fail(std::string_view name, std::string message) {
  fail(invalid_argument(std::move(message), full_name(name)));
}

void FieldReader::fail(Status status) {
  if (ok()) status_ = std::move(status);
}

void FieldReader::expected(std::string_view name, std::string_view what, const Json& got) {
  fail(name, fmt::format("expected {}; got {}", what, json_excerpt(got)));
}

void FieldReader::boolean(std::string_view name, bool& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return expected(name, "true or false", *value);
  out = value->get<bool>();
}

void FieldReader::number(std::string_view name, const NumberRange& range, float& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return expected(name, describe(range), *value);
  const double number = value->get<double>();
  if (!range.contains(number)) return expected(name, describe(range), *value);
  const auto narrow = static_cast<float>(number);
  // A positive number too small for a float must not become the excluded bound.
  out = range.low_excluded && static_cast<double>(narrow) <= range.low
            ? std::nextafter(static_cast<float>(range.low), std::numeric_limits<float>::max())
            : narrow;
}

void FieldReader::integer(std::string_view name, std::int64_t low, std::int64_t high,
                          std::optional<std::int64_t>& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const std::optional<std::int64_t> number = as_integer(*value);
  if (!number || *number < low || *number > high) {
    return expected(name, fmt::format("an integer from {} to {}", low, high), *value);
  }
  out = number;
}

void FieldReader::unsigned_integer(std::string_view name, std::uint32_t low, std::uint32_t high,
                                   std::uint32_t& out) {
  std::optional<std::int64_t> number;
  integer(name, low, high, number);
  if (number) out = static_cast<std::uint32_t>(*number);
}

void FieldReader::text(std::string_view name, std::string& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return expected(name, "a string", *value);
  out = value->get_ref<const std::string&>();
}

std::optional<std::int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) > 9007199254740992.0) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace loci
