// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/compute_elsewhere.h"

#include <algorithm>
#include <string>
#include <utility>

namespace loci {
namespace asio = boost::asio;

asio::awaitable<std::optional<ComputedElsewhere>> compute_elsewhere(GenerationServices& services,
                                                                    ReplySink& sink,
                                                                    const PreparedGeneration& prepared) {
  // (A front names nobody for several prompts, and for one whose tokens are scored, unless it is of another
  // version; what is left of a history that was cut has state of its own.)
  if (!prepared.prefill || !services.ask_for_prefill || prepared.prompts.size() != 1 ||
      prepared.scores_prompt || !prepared.dropped[0].empty())
    co_return std::nullopt;
  const Tenant& tenant = *sink.origin().tenant;
  Engine& engine = *services.served.load()->engine;
  PrefillOrder order{.io = sink.origin().io,
                     .place = *prepared.prefill,
                     .work = {.tenant = tenant.id,
                              .salt = prepared.fields.cache_salt,
                              .weight = tenant.limits.weight,
                              .queued_max = tenant.limits.queued_max(engine.config().max_queued),
                              .tokens = prepared.prompts[0],
                              .text = prepared.text},
                     .limit = std::min(services.time_limit.value_or(kPrefillLimitMax), kPrefillLimitMax),
                     .watch = [&sink](std::function<void()> on_gone) { sink.watch(std::move(on_gone)); },
                     .stops = [&services] { return services.draining.load(); },
                     .ready = {}};
  EarlyReader reader(engine, services.workers, order.work, prepared.prompts[0]);
  // Where requests find no state but their own, nothing that is read stays.
  if (engine.config().reuse) order.ready = [&reader](std::uint32_t tokens) { return reader.read(tokens); };
  PrefillOutcome outcome = co_await services.ask_for_prefill(std::move(order));
  const bool was_given_up = outcome.end == PrefillEnd::kNone || sink.gone();
  if (was_given_up || reader.reads()->now().is_over()) {
    reader.cancel();
  } else {
    reader.cancel_queued();
  }
  if (outcome.end != PrefillEnd::kDone && !was_given_up) {
    services.log->warn("{}: the member at {}:{} did not compute the prompt: {}", sink.origin().request_id,
                       prepared.prefill->host, prepared.prefill->port, outcome.why);
  }
  if (!was_given_up) sink.add_header(std::string(kPrefillHeader), std::string(prefill_end_name(outcome.end)));
  co_return ComputedElsewhere{.outcome = std::move(outcome), .early = reader.reads()};
}

}  // namespace loci
