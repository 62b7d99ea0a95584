// SPDX-License-Identifier: Apache-2.0
// Prompts whose state another member of a cluster computes before this server writes the reply (MemServe §5;
// docs/decisions/roles.md). A front names that member in the request (cluster/handed_prompt.h). This server
// reads the prompt, counts it for its tenant, and sends its tokens there (cluster/peers/prefill_calls.h).
// While they are computed it reads what is there already, and then the request goes its usual way: it finds
// most of its state here, and the rest at a peer.
//
// Values; how a member is asked: ask_for_prefill.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/run/block_listener.h"

namespace loci {

// A prompt takes no longer at another member, whoever waits.
inline constexpr Nanos kPrefillLimitMax = 600 * kNanosPerSecond;
// How long a member that computes one may say nothing: no less than a busy machine may need to say something,
// no more than it takes to believe that it will not.
inline constexpr Nanos kPrefillSilenceMin = 300 * kNanosPerMilli, kPrefillSilenceMax = 3 * kNanosPerSecond;
// How often it says how the prompt stands: three times in that time.
constexpr Nanos prefill_pulse(Nanos silence_limit) { return silence_limit / 3; }

// Where a prompt is to be computed.
struct PrefillPlace {
  std::string host;
  std::uint16_t port = 0;  // at which that member serves peers
  // It begins within this time, and is never silent for longer than that, or this server computes the prompt
  // itself.
  Nanos begin_limit = 0;
  Nanos silence_limit = 0;
};

// A prompt whose state is wanted. It is computed as a request of the same tenant would, and nothing of it is
// counted or stored but the state.
struct PrefillWork {
  TenantId tenant;
  std::string salt;              // GenerationRequest::salt
  std::uint32_t weight = 1;      // of the tenant
  std::uint32_t queued_max = 0;  // GenerationRequest::queued_max
  std::vector<TokenId> tokens;
  std::shared_ptr<const PromptNames> text;  // so that fronts learn where its state is; null: it has no names
  Nanos pulse = prefill_pulse(kPrefillSilenceMax);  // whoever asked hears how it stands so often at least
};

enum class PrefillEnd : std::uint8_t {
  kNone,  // nobody was asked; or whoever asked stopped to wait, as its client left or it stops itself
  kDone,
  kRefused,    // the member would not: the tenant's places are taken there, or the prompt is too long for it
  kLate,       // it did not begin in time, or did not end within kPrefillLimitMax
  kQuiet,      // it did not answer, or said nothing more, within PrefillPlace::silence_limit
  kUnreached,  // it could not be asked
  kLost,       // it, or its device, broke off after it had taken the prompt
  kUntold,     // of a response in the background, whose creation is answered before the prompt's end
};
inline constexpr std::size_t kPrefillEnds = 8;
constexpr std::string_view prefill_end_name(PrefillEnd end) {
  constexpr std::array<std::string_view, kPrefillEnds> kNames = {"none",  "done",      "refused", "late",
                                                                 "quiet", "unreached", "lost",    "untold"};
  return kNames[static_cast<std::size_t>(end)];
}
constexpr std::optional<PrefillEnd> parse_prefill_end(std::string_view name) {
  for (std::size_t end = 0; end < kPrefillEnds; ++end) {
    if (prefill_end_name(static_cast<PrefillEnd>(end)) == name) return static_cast<PrefillEnd>(end);
  }
  return std::nullopt;
}
// In the reply, for the front: prefill_end_name(), or kPrefillLater. In the request: cluster/handed_prompt.h.
inline constexpr std::string_view kPrefillHeader = "Loci-Prefill";
// The reply's stream has begun before the prompt's end, which a mark in it tells (ReplyMark::kPrefill).
inline constexpr std::string_view kPrefillLater = "later";

struct PrefillOutcome {
  PrefillEnd end = PrefillEnd::kNone;
  std::uint32_t computed = 0;  // tokens; it had the others (kDone)
  std::string why;             // of a failure, for the log
};

}  // namespace loci
