// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/restore_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "loci/base/check.h"
#include "loci/compute/backend.h"

namespace loci {
namespace {

// Sums of all blocks' times, of fixed times and of links stay below, so that they and a multiple by
// kOthersMax fit.
constexpr Nanos kSumMax = Nanos{1} << 48;
constexpr std::uint32_t kOthersMax = 255;

constexpr std::size_t kHostTier = static_cast<std::size_t>(Tier::kHost);
constexpr std::size_t kDiskTier = static_cast<std::size_t>(Tier::kDisk);
constexpr std::size_t kSharedTier = static_cast<std::size_t>(Tier::kShared);
constexpr std::array kLoadedTiers = {kHostTier, kDiskTier, kSharedTier};

// Of the two tiers with fewest blocks every choice is tried, up to about so many pairs; beyond, so many at
// even distances, nearly the same number of each.
constexpr std::size_t kChoicesMax = 700;
// With both forms to choose from, every number of computed blocks is tried up to so many, else those beside
// the one that halving finds.
constexpr std::size_t kEveryCut = 64;
constexpr std::size_t kBesideCut = 4;

// At even distances up to a tier's last block.
struct Step {
  std::size_t size = 1, count = 0;
};
struct Steps {
  Steps(std::size_t fewest_blocks, std::size_t few_blocks) : fewest{1, fewest_blocks}, few{1, few_blocks} {
    while ((fewest.count + 1) * (few.count + 1) > kChoicesMax) {
      const bool wider = fewest.count > few.count;
      Step& step = wider ? fewest : few;
      ++step.size;
      step.count = ((wider ? fewest_blocks : few_blocks) + step.size - 1) / step.size;
    }
  }
  Step fewest, few;
};

Nanos limited(Nanos time, Nanos most) { return std::clamp<Nanos>(time, 0, most); }

// Over some of a tier's blocks.
struct Sums {
  Nanos compute = 0, charge = 0, load = 0;
  Nanos layer = 0;  // loading one layer
  // Where the shared tier has rounds: of one of them.
  Nanos round_load = 0, round_compute = 0;
};

// Of one tier's blocks: before[i] is over those before block i.
struct TierSums {
  std::vector<std::uint32_t> numbers;
  std::vector<Sums> before{1};

  std::size_t count() const { return numbers.size(); }
  const Sums& all() const { return before.back(); }
  void reserve(const std::vector<RestorableBlock>& blocks, std::size_t tier) {
    const auto most =
        static_cast<std::size_t>(std::ranges::count_if(blocks, [tier](const RestorableBlock& block) {
          return static_cast<std::size_t>(block.from) == tier;
        }));
    numbers.reserve(most);
    before.reserve(most + 1);
  }
  // Where the first `i` are computed and the rest is loaded:
  Nanos processor(std::size_t i) const { return before[i].compute + all().charge - before[i].charge; }
  Nanos link(std::size_t i) const { return all().load - before[i].load; }
  Nanos link_of_layer(std::size_t i) const { return all().layer - before[i].layer; }
  Nanos link_of_round(std::size_t i) const { return all().round_load - before[i].round_load; }
};

// How many of each tier's blocks are computed, and of the loaded ones that are in both forms loaded as hidden
// states: the last ones.
struct Point {
  std::array<std::size_t, kTiers> computed{};
  std::size_t hidden = 0;
};

// Of the disk's blocks that are in both forms: sums over the first ones.
struct FormSums {
  std::vector<std::uint32_t> numbers;
  std::vector<std::size_t> before{0};  // [i]: so many of them are before block i of the disk
  std::vector<Nanos> load{0};          // what hidden states take more, mostly less, than keys and values
  std::vector<Nanos> layer{0};
  std::vector<Nanos> charge{0};

