// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/http_message.h"

#include <algorithm>

#include "loci/base/ascii.h"

namespace loci {

std::optional<std::string_view> HttpRequest::find(std::string_view name) const {
  const auto is_it = [&](const auto& one) { return equal_ascii(one.first, name); };
  const auto found = std::find_if(headers.begin(), headers.end(), is_it);
  if (found == headers.end()) return std::nullopt;
  return found->second;
}

}  // namespace loci
