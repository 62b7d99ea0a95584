// SPDX-License-Identifier: Apache-2.0
// Prefixes of whole blocks of a run's prompts and replies, by hash: the most that a request could find.
// Thread-compatible. Each call is O(tokens).
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/random.h"
#include "loci/compute/backend.h"
#include "loci/sim/belady.h"

namespace loci::sim {

class SeenPrefixes {
 public:
  // The length in tokens of the longest prefix that was seen; it is less than the prompt, whose last token is
  // always computed.
  std::uint32_t find(const std::vector<TokenId>& tokens) const {
    std::uint32_t found = 0;
    walk(tokens, [&](std::uint64_t hash, std::uint32_t end) {
      if (end >= tokens.size() || !hashes_.contains(hash)) return false;
      found = end;
      return true;
    });
    return found;
  }
  void add(const std::vector<TokenId>& tokens) {
    walk(tokens, [&](std::uint64_t hash, std::uint32_t) {
      hashes_.insert(hash);
      return true;
    });
  }
  // Records the blocks that a prompt needs; or, for a prompt of `prompt` tokens with its reply, the blocks
  // that the reply made.
  static void record(const std::vector<TokenId>& tokens, std::size_t prompt, std::vector<BlockUse>& uses) {
    const bool needed = prompt == tokens.size();
    walk(tokens, [&](std::uint64_t hash, std::uint32_t end) {
      if (needed ? end < tokens.size() : end >= prompt) uses.push_back({hash, needed, end - kBlockTokens});
      return true;
    });
  }

 private:
  template <class Visit>
  static void walk(const std::vector<TokenId>& tokens, const Visit& visit) {
    std::uint64_t hash = 1;
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      hash = mix64(hash ^ (tokens[i].value + 1));
      if ((i + 1) % kBlockTokens == 0 && !visit(hash, i + 1)) return;
    }
  }
  std::unordered_set<std::uint64_t> hashes_;  // never iterated
};

}  // namespace loci::sim
