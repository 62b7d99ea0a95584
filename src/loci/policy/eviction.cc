// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/eviction.h"

#include <fmt/format.h>

#include <utility>

#include "loci/base/check.h"
#include "loci/policy/eviction/lookahead_order.h"
#include "loci/policy/eviction/random_order.h"
#include "loci/policy/eviction/retention_order.h"
#include "loci/policy/eviction/sparing_order.h"
#include "loci/policy/eviction/time_order.h"
#include "loci/policy/eviction/value_order.h"
#include "loci/policy/policy_set.h"

namespace loci {
namespace {

using Order = std::unique_ptr<EvictionOrder>;

// An order that does not look at the queue, for whose tier saves must leave what the queue needs.
Order sparing(const EvictionPlace& place, Order own) {
  const bool saved_to = place.tier == Tier::kHost || place.tier == Tier::kDisk;
  return saved_to ? std::make_unique<SparingOrder>(std::move(own)) : std::move(own);
}

}  // namespace

Result<std::unique_ptr<EvictionOrder>> make_eviction_order(std::string_view name, const EvictionPlace& place,
                                                           std::shared_ptr<const CostModel> costs) {
  LOCI_CHECK(costs != nullptr, "a policy may ask what things cost");
  if (name == "lru") return sparing(place, std::make_unique<LruOrder>());
  if (name == "fifo") return sparing(place, std::make_unique<FifoOrder>());
  if (name == "random") return sparing(place, std::make_unique<RandomOrder>(place.seed));
  if (name == "retention") return sparing(place, std::make_unique<RetentionOrder>(place, std::move(costs)));
  if (name == "lookahead") return Order(std::make_unique<LookaheadOrder>());
  if (name == "value") return Order(std::make_unique<ValueOrder>(place, std::move(costs)));
  return invalid_argument(fmt::format("expected one of {}, found '{}'", listed(kEvictionPolicies), name),
                          "eviction");
}

}  // namespace loci
