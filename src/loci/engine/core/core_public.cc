// SPDX-License-Identifier: Apache-2.0
// Public prefixes (core.h): whether one more has room, and what they leave to others.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {

// Together they hold at most half of each pool, and leave room for a window.
Status Core::State::public_refusal(const Arrival& event) const {
  if (!config_.reuse)
    return invalid_argument("expected none, as this server lets no request use another one's state (reuse)",
                            "scope");
  const std::uint64_t wanted = (event.prompt.size() + kBlockTokens - 1) / kBlockTokens;
  std::uint64_t held = prefixes_.public_blocks();
  for (const auto& [id, request] : requests_) {
    if (request->is_public) held += (request->length() + kBlockTokens - 1) / kBlockTokens;
  }
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const std::uint64_t count = config_.groups[group].block_count;
    const bool room = !windowed(group) || held + wanted + windows_.ring_blocks(group, kBlockTokens) <= count;
    if ((held + wanted) * 2 <= count && room) continue;
    return invalid_argument(
        fmt::format("public prefixes may hold half of the memory for state, {} blocks of {} tokens; {} are "
                    "held and this one needs {}: shorten it, release others or start the server with more "
                    "device memory",
                    count / 2, kBlockTokens, held, wanted),
        "prompt");
  }
  return {};
}

void Core::State::keep_public(CoreRequest& request) {
  request.tail.reset();
  prefixes_.keep(request.id, request.length(), std::exchange(request.blocks, {}));
}

void Core::State::on(const Withdraw& event, Plan&) {
  if (prefixes_.withdraw(event.prefix)) room_.changed();
}

// Nothing else runs, and what is public leaves too little for it.
void Core::State::end_without_memory(CoreRequest& request, Plan& plan) {
  LOCI_CHECK(prefixes_.public_blocks() > 0, "a request that fits the pool has room when it is alone");
  if (request.was_admitted()) {
    end(request, FinishReason::kLength, plan);
    return;
  }
  reject_waiting(request,
                 invalid_argument(fmt::format("the prompt has {} tokens, more than the memory that public "
                                              "prefixes leave; shorten it or start the server with more "
                                              "device memory",
                                              request.prompt_tokens),
                                  "prompt"),
                 plan);
}

}  // namespace loci
