// SPDX-License-Identifier: Apache-2.0
// POST /v1/responses and /v1/responses/input_tokens; GET and DELETE of a response, its input items, and its
// cancellation.
#include "loci/serve/api/responses/background.h"
#include "loci/serve/api/responses/endpoints.h"
#include "loci/serve/api/responses/hold_turn.h"
#include "loci/serve/api/responses/ids.h"
#include "loci/serve/api/responses/response_turn.h"
#include "loci/serve/api/responses/store_answer.h"
#include "loci/serve/api/responses/stored_objects.h"
#include "loci/serve/call/call_sink.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

// How long a request that another server began waits for that one's turn to end: claims last for ten seconds.
constexpr Nanos kLostTurnPatience = 15 * kNanosPerSecond;

// Network thread only; lives as long as the routes.
class ResponsesApi {
 public:
  explicit ResponsesApi(ApiServices& services)
      : services_(services), background_(std::make_shared<BackgroundResponses>(services)) {}

  asio::awaitable<void> create(Call& call);
  asio::awaitable<void> count(Call& call);
  asio::awaitable<void> show(Call& call);
  asio::awaitable<void> remove(Call& call);
  asio::awaitable<void> cancel(Call& call);
  asio::awaitable<void> input_items(Call& call);

 private:
  // The turn of the call's body; of a conversation, it is held. Or the body of the answer: another server has
  // made the response.
  using Turn = std::variant<PreparedResponse, std::string, ApiError>;
  asio::awaitable<Turn> prepare(Call& call, HeldTurn& held, bool& background);
  asio::awaitable<Turn> prepare(Call& call, ResponseRequest request, HeldTurn& held);
  // What the request continues. `made`: as load_history()'s.
  asio::awaitable<std::variant<ResponseHistory, ApiError>> load(const Call& call,
                                                                const ResponseRequest& request,
                                                                const std::optional<std::string>& made);
  asio::awaitable<void> create_in_background(Call& call, PreparedResponse prepared, HeldTurn held);
  // What has been deleted since is not followed: the refusal. Absent: the run may be. While the store does
  // not say, a response that another server may have deleted is refused, and one of this server alone is
  // followed.
  asio::awaitable<std::optional<ApiError>> check_stored(Call& call, const BackgroundRun& run);
  // Counts the deletion for the tenant, if it is made here: a front sends it on to who makes the response,
  // and it must not count at both. The refusal; absent: it is counted.
  asio::awaitable<std::optional<ApiError>> count_deletion(Call& call);
  // Ends the response that the call names, where it is still being made here.
  asio::awaitable<void> end_run(Call& call);

  ApiServices& services_;
  std::shared_ptr<BackgroundResponses> background_;
};

asio::awaitable<ResponsesApi::Turn> ResponsesApi::prepare(Call& call, HeldTurn& held, bool& background) {
  const ServedModel& served = *services_.served.load();
  const std::string tenant = call.tenant->id;
  const bool can_store = services_.store != nullptr;
  const auto parse = [&] { return parse_response(call.exchange.request().body, can_store, served.defaults); };
  std::variant<ResponseRequest, ApiError> parsed = co_await services_.workers.run(call.tenant->id, parse);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ApiError refused = std::move(*error);
    co_return refused;
  }
  ResponseRequest request = std::get<ResponseRequest>(std::move(parsed));
  background = request.background;
  if (!request.conversation.empty()) {
    std::variant<HeldTurn, ApiError> taken =
        co_await hold_turn(services_, call.exchange, tenant, request.conversation, "conversation",
                           "another response of this conversation is still being made; send this request "
                           "again when that response has ended",
                           call.resumed && call.resumed->is_again ? kLostTurnPatience : 0);
    if (auto* error = std::get_if<ApiError>(&taken)) {
      ApiError refused = std::move(*error);
      co_return refused;
    }
    held = std::get<HeldTurn>(std::move(taken));
  }
  co_return co_await prepare(call, std::move(request), held);
}

