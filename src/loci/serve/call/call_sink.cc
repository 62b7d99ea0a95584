// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/call/call_sink.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "loci/serve/generation/run_generation.h"

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr std::size_t kNamedHereMax = 4'096;  // larger bodies are read by a worker

}  // namespace

CallSink::CallSink(Call& call, ByteBudget& answers)
    : ReplySink({.io = call.exchange.io(),
                 .tenant = call.tenant,
                 .request_id = call.exchange.request_id(),
                 .path = std::string(call.exchange.path()),
                 .received_at = call.exchange.received_at(),
                 .trace = call.trace ? std::optional(call.trace->context) : std::nullopt}),
      call_(call),
      charge_(answers, call.exchange.party()) {}

asio::awaitable<bool> CallSink::respond(std::string json) {
  HttpResponse response{.body = std::move(json), .headers = {}};
  co_return co_await call_.exchange.respond(std::move(response));
}

asio::awaitable<bool> CallSink::begin_stream() {
  co_return co_await call_.exchange.begin_stream("text/event-stream; charset=utf-8");
}

asio::awaitable<bool> CallSink::stream(std::string_view events) {
  co_return co_await call_.exchange.stream(events);
}

asio::awaitable<bool> CallSink::end_stream() { co_return co_await call_.exchange.end_stream(); }

void CallSink::account(const GenerationSummary& summary) { call_.generation = summary; }

asio::awaitable<void> CallSink::fail(ApiError error) { co_await call_.fail(std::move(error)); }

asio::awaitable<void> name_prompt(ApiServices& services, Call& call, PreparedGeneration& prepared,
                                  std::string_view response_id) {
  // (Text that the model sees in several prompts, or as tokens alone, stands for none of them.)
  if (!services.name_prompt || prepared.prompts.size() != 1 || prepared.scores_prompt) co_return;
  const auto name = [&] {
    PromptNames names = services.name_prompt(call.exchange.request(), response_id);
    names.tenant = std::hash<std::string>()(call.tenant->id);
    return std::make_shared<const PromptNames>(std::move(names));
  };
  if (call.exchange.request().body.size() <= kNamedHereMax)
    prepared.text = name();
  else
    prepared.text = co_await services.workers.run(call.tenant->id, name);
}

asio::awaitable<void> run_generation(ApiServices& services, Call& call, PreparedGeneration prepared) {
  if (prepared.text == nullptr) co_await name_prompt(services, call, prepared, {});
  // Its values are in `prepared` now, and a generation may run for long.
  call.exchange.drop_body();
  prepared.ticket = std::move(call.ticket);
  prepared.resumed = std::exchange(call.resumed, std::nullopt);
  prepared.prefill = std::exchange(call.prefill, std::nullopt);
  CallSink sink(call, services.answers);
  const bool there = co_await run_generation(services, sink, std::move(prepared));
  if (!there) services.metrics.client_left();
}

}  // namespace loci
