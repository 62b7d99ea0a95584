// SPDX-License-Identifier: Apache-2.0
// GET /health, /live, /metrics.
#include "loci/serve/api/loci/endpoints.h"

namespace loci {
namespace asio = boost::asio;

namespace {

asio::awaitable<void> answer_ok(Call& call, std::optional<ApiError> error) {
  if (error)
    co_await call.fail(*std::move(error));
  else
    co_await call.answer(R"({"status":"ok"})");
}

asio::awaitable<void> answer_metrics(ApiServices& services, Call& call) {
  std::optional<EngineSnapshot> engine;
  if (const ServedModel* served = services.served.load()) {
    engine = EngineSnapshot{.stats = served->engine->stats(),
                            .block_bytes = {},
                            .block_tokens = kBlockTokens,
                            .weight_bytes = served->backend.weight_bytes,
                            .is_ready = !services.not_ready(),
                            .tiers = {.groups = served->engine->config().groups,
                                      .hidden = served->engine->config().hidden,
                                      .core = {},
                                      .mover = served->engine->mover_stats(),
                                      .captures = served->engine->capture_stats(),
                                      .disk = served->engine->disk_stats(),
                                      .shared = served->engine->shared_stats(),
                                      .feed = {}}};
    if (services.feed_stats) engine->tiers.feed = services.feed_stats();
    engine->tiers.core = engine->stats;
    const std::vector<LayerGroup>& groups = served->backend.groups;
    for (std::size_t i = 0; i < groups.size(); ++i) engine->block_bytes[i] = groups[i].block_bytes;
  }
  std::optional<TraceCounts> traces;
  if (services.tracer != nullptr) traces = services.tracer->counts();
  HttpResponse response{
      .content_type = "text/plain; version=0.0.4; charset=utf-8",
      .body = services.metrics.scrape(engine, services.history.tokens_reused_total(), traces),
      .headers = {}};
  co_await call.exchange.respond(std::move(response));
}

}  // namespace

void add_operations_endpoints(Router& router, ApiServices& services) {
  const auto health = [&services](Call& call) { return answer_ok(call, services.not_ready()); };
  // Who loads or drains lives too. What is not alive only a restart helps.
  const auto live = [&services](Call& call) { return answer_ok(call, services.device_fault()); };
  const auto metrics = [&services](Call& call) { return answer_metrics(services, call); };
  const auto add = [&](const char* pattern, Access access, Handler handler) {
    router.add({.pattern = pattern, .access = access, .polled = true, .handler = std::move(handler)});
  };
  add("/health", Access::kOpen, health);
  add("/v1/health", Access::kOpen, health);
  add("/live", Access::kOpen, live);
  add("/metrics", services.options.metrics_access, metrics);
}

}  // namespace loci
