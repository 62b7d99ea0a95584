// SPDX-License-Identifier: Apache-2.0
// Finds the cheapest pair of sizes of host memory and disk that meets a target, by few trials. Pure: the
// caller makes the trials. An example with four sizes each; pairs that meet the target are marked +:
//
//           disk 0    1    2    3        The largest pair is tried first. If it misses, none meets.
//   host 0       .    .    .    +        Else each trial rules out pairs: one that meets rules out all that
//   host 1       .    .    +    +        cost as much or more, one that misses all that are no larger in
//   host 2       .    +    +    +        either size. The next trial is the pair that rules out most
//   host 3       .    +    +    +        whichever way it goes; when no cheaper pair is left, it is found.
//
// A miss rules out smaller pairs, because smaller pairs are assumed to be no better. At the end the two pairs
// that are one size smaller than the answer are tried nevertheless: a reader wants to know their results. If
// one of them meets the target the search goes on from there.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace loci::sim {

// Indices of the sizes on offer, the smallest first.
struct TierSizes {
  std::size_t host = 0;
  std::size_t disk = 0;
  friend auto operator<=>(const TierSizes&, const TierSizes&) = default;
};

// The cost of each size on offer an hour: ascending, at least one for each tier.
struct TierCosts {
  std::vector<double> host;
  std::vector<double> disk;
  double of(TierSizes sizes) const { return host[sizes.host] + disk[sizes.disk]; }
};

// Whether these sizes meet the target; nullopt ends the search. `open` pairs may still be the answer.
using TierTrial = std::function<std::optional<bool>(TierSizes sizes, std::size_t open)>;

struct TierSearch {
  // The cheapest pair that meets the target; of equally cheap ones that with the least host memory. nullopt:
  // none was found.
  std::optional<TierSizes> cheapest = std::nullopt;
  // Pairs that were not ruled out when a trial ended the search; 0: the search is complete.
  std::size_t open = 0;
};

// No pair is tried twice. Each trial costs O(pairs^2) beside the trial itself.
TierSearch find_cheapest(const TierCosts& costs, const TierTrial& trial);

}  // namespace loci::sim
