// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/tier_search.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "loci/base/check.h"

namespace loci::sim {
namespace {

class Search {
 public:
  Search(const TierCosts& costs, const TierTrial& trial)
      : costs_(costs), trial_(trial), known_(costs.host.size() * costs.disk.size(), Known::kNothing) {
    LOCI_CHECK(!known_.empty(), "there are sizes to choose from");
  }

  TierSearch run() {
    try_sizes({costs_.host.size() - 1, costs_.disk.size() - 1}, known_.size());
    if (!best_) return result();
    do {
      while (!stopped_) {
        const std::vector<TierSizes> open = candidates();
        if (open.empty()) break;
        try_sizes(most_telling(open), open.size());
      }
    } while (!stopped_ && step_down());
    return result();
  }

 private:
  enum class Known : std::uint8_t { kNothing, kRuledOut, kTried };

  Known& known(TierSizes sizes) { return known_[sizes.host * costs_.disk.size() + sizes.disk]; }

  bool comes_before(TierSizes a, TierSizes b) const {
    return std::tuple(costs_.of(a), a.host, a.disk) < std::tuple(costs_.of(b), b.host, b.disk);
  }

  void try_sizes(TierSizes sizes, std::size_t open) {
    const std::optional<bool> meets = trial_(sizes, open);
    if (!meets) {
      stopped_ = true;
      return;
    }
    known(sizes) = Known::kTried;
    if (*meets) {
      if (!best_ || comes_before(sizes, *best_)) best_ = sizes;
      return;
    }
    for (std::size_t host = 0; host <= sizes.host; ++host) {
      for (std::size_t disk = 0; disk <= sizes.disk; ++disk) {
        Known& one = known({host, disk});
        if (one == Known::kNothing) one = Known::kRuledOut;
      }
    }
  }

  // Pairs that might be cheaper than the best one.
  std::vector<TierSizes> candidates() {
    std::vector<TierSizes> open;
    for (std::size_t host = 0; host < costs_.host.size(); ++host) {
      for (std::size_t disk = 0; disk < costs_.disk.size(); ++disk) {
        const TierSizes one{host, disk};
        if (known(one) == Known::kNothing && (!best_ || comes_before(one, *best_))) open.push_back(one);
      }
    }
    return open;
  }

  TierSizes most_telling(std::vector<TierSizes> open) const {
    std::sort(open.begin(), open.end(), [this](TierSizes a, TierSizes b) { return comes_before(a, b); });
    TierSizes chosen = open.front();
    std::size_t most = 0;
    for (std::size_t i = 0; i < open.size(); ++i) {
      const std::size_t by_meeting = open.size() - i;
      const auto by_missing =
          static_cast<std::size_t>(std::count_if(open.begin(), open.end(), [&](TierSizes one) {
            return one.host <= open[i].host && one.disk <= open[i].disk;
          }));
      if (std::min(by_meeting, by_missing) <= most) continue;
      most = std::min(by_meeting, by_missing);
      chosen = open[i];
    }
    return chosen;
  }

  // Tries the pairs one step below the best one; whether one of them meets the target.
  bool step_down() {
    const TierSizes from = *best_;
    if (from.host > 0) try_once({from.host - 1, from.disk});
    if (from.disk > 0 && !stopped_) try_once({from.host, from.disk - 1});
    return *best_ != from;
  }
  void try_once(TierSizes sizes) {
    if (known(sizes) != Known::kTried) try_sizes(sizes, 0);
  }

  TierSearch result() { return {best_, stopped_ ? candidates().size() : 0}; }

  const TierCosts& costs_;
  const TierTrial& trial_;
  std::vector<Known> known_;
  std::optional<TierSizes> best_;
  bool stopped_ = false;
};

}  // namespace

TierSearch find_cheapest(const TierCosts& costs, const TierTrial& trial) {
  return Search(costs, trial).run();
}

}  // namespace loci::sim
