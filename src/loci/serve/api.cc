#include "loci/serve/api.h"

#include <fmt/format.h>

#include <array>
#include <boost/beast/http/verb.hpp>
#include <exception>
#include <nlohmann/json.hpp>

#include "loci/base/units.h"
#include "loci/serve/json_parse.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;

using Json = nlohmann::ordered_json;

struct Api::Route {
  std::string_view path;
  http::verb method;
  boost::asio::awaitable<void> (Api::*handler)(Exchange&);
  bool with_rest = false;  // also answers path + "/...": /v1/models/{id}
};

namespace {

ApiError unavailable(std::string message, std::string code, std::uint32_t retry_after_seconds) {
  return {.http_status = 503,
          .type = "unavailable_error",
          .message = std::move(message),
          .param = {},
          .code = std::move(code),
          .retry_after_seconds = retry_after_seconds};
}

}  // namespace

Api::Api(ApiOptions options, WorkerPool& workers, ServeMetrics& metrics, const Clock& clock,
         std::shared_ptr<spdlog::logger> log)
    : options_(std::move(options)),
      workers_(workers),
      metrics_(metrics),
      clock_(clock),
      log_(std::move(log)) {}

const Api::Route* Api::find_route(std::string_view path) {
  static constexpr std::array<Route, 8> kRoutes = {{
      {"/v1/chat/completions", http::verb::post, &Api::chat},
      {"/v1/completions", http::verb::post, &Api::completions},
      {"/v1/models", http::verb::get, &Api::models, true},
      {"/tokenize", http::verb::post, &Api::tokenize_text},
      {"/detokenize", http::verb::post, &Api::detokenize_tokens},
      {"/health", http::verb::get, &Api::health},
      {"/metrics", http::verb::get, &Api::metrics},
      {"/v1/health", http::verb::get, &Api::health},
  }};
  for (const Route& route : kRoutes) {
    if (path == route.path) return &route;
    if (route.with_rest && path.starts_with(route.path) && path.substr(route.path.size()).starts_with('/'))
      return &route;
  }
  return nullptr;
}

asio::awaitable<void> Api::handle(Exchange& exchange) {
  add_common_headers(exchange);
  const Route* route = find_route(exchange.path());
  std::string failed;
  try {
    if (route == nullptr) {
      co_await answer(exchange, http_error(404,
                                           fmt::format("there is nothing at '{}'; see docs/http-api.md",
                                                       utf8_prefix(exchange.path(), 200)),
                                           "not_found"));
    } else {
      co_await dispatch(exchange, *route);
    }
  } catch (const std::exception& error) {
    failed = error.what();
  }
  if (!failed.empty()) {
    log_->error("{} {}: {}", exchange.request_id(), visible_ascii(exchange.path()), failed);
    // Once an answer has begun, all that is left is to end the connection.
    if (exchange.status() == 0)
      co_await answer(exchange, api_error(internal_error("the request failed: " + failed)));
  }
  const Nanos duration = clock_.now() - exchange.received_at();
  metrics_.request_done(route == nullptr ? "other" : route->path, exchange.status(), duration);
  log_->debug("{} {} {} {} {}", exchange.request_id(), std::string_view(exchange.request().method_string()),
              visible_ascii(exchange.path()), exchange.status(), format_duration(duration));
}

void Api::add_common_headers(Exchange& exchange) const {
  if (options_.cors_origin.empty()) return;
  exchange.add_header("Access-Control-Allow-Origin", options_.cors_origin);
  exchange.add_header("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  if (options_.cors_origin != "*") exchange.add_header("Vary", "Origin");
}

asio::awaitable<void> Api::dispatch(Exchange& exchange, const Route& route) {
  const http::verb method = exchange.request().method();
  const std::string allowed = route.method == http::verb::get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
  if (method == http::verb::options) {
    HttpResponse response{.status = 204, .body = {}, .headers = {{"Allow", allowed}}};
    if (!options_.cors_origin.empty()) {
      response.headers.emplace_back("Access-Control-Allow-Methods", allowed);
      response.headers.emplace_back("Access-Control-Allow-Headers",
                                    "Authorization, Content-Type, X-Request-Id");
      response.headers.emplace_back("Access-Control-Max-Age", "86400");
    }
    co_await exchange.respond(std::move(response));
  } else if (method == route.method || (method == http::verb::head && route.method == http::verb::get)) {
    co_await (this->*route.handler)(exchange);
  } else {
    exchange.add_header("Allow", allowed);
    co_await answer(exchange, http_error(405,
                                         fmt::format("{} takes {}; got {}", route.path, allowed,
                                                     std::string_view(exchange.request().method_string())),
                                         "method_not_allowed"));
  }
}

asio::awaitable<void> Api::answer(Exchange& exchange, ApiError error) {
  HttpResponse response{.status = error.http_status, .body = to_json(error), .headers = {}};
  if (error.retry_after_seconds) {
    response.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_seconds));
  }
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> Api::answer_json(Exchange& exchange, std::string body) {
  HttpResponse response{.body = std::move(body), .headers = {}};
  co_await exchange.respond(std::move(response));
}

std::optional<ApiError> Api::not_ready() const {
  if (draining_.load()) return unavailable("the server is stopping", "draining", 5);
  if (served_.load() == nullptr) return unavailable("the model is still loading", "loading", 1);
  return std::nullopt;
}

// --- small endpoints ---

asio::awaitable<void> Api::health(Exchange& exchange) {
  if (std::optional<ApiError> error = not_ready())
    co_await answer(exchange, *std::move(error));
  else
    co_await answer_json(exchange, R"({"status":"ok"})");
}

