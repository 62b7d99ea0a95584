// SPDX-License-Identifier: Apache-2.0
#include "loci/model/hugging_face/tensor_names.h"

#include <charconv>

namespace loci {
namespace {

struct Numbers {
  std::optional<std::uint32_t> layer, expert;
};

// Takes a number from the front of `text`.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto digits = static_cast<std::size_t>(parsed.ptr - text.data());
  if (parsed.ec != std::errc() || digits == 0 || (digits > 1 && text[0] == '0')) return std::nullopt;
  text.remove_prefix(digits);
  return number;
}

bool matches(std::string_view text, std::string_view pattern, Numbers& numbers) {
  while (!pattern.empty()) {
    if (pattern == "{*}") return true;
    const bool is_layer = pattern.starts_with("{}"), is_expert = pattern.starts_with("{e}");
    if (is_layer || is_expert) {
      const std::optional<std::uint32_t> number = take_number(text);
      if (!number) return false;
      (is_layer ? numbers.layer : numbers.expert) = number;
      pattern.remove_prefix(is_layer ? 2 : 3);
      continue;
    }
    if (text.empty() || text.front() != pattern.front()) return false;
    text.remove_prefix(1);
    pattern.remove_prefix(1);
  }
  return text.empty();
}

std::string with_layer(std::string_view pattern, std::optional<std::uint32_t> layer) {
  std::string name(pattern);
  const std::size_t at = name.find("{}");
  if (at != std::string::npos && layer) name.replace(at, 2, std::to_string(*layer));
  return name;
}

}  // namespace

std::optional<MatchedName> match_name(std::string_view published, std::span<const PublishedTensor> table) {
  for (const PublishedTensor& entry : table) {
    Numbers numbers;
    if (!matches(published, entry.published, numbers)) continue;
    return MatchedName{.entry = &entry,
                       .name = with_layer(entry.name, numbers.layer),
                       .second = with_layer(entry.second, numbers.layer),
                       .expert = numbers.expert};
  }
  return std::nullopt;
}

}  // namespace loci
