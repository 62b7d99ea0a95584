// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "loci/base/check.h"

namespace loci {
Status Arrivals::refusal(const Arrival& event, std::uint64_t computed) const {
  if (event.prompt.empty()) return invalid_argument("expected at least one token, found none", "prompt");
  if (!event.keys.made && contains_reserved_token(event.prompt))
    return invalid_argument(fmt::format("expected token ids below {}", kNoToken.value), "prompt");
  if (event.weight == 0) return invalid_argument("expected at least 1, found 0", "weight");
  if (event.max_new_tokens == 0) return invalid_argument("expected at least 1, found 0", "max_new_tokens");
  LOCI_RETURN_IF_ERROR(dropped_refusal(event));
  const std::size_t prompt_tokens = kept_tokens(event);
  if (prompt_tokens >= config_.context_tokens) {
    return invalid_argument(
        fmt::format(
            "the prompt has {} tokens, but the context of {} holds at most {} of a prompt; shorten it",
            prompt_tokens, config_.context_tokens, config_.context_tokens - 1),
        "prompt");
  }
  if (prompt_tokens >= windows_.sequence_tokens_max()) {
    return invalid_argument(
        fmt::format("the prompt has {} tokens, but the server's device memory ({} blocks of {} tokens) holds "
                    "at most {} of a prompt; shorten it or start the server with more device memory",
                    prompt_tokens, windows_.sequence_tokens_max() / kBlockTokens, kBlockTokens,
                    windows_.sequence_tokens_max() - 1),
        "prompt");
  }
  if (event.scope == SharingScope::kPublic) LOCI_RETURN_IF_ERROR(public_refusal(event, computed));
  if (deadlines_.drains()) return {StatusCode::kUnavailable, "the server is stopping; try another one"};
  const std::size_t waiting = waiting_of(event.tenant);
  if (event.queued_max > 0 && waiting >= event.queued_max) {
    return resource_exhausted(
        fmt::format("{} of your requests are waiting, which is your limit; try again later", waiting));
  }
  return {};
}

Status Arrivals::public_refusal(const Arrival& event, std::uint64_t computed) const {
  if (!config_.reuse)
    return invalid_argument("expected none, as this server lets no request use another one's state (reuse)",
                            "scope");
  const std::uint64_t wanted = (event.prompt.size() + kBlockTokens - 1) / kBlockTokens;
  const std::uint64_t held = prefixes_.public_blocks() + computed;
  for (std::uint32_t group = 0; group < config_.groups.size(); ++group) {
    const std::uint64_t count = config_.groups[group].block_count;
    const bool room =
        !windows_.windowed(group) || held + wanted + windows_.ring_blocks(group, kBlockTokens) <= count;
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

// Of the tenant's requests, that have not been admitted.
std::size_t Arrivals::waiting_of(const TenantId& tenant) const {
  return queue_.waiting(tenant) + before_queue_.waiting(tenant);
}

std::optional<RequestId> Arrivals::gives_place(const Arrival& event) const {
  if (queue_.empty()) return std::nullopt;
  const std::string& most = queue_.most_waiting();
  const std::uint64_t own = (waiting_of(event.tenant) + 1) * queue_.weight(most);
  if (most == event.tenant || own >= waiting_of(most) * event.weight) return std::nullopt;
  return queue_.newest(most);
}

std::unique_ptr<CoreRequest> Arrivals::make(Arrival&& event, Nanos now) {
  std::string sharing = sharing_in(config_, event);
  ArrivalKeys keys = prefixes_.keys_of(event, std::move(event.keys));
  std::unique_ptr<const CoreLineage> lineage;
  if (keys.lineage) lineage = std::make_unique<const CoreLineage>(*std::move(keys.lineage));
  const bool is_public = event.scope == SharingScope::kPublic;
  std::vector<TokenId> tokens = std::move(event.dropped.empty() ? event.prompt : keys.kept);
  std::sort(event.stop_tokens.begin(), event.stop_tokens.end());
  // (Made where it stays: nobody moves the facts.)
  std::unique_ptr<CoreRequest> request(
      new CoreRequest{{.id = event.request,
                       .arrival = arrivals_++,
                       .arrived_at = now,
                       .tenant = std::move(event.tenant),
                       .sharing = std::move(sharing),
                       .weight = event.weight,
                       .prompt_tokens = static_cast<std::uint32_t>(tokens.size()),
                       .max_new_tokens = event.max_new_tokens,
                       .min_new_tokens = event.min_new_tokens,
                       .stop_tokens = std::move(event.stop_tokens),
                       .deadline = event.deadline,
                       .is_public = is_public,
                       .lineage = std::move(lineage),
                       .follows = event.follows}});
  request->tokens = std::move(tokens);
  prefixes_.take_keys(*request, std::move(keys));
  return request;
}

void Arrivals::check_invariants(std::span<const CoreRequest* const> requests) const {
  std::set<std::uint64_t> numbers;
  for (const CoreRequest* request : requests) {
    LOCI_CHECK(request->arrival < arrivals_ && numbers.insert(request->arrival).second,
               "invariant 10: arrivals are numbered once");
    LOCI_CHECK(
        request->prompt_tokens > 0 && request->weight > 0 && request->prompt_tokens <= request->length(),
        "invariant 7: a request has a prompt and some weight");
    LOCI_CHECK(request->new_tokens() <= request->max_new_tokens &&
                   request->length() <= windows_.sequence_tokens_max(),
               "invariant 7: a reply has an end");
  }
}

}  // namespace loci
