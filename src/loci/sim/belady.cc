// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/belady.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace loci::sim {
namespace {

// For each use, the use that finds the block if it is kept from here on; uses.size(): none.
std::vector<std::size_t> next_uses(std::span<const BlockUse> uses) {
  std::vector<std::size_t> next(uses.size(), uses.size());
  std::unordered_map<std::uint64_t, std::size_t> needed_at;  // never iterated
  for (std::size_t i = uses.size(); i > 0; --i) {
    const BlockUse& use = uses[i - 1];
    const auto found = needed_at.find(use.block);
    if (found != needed_at.end()) next[i - 1] = found->second;
    if (use.needed) {
      needed_at[use.block] = i - 1;
    } else {
      needed_at.erase(use.block);  // it is made there in any case, so nobody needs to hold it until then
    }
  }
  return next;
}

// A block that is kept from one use to the next, in parts of the run's periods.
struct Kept {
  double from, to;  // in periods
  double worth;
};

// What a slot costs in each period, and the sum of that from the run's begin to any time.
class SlotPrices {
 public:
  explicit SlotPrices(std::uint32_t periods) : price(periods, 0), sum_(periods + 1, 0) {}
  std::vector<double> price;
  void add_up() {
    for (std::size_t p = 0; p < price.size(); ++p) sum_[p + 1] = sum_[p] + price[p];
  }
  double upto(double at) const {
    const auto period = std::min(static_cast<std::size_t>(at), price.size() - 1);
    return sum_[period] + (at - static_cast<double>(period)) * price[period];
  }
  double all() const { return sum_.back(); }

 private:
  std::vector<double> sum_;
};

// The part of [from, to) that lies in each period, added to `taken`.
void add_parts(const Kept& kept, std::vector<double>& taken) {
  for (auto period = static_cast<std::size_t>(kept.from); period < taken.size(); ++period) {
    const double begin = std::max(kept.from, static_cast<double>(period));
    const double end = std::min(kept.to, static_cast<double>(period + 1));
    if (end <= begin) break;
    taken[period] += end - begin;
  }
}

// The dual's value at the prices, and what slots the chosen intervals take in each period.
double dual(const std::vector<Kept>& intervals, const SlotPrices& prices, double slots,
            std::vector<double>& taken) {
  std::fill(taken.begin(), taken.end(), 0.0);
  double value = slots * prices.all();
  for (const Kept& kept : intervals) {
    const double gain = kept.worth - (prices.upto(kept.to) - prices.upto(kept.from));
    if (gain <= 0) continue;
    value += gain;
    add_parts(kept, taken);
  }
  return value;
}

}  // namespace

std::uint64_t most_found(std::span<const BlockUse> uses, std::uint64_t slots) {
  const std::size_t never = uses.size();
  const std::vector<std::size_t> next = next_uses(uses);
  std::set<std::pair<std::size_t, std::uint64_t>> held;  // by next use
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const BlockUse& use = uses[i];
    if (use.needed) {
      found += held.erase({i, use.block});  // held blocks wait for their next use, which this is
    } else if (held.contains({next[i], use.block})) {
      continue;
    }
    if (next[i] == never || slots == 0) continue;
    if (held.size() == slots) {
      const auto last = std::prev(held.end());
      if (last->first < next[i]) continue;
      held.erase(last);
    }
    held.emplace(next[i], use.block);
  }
  return found;
}

std::uint64_t recent_found(std::span<const BlockUse> uses, std::uint64_t slots, KnowsEnds ends) {
  const std::vector<std::size_t> next = next_uses(uses);
  std::set<std::pair<std::size_t, std::uint64_t>> held;       // by last use
  std::unordered_map<std::uint64_t, std::size_t> held_since;  // never iterated
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const BlockUse& use = uses[i];
    if (const auto at = held_since.find(use.block); at != held_since.end()) {
      found += use.needed ? 1 : 0;
      held.erase({at->second, use.block});
      held_since.erase(at);
    }
    if (slots == 0 || (ends == KnowsEnds::kYes && next[i] == uses.size())) continue;
    if (held.size() == slots) {
      held_since.erase(held.begin()->second);
      held.erase(held.begin());
    }
    held.emplace(i, use.block);
    held_since.emplace(use.block, i);
  }
  return found;
}

double most_saved(std::span<const BlockUse> uses, std::span<const double> worth, std::uint64_t slots,
                  std::uint32_t periods, std::uint32_t rounds) {
  if (uses.empty() || slots == 0 || periods == 0) return 0;
  const std::vector<std::size_t> next = next_uses(uses);
  const double scale = static_cast<double>(periods) / static_cast<double>(uses.size());
  std::vector<Kept> intervals;
  double all = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (next[i] == uses.size() || worth[next[i]] <= 0) continue;
    intervals.push_back(
        {static_cast<double>(i) * scale, static_cast<double>(next[i]) * scale, worth[next[i]]});
    all += worth[next[i]];
  }
  // Polyak's steps along the subgradient, towards a value a little below the best so far.
  SlotPrices prices(periods);
  std::vector<double> taken(periods, 0.0);
  double best = all, towards = 0.1;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    prices.add_up();
    const double value = dual(intervals, prices, static_cast<double>(slots), taken);
    towards = value < best ? towards : std::max(towards * 0.9, 1e-4);
    best = std::min(best, value);
    double norm = 0;
    for (std::uint32_t p = 0; p < periods; ++p) {
      const double over = taken[p] - static_cast<double>(slots);
      norm += over > 0 || prices.price[p] > 0 ? over * over : 0;
    }
    if (norm == 0) break;  // no period is short of slots
    const double step = (value - best * (1 - towards)) / norm;
    for (std::uint32_t p = 0; p < periods; ++p) {
      const double over = taken[p] - static_cast<double>(slots);
      prices.price[p] = std::max(0.0, prices.price[p] + step * over);
    }
  }
  return best;
}

}  // namespace loci::sim
