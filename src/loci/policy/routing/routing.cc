// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/routing/routing.h"

#include <algorithm>
#include <tuple>

namespace loci {
namespace {

// The finaliser of SplitMix64.
std::uint64_t mix(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

std::uint64_t rank_of(const RoutedRequest& request, const RoutedTo& instance) {
  return mix(request.session ^ mix(instance.rank));
}

// In bytes of text.
std::uint64_t predicted(const RoutedRequest& request, const RoutedTo& instance) {
  const std::uint64_t own = request.bytes - std::min(request.bytes, instance.bytes_seen);
  return instance.bytes_before + own + kBytesOfReply * instance.requests;
}

}  // namespace

std::optional<RoutingPolicy> parse_routing_policy(std::string_view name) {
  if (name == "first-token") return RoutingPolicy::kFirstToken;
  if (name == "session") return RoutingPolicy::kSession;
  if (name == "least-load") return RoutingPolicy::kLeastLoad;
  return std::nullopt;
}

std::optional<std::size_t> route(RoutingPolicy policy, const RoutedRequest& request,
                                 std::span<const RoutedTo> instances) {
  if (instances.empty()) return std::nullopt;
  // Smaller is better; among equals the highest rank, so that new conversations spread.
  const auto cost = [&](const RoutedTo& one) {
    const std::uint64_t last = ~rank_of(request, one);
    switch (policy) {
      case RoutingPolicy::kSession: return std::tuple(std::uint64_t{one.is_home ? 0u : 1u}, last);
      case RoutingPolicy::kLeastLoad: return std::tuple(std::uint64_t{one.requests}, last);
      case RoutingPolicy::kFirstToken: break;
    }
    return std::tuple(predicted(request, one), last);
  };
  const auto best =
      std::min_element(instances.begin(), instances.end(),
                       [&](const RoutedTo& one, const RoutedTo& other) { return cost(one) < cost(other); });
  return static_cast<std::size_t>(best - instances.begin());
}

}  // namespace loci