asio::awaitable<ResponsesApi::Turn> ResponsesApi::prepare(Call& call, ResponseRequest request,
                                                          HeldTurn& held) {
  const ServedModel& served = *services_.served.load();
  const std::string tenant = call.tenant->id;
  const bool can_store = services_.store != nullptr;
  ResponseHead head{.id = call.resumed ? "resp_" + call.resumed->name : random_id("resp_"),
                    .created_at = call.created_at(),
                    .model = {},
                    .conversation = {},
                    .echo = {}};
  std::optional<std::string> made;
  if (call.resumed && call.resumed->is_again && request.store && can_store) {
    const auto find = [&] { return services_.store->response(tenant, head.id); };
    const Result<StoredResponse> stored = co_await services_.store_thread.run(call.tenant->id, find);
    if (!stored.ok() && stored.status().code() != StatusCode::kNotFound)
      co_return store_error(stored.status());
    if (stored.ok() && !request.fields.stream) co_return stored->json;
    if (stored.ok()) {
      // Its end is missing alone: the reply is said again, and not stored again.
      made = head.id;
      request.store = false;
      held = HeldTurn();
    }
  }
  std::variant<ResponseHistory, ApiError> history = co_await load(call, request, made);
  if (auto* error = std::get_if<ApiError>(&history)) {
    ApiError refused = std::move(*error);
    co_return refused;
  }
  const auto make = [&] {
    return prepare_response(std::move(request), std::get<ResponseHistory>(std::move(history)), served,
                            services_.history, tenant, services_.store, held.claim(), std::move(head));
  };
  std::variant<PreparedResponse, ApiError> prepared = co_await services_.workers.run(call.tenant->id, make);
  if (auto* error = std::get_if<ApiError>(&prepared)) {
    ApiError refused = std::move(*error);
    co_return refused;
  }
  co_return std::get<PreparedResponse>(std::move(prepared));
}

asio::awaitable<std::variant<ResponseHistory, ApiError>> ResponsesApi::load(
    const Call& call, const ResponseRequest& request, const std::optional<std::string>& made) {
  if (request.conversation.empty() && request.previous_response_id.empty()) co_return ResponseHistory();
  if (services_.store == nullptr)
    co_return no_store_error(request.conversation.empty() ? "previous_response_id" : "conversation");
  const std::uint64_t bytes_max =
      history_bytes_max(services_.options.body_bytes_max, services_.served.load()->context_tokens);
  const std::string tenant = call.tenant->id;
  const auto job = [&] { return load_history(*services_.store, tenant, request, bytes_max, made); };
  co_return co_await services_.store_thread.run(call.tenant->id, job);
}

asio::awaitable<void> ResponsesApi::create(Call& call) {
  if (std::optional<ApiError> error = services_.not_ready()) {
    ApiError refused = *std::move(error);
    co_await call.fail(std::move(refused));
    co_return;
  }
  HeldTurn held;
  bool background = false;
  Turn made = co_await prepare(call, held, background);
  if (auto* error = std::get_if<ApiError>(&made)) {
    ApiError refused = std::move(*error);
    co_await call.fail(std::move(refused));
    co_return;
  }
  if (auto* body = std::get_if<std::string>(&made)) {
    std::string answer = std::move(*body);
    co_await call.answer(std::move(answer));
    co_return;
  }
  PreparedResponse prepared = std::get<PreparedResponse>(std::move(made));
  co_await name_prompt(services_, call, prepared.generation, prepared.turn->record->head().id);
  if (background) {
    co_await create_in_background(call, std::move(prepared), std::move(held));
    co_return;
  }
  prepared.generation.format = std::make_unique<ResponsesFormat>(prepared.turn->record);
  co_await run_generation(services_, call, std::move(prepared.generation));
}

asio::awaitable<void> ResponsesApi::count(Call& call) {
  const ServedModel* served = services_.served.load();
  if (served == nullptr) {
    ApiError refused = *services_.not_ready();
    co_await call.fail(std::move(refused));
    co_return;
  }
  const std::string tenant = call.tenant->id;
  const bool can_store = services_.store != nullptr;
  const auto parse = [&] {
    return parse_response(call.exchange.request().body, can_store, served->defaults, ResponsePurpose::kCount);
  };
  std::variant<ResponseRequest, ApiError> parsed = co_await services_.workers.run(tenant, parse);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ApiError refused = std::move(*error);
    co_await call.fail(std::move(refused));
    co_return;
  }
  ResponseRequest request = std::get<ResponseRequest>(std::move(parsed));
  const std::optional<std::string> made;
  std::variant<ResponseHistory, ApiError> history = co_await load(call, request, made);
  if (auto* error = std::get_if<ApiError>(&history)) {
    ApiError refused = std::move(*error);
    co_await call.fail(std::move(refused));
    co_return;
  }
  const auto job = [&] {
    return count_input_tokens(std::move(request), std::get<ResponseHistory>(history), *served,
                              services_.history, tenant);
  };
  std::variant<std::string, ApiError> counted = co_await services_.workers.run(tenant, job);
  if (auto* error = std::get_if<ApiError>(&counted)) {
    ApiError refused = std::move(*error);
    co_await call.fail(std::move(refused));
    co_return;
  }
  std::string body = std::get<std::string>(std::move(counted));
  co_await call.answer(std::move(body));
}

