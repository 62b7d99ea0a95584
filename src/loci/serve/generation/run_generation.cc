// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/run_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "loci/base/check.h"
#include "loci/serve/generation/compute_elsewhere.h"
#include "loci/serve/generation/counted.h"
#include "loci/serve/generation/generation.h"

namespace loci {
namespace asio = boost::asio;

namespace {

// Of what the generation may come to, as its tenant's limits count it.
asio::awaitable<TenantLimiter::Refusal> take_tokens(GenerationServices& services, const ReplySink& sink,
                                                    PreparedGeneration& prepared) {
  const std::uint64_t context = services.served.load()->context_tokens;
  std::uint64_t prompt_tokens = 0, tokens = 0;
  for (std::size_t p = 0; p < prepared.prompts.size(); ++p) {
    const std::uint64_t prompt = kept_tokens(prepared, p), room = context - prompt;
    const std::uint64_t reply = std::min<std::uint64_t>(prepared.fields.max_tokens.value_or(room), room);
    prompt_tokens += prompt;
    tokens += prompt + reply * prepared.fields.choices;
  }
  co_return co_await services.limiter.take_tokens(*prepared.ticket, *sink.origin().tenant, prompt_tokens,
                                                  tokens);
}

// Of its replies the first may run at once, and the others wait for it in the queue. More than the tenant has
// places there would be refused each time, however often the client tries again.
std::optional<ApiError> beyond_queue(const ServedModel& served, const Tenant& tenant,
                                     const PreparedGeneration& prepared) {
  const std::size_t prompts = prepared.prompts.size(), replies = prompts * prepared.fields.choices;
  if (replies <= 1) return std::nullopt;
  const std::uint32_t places = served.engine->config().max_queued;
  const std::uint32_t own = tenant.limits.queued_max(places), waiting = own > 0 ? own : places;
  if (replies <= std::size_t{waiting} + 1) return std::nullopt;
  return api_error(invalid_argument(
      fmt::format(
          "expected at most {} replies of one request (n * prompts): one that runs, and {} that {}; got {}",
          waiting + 1, waiting, own > 0 ? "this tenant may have waiting" : "may wait (option max_queued)",
          replies),
      prompts > 1 ? "prompt" : "n"));
}

}  // namespace

asio::awaitable<bool> run_generation(GenerationServices& services, ReplySink& sink,
                                     PreparedGeneration prepared) {
  for (const std::string& name : prepared.unknown_fields) {
    if (services.unknown_fields.is_new(sink.origin().path, name))
      services.log->info("{}: the field '{}' is not known here and was ignored", sink.origin().path, name);
  }
  for (const std::string& name : prepared.fields.ignored) {
    if (services.unknown_fields.is_new(sink.origin().path, name))
      services.log->warn("{}: '{}' is not supported and was ignored", sink.origin().path, name);
  }
  const Counted open(services.open_work);
  LOCI_CHECK(prepared.ticket.has_value(), "a generation has its tenant's ticket");
  if (auto error = beyond_queue(*services.served.load(), *sink.origin().tenant, prepared)) {
    co_await sink.fail(*std::move(error));
    co_return true;
  }
  TenantLimiter::Refusal refusal = co_await take_tokens(services, sink, prepared);
  for (auto& [name, value] : refusal.headers) sink.set_header(name, value);
  if (refusal.error) {
    ApiError error = std::move(*refusal.error);
    co_await sink.fail(std::move(error));
    co_return true;
  }
  std::optional<TenantTicket> ticket = std::move(prepared.ticket);
  std::optional<ComputedElsewhere> elsewhere = co_await compute_elsewhere(services, sink, prepared);
  const bool has_waited = elsewhere.has_value();
  prepared.elsewhere = std::move(elsewhere);
  GenerationSummary summary;
  if (has_waited && sink.gone()) {
    // Its prompts were computed, or begun, all the same.
    summary.client_left = true;
    summary.prefill_wait = prepared.elsewhere->waited;
    summary.usage.prompt_tokens = kept_tokens(prepared);
    services.metrics.tenant_tokens(sink.origin().tenant->id, summary.usage.prompt_tokens, 0, 0);
    ticket->set_used(summary.usage.prompt_tokens);
    sink.account(summary);
    co_return false;
  }
  if (has_waited && prepared.resumed && services.draining.load()) {
    // Nothing has begun here. The front gives the request to another member; but not what runs in the
    // background, which this server computes before it stops.
    const bool is_streaming = prepared.elsewhere->is_streaming;
    prepared.elsewhere.reset();
    ticket->set_used(0);
    if (!is_streaming) {
      co_await sink.fail(stopping_error());
      co_return true;
    }
    const std::string last =
        mark_event({.kind = ReplyMark::Kind::kDrained}) + prepared.format->stream_error(stopping_error());
    if (co_await sink.stream(last)) co_await sink.end_stream();
    co_return true;
  }
  Generation generation(services, sink, std::move(prepared));
  // What waits for the store alone runs no longer, and holds up no other request of the tenant's.
  const auto give_back = [&] {
    ticket->set_used(generation.paid_tokens());
    ticket.reset();
  };
  co_await generation.run(give_back);
  summary = generation.summary();
  if (ticket) ticket->set_used(generation.paid_tokens());
  sink.account(summary);
  const std::uint64_t prompt_tokens = generation.has_begun() ? summary.usage.prompt_tokens : 0;
  services.metrics.tenant_tokens(sink.origin().tenant->id, prompt_tokens, summary.usage.cached_tokens,
                                 summary.usage.completion_tokens);
  co_return !summary.client_left;
}

}  // namespace loci
