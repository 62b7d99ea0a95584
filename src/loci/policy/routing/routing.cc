// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/routing/routing.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

namespace loci {
namespace {

// SplitMix64's finaliser without the increment that mix64() (base/random.h) adds first. Fronts of two
// versions must choose the same instance for a session, so its values stay as they are.
std::uint64_t mix(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

std::uint64_t rank_of(const RoutedRequest& request, const RoutedTo& instance) {
  return mix(request.session ^ mix(instance.rank));
}

// Of two things that are done at once the shorter one costs a little: loads take bandwidth and processors
// from computing, and do not begin with it.
constexpr double kHidden = 8;

// An honest instance is so many times slower or faster than others at most.
constexpr double kBelieved = 8;

constexpr std::array<double RoutedCosts::*, 5> kCosts = {&RoutedCosts::compute, &RoutedCosts::host,
                                                         &RoutedCosts::disk, &RoutedCosts::peer,
                                                         &RoutedCosts::ask_peers};

}  // namespace

RoutedCosts usual_costs(std::span<const RoutedCosts> told) {
  RoutedCosts out;
  if (told.empty()) return out;
  std::vector<double> all(told.size());
  for (double RoutedCosts::* const cost : kCosts) {
    std::transform(told.begin(), told.end(), all.begin(), [&](const RoutedCosts& one) { return one.*cost; });
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) / 2);
    std::nth_element(all.begin(), middle, all.end());
    out.*cost = *middle;
  }
  return out;
}

RoutedCosts believed_costs(const RoutedCosts& told, const RoutedCosts& usual) {
  RoutedCosts out;
  for (double RoutedCosts::* const cost : kCosts)
    out.*cost = std::clamp(told.*cost, usual.*cost / kBelieved, usual.*cost * kBelieved);
  return out;
}

std::optional<RoutingPolicy> parse_routing_policy(std::string_view name) {
  if (name == "first-token") return RoutingPolicy::kFirstToken;
  if (name == "prompt-tree") return RoutingPolicy::kPromptTree;
  if (name == "session") return RoutingPolicy::kSession;
  if (name == "least-load") return RoutingPolicy::kLeastLoad;
  return std::nullopt;
}

double predicted_work(const RoutedRequest& request, const RoutedTo& instance) {
  const RoutedCosts& costs = instance.costs;
  std::uint64_t lacking = request.bytes - std::min(request.bytes, instance.bytes_seen());
  double loading = 0;
  // Computing delays all others there, and loading does not: so an instance weighs it (restore_plan.h).
  const double compute_for_all = costs.compute * (1.0 + instance.requests);
  const auto bring = [&](std::uint64_t count, double cost) {
    if (cost < compute_for_all)
      loading += static_cast<double>(count) * cost;
    else
      lacking += count;
  };
  bring(instance.bytes_host, costs.host);
  bring(instance.bytes_disk, costs.disk);
  const auto at_once = [&](std::uint64_t computed, double loaded) {
    const double computing = static_cast<double>(computed) * costs.compute;
    return std::max(computing, loaded) + std::min(computing, loaded) / kHidden;
  };
  const double alone = at_once(lacking, loading);
  const std::uint64_t from_peer = std::min(lacking, instance.bytes_peer);
  if (from_peer == 0) return alone;
  const double bringing = costs.ask_peers + static_cast<double>(from_peer) * costs.peer;
  if (bringing >= static_cast<double>(from_peer) * compute_for_all) return alone;
  return costs.ask_peers +
         at_once(lacking - from_peer, loading + static_cast<double>(from_peer) * costs.peer);
}

std::uint64_t predicted_work_bytes(const RoutedRequest& request, const RoutedTo& instance) {
  const double bytes = predicted_work(request, instance) / instance.costs.compute;
  const double most = 2 * static_cast<double>(request.bytes);
  // (Of costs of 0 it is not a number.)
  return std::isfinite(bytes) ? static_cast<std::uint64_t>(std::clamp(bytes, 0.0, most)) : request.bytes;
}

double predicted_first_token(const RoutedRequest& request, const RoutedTo& instance) {
  const double compute = instance.costs.compute;
  const double replies =
      static_cast<double>(kBytesOfReply * instance.requests) * std::max(compute, instance.usual_compute);
  return static_cast<double>(instance.bytes_before) * compute + replies + predicted_work(request, instance);
}

RoutedWhy why_chosen(std::span<const RoutedTo> instances, std::size_t chosen) {
  const RoutedTo& one = instances[chosen];
  const auto has_more = [&](const RoutedTo& other) { return other.bytes_seen() > one.bytes_seen(); };
  const bool is_peers = one.bytes_peer > one.bytes_seen();
  if (!is_peers && std::any_of(instances.begin(), instances.end(), has_more)) return RoutedWhy::kElsewhere;
  const std::array<std::uint64_t, 5> places = {one.bytes_device, one.bytes_host, one.bytes_disk,
                                               one.bytes_sent, one.bytes_peer};
  const auto most = std::max_element(places.begin(), places.end());
  return *most == 0 ? RoutedWhy::kNothing : static_cast<RoutedWhy>(most - places.begin());
}

std::optional<std::size_t> route(RoutingPolicy policy, const RoutedRequest& request,
                                 std::span<const RoutedTo> instances) {
  if (instances.empty()) return std::nullopt;
  std::uint32_t least = UINT32_MAX;
  for (const RoutedTo& one : instances) least = std::min(least, one.requests);
  const auto crowded = [least](const RoutedTo& one) {
    const double beyond = std::max(0.0, one.requests - kCrowdedTimes * least - kCrowdedRequests);
    return beyond * static_cast<double>(kCrowdedBytes) * one.costs.compute;
  };
  // Smaller is better; among equals the highest rank, so that new conversations spread.
  const auto cost = [&](const RoutedTo& one) {
    const std::uint64_t last = ~rank_of(request, one);
    switch (policy) {
      case RoutingPolicy::kSession: return std::tuple(one.is_home ? 0.0 : 1.0, last);
      case RoutingPolicy::kLeastLoad: return std::tuple(static_cast<double>(one.requests), last);
      case RoutingPolicy::kFirstToken:
        return std::tuple(predicted_first_token(request, one) + crowded(one), last);
      case RoutingPolicy::kPromptTree: break;
    }
    return std::tuple(predicted_first_token(request, one), last);
  };
  const auto best =
      std::min_element(instances.begin(), instances.end(),
                       [&](const RoutedTo& one, const RoutedTo& other) { return cost(one) < cost(other); });
  return static_cast<std::size_t>(best - instances.begin());
}

}  // namespace loci
