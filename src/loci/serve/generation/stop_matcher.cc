// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/stop_matcher.h"

#include <algorithm>

namespace loci {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    Pattern pattern{.text = stop, .failure = std::vector<std::uint32_t>(stop.size(), 0), .matched = 0};
    for (std::uint32_t i = 1, k = 0; i < stop.size(); ++i) {
      while (k > 0 && stop[i] != stop[k]) k = pattern.failure[k - 1];
      if (stop[i] == stop[k]) ++k;
      pattern.failure[i] = k;
    }
    patterns_.push_back(std::move(pattern));
  }
}

std::string StopMatcher::push(std::string_view piece) {
  if (matched()) return {};
  if (patterns_.empty()) {
    released_ += piece.size();
    return std::string(piece);
  }
  for (std::size_t i = 0; i < piece.size(); ++i) {
    std::uint32_t longest = 0;
    for (Pattern& pattern : patterns_) {
      std::uint32_t& k = pattern.matched;
      while (k > 0 && pattern.text[k] != piece[i]) k = pattern.failure[k - 1];
      if (pattern.text[k] == piece[i]) ++k;
      if (k == pattern.text.size()) {
        if (k > longest) match_ = pattern.text;
        longest = std::max(longest, k);
        k = pattern.failure[k - 1];
      }
    }
    held_ += piece[i];
    if (longest > 0) {
      std::string shown = held_.substr(0, held_.size() - longest);
      released_ += shown.size();
      held_.clear();
      return shown;
    }
  }
  std::uint32_t keep = 0;
  for (const Pattern& pattern : patterns_) keep = std::max(keep, pattern.matched);
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  released_ += shown.size();
  return shown;
}

std::string StopMatcher::finish() {
  std::string rest = std::move(held_);
  held_.clear();
  if (matched()) return {};
  released_ += rest.size();
  return rest;
}

}  // namespace loci
