// SPDX-License-Identifier: Apache-2.0
// POST, GET /v1/loci/warm and DELETE /v1/loci/warm/{name}: public prefixes, for operators.
#include <fmt/format.h>

#include "loci/serve/api/loci/endpoints.h"
#include "loci/serve/api/loci/warm_prefix.h"
#include "loci/serve/generation/event_mailbox.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace asio = boost::asio;

namespace {

Json to_json(const NamedPrefix& prefix) {
  return {{"object", "loci.public_prefix"},
          {"name", prefix.name},
          {"tokens", prefix.tokens},
          {"blocks", (prefix.tokens + kBlockTokens - 1) / kBlockTokens},
          {"created", prefix.created}};
}

// The prefix's name: the body's, or one that says what it is.
Result<std::string> name_of(std::string_view body) {
  const Result<Json> json = parse_json(body);
  if (!json.ok()) return json.status();
  const auto name = json->is_object() ? json->find("name") : json->end();
  if (!json->is_object() || name == json->end() || !name->is_string()) {
    return invalid_argument("expected the prefix's name, a string", "name");
  }
  LOCI_RETURN_IF_ERROR(check_name(name->get<std::string>(), "name"));
  return name->get<std::string>();
}

asio::awaitable<GenerationEnded> wait_for_end(std::shared_ptr<EventMailbox> mailbox) {
  while (true) {
    co_await mailbox->wait(std::nullopt);
    for (const MailboxEvent& event : mailbox->take()) {
      const auto* ended = std::get_if<GenerationEnded>(&event.event);
      if (ended == nullptr) continue;
      GenerationEnded out = *ended;
      co_return out;
    }
  }
}

asio::awaitable<void> compute(ApiServices& services, Call& call, std::string name,
                              std::vector<TokenId> tokens) {
  const ServedModel& served = *services.served.load();
  NamedPrefix prefix{.name = name,
                     .id = {},
                     .tokens = static_cast<std::uint32_t>(tokens.size()),
                     .created = seconds_since_1970()};
  if (!services.public_prefixes.begin(name)) {
    ApiError error = http_error(409, fmt::format("name: there is a public prefix '{}'", name), "name_taken");
    co_await call.fail(std::move(error));
    co_return;
  }
  auto mailbox = std::make_shared<EventMailbox>(call.exchange.io(), services.clock);
  GenerationRequest request = public_prefix_request(call.tenant->id, std::move(tokens));
  request.weight = call.tenant->limits.weight;
  prefix.id = served.engine->submit(std::move(request), mailbox->listener(0));
  const GenerationEnded ended = co_await wait_for_end(mailbox);
  if (!ended.status.ok() || ended.reason != FinishReason::kStop) {
    services.public_prefixes.abandon(name);
    ApiError error = ended.status.ok()
                         ? api_error(Status(StatusCode::kUnavailable,
                                            "the request ended before the prefix was computed; try again"))
                         : api_error(ended.status, ended.retry_after);
    co_await call.fail(std::move(error));
    co_return;
  }
  services.log->info("the prefix '{}' of {} tokens is public", name, prefix.tokens);
  std::string answer = dump_json(to_json(prefix));
  services.public_prefixes.finish(std::move(prefix));
  co_await call.answer(std::move(answer));
}

asio::awaitable<void> answer_warm(ApiServices& services, Call& call) {
  if (std::optional<ApiError> refused = services.not_ready()) {
    ApiError error = std::move(*refused);
    co_await call.fail(std::move(error));
    co_return;
  }
  const ServedModel& served = *services.served.load();
  Result<std::string> name = name_of(call.exchange.request().body);
  if (!name.ok()) {
    ApiError error = api_error(name.status());
    co_await call.fail(std::move(error));
    co_return;
  }
  const auto job = [&] { return public_prefix_tokens(call.exchange.request().body, served); };
  std::variant<std::vector<TokenId>, ApiError> tokens = co_await services.workers.run(call.tenant->id, job);
  if (auto* wrong = std::get_if<ApiError>(&tokens)) {
    ApiError error = std::move(*wrong);
    co_await call.fail(std::move(error));
    co_return;
  }
  std::string taken = std::move(*name);
  std::vector<TokenId> prompt = std::get<std::vector<TokenId>>(std::move(tokens));
  co_await compute(services, call, std::move(taken), std::move(prompt));
}

asio::awaitable<void> answer_warm_list(ApiServices& services, Call& call) {
  Json list = {{"object", "list"}, {"data", Json::array()}};
  for (const NamedPrefix& prefix : services.public_prefixes.list()) list["data"].push_back(to_json(prefix));
  std::string answer = dump_json(list);
  co_await call.answer(std::move(answer));
}

asio::awaitable<void> answer_release(ApiServices& services, Call& call) {
  // A prefix of the start (option public) is there before its model is served.
  const ServedModel* served = services.served.load();
  std::optional<ApiError> refused;
  if (served == nullptr) refused = services.not_ready();
  std::optional<NamedPrefix> prefix;
  if (!refused) {
    prefix = services.public_prefixes.take(call.parameters[0]);
    if (!prefix) refused = http_error(404, "there is no public prefix of that name", "not_found");
  }
  if (refused) {
    ApiError error = std::move(*refused);
    co_await call.fail(std::move(error));
    co_return;
  }
  served->engine->withdraw(prefix->id);
  services.log->info("the prefix '{}' is shared no longer", prefix->name);
  std::string answer = dump_json(to_json(*prefix));
  co_await call.answer(std::move(answer));
}

}  // namespace

void add_warm_endpoints(Router& router, ApiServices& services) {
  using boost::beast::http::verb;
  const auto add = [&](verb method, const char* pattern, Handler handler) {
    router.add({.method = method,
                .pattern = pattern,
                .access = Access::kOperator,
                .metering = method == verb::post ? Metering::kRequest : Metering::kFree,
                .handler = std::move(handler)});
  };
  add(verb::post, "/v1/loci/warm", [&services](Call& call) { return answer_warm(services, call); });
  add(verb::get, "/v1/loci/warm", [&services](Call& call) { return answer_warm_list(services, call); });
  add(verb::delete_, "/v1/loci/warm/{name}",
      [&services](Call& call) { return answer_release(services, call); });
}

}  // namespace loci
