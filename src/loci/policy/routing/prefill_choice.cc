// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/routing/prefill_choice.h"

#include <algorithm>

namespace loci {
namespace {

std::uint64_t lacking(const RoutedRequest& request, const RoutedTo& decode) {
  return request.bytes - std::min(request.bytes, decode.bytes_seen());
}

PrefillChoice prefill_at(std::size_t place, const RoutedRequest& request, const RoutedTo& decode,
                         const RoutedTo& prefill) {
  PrefillChoice one{.place = place, .computed = predicted_first_token(request, prefill), .decode = decode};
  one.decode.bytes_peer = lacking(request, decode);
  // Both queues pass at the same time.
  const double work = predicted_work(request, one.decode);
  const double queued = predicted_first_token(request, one.decode) - work;
  one.first_token = std::max(one.computed, queued) + work;
  return one;
}

}  // namespace

std::optional<Handover> parse_handover(std::string_view name) {
  if (name == "predicted") return Handover::kPredicted;
  if (name == "always") return Handover::kAlways;
  return std::nullopt;
}

std::optional<PrefillChoice> choose_prefill(const RoutedRequest& request, const RoutedTo& decode,
                                            std::span<const RoutedTo> prefills) {
  const std::uint64_t missing = lacking(request, decode);
  const std::uint64_t computed = missing - std::min(missing, decode.bytes_peer);
  if (computed < kHandedBytesMin) return std::nullopt;
  const RoutedCosts& costs = decode.costs;
  const double computing = static_cast<double>(computed) * costs.compute;
  const double bringing = costs.ask_peers + static_cast<double>(computed) * costs.peer;
  if (bringing >= computing) return std::nullopt;
  // It holds up each reply that is written there; and one at least, since some may come meanwhile.
  const double alone =
      predicted_first_token(request, decode) + computing * std::max<std::uint32_t>(decode.requests, 1);
  std::optional<PrefillChoice> best;
  for (std::size_t i = 0; i < prefills.size(); ++i) {
    const PrefillChoice one = prefill_at(i, request, decode, prefills[i]);
    if (one.first_token < alone && (!best || one.computed < best->computed)) best = one;
  }
  return best;
}

std::optional<PrefillChoice> always_prefill(RoutingPolicy policy, const RoutedRequest& request,
                                            const RoutedTo& decode, std::span<const RoutedTo> prefills) {
  // (Who computes prompts writes no replies, so none of them is crowded.)
  const RoutingPolicy by = policy == RoutingPolicy::kFirstToken ? RoutingPolicy::kPromptTree : policy;
  const std::optional<std::size_t> chosen = route(by, request, prefills);
  if (!chosen || lacking(request, decode) == 0) return std::nullopt;
  return prefill_at(*chosen, request, decode, prefills[*chosen]);
}

}  // namespace loci