asio::awaitable<void> ResponsesApi::create_in_background(Call& call, PreparedResponse prepared,
                                                         HeldTurn held) {
  const bool stream = prepared.generation.fields.stream;
  if (stream) {  // it may be read for longer than it is made
    if (std::optional<ApiError> error = services_.begin_reading(call, Metering::kRead)) {
      ApiError refused = *std::move(error);
      co_await call.fail(std::move(refused));
      co_return;
    }
  }
  const std::string id = prepared.turn->record->head().id;
  const std::shared_ptr<const ResponseTurn> turn = prepared.turn;
  call.exchange.drop_body();
  prepared.generation.ticket = std::move(call.ticket);
  prepared.generation.prefill = std::exchange(call.prefill, std::nullopt);
  const bool is_handed = prepared.generation.prefill.has_value();
  ReplyOrigin origin = CallSink(call, services_.answers).origin();
  std::optional<ApiError> error =
      co_await background_->start(std::move(origin), std::move(prepared), std::move(held));
  if (error) {
    ApiError refused = *std::move(error);
    co_await call.fail(std::move(refused));
    co_return;
  }
  if (is_handed)
    call.exchange.add_header(std::string(kPrefillHeader), std::string(prefill_end_name(PrefillEnd::kUntold)));
  std::shared_ptr<BackgroundRun> run = background_->find(call.tenant->id, id);
  if (stream && run != nullptr) {
    co_await BackgroundResponses::follow(call, std::move(run), 0, services_.quiet_limit);
    co_return;
  }
  std::string body = turn->waiting("queued").response.json;
  co_await call.answer(std::move(body));
}

asio::awaitable<void> ResponsesApi::show(Call& call) {
  Result<ResponseQuery> query = read_response_query(Query(call.exchange.request().target));
  if (!query.ok()) {
    ApiError refused = api_error(query.status());
    co_await call.fail(std::move(refused));
    co_return;
  }
  if (services_.store == nullptr) {
    co_await call.fail(no_store_error());
    co_return;
  }
  const std::string tenant = call.tenant->id;
  const std::string id = call.parameters[0];
  if (query->stream) {
    if (std::shared_ptr<BackgroundRun> run = background_->find(tenant, id)) {
      if (std::optional<ApiError> gone = co_await check_stored(call, *run)) {
        ApiError refused = *std::move(gone);
        co_await call.fail(std::move(refused));
        co_return;
      }
      co_await BackgroundResponses::follow(call, std::move(run), query->first_event, services_.quiet_limit);
      co_return;
    }
  }
  if (!query->stream) {
    if (std::optional<StoredResponse> ended = background_->unstored(tenant, id)) {
      Answer answer = std::move(ended->json);
      co_await answer_call(services_, call, std::move(answer));
      co_return;
    }
  }
  StoreJob job = [id, streams = query->stream](ConversationStore& store, const std::string& owner,
                                               const ReadRoom& room) -> Answer {
    if (streams) return cannot_stream(store, owner, id);
    return show_response(store, owner, id, room);
  };
  co_await answer_from_store(services_, call, std::move(job));
}

asio::awaitable<std::optional<ApiError>> ResponsesApi::check_stored(Call& call, const BackgroundRun& run) {
  const std::string tenant = call.tenant->id, id = call.parameters[0];
  if (!run.ended() || background_->unstored(tenant, id)) co_return std::nullopt;
  const auto look = [&] { return services_.store->response_state(tenant, id); };
  const Result<ResponseState> state = co_await services_.store_thread.run(tenant, look);
  const bool is_gone = state.status().code() == StatusCode::kNotFound;
  if (state.ok() || (!is_gone && services_.turn_claims == nullptr)) co_return std::nullopt;
  if (is_gone) background_->forget(tenant, id);
  co_return store_error(state.status(), "response", id);
}

