// SPDX-License-Identifier: Apache-2.0
#include "loci/base/json_reader.h"

#include <fmt/format.h>

#include <bit>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "loci/base/printable.h"

namespace loci {
namespace {

// In bytes that are copied. An object of 2,048 members costs 262,144.
constexpr std::size_t kWorkMin = 500'000, kWorkOfByte = 16, kComparedForAByte = 8;
constexpr std::size_t kShownBytes = 240;
constexpr std::size_t kNamedLevels = 8, kNameBytes = 64;  // of a field
constexpr std::size_t kUnbounded = std::numeric_limits<std::size_t>::max();

// Counts brackets and separators outside strings. Up to the first fault of a text the counts are exact,
// and the parser stops there, so a text that passes can't exceed the limits.
class LimitCheck {
 public:
  LimitCheck(std::string_view text, const JsonLimits& limits)
      : text_(text),
        limits_(limits),
        work_max_(limits.members_max == kUnbounded ? kUnbounded : kWorkMin + kWorkOfByte * text.size()) {}

  Status run() {
    for (std::size_t i = 0; i < text_.size(); ++i) {
      switch (text_[i]) {
        case '"': i = skip_string(i); break;
        case '[':
        case '{': LOCI_RETURN_IF_ERROR(begin(i)); break;
        case ']':
        case '}':
          if (!open_.empty()) open_.pop_back();
          break;
        case ':':
          if (!open_.empty()) open_.back().name = last_string_;
          break;
        case ',': LOCI_RETURN_IF_ERROR(separate(i)); break;
        default: break;
      }
      if (values_ > limits_.values_max)
        return invalid_argument(fmt::format("the JSON holds more than {} values", limits_.values_max));
    }
    return {};
  }

 private:
  // An object or array whose end has not come.
  struct Open {
    bool is_object = false;
    std::size_t members = 1;  // or elements
    std::size_t begin = 0;
    std::string_view name = {};  // of an object's member that is read, as the text spells it
  };

  // The place of its last byte.
  std::size_t skip_string(std::size_t begin) {
    std::size_t i = begin + 1;
    while (i < text_.size() && text_[i] != '"') i += text_[i] == '\\' ? 2 : 1;
    last_string_ = text_.substr(begin + 1, i - begin - 1);
    return i;
  }

  Status begin(std::size_t at) {
    if (open_.size() == limits_.depth_max)
      return exceeded(
          fmt::format("the JSON is nested deeper than {} levels (byte {})", limits_.depth_max, at));
    ++values_;
    open_.push_back({.is_object = text_[at] == '{', .begin = at});
    return {};
  }

  Status separate(std::size_t at) {
    ++values_;
    if (open_.empty()) return {};
    Open& one = open_.back();
    const std::size_t before = one.members++;
    if (!one.is_object) return {};
    work_ += before / kComparedForAByte;
    if (std::has_single_bit(before)) work_ += at - one.begin;
    if (one.members > limits_.members_max)
      return exceeded(fmt::format("an object has more than {} members (byte {})", limits_.members_max, at));
    if (work_ > work_max_) {
      return exceeded(
          fmt::format("the JSON's objects have too many members for their depth and number (byte {})", at));
    }
    return {};
  }

  // The error that a limit is exceeded, with the path of the value that is read.
  Status exceeded(std::string message) const {
    std::string field;
    for (std::size_t level = 0; level + 1 < open_.size() && level < kNamedLevels; ++level) {
      const Open& one = open_[level];
      if (one.is_object)
        field += (field.empty() ? "" : ".") + visible_ascii(one.name.substr(0, kNameBytes));
      else
        field += fmt::format("[{}]", one.members - 1);
    }
    return invalid_argument(std::move(message), std::move(field));
  }

  std::string_view text_;
  const JsonLimits& limits_;
  std::vector<Open> open_;
  std::string_view last_string_;
  std::size_t values_ = 1;
  // What the parser does beside reading (ordered_json): a new member is compared with all before it, and an
  // object that grows beyond a power of two copies what it has.
  std::size_t work_ = 0;
  std::size_t work_max_;
};

}  // namespace

Status check_json_limits(std::string_view text, const JsonLimits& limits) {
  return LimitCheck(text, limits).run();
}

// nlohmann's messages open with "[json.exception.parse_error.101] " and may quote all of a long string.
std::string json_error_text(std::string_view what) {
  if (const auto end = what.find("] "); what.starts_with("[json.") && end != what.npos) {
    what.remove_prefix(end + 2);
  }
  const std::string_view prefix = what.substr(0, kShownBytes);
  return visible_ascii(prefix) + (prefix.size() < what.size() ? "..." : "");
}

template <class Json>
JsonRead<Json> read_json(std::string_view text, const JsonLimits& limits) {
  JsonRead<Json> out;
  if (const Status status = check_json_limits(text, limits); !status.ok()) {
    out.fault = JsonFault::kLimit;
    out.what = status.message();
    out.field = status.field();
    return out;
  }
  try {
    out.value = Json::parse(text);
    return out;
  } catch (const typename Json::parse_error& error) {
    out.what = json_error_text(error.what());
    out.byte = error.byte;
  } catch (const std::exception& error) {  // a number that no double holds
    out.what = json_error_text(error.what());
  }
  out.fault = JsonFault::kSyntax;
  return out;
}

template JsonRead<nlohmann::json> read_json(std::string_view text, const JsonLimits& limits);
template JsonRead<nlohmann::ordered_json> read_json(std::string_view text, const JsonLimits& limits);

}  // namespace loci
