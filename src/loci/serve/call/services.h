// SPDX-License-Identifier: Apache-2.0
// What every endpoint may use.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "loci/engine/run/block_listener.h"
#include "loci/serve/call/router.h"
#include "loci/serve/generation/generation_services.h"
#include "loci/serve/http/byte_budget.h"
#include "loci/serve/http/page_guard.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/store/turn_claims.h"
#include "loci/serve/telemetry/tracer.h"
#include "loci/serve/tenants/public_prefixes.h"
#include "loci/serve/tenants/read_places.h"
#include "loci/serve/tenants/tenants.h"
#include "loci/serve/wire/api_error.h"

namespace loci {

struct ApiOptions {
  PageGuard pages;  // which web pages may use the server
  bool access_log = true;
  bool page = true;                       // there is a web page
  Access metrics_access = Access::kOpen;  // of /metrics, which tells of all tenants together
  std::uint64_t body_bytes_max = HttpLimits().body_bytes_max;  // of a request
  // Of answers out of the store that their clients have yet to take, and of log-probabilities that replies
  // keep until they are answered, all together (byte_budget.h).
  std::uint64_t answers_bytes_max = std::uint64_t{256} << 20;
  // Requests at once that read, of all together that have no limit of their tenant's: half of the
  // connections, so that readers never have all of them.
  std::uint32_t reads_max = static_cast<std::uint32_t>(HttpLimits().connections_max / 2);
};

// Threads that wait for the store's disk or server: turns that wait together are made durable together.
inline constexpr unsigned kStoreThreads = 32;

// All of it outlives the server. Any thread may use the atomics.
struct ApiServices : GenerationServices {
  ApiOptions options;
  ConversationStore* store;  // null: nothing is stored, and what needs the store is refused
  Tenants& tenants;
  PublicPrefixes& public_prefixes;
  ReadPlaces reads;  // the network thread's
  ByteBudget answers{options.answers_bytes_max};
  ConversationLocks conversation_locks;     // the network thread's
  std::shared_ptr<TurnClaims> turn_claims;  // null: nobody shares the store
  // The names of a request's prompt, for fronts (engine/run/block_listener.h); null: there are none. `id`: of
  // the response that it makes; empty: none that others go on from. Set before `served`; thread-safe.
  std::function<PromptNames(const HttpRequest& request, std::string_view id)> name_prompt;
  // What a front says of the reply to a request, taken out of the request; null: this server is no member of
  // a cluster. Set and called as name_prompt.
  std::function<std::optional<ResumedReply>(HttpRequest& request)> take_resumed;
  // Whether a front says that a server which had admitted the request has ended; before its body is read.
  // Null, set and called as take_resumed.
  std::function<bool(const HttpRequest& request)> was_lost;
  // Where a front wants the request's prompt to be computed; null as take_resumed. Set and called as that
  // one.
  std::function<std::optional<PrefillPlace>(const HttpRequest& request)> read_prefill;
  // What fronts were told of prompts' state; null: there is no feed. Set and called as name_prompt.
  std::function<FeedStats()> feed_stats;

  Tracer* tracer = nullptr;  // the network thread's; null: nothing is traced

  // The error for a request that needs the model while the model cannot serve it: it still loads, the
  // server stops, or the device has a fault.
  std::optional<ApiError> not_ready() const;
  // Takes the call's place among its tenant's that read, of any metering but kFree and kRequest. Errors: 429.
  // Network thread.
  std::optional<ApiError> begin_reading(Call& call, Metering metering);
  // The error of a device that is lost or stands still, of a model that is loaded.
  std::optional<ApiError> device_fault() const;
};

}  // namespace loci
