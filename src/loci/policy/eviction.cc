#include "loci/policy/eviction.h"

#include <fmt/format.h>

#include <compare>
#include <set>
#include <utility>
#include <vector>

#include "loci/base/random.h"

namespace loci {
namespace {

struct Rank {
  bool behind = false;
  Nanos time = 0;
  std::uint32_t depth = 0;
  BlockId block;

  friend bool operator<(const Rank& a, const Rank& b) {
    if (a.behind != b.behind) return a.behind;
    if (a.time != b.time) return a.time < b.time;
    if (a.depth != b.depth) return a.depth > b.depth;
    return a.block < b.block;
  }
};

// By one of the facts' times, the earliest first. O(log blocks).
template <Nanos EvictionFacts::* kTime>
class EarliestFirst final : public EvictionOrder {
 public:
  void insert(BlockId block, const EvictionFacts& facts) override { ranks_.insert(rank(block, facts)); }
  void erase(BlockId block, const EvictionFacts& facts) override {
    const std::size_t erased = ranks_.erase(rank(block, facts));
    LOCI_CHECK(erased == 1, "only what is in the order leaves it");
  }
  BlockId choose(Nanos) override { return ranks_.empty() ? kNoBlock : ranks_.begin()->block; }
  std::size_t size() const override { return ranks_.size(); }

 private:
  static Rank rank(BlockId block, const EvictionFacts& facts) {
    return {facts.behind, facts.*kTime, facts.depth, block};
  }
  std::set<Rank> ranks_;
};

// O(1).
class RandomOrder final : public EvictionOrder {
 public:
  explicit RandomOrder(std::uint64_t seed) : random_(seed) {}

  void insert(BlockId block, const EvictionFacts&) override {
    if (block.value >= places_.size()) places_.resize(block.value + 1, kNowhere);
    LOCI_CHECK(places_[block.value] == kNowhere, "a block is in the order once");
    places_[block.value] = blocks_.size();
    blocks_.push_back(block);
  }
  void erase(BlockId block, const EvictionFacts&) override {
    const std::size_t place = block.value < places_.size() ? places_[block.value] : kNowhere;
    LOCI_CHECK(place != kNowhere, "only what is in the order leaves it");
    blocks_[place] = blocks_.back();
    places_[blocks_[place].value] = place;
    blocks_.pop_back();
    places_[block.value] = kNowhere;
  }
  BlockId choose(Nanos) override {
    return blocks_.empty() ? kNoBlock : blocks_[random_.below(blocks_.size())];
  }
  std::size_t size() const override { return blocks_.size(); }

 private:
  static constexpr std::size_t kNowhere = SIZE_MAX;
  Random random_;
  std::vector<BlockId> blocks_;
  std::vector<std::size_t> places_;  // by block, in blocks_
};

}  // namespace

Result<std::unique_ptr<EvictionOrder>> make_eviction_order(std::string_view name, const EvictionPlace& place,
                                                           std::shared_ptr<const CostModel>) {
  using Order = std::unique_ptr<EvictionOrder>;
  if (name == "lru") return Order(std::make_unique<EarliestFirst<&EvictionFacts::last_used>>());
  if (name == "fifo") return Order(std::make_unique<EarliestFirst<&EvictionFacts::born>>());
  if (name == "random") return Order(std::make_unique<RandomOrder>(place.seed));
  return invalid_argument(fmt::format("expected lru, fifo or random, found '{}'", name), "eviction");
}

}  // namespace loci
