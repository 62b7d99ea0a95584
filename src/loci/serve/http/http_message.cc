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

std::optional<AbsoluteTarget> absolute_target(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!equal_ascii(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const std::size_t end = std::min(target.find_first_of("/?"), target.size());
    return AbsoluteTarget{.authority = target.substr(0, end), .rest = target.substr(end)};
  }
  return std::nullopt;
}

void take_authority(HttpRequest& request) {
  const std::optional<AbsoluteTarget> target = absolute_target(request.target);
  if (!target) return;
  std::erase_if(request.headers, [](const auto& one) { return equal_ascii(one.first, "Host"); });
  request.headers.emplace_back("Host", target->authority);
  request.target = (target->rest.starts_with('/') ? "" : "/") + std::string(target->rest);
}

}  // namespace loci
