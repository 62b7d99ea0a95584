// SPDX-License-Identifier: Apache-2.0
// Finds the cheapest pair of sizes, of host memory and of the disk, that meets a target, by few trials. Pure:
// what a pair gives is asked of the caller. Four sizes each, the target met by those marked +:
//
//           disk 0    1    2    3        The largest pair is tried first. If it misses, none meets.
//   host 0       .    .    .    +        Else each trial rules out pairs: one that meets rules out all that
//   host 1       .    .    +    +        cost as much or more, one that misses all that are no larger in
//   host 2       .    +    +    +        either size. The next trial is the pair that rules out most
//   host 3       .    +    +    +        whichever way it goes; when no cheaper pair is left, it is found.
//
// That a smaller pair is no better is taken for granted where pairs are ruled out by a miss. At the end the
// two pairs one step below the answer are tried all the same: what they give is what a reader asks next, and
// if one of them meets the target, the search goes on from there.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace loci::sim {

// Which of the sizes on offer, counted from the smallest.
struct TierSizes {
  std::size_t host = 0;
  std::size_t disk = 0;
  friend auto operator<=>(const TierSizes&, const TierSizes&) = default;
};

// What each size on offer costs an hour: ascending, at least one of each.
struct TierCosts {
  std::vector<double> host;
  std::vector<double> disk;
  double of(TierSizes sizes) const { return host[sizes.host] + disk[sizes.disk]; }
};

// Whether these sizes meet the target; nullopt ends the search. `open` pairs might still be the answer.
using TierTrial = std::function<std::optional<bool>(TierSizes sizes, std::size_t open)>;

struct TierSearch {
  // Of the cheapest pairs that meet the target the one with the least host memory; nullopt: none was found.
  std::optional<TierSizes> cheapest = std::nullopt;
  // Pairs that were not ruled out when a trial ended the search; 0: the search is complete.
  std::size_t open = 0;
};

// No pair is tried twice. O(pairs^2) for each trial beside the trial itself.
TierSearch find_cheapest(const TierCosts& costs, const TierTrial& trial);

}  // namespace loci::sim