  std::size_t count() const { return numbers.size(); }
  static Nanos last(const std::vector<Nanos>& sums, std::size_t i) {
    return sums.back() - sums[sums.size() - 1 - i];
  }
};

class Search {
 public:
  explicit Search(const RestoreProblem& problem) : problem_(problem) {
    const Nanos most = most_ = kSumMax / static_cast<Nanos>(std::max<std::size_t>(problem.blocks.size(), 1));
    std::array<Nanos, kTiers> least{};
    for (const std::size_t tier : kLoadedTiers) tiers_[tier].reserve(problem.blocks, tier);
    forms_.before.reserve(tiers_[kDiskTier].before.capacity());
    const Nanos layers = std::max(problem.layers, 1u), rounds = std::max(problem.shared_rounds, 1u);
    Nanos known = 0, known_layer = 0, known_round = 0;  // the last load, as most are the same, and its parts
    for (const RestorableBlock& block : problem.blocks) {
      const auto tier = static_cast<std::size_t>(block.from);
      LOCI_CHECK(tier != 0, "what is on the device is not restored");
      TierSums& sums = tiers_[tier];
      least[tier] = std::max(least[tier], limited(block.compute, most));
      const Nanos charge = limited(block.charge, most), load = limited(block.load, most);
      sums.numbers.push_back(block.number);
      if (load != known) {
        known = load;
        known_layer = load / layers;
        known_round = load / rounds;
      }
      const Sums all = sums.all();
      sums.before.push_back({.compute = all.compute + least[tier],
                             .charge = all.charge + charge,
                             .load = all.load + load,
                             .layer = all.layer + known_layer,
                             .round_load = all.round_load + known_round,
                             .round_compute = all.round_compute + least[tier] / rounds});
      if (tier == kDiskTier) add_forms(block, load, charge, most);
    }
    booked_ = limited(problem.compute_booked, kSumMax);
    anyway_ = limited(problem.computed_anyway, kSumMax);
    const Nanos reading = limited(problem.first_reading, anyway_);
    behind_last_layer_ = anyway_ - reading + reading / std::max(problem.layers, 1u);
    behind_last_round_ = anyway_ - reading + reading / std::max(problem.shared_rounds, 1u);
  }

  Point all_loaded() const { return {}; }
  Point all_hidden() const { return {.computed = {}, .hidden = forms_.count()}; }
  Point all_computed() const { return computed_from(kHostTier); }
  // What the disk and what is slower alone have.
  Point disk_computed() const { return computed_from(kDiskTier); }
  Point shared_computed() const { return computed_from(kSharedTier); }
  // The first `count` blocks are computed.
  Point leading(std::size_t count) const {
    Point point;
    for (std::size_t i = 0; i < count; ++i)
      ++point.computed[static_cast<std::size_t>(problem_.blocks[i].from)];
    return point;
  }

  RestoreTimes times(const Point& point) const {
    Nanos compute = anyway_;
    Nanos first = 0, last = 0;
    Nanos first_round = 0, last_round = 0;
    Nanos chosen = 0, chosen_in_round = 0;  // blocks that are computed
    for (const std::size_t tier : kLoadedTiers) {
      const bool rounds = tier == kSharedTier && problem_.shared_rounds > 0;
      const TierSums& sums = tiers_[tier];
      const std::size_t i = point.computed[tier];
      const std::size_t hidden = tier == kDiskTier ? std::min(point.hidden, forms_at(point)) : 0;
      compute += sums.processor(i) + FormSums::last(forms_.charge, hidden);
      chosen += sums.before[i].compute;
      chosen_in_round += sums.before[i].round_compute;
      const RestoreLink& link = problem_.links[tier];
      const Nanos booked = limited(link.booked, kSumMax);
      if (i < sums.count()) {
        const Nanos begins = booked + limited(link.latency, kSumMax);
        if (rounds) {
          first_round = begins + sums.link_of_round(i);
          last_round = begins + sums.link(i);
          continue;
        }
        first = std::max(first, begins + sums.link_of_layer(i) + FormSums::last(forms_.layer, hidden));
        last = std::max(last, begins + sums.link(i) + FormSums::last(forms_.load, hidden));
      } else if (link.awaited) {
        Nanos& latest = rounds ? last_round : last;
        latest = std::max(latest, booked);
      }
    }
    Nanos ready = booked_ + compute;
    if (first > 0) ready = std::max(ready, first + anyway_);
    if (last > 0) ready = std::max(ready, last + behind_last_layer_);
    if (first_round > 0) ready = std::max(ready, first_round + anyway_ + chosen);
    if (last_round > 0) ready = std::max(ready, last_round + behind_last_round_ + chosen_in_round);
    return {ready, compute, 8 * ready + compute * (8 * Nanos{std::min(problem_.others, kOthersMax)} + 1)};
  }

