// SPDX-License-Identifier: Apache-2.0
#include "loci/server/shared_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "loci/base/units.h"
#include "loci/memory/shared/redis_address.h"
#include "loci/memory/shared/redis_store.h"

namespace loci {
namespace {

constexpr const char* kSharedOption = "shared";
constexpr std::uint32_t kRememberedMin = 16'384, kRememberedMax = 262'144;

Status named(const Status& status) { return {status.code(), status.message(), kSharedOption}; }

}  // namespace

Status check_shared_options(const std::string& url, bool has_secret) {
  if (url.empty()) return {};
  const Result<RedisAddress> address = parse_redis_address(url);
  if (!address.ok()) return named(address.status());
  if (has_secret) return {};
  return invalid_argument(
      "a shared store needs the secret of the cluster that shares it (`loci keys cluster FILE` makes one)",
      "cluster_secret");
}

Result<SharedTier> open_shared_tier(SharedTierRequest request, const Clock& clock) {
  SharedTier tier;
  if (request.url.empty()) return tier;
  LOCI_RETURN_IF_ERROR(check_shared_options(request.url, request.keys.has_value()));
  RedisStoreOptions options{.address = parse_redis_address(request.url).value(),
                            .keys = *request.keys,
                            .groups = {},
                            .time_to_live = request.time_to_live.value_or(0),
                            .warn = std::move(request.warn)};
  for (const LayerGroup& group : request.backend->groups) {
    options.groups.push_back({.layers = static_cast<std::uint32_t>(group.layers.size()),
                              .layer_slice_bytes = group.layer_slice_bytes});
  }
  tier.summary = fmt::format("{}, {}", options.address.shown(),
                             request.time_to_live ? "for " + format_duration(*request.time_to_live)
                                                  : std::string("as long as the store keeps it"));
  if (!request.time_to_live) {
    options.warn(
        "shared_ttl is 0: if the shared store misses a deletion, because it is down or slow, the deleted "
        "state stays there until the store evicts it");
  }
  Result<std::unique_ptr<SharedStore>> store = open_redis_store(std::move(options), clock);
  if (!store.ok()) return named(store.status());
  tier.store = std::move(store).value();
  return tier;
}

std::uint32_t shared_blocks_remembered(std::uint32_t device_blocks) {
  return std::clamp(device_blocks, kRememberedMin, kRememberedMax);
}

}  // namespace loci
