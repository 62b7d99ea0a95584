// SPDX-License-Identifier: Apache-2.0
// Finds stop strings in a text that arrives in pieces. Text that might be the beginning of a stop string
// is held back until it is clear, so a client never sees any of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace loci {

// The match is the one that ends first; among those that end together, the one that begins first. That
// does not depend on how the text was split. Uses one KMP automaton a string: time linear in the text.
// Thread-compatible.
class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(const std::vector<std::string>& stops);

  // The text that is safe to show now. After a match: nothing more.
  std::string push(std::string_view piece);
  // The text has ended without a match: what was held back.
  std::string finish();

  bool matched() const { return !match_.empty(); }
  // The stop string that was found; "" before.
  const std::string& match() const { return match_; }
  // Bytes returned so far.
  std::uint64_t released() const { return released_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::uint32_t> failure;  // KMP: longest proper border of each prefix
    std::uint32_t matched = 0;           // bytes of the pattern that the text now ends with
  };

  std::vector<Pattern> patterns_;
  std::string held_;  // the text from released_ on
  std::uint64_t released_ = 0;
  std::string match_;
};

}  // namespace loci