  // HCache §4.1.1: were each token computed in the same time and loaded in the same time.
  Point balanced(std::uint32_t round_tokens) const {
    const std::size_t count = problem_.blocks.size();
    const Nanos loading = slowest_link(all_loaded());
    Nanos computing = 0;
    for (const std::size_t tier : kLoadedTiers) computing += tiers_[tier].all().compute;
    if (loading == 0) return all_loaded();
    const auto tokens = static_cast<std::uint64_t>(static_cast<unsigned __int128>(count) * kBlockTokens *
                                                   static_cast<std::uint64_t>(loading) /
                                                   static_cast<std::uint64_t>(loading + computing));
    const std::uint64_t rounded = (tokens + round_tokens - 1) / round_tokens * round_tokens;
    return leading(std::min<std::size_t>(count, (round_tokens == 1 ? tokens : rounded) / kBlockTokens));
  }

  // HCache §4.1.2, of the disk's blocks; sums over all of them are as good as what one takes.
  Point hcache() const {
    const TierSums& disk = tiers_[kDiskTier];
    Nanos project = 0, hidden = 0;
    std::size_t count = 0;
    for (const RestorableBlock& block : problem_.blocks) {
      if (!block.only_hidden && !block.hidden) continue;
      ++count;
      project += limited(block.only_hidden ? block.charge : block.hidden->charge, most_);
      hidden += limited(block.only_hidden ? block.load : block.hidden->load, most_);
    }
    if (count == 0 || !problem_.knows_projecting) return all_loaded();
    Point point = all_hidden();
    const auto part = [count](Nanos of, Nanos more) {
      const Nanos whole = of + more;
      return whole == 0 ? count
                        : static_cast<std::size_t>(
                              (static_cast<__int128>(of) * static_cast<__int128>(count) + whole - 1) / whole);
    };
    if (project > hidden) {
      const Nanos keys_and_values = disk.all().load;
      point.hidden = std::min(point.hidden, part(keys_and_values, project - hidden));
    } else if (count == disk.count()) {
      point.computed[kDiskTier] = count - part(disk.all().compute, hidden - project);
    }
    return point;
  }

  // HCache §6.3.1.
  Point naive_hybrid() const {
    Point point, best = point;
    Nanos compute = 0, least = slowest_link(point);
    for (const RestorableBlock& block : problem_.blocks) {
      const auto tier = static_cast<std::size_t>(block.from);
      const TierSums& sums = tiers_[tier];
      const std::size_t i = point.computed[tier]++;
      compute += sums.before[i + 1].compute - sums.before[i].compute;
      const Nanos longer = std::max(compute, slowest_link(point));
      if (longer >= least) continue;
      least = longer;
      best = point;
    }
    return best;
  }

  // Of the tiers with fewer blocks every choice; for each the best of the one with most, whose price is
  // convex in how many are computed: compute grows by more and more, loading falls evenly. Only where all are
  // computed it falls by more, as nothing is waited for.
  Point best() const {
    Point best = best_of({all_loaded(), shared_computed(), disk_computed(), all_computed(), balanced(1),
                          balanced(kRoundTokens), naive_hybrid(), hcache()});
    if (weighs_forms()) best = best_of({best, all_hidden()});
    Nanos least = times(best).price;
    std::array<std::size_t, kLoadedTiers.size()> by_count = kLoadedTiers;
    std::stable_sort(by_count.begin(), by_count.end(),
                     [this](std::size_t a, std::size_t b) { return tiers_[a].count() < tiers_[b].count(); });
    const auto [fewest, few, many] = by_count;
    const auto consider = [&](const Point& cut) {
      const Point point = with_forms(cut);
      const Nanos price = times(point).price;
      if (price >= least) return;
      least = price;
      best = point;
    };
    const std::size_t count = tiers_[many].count();
    Point point;
    const Steps steps(tiers_[fewest].count(), tiers_[few].count());
    for (std::size_t i = 0; i <= steps.fewest.count; ++i) {
      point.computed[fewest] = std::min(i * steps.fewest.size, tiers_[fewest].count());
      for (std::size_t j = 0; j <= steps.few.count; ++j) {
        point.computed[few] = std::min(j * steps.few.size, tiers_[few].count());
        const std::size_t low = lowest(point, many);
        const bool all = weighs_forms() && count <= kEveryCut;
        const std::size_t beside = all ? count : weighs_forms() ? kBesideCut : 0;
        const std::size_t first = low > beside ? low - beside : 0;
        for (std::size_t cut = first; cut <= std::min(count, low + beside); ++cut) {
          point.computed[many] = cut;
          consider(point);
        }
        point.computed[many] = count;
        consider(point);
      }
    }
    return best;
  }

