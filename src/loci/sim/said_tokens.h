// SPDX-License-Identifier: Apache-2.0
// All texts of a trace as a tree of runs of tokens, so that common beginnings get common names.
//
//   A says  1 2 3 4 5       run 1: 1 2 3 4 5
//   B says  1 2 3 9 9       the first 3 of run 1, then run 2: 9 9, which hangs behind 3 tokens of run 1
//   C says  1 2 3 4 5 6     run 1, then run 3: 6
//
// A run never changes, so places in it stay valid. Thread-compatible. Following n tokens costs O(n).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "loci/base/ids.h"
#include "loci/sim/trace.h"

namespace loci::sim {

class SaidTokens {
 public:
  // The place after the first tokens of a run.
  struct Place {
    std::uint32_t run = 0;
    std::uint32_t offset = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  // The root of a tree of its own for each name: texts below different roots share nothing.
  Place root(const std::string& name);

  // Follows `tokens` from `place` on, and makes a new run of the tokens that were never said there. Appends
  // what it followed to `pieces`, whose contents are numbers of runs. The first `known` pieces were said
  // before.
  struct Way {
    Place end;
    std::size_t known = 0;  // pieces
  };
  Way say(Place place, std::span<const TokenId> tokens, std::vector<Piece>& pieces);

 private:
  struct Hash {
    std::size_t operator()(const std::pair<std::uint64_t, std::uint32_t>& key) const;
  };
  std::vector<std::vector<TokenId>> runs_;
  // Runs by the place where they hang and by their first token. Never iterated.
  std::unordered_map<std::pair<std::uint64_t, std::uint32_t>, std::uint32_t, Hash> behind_;
  std::unordered_map<std::string, std::uint32_t> roots_;  // never iterated
};

}  // namespace loci::sim
