// SPDX-License-Identifier: Apache-2.0
// Which member computes a prompt before another one writes the reply (MemServe §5, DistServe): a pure
// decision over what a front knows of them, in the terms of routing.h.
//
// An example, in microseconds: 60,000 bytes that nobody has, 10 to compute a byte, 1 to bring it from a peer,
// 20,000 to ask peers. The decode member writes two replies. If it computes the prompt, the client waits for
// 600,000, and so does each of the two: 1,800,000 together. An idle prefill member takes 600,000, and
// bringing its state 80,000. So the prompt is handed over. With 120,000 bytes before it there the reply would
// begin after 1,880,000, and the decode member computes the prompt.
//
// Thread-safe: pure functions. Deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "loci/policy/routing/routing.h"

namespace loci {

// A prompt that leaves less text to compute stays where its reply is written. These are about 1,024 tokens:
// as much as one or two passes compute (on a GPU some 50 ms), so what a handover saves the replies there is
// about what its messages and the wait for peers' answers cost.
inline constexpr std::uint64_t kHandedBytesMin = 4 << 10;

enum class Handover : std::uint8_t {
  kPredicted,  // a prompt is handed over if that is predicted to take less of everybody's time
  kAlways,     // each prompt of which the decode member lacks something, as MemServe and DistServe have it
};
// "predicted", "always"; none: no rule of that name.
std::optional<Handover> parse_handover(std::string_view name);

struct PrefillChoice {
  std::size_t place = 0;   // of the prefill member
  double computed = 0;     // until the prompt's state is computed there; in the unit of the costs
  double first_token = 0;  // until the reply begins at the decode member
  RoutedTo decode;         // the decode member, as it is then: a peer has all that it lacks
};

// By Handover::kPredicted. `decode`: the instance that is to write the reply. Absent: it computes the prompt.
// Among equals the first.
std::optional<PrefillChoice> choose_prefill(const RoutedRequest& request, const RoutedTo& decode,
                                            std::span<const RoutedTo> prefills);
// By Handover::kAlways: the prefill member that the policy would send the request to. Absent: there is none,
// or the decode member lacks nothing.
std::optional<PrefillChoice> always_prefill(RoutingPolicy policy, const RoutedRequest& request,
                                            const RoutedTo& decode, std::span<const RoutedTo> prefills);

}  // namespace loci
