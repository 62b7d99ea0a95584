// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/ids.h"

#include <fmt/format.h>

#include <random>

namespace loci {

std::string random_id(std::string_view prefix) {
  static thread_local std::random_device device;
  std::string id(prefix);
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

std::string output_item_id(std::string_view prefix, std::string_view response_id, std::size_t index) {
  const std::size_t begin = response_id.find('_');
  if (begin != std::string_view::npos) response_id.remove_prefix(begin + 1);
  return fmt::format("{}{}{:04x}", prefix, response_id, index);
}

std::string response_of_item(std::string_view item_id) {
  constexpr std::size_t kDigits = 32;  // random_id()'s
  const std::size_t begin = item_id.find('_');
  if (begin == std::string_view::npos || item_id.size() - begin - 1 < kDigits + 4) return {};
  const std::string_view digits = item_id.substr(begin + 1);
  const bool hexadecimal = digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return hexadecimal ? "resp_" + std::string(digits.substr(0, kDigits)) : std::string();
}

}  // namespace loci
