// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/path_pattern.h"

#include <cstddef>

#include "loci/serve/wire/percent.h"

namespace loci {
namespace {

std::vector<std::string_view> segments(std::string_view path) {
  std::vector<std::string_view> out;
  while (!path.empty()) {
    path.remove_prefix(1);  // the slash
    const std::size_t end = path.find('/');
    out.push_back(path.substr(0, end));
    path = end == std::string_view::npos ? std::string_view() : path.substr(end);
  }
  return out;
}

}  // namespace

std::optional<std::vector<std::string>> parameters_of(std::string_view pattern, std::string_view path) {
  const std::vector<std::string_view> wanted = segments(pattern);
  const std::vector<std::string_view> found = segments(path);
  const bool rest = !wanted.empty() && wanted.back().ends_with("...}");
  if (rest ? found.size() < wanted.size() : found.size() != wanted.size()) return std::nullopt;
  std::vector<std::string> out;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (rest && i + 1 == wanted.size()) {
      if (found.size() == wanted.size() && found[i].empty()) return std::nullopt;
      out.push_back(percent_decoded(path.substr(static_cast<std::size_t>(found[i].data() - path.data()))));
    } else if (wanted[i].starts_with('{')) {
      if (found[i].empty()) return std::nullopt;
      out.push_back(percent_decoded(found[i]));
    } else if (wanted[i] != found[i]) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace loci
