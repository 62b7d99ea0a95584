// SPDX-License-Identifier: Apache-2.0
// The writer and the reader that the codecs of the event log (event_log_codec.h) use: little-endian numbers,
// texts and ids, without padding.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/little_endian.h"
#include "loci/base/status.h"
#include "loci/policy/cost_model.h"

namespace loci {

// Appends to a string that outlives it.
class LogWriter {
 public:
  explicit LogWriter(std::string& out) : out_(out) {}

  template <std::integral T>
  void number(T value) {
    put_number(out_, value);
  }
  void flag(bool value) { number<std::uint8_t>(value ? 1 : 0); }
  template <class Tag, class T>
  void id(StrongId<Tag, T> value) {
    number(value.value);
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    out_.append(value);
  }
  template <class Ids>
  void ids(const Ids& values) {
    list(values, [this](const auto& value) { this->id(value); });
  }
  // Writes a count, then each value by `put`.
  template <class Values, class Put>
  void list(const Values& values, Put put) {
    number(static_cast<std::uint32_t>(values.size()));
    for (const auto& value : values) put(value);
  }
  template <std::size_t kSize>
  void bytes(const std::array<std::uint8_t, kSize>& value) {
    out_.append(reinterpret_cast<const char*>(value.data()), kSize);
  }

 private:
  std::string& out_;
};

// After the first failure everything reads as zero, and status() tells what failed.
class LogReader {
 public:
  explicit LogReader(std::string_view in) : in_(in) {}

  template <std::integral T>
  T number(const char* field) {
    return from_little_endian<T>(take(sizeof(T), field));
  }
  bool flag(const char* field) {
    const auto value = number<std::uint8_t>(field);
    if (value > 1) fail(field, fmt::format("expected 0 or 1, found {}", value));
    return value == 1;
  }
  std::string text(const char* field) {
    const auto size = number<std::uint32_t>(field);
    return std::string(take(size, field));
  }
  std::vector<TokenId> tokens(const char* field) {
    std::vector<TokenId> values;
    list(values, 4, field, [&](TokenId& value) { value.value = number<std::uint32_t>(field); });
    return values;
  }
  template <std::size_t kSize>
  void bytes(std::array<std::uint8_t, kSize>& value, const char* field) {
    const std::string_view found = take(kSize, field);
    std::copy(found.begin(), found.end(), value.begin());
  }
  // Reads a value of an enumeration of `count` values, which is one byte.
  template <class T>
  T choice(std::size_t count, const char* field) {
    const auto value = number<std::uint8_t>(field);
    if (value >= count) fail(field, fmt::format("expected a number below {}, found {}", count, value));
    return static_cast<T>(value < count ? value : 0);
  }
  // Reads a count of items, each of at least `bytes` bytes.
  std::uint32_t count(std::size_t bytes, const char* field) {
    const auto value = number<std::uint32_t>(field);
    if (value <= in_.size() / bytes) return value;
    fail(field, fmt::format("{} are announced, {} bytes are left", value, in_.size()));
    return 0;
  }
  // Reads what LogWriter::list() wrote; a value takes at least `value_bytes` bytes.
  template <class T, class Get>
  void list(std::vector<T>& values, std::size_t value_bytes, const char* field, Get get) {
    values.resize(count(value_bytes, field));
    for (T& value : values) get(value);
  }
  void fail(const char* field, std::string message) {
    if (status_.ok()) status_ = data_loss(std::move(message), field);
    in_ = {};
  }
  Status finish(const char* what) {
    if (status_.ok() && !in_.empty()) {
      return data_loss(fmt::format("{} bytes follow its end", in_.size()), what);
    }
    return status_;
  }

 private:
  std::string_view take(std::size_t size, const char* field) {
    if (size > in_.size()) {
      fail(field, fmt::format("expected {} bytes, found {}", size, in_.size()));
      return {};
    }
    const std::string_view taken = in_.substr(0, size);
    in_.remove_prefix(size);
    return taken;
  }

  std::string_view in_;
  Status status_;
};

// Costs occur in configurations, and in the event that new costs were measured.
void put(LogWriter& w, const CostCurves& costs);
void get(LogReader& r, CostCurves& costs);

}  // namespace loci
