// SPDX-License-Identifier: Apache-2.0
#include "loci/server/shared_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "loci/base/units.h"
#include "loci/memory/shared/redis_address.h"
#include "loci/memory/shared/redis_store.h"
#include "loci/memory/shared/s3_address.h"
#include "loci/memory/shared/s3_credentials.h"
#include "loci/memory/shared/s3_store.h"

namespace loci {
namespace {

constexpr const char* kSharedOption = "shared";
constexpr std::uint32_t kRememberedMin = 16'384, kRememberedMax = 262'144;

Status named(const Status& status) { return {status.code(), status.message(), kSharedOption}; }

using SharedAddress = std::variant<RedisAddress, S3Address>;

Result<SharedAddress> parse_address(std::string_view url) {
  if (!url.starts_with("s3:")) {
    LOCI_ASSIGN_OR_RETURN(RedisAddress address, parse_redis_address(url));
    return SharedAddress(std::move(address));
  }
  LOCI_ASSIGN_OR_RETURN(S3Address address, parse_s3_address(url));
  LOCI_RETURN_IF_ERROR(find_s3_credentials().status());  // who asks it
  return SharedAddress(std::move(address));
}

std::vector<SharedGroup> groups_of(const BackendInfo& backend) {
  std::vector<SharedGroup> groups;
  for (const LayerGroup& group : backend.groups) {
    groups.push_back({.layers = static_cast<std::uint32_t>(group.layers.size()),
                      .layer_slice_bytes = group.layer_slice_bytes});
  }
  return groups;
}

Result<std::unique_ptr<SharedStore>> open_store(RedisAddress address, const SharedTierRequest& request,
                                                const Clock& clock) {
  return open_redis_store({.address = std::move(address),
                           .keys = *request.keys,
                           .groups = groups_of(*request.backend),
                           .time_to_live = request.time_to_live.value_or(0),
                           .warn = request.warn},
                          clock);
}

Result<std::unique_ptr<SharedStore>> open_store(S3Address address, const SharedTierRequest& request,
                                                const Clock& clock) {
  return open_s3_store({.address = std::move(address),
                        .keys = *request.keys,
                        .groups = groups_of(*request.backend),
                        .time_to_live = request.time_to_live.value_or(0),
                        .warn = request.warn},
                       clock);
}

Status check_secret(bool has_secret) {
  if (has_secret) return {};
  return invalid_argument(
      "a shared store needs the secret of the cluster that shares it (`loci keys cluster FILE` makes one)",
      "cluster_secret");
}

}  // namespace

Status check_shared_options(const std::string& url, bool has_secret) {
  if (url.empty()) return {};
  const Status status = parse_address(url).status();
  return status.ok() ? check_secret(has_secret) : named(status);
}

Result<SharedTier> open_shared_tier(SharedTierRequest request, const Clock& clock) {
  SharedTier tier;
  if (request.url.empty()) return tier;
  Result<SharedAddress> address = parse_address(request.url);
  if (!address.ok()) return named(address.status());
  LOCI_RETURN_IF_ERROR(check_secret(request.keys.has_value()));
  if (!request.time_to_live) {
    request.warn(
        "shared_ttl is 0: if the shared store misses a deletion, because it is down or slow, the deleted "
        "state stays there until the store drops it by itself");
  }
  const std::string place = std::visit([](const auto& store) { return store.shown(); }, *address);
  Result<std::unique_ptr<SharedStore>> store =
      std::visit([&](auto& found) { return open_store(std::move(found), request, clock); }, *address);
  if (!store.ok()) return named(store.status());
  tier.store = std::move(store).value();
  tier.summary = fmt::format("{}, {}", place,
                             request.time_to_live ? "for " + format_duration(*request.time_to_live)
                                                  : std::string("as long as the store keeps it"));
  return tier;
}

std::string describe_shared(std::string_view url) {
  // The login ends at the last @ for parse_redis_address() too.
  const std::size_t at = url.rfind('@');
  if (at == std::string_view::npos) return std::string(url);
  const std::size_t scheme = url.find("://");
  const std::size_t login = scheme < at ? scheme + 3 : 0;
  const std::size_t colon = url.find(':', login);
  const std::size_t secret = colon < at ? colon + 1 : login;
  return fmt::format("{}***{}", url.substr(0, secret), url.substr(at));
}

std::uint32_t shared_blocks_remembered(std::uint32_t device_blocks) {
  return std::clamp(device_blocks, kRememberedMin, kRememberedMax);
}

}  // namespace loci
