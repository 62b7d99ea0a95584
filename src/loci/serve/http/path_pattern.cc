// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/path_pattern.h"

#include <cstddef>

#include "loci/serve/wire/percent.h"

namespace loci {
namespace {

// "v1" of "/v1/models", of which "/models" is left.
std::string_view take_segment(std::string_view& path) {
  path.remove_prefix(1);  // the slash
  const std::string_view segment = path.substr(0, path.find('/'));
  path.remove_prefix(segment.size());
  return segment;
}

}  // namespace

// Segment by segment, up to the first that differs: a path may be nothing but slashes, and is compared with
// every pattern.
std::optional<std::vector<std::string>> parameters_of(std::string_view pattern, std::string_view path) {
  std::vector<std::string_view> found;
  while (!pattern.empty()) {
    if (path.empty()) return std::nullopt;
    const std::string_view wanted = take_segment(pattern);
    const bool is_rest = pattern.empty() && wanted.ends_with("...}");
    const std::string_view segment = is_rest ? path.substr(1) : take_segment(path);
    if (is_rest) path = {};
    if (wanted.starts_with('{')) {
      if (segment.empty()) return std::nullopt;
      found.push_back(segment);
    } else if (wanted != segment) {
      return std::nullopt;
    }
  }
  if (!path.empty()) return std::nullopt;
  std::vector<std::string> out;
  for (const std::string_view segment : found) out.push_back(percent_decoded(segment));
  return out;
}

}  // namespace loci
