// SPDX-License-Identifier: Apache-2.0
// Prompts whose state another member of a cluster computes before this server writes the reply (MemServe §5;
// docs/decisions/roles.md). A front names that member in the request (cluster/handed_prompt.h). This server
// reads the prompt, counts it for its tenant, and sends its tokens there (cluster/peers/prefill_calls.h).
// When they are computed the request goes its usual way: it finds most of its state at a peer.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/run/block_listener.h"

namespace loci {

// Where a prompt is to be computed.
struct PrefillPlace {
  std::string host;
  std::uint16_t port = 0;  // at which that member serves peers
  Nanos limit = 0;         // how long this server waits; then it computes the prompt itself
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
};

enum class PrefillEnd : std::uint8_t {
  kNone,  // nobody was asked
  kDone,
  kFailed,
};
constexpr std::string_view prefill_end_name(PrefillEnd end) {
  return end == PrefillEnd::kDone ? "done" : end == PrefillEnd::kFailed ? "failed" : "none";
}
// In the reply, for the front: prefill_end_name(). In the request: cluster/handed_prompt.h.
inline constexpr std::string_view kPrefillHeader = "Loci-Prefill";

struct PrefillOrder {
  boost::asio::io_context& io;  // of the network thread
  PrefillPlace place;
  PrefillWork work;
  // Is given what ends the wait early, when the client goes.
  std::function<void(std::function<void()>)> watch;
};
// Asks that member, and waits for it. Ok: the state is computed. Network thread only.
using AskForPrefill = std::function<boost::asio::awaitable<Status>(PrefillOrder)>;

}  // namespace loci