  std::uint32_t hidden_from(const Point& point) const {
    const std::size_t hidden = std::min(point.hidden, forms_at(point));
    return hidden == 0 ? UINT32_MAX : forms_.numbers[forms_.count() - hidden];
  }

  LoadFrom load_from(const Point& point) const {
    LoadFrom from{};
    for (const std::size_t tier : kLoadedTiers) {
      const TierSums& sums = tiers_[tier];
      const std::size_t i = point.computed[tier];
      from[tier] = i < sums.count() ? (i == 0 ? 0 : sums.numbers[i]) : UINT32_MAX;
    }
    return from;
  }

 private:
  void add_forms(const RestorableBlock& block, Nanos load, Nanos charge, Nanos most) {
    forms_.before.push_back(forms_.before.back() + (block.hidden ? 1 : 0));
    if (!block.hidden) return;
    const Nanos layers = std::max(problem_.layers, 1u);
    const Nanos hidden = limited(block.hidden->load, most);
    forms_.numbers.push_back(block.number);
    forms_.load.push_back(forms_.load.back() + hidden - load);
    forms_.layer.push_back(forms_.layer.back() + hidden / layers - load / layers);
    forms_.charge.push_back(forms_.charge.back() + limited(block.hidden->charge, most) - charge);
  }
  bool weighs_forms() const { return problem_.knows_projecting && forms_.count() > 0; }
  // Blocks in both forms that are loaded.
  std::size_t forms_at(const Point& point) const {
    return forms_.count() - forms_.before[point.computed[kDiskTier]];
  }
  // With as many hidden ones as are best: the price is convex in how many.
  Point with_forms(Point point) const {
    point.hidden = 0;
    if (!weighs_forms()) return point;
    std::size_t low = 0, high = forms_at(point);
    const auto price = [&](std::size_t hidden) {
      point.hidden = hidden;
      return times(point).price;
    };
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (price(middle + 1) < price(middle)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    point.hidden = low;
    return point;
  }

  // What that tier and slower ones alone have.
  Point computed_from(std::size_t fastest) const {
    Point point;
    for (std::size_t tier = fastest; tier < kTiers; ++tier) point.computed[tier] = tiers_[tier].count();
    return point;
  }

  Nanos slowest_link(const Point& point) const {
    Nanos slowest = 0;
    for (const std::size_t tier : kLoadedTiers) {
      if (point.computed[tier] == tiers_[tier].count()) continue;
      slowest = std::max(
          slowest, limited(problem_.links[tier].latency, kSumMax) + tiers_[tier].link(point.computed[tier]));
    }
    return slowest;
  }

  // Ties: the first.
  Point best_of(std::initializer_list<Point> points) const {
    const Point* best = points.begin();
    for (const Point& point : points) {
      if (times(point).price < times(*best).price) best = &point;
    }
    return *best;
  }

  // Where the price is lowest while something of the tier is loaded: the first place from which it does not
  // fall on.
  std::size_t lowest(Point point, std::size_t tier) const {
    std::size_t low = 0, high = tiers_[tier].count();
    if (high > 0) --high;
    const auto price = [&](std::size_t computed) {
      point.computed[tier] = computed;
      return times(with_forms(point)).price;
    };
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (price(middle + 1) < price(middle)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  const RestoreProblem& problem_;
  std::array<TierSums, kTiers> tiers_;
  FormSums forms_;
  Nanos most_ = 0;  // of one block's times
  Nanos booked_ = 0;
  Nanos anyway_ = 0;
  Nanos behind_last_layer_ = 0;
  Nanos behind_last_round_ = 0;  // but for the chosen blocks
};

Point point_of(const Search& search, RestoreRule rule) {
  switch (rule) {
    case RestoreRule::kKv: return search.all_loaded();
    case RestoreRule::kRecompute: return search.all_computed();
    case RestoreRule::kPensieve: return search.disk_computed();
    case RestoreRule::kHidden: return search.all_hidden();
    case RestoreRule::kTokenWise: return search.balanced(1);
    case RestoreRule::kTokenWiseRounded: return search.balanced(kRoundTokens);
    case RestoreRule::kNaiveHybrid: return search.naive_hybrid();
    case RestoreRule::kHcache: return search.hcache();
    default: return search.best();
  }
}

// Nor does it wait for less.
bool loads_no_less(const PlaceNeeds& place, const PlaceNeeds& other) {
  if ((other.awaited & ~place.awaited) != 0) return false;
  for (const std::size_t tier : kLoadedTiers)
    if (place.bytes[tier] < other.bytes[tier]) return false;
  return true;
}

}  // namespace

Result<RestoreRule> find_restore_rule(std::string_view name) {
  const auto found = std::find(kRestoreRules.begin(), kRestoreRules.end(), name);
  if (found != kRestoreRules.end()) return static_cast<RestoreRule>(found - kRestoreRules.begin());
  std::string known;
  for (const std::string_view rule : kRestoreRules) {
    if (!known.empty()) known += ", ";
    known += rule;
  }
  return invalid_argument(fmt::format("expected one of {}, found '{}'", known, name), "restore");
}

RestorePlan plan_restore(const RestoreProblem& problem, RestoreRule rule) {
  const Search search(problem);
  const Point point = point_of(search, rule);
  return {rule,
          search.load_from(point),
          search.hidden_from(point),
          search.times(point),
          search.times(search.all_loaded()),
          search.times(search.all_computed())};
}

std::vector<std::size_t> places_to_price(std::span<const PlaceNeeds> places) {
  LOCI_CHECK(!places.empty(), "a request goes on from some place, if only the first token");
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool last = i + 1 == places.size();
    if (!last && (places[i].overdue || (!kept.empty() && loads_no_less(places[i], places[kept.back()]))))
      continue;
    kept.push_back(i);
  }
  if (kept.size() <= kPlacesPriced) return kept;
  // Where a link is left alone, a rule or a price may jump.
  std::vector<std::size_t> some;
  for (const std::size_t slowest : {kHostTier, kDiskTier}) {
    some.push_back(*std::ranges::find_if(kept, [&](std::size_t i) {
      const auto beyond = std::span(places[i].bytes).subspan(slowest + 1);
      return i == kept.back() || std::ranges::all_of(beyond, [](std::uint64_t bytes) { return bytes == 0; });
    }));
  }
  const std::size_t even = kPlacesPriced - some.size();
  for (std::size_t i = 0; i < even; ++i) some.push_back(kept[i * (kept.size() - 1) / (even - 1)]);
  std::ranges::sort(some);
  some.erase(std::ranges::unique(some).begin(), some.end());
  return some;
}

PlaceChoice choose_place(std::span<const RestoreProblem> places, RestoreRule rule) {
  LOCI_CHECK(!places.empty(), "a request goes on from some place, if only the first token");
  const auto is_beyond = [](const RestoreProblem& place, Tier slowest) {
    return std::ranges::any_of(place.blocks,
                               [slowest](const RestorableBlock& block) { return block.from > slowest; });
  };
  // (Where all of them load, the first is as good as any.)
  const auto last_within = [&](Tier slowest) {
    std::size_t place = 0;
    while (place + 1 < places.size() && is_beyond(places[place], slowest)) ++place;
    return place;
  };
  std::vector<RestoreTimes> times;
  times.reserve(places.size());
  for (const RestoreProblem& place : places) {
    const Search search(place);
    times.push_back(search.times(search.all_loaded()));
  }
  std::size_t chosen = 0;
  switch (rule) {
    case RestoreRule::kKv:
    case RestoreRule::kHidden: break;
    case RestoreRule::kRecompute: chosen = last_within(Tier::kDevice); break;
    case RestoreRule::kPensieve: chosen = last_within(Tier::kHost); break;
    default:
      for (std::size_t place = 1; place < places.size(); ++place)
        if (times[place].price < times[chosen].price) chosen = place;
  }
  return {chosen, times[chosen], times.front(), times[last_within(Tier::kDevice)]};
}

}  // namespace loci
