// SPDX-License-Identifier: Apache-2.0
// Public prefixes (core.h): whether one more has room, and what they leave to others.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {

Status Core::State::refusal(const Arrival& event) const {
  std::uint64_t computed = 0;  // blocks of prefixes that will be public
  if (event.scope == SharingScope::kPublic) {
    for (const auto& [id, request] : requests_) {
      if (request->is_public) computed += (request->length() + kBlockTokens - 1) / kBlockTokens;
    }
  }
  return arrivals_.refusal(event, computed);
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