asio::awaitable<void> Api::metrics(Exchange& exchange) {
  std::optional<EngineSnapshot> engine;
  if (const ServedModel* served = served_.load()) {
    engine = EngineSnapshot{.stats = served->engine->stats(),
                            .block_bytes = {},
                            .block_tokens = kBlockTokens,
                            .weight_bytes = served->backend.weight_bytes};
    const std::vector<LayerGroup>& groups = served->backend.groups;
    for (std::size_t i = 0; i < groups.size(); ++i) engine->block_bytes[i] = groups[i].block_bytes;
  }
  HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = metrics_.scrape(engine),
                        .headers = {}};
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> Api::models(Exchange& exchange) {
  const ServedModel* served = served_.load();
  if (served == nullptr) {
    co_await answer(exchange, unavailable("the model is still loading", "loading", 1));
    co_return;
  }
  const ModelSpec& spec = served->model->spec;
  Json meta = {
      {"family", spec.family},         {"name", spec.display_name},
      {"vocabulary", spec.vocabulary}, {"context_length_trained", spec.context_length},
      {"layers", spec.layer_count()},  {"state_bytes_per_token", served->backend.block_bytes / kBlockTokens}};
  Json model = {{"id", served->model->id},
                {"object", "model"},
                {"created", served->loaded_at},
                {"owned_by", "loci"},
                {"max_model_len", served->context_tokens},
                {"meta", std::move(meta)}};
  constexpr std::string_view kList = "/v1/models";
  std::string_view rest = exchange.path().substr(std::min(kList.size(), exchange.path().size()));
  if (rest.starts_with('/')) rest.remove_prefix(1);
  if (rest.empty()) {
    Json list = {{"object", "list"}};
    list["data"] = Json::array();
    list["data"].push_back(std::move(model));
    co_await answer_json(exchange, list.dump());
  } else if (rest == served->model->id || rest == "default") {
    co_await answer_json(exchange, model.dump());
  } else {
    ApiError error = http_error(404,
                                fmt::format("model: '{}' is not served here; this server has '{}'",
                                            utf8_prefix(rest, 200), served->model->id),
                                "model_not_found");
    error.param = "model";
    co_await answer(exchange, std::move(error));
  }
}

asio::awaitable<void> Api::tokenize_text(Exchange& exchange) { co_await transform(exchange, &tokenize); }
asio::awaitable<void> Api::detokenize_tokens(Exchange& exchange) {
  co_await transform(exchange, &detokenize);
}

asio::awaitable<void> Api::transform(Exchange& exchange, Transformer transformer) {
  const ServedModel* served = served_.load();
  if (served == nullptr) {
    co_await answer(exchange, unavailable("the model is still loading", "loading", 1));
    co_return;
  }
  const auto job = [&] { return transformer(exchange.request().body(), *served); };
  std::variant<std::string, ApiError> result = co_await workers_.run(job);
  if (auto* body = std::get_if<std::string>(&result))
    co_await answer_json(exchange, std::move(*body));
  else
    co_await answer(exchange, std::get<ApiError>(std::move(result)));
}

// --- generations ---

asio::awaitable<void> Api::chat(Exchange& exchange) { co_await generate(exchange, &prepare_chat); }
asio::awaitable<void> Api::completions(Exchange& exchange) {
  co_await generate(exchange, &prepare_completion);
}

asio::awaitable<void> Api::generate(Exchange& exchange, Preparer prepare) {
  if (std::optional<ApiError> error = not_ready()) {
    co_await answer(exchange, *std::move(error));
    co_return;
  }
  const ServedModel& served = *served_.load();
  const auto job = [&] { return prepare(exchange.request().body(), served); };
  std::variant<PreparedGeneration, ApiError> prepared = co_await workers_.run(job);
  // Its values are in `prepared` now, and a generation may run for long.
  exchange.request().body() = std::string();
  if (auto* error = std::get_if<ApiError>(&prepared)) {
    log_->info("{} {} {}: {}", exchange.request_id(), exchange.path(), error->http_status, error->message);
    co_await answer(exchange, std::move(*error));
    co_return;
  }
  const GenerationContext context{.served = served,
                                  .workers = workers_,
                                  .metrics = metrics_,
                                  .clock = clock_,
                                  .draining = draining_,
                                  .time_limit = options_.time_limit,
                                  .group = "default"};
  Generation generation(context, exchange, std::get<PreparedGeneration>(std::move(prepared)));
  co_await generation.run();
  log_generation(exchange, generation.summary());
}

void Api::log_generation(const Exchange& exchange, const GenerationSummary& summary) const {
  const ReplyUsage& usage = summary.usage;
  std::string line =
      fmt::format("{} {} {} prompt {} cached {} out {}", exchange.request_id(), exchange.path(),
                  exchange.status(), usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens);
  if (summary.choices > 1) line += fmt::format(" choices {}", summary.choices);
  if (summary.first_token) {
    line += fmt::format(" first {}", format_duration(*summary.first_token));
    const Nanos rest = summary.duration - *summary.first_token;
    if (usage.completion_tokens > 1 && rest > 0) {
      line += fmt::format(" {:.1f} tok/s",
                          static_cast<double>(usage.completion_tokens - 1) * 1e9 / static_cast<double>(rest));
    }
  }
  line += fmt::format(" total {}", format_duration(summary.duration));
  if (summary.client_left)
    line += " client left";
  else if (!summary.finish_reason.empty())
    line += " " + summary.finish_reason;
  log_->info(line);
}

}  // namespace loci