asio::awaitable<std::optional<ApiError>> ResponsesApi::count_deletion(Call& call) {
  const std::string tenant = call.tenant->id, id = call.parameters[0];
  const bool is_shared = services_.store != nullptr && services_.turn_claims != nullptr;
  if (is_shared && background_->find(tenant, id) == nullptr) {
    // Nothing counts it where it is another member's, so it is bounded as what reads is.
    if (std::optional<ApiError> error = services_.begin_reading(call, Metering::kByHandler)) co_return error;
    const auto look = [&] { return deleted_elsewhere(*services_.store, tenant, id); };
    std::optional<ApiError> elsewhere = co_await services_.store_thread.run(tenant, look);
    call.reading.reset();
    if (elsewhere) co_return elsewhere;
  }
  TenantLimiter::Admission admission = co_await services_.limiter.begin(*call.tenant);
  for (auto& [name, value] : admission.headers) call.exchange.set_header(name, value);
  if (auto* error = std::get_if<ApiError>(&admission.result)) {
    ApiError refused = std::move(*error);
    co_return refused;
  }
  call.ticket = std::get<TenantTicket>(std::move(admission.result));
  co_return std::nullopt;
}

asio::awaitable<void> ResponsesApi::end_run(Call& call) {
  if (services_.store == nullptr) co_return;  // nothing is made in the background
  if (std::shared_ptr<BackgroundRun> run = background_->find(call.tenant->id, call.parameters[0])) {
    co_await background_->cancel(std::move(run));
  }
}

asio::awaitable<void> ResponsesApi::remove(Call& call) {
  if (std::optional<ApiError> error = co_await count_deletion(call)) {
    ApiError refused = *std::move(error);
    co_await call.fail(std::move(refused));
    co_return;
  }
  co_await end_run(call);
  background_->forget(call.tenant->id, call.parameters[0]);
  StoreJob job = [id = call.parameters[0]](ConversationStore& store, const std::string& tenant,
                                           const ReadRoom&) { return delete_response(store, tenant, id); };
  co_await answer_from_store(services_, call, std::move(job));
}

asio::awaitable<void> ResponsesApi::cancel(Call& call) {
  co_await end_run(call);
  if (std::optional<StoredResponse> ended = background_->unstored(call.tenant->id, call.parameters[0])) {
    Answer answer = cancel_ended_response(*std::move(ended));
    co_await answer_call(services_, call, std::move(answer));
    co_return;
  }
  StoreJob job = [id = call.parameters[0]](ConversationStore& store, const std::string& tenant,
                                           const ReadRoom& room) {
    return cancel_ended_response(store, tenant, id, room);
  };
  co_await answer_from_store(services_, call, std::move(job));
}

asio::awaitable<void> ResponsesApi::input_items(Call& call) {
  Result<ItemPage> page = read_page(Query(call.exchange.request().target));
  if (!page.ok()) {
    ApiError refused = api_error(page.status());
    co_await call.fail(std::move(refused));
    co_return;
  }
  StoreJob job = [id = call.parameters[0], page = *std::move(page)](
                     ConversationStore& store, const std::string& tenant, const ReadRoom& room) mutable {
    page.room = room;
    return list_input_items(store, tenant, id, page);
  };
  co_await answer_from_store(services_, call, std::move(job));
}

}  // namespace

void add_responses_endpoints(Router& router, ApiServices& services) {
  const auto api = std::make_shared<ResponsesApi>(services);
  const auto add = [&](http::verb method, const char* pattern,
                       asio::awaitable<void> (ResponsesApi::*answer)(Call&), Metering metering) {
    router.add(
        {.method = method, .pattern = pattern, .metering = metering, .handler = [api, answer](Call& call) {
           return ((*api).*answer)(call);
         }});
  };
  add(http::verb::post, "/v1/responses", &ResponsesApi::create, Metering::kRequest);
  add(http::verb::post, "/v1/responses/input_tokens", &ResponsesApi::count, Metering::kRequest);
  add(http::verb::get, "/v1/responses/{id}", &ResponsesApi::show, Metering::kRead);
  add(http::verb::delete_, "/v1/responses/{id}", &ResponsesApi::remove, Metering::kByHandler);
  add(http::verb::post, "/v1/responses/{id}/cancel", &ResponsesApi::cancel, Metering::kCancel);
  add(http::verb::get, "/v1/responses/{id}/input_items", &ResponsesApi::input_items, Metering::kRead);
}

}  // namespace loci
