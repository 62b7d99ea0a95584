// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/routing/prefill_choice.h"

#include <algorithm>

namespace loci {

std::optional<PrefillChoice> choose_prefill(const RoutedRequest& request, const RoutedTo& decode,
                                            std::span<const RoutedTo> prefills) {
  const std::uint64_t missing = request.bytes - std::min(request.bytes, decode.bytes_seen());
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
    PrefillChoice one{.place = i, .computed = predicted_first_token(request, prefills[i]), .decode = decode};
    one.decode.bytes_peer = missing;
    // Both queues pass at the same time.
    const double queued = predicted_first_token(request, one.decode) - predicted_work(request, one.decode);
    one.first_token = std::max(one.computed, queued) + predicted_work(request, one.decode);
    if (one.first_token < alone && (!best || one.computed < best->computed)) best = one;
  }
  return best;
}

}  // namespace loci
