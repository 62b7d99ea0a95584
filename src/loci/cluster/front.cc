// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/front.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <random>
#include <utility>

#include "loci/cluster/front_request.h"
#include "loci/serve/log_line.h"
#include "loci/serve/request/json_parse.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

constexpr std::size_t kReadHereMax = 32 << 10;  // larger bodies are read by a worker
constexpr std::uint64_t kWholeMax = 256 << 10;  // larger answers are passed on as they come
constexpr std::size_t kTriesMax = 8;

std::uint64_t random_seed() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

std::string_view view(const boost::beast::string_view& text) { return {text.data(), text.size()}; }

// Of the tenant: state is not shared with another, and neither is what is remembered of prompts.
std::uint64_t tenant_seed(const HttpRequest& request, std::uint64_t seed) {
  for (const boost::beast::string_view key : {request[http::field::authorization], request["X-Api-Key"]})
    seed = XXH3_64bits_withSeed(key.data(), key.size(), seed);
  return seed;
}

ApiError no_instance(std::string message) {
  ApiError error = http_error(503, std::move(message), "no_instance");
  error.type = "unavailable_error";
  error.retry_after_seconds = 1;
  return error;
}

}  // namespace

// A request that ends whoever reads it must not go from one instance to the next until none is left.
bool Front::may_repeat(const Request& request) {
  constexpr int kLossesMax = 2;
  return request.prompt.may_be_repeated && !request.is_too_late && request.losses < kLossesMax;
}

ApiError Front::lost_error(const Request& request) {
  if (request.is_too_late)
    return http_error(504, "the reply was not finished in the time that the front allows", "timeout");
  return http_error(
      502,
      request.prompt.may_be_repeated
          ? "it was sent twice, and whoever read it ended before an answer; it is not sent again"
          : "the instance ended before it answered; whether it has stored the turn, GET of its "
            "conversation tells",
      "instance_lost");
}

// Counts a request at its instance for as long as it is there.
class Front::Sent {
 public:
  Sent(std::shared_ptr<Instance> instance, std::uint64_t id, std::uint64_t bytes, std::function<void()> end)
      : instance_(std::move(instance)), id_(id), bytes_(bytes) {
    ++instance_->sent;
    instance_->bytes_before += bytes_;
    instance_->enders.emplace(id_, std::move(end));
  }
  ~Sent() {
    begun();
    --instance_->sent;
    instance_->enders.erase(id_);
  }
  Sent(const Sent&) = delete;
  Sent& operator=(const Sent&) = delete;

  // Its answer begins.
  void begun() { instance_->bytes_before -= std::exchange(bytes_, 0); }

 private:
  std::shared_ptr<Instance> instance_;
  std::uint64_t id_, bytes_;
};

Front::Front(const FrontOptions& options, asio::io_context& io, WorkerPool& workers, const Clock& clock,
             std::shared_ptr<spdlog::logger> log)
    : options_(options),
      io_(io),
      workers_(workers),
      clock_(clock),
      log_(std::move(log)),
      instances_(options.instances),
      pool_(io),
      seed_(random_seed()) {}

// --- who there is ---

void Front::update(const MemberList& list) {
  counts_.refused_rows = list.refused;
  const std::size_t before = instances_.all().size();
  for (const std::uint32_t number : instances_.update(list.members, clock_.now())) {
    log_->warn("an instance was replaced by another one at its address");
    pool_.drop(number);
  }
  if (instances_.all().size() != before) log_->info("{} instances", instances_.all().size());
  for (const auto& [number, instance] : instances_.all()) {
    if (!instance->is_listed && looked_after_.insert(number).second)
      asio::co_spawn(io_, look_after(instance), asio::detached);
  }
}

// Who is listed no more may live, without the database. A connection says it.
asio::awaitable<void> Front::look_after(std::shared_ptr<Instance> instance) {
  bool lives = false;
  try {
    const std::unique_ptr<Upstream> upstream = pool_.make(instance->member);
    const Status connected = co_await upstream->connect(instance->member, options_.connect_timeout);
    if (connected.ok()) {
      upstream->set_deadline(options_.connect_timeout);
      const std::string head = fmt::format("GET /health HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
                                           instance->member.address());
      lives = co_await upstream->send(head, {}) && co_await upstream->read_header(false) != nullptr;
    }
  } catch (const std::exception& error) {
    log_->error("asking {} failed: {}", instance->member.address(), error.what());
  }
  looked_after_.erase(instance->number);
  if (lives || instance->is_listed || !instances_.all().contains(instance->number)) co_return;
  log_->warn("{} at {} has ended or does not answer", instance->member.id, instance->member.address());
  pool_.drop(instance->number);
  instances_.remove(instance->number);
}

// --- one request ---

asio::awaitable<void> Front::handle(Exchange& exchange) {
  std::string failed;
  try {
    const std::string_view path = exchange.path();
    const bool reads =
        exchange.request().method() == http::verb::get || exchange.request().method() == http::verb::head;
    if (reads && (path == "/health" || path == "/v1/health")) {
      co_await answer_health(exchange);
    } else if (reads && path == "/metrics") {
      co_await answer_metrics(exchange);
    } else {
      co_await pass_on(exchange);
    }
  } catch (const std::exception& error) {
    failed = error.what();
  }
  if (failed.empty()) co_return;
  log_->error("a request failed: {}", failed);
  if (exchange.status() == 0)
    co_await refuse(exchange, RoutedApi::kOpenAi, api_error(internal_error("the request failed: " + failed)));
}

asio::awaitable<void> Front::pass_on(Exchange& exchange) {
  const std::string_view path = exchange.path();
  if (!is_routed_path(path)) {
    ApiError error = http_error(404, fmt::format("a front passes nothing on to '{}'", utf8_prefix(path, 200)),
                                "not_found");
    co_await refuse(exchange, RoutedApi::kOpenAi, std::move(error));
    co_return;
  }
  // A key excuses no name: a page whose name was bound to this address may send any. A preflight does
  // nothing.
  if (exchange.request().method() != http::verb::options) {
    if (std::optional<ApiError> error = options_.pages.check_host(exchange.request())) {
      co_await refuse(exchange, RoutedApi::kOpenAi, *std::move(error));
      co_return;
    }
  }
  if (std::optional<ApiError> unread = co_await exchange.read_body()) {
    co_await refuse(exchange, RoutedApi::kOpenAi, *std::move(unread));
    co_return;
  }
  if (path == "/v1/models" && exchange.request().method() == http::verb::get) {
    co_await answer_models(exchange);
    co_return;
  }
  Request request{.exchange = exchange,
                  .seed = tenant_seed(exchange.request(), seed_),
                  .prompt = {},
                  .begun_at = clock_.now()};
  const auto read = [&] {
    return read_prompt(exchange.request().method(), path, exchange.request().body(), request.seed);
  };
  if (exchange.request().body().size() <= kReadHereMax)
    request.prompt = read();
  else
    request.prompt = co_await workers_.run({}, read);
  exchange.watch([current = request.current] {
    if (*current != nullptr) (*current)->close();
  });
  co_await send_until_answered(request);
  co_await exchange.unwatch();
  if (!options_.access_log) co_return;
  LogLine line("routed");
  line.text("request_id", exchange.request_id()).text("path", path).count("status", exchange.status());
  line.text("member", request.member).count("tries", static_cast<std::int64_t>(request.tried.size()));
  line.duration("duration", clock_.now() - request.begun_at);
  if (request.was_lost) line.text("lost", "its instance ended in the middle");
  log(*log_, spdlog::level::info, line);
}

asio::awaitable<void> Front::send_until_answered(Request& request) {
  Exchange& exchange = request.exchange;
  std::optional<HttpResponse> refusal;  // an instance's own
  while (request.tried.size() < kTriesMax && !exchange.gone()) {
    const auto [instance, unseen_bytes] = instances_.choose(request.prompt, request.tried, clock_.now());
    if (instance == nullptr) break;
    if (!request.tried.empty()) ++counts_.retried;
    request.tried.push_back(instance->number);
    request.member = instance->member.id;
    const Outcome outcome = co_await try_at(request, instance, unseen_bytes);
    if (outcome == Outcome::kAnswered || exchange.gone()) co_return;
    if (outcome == Outcome::kNotSent) instance->avoided_until = clock_.now() + kNanosPerSecond;
    if (outcome == Outcome::kRefused) refusal = std::move(request.refusal);
    if (outcome == Outcome::kLost && !may_repeat(request)) {
      ++counts_.lost;
      co_await refuse(exchange, request.prompt.api, lost_error(request));
      co_return;
    }
  }
  if (exchange.gone()) co_return;
  if (refusal) {
    co_await exchange.respond(*std::move(refusal));
    co_return;
  }
  co_await refuse(exchange, request.prompt.api,
                  no_instance(request.tried.empty() ? "no instance of the cluster lives"
                                                    : "no instance of the cluster answers"));
}

asio::awaitable<Front::Outcome> Front::try_at(Request& request, std::shared_ptr<Instance> instance,
                                              std::uint64_t unseen_bytes) {
  const auto end = [current = request.current] {
    if (*current != nullptr) (*current)->close();
  };
  Sent sent(instance, next_sent_++, unseen_bytes, end);
  // What must not be done twice goes over a connection that nobody can have closed meanwhile.
  std::unique_ptr<Upstream> upstream =
      request.prompt.may_be_repeated ? pool_.take(instance->number) : nullptr;
  for (bool is_fresh = upstream == nullptr;; is_fresh = true) {
    if (is_fresh) upstream = pool_.make(instance->member);
    *request.current = upstream.get();
    // Clears it before the connection goes.
    const std::shared_ptr<void> cleared(nullptr, [current = request.current](void*) { *current = nullptr; });
    if (is_fresh) {
      const Status connected = co_await upstream->connect(instance->member, options_.connect_timeout);
      if (!connected.ok()) {
        log_->warn("{} at {}: {}", instance->member.id, instance->member.address(), connected.message());
        co_return Outcome::kNotSent;
      }
    }
    upstream->set_deadline(options_.request_timeout);
    const Outcome outcome = co_await ask(request, *instance, *upstream, sent);
    request.is_too_late = upstream->timed_out();
    if (outcome == Outcome::kLost) ++request.losses;
    if (outcome == Outcome::kLost && !is_fresh && may_repeat(request) && !request.exchange.gone() &&
        instances_.all().contains(instance->number))
      continue;
    if (upstream->is_reusable() && instances_.all().contains(instance->number))
      pool_.give(instance->number, std::move(upstream));
    co_return outcome;
  }
}

asio::awaitable<Front::Outcome> Front::ask(Request& request, Instance& instance, Upstream& upstream,
                                           Sent& sent) {
  const HttpRequest& message = request.exchange.request();
  const std::string head = request_head(message, instance.member.address(), request.exchange.request_id());
  const bool is_sent = co_await upstream.send(head, message.body());
  // An instance may have refused the request before all of it was sent.
  const Upstream::Header* header = co_await upstream.read_header(message.method() == http::verb::head);
  if (header == nullptr) co_return Outcome::kLost;
  sent.begun();
  if (!is_sent && header->result_int() < 400) co_return Outcome::kLost;
  co_return co_await answer(request, instance, upstream, *header);
}

asio::awaitable<Front::Outcome> Front::answer(Request& request, Instance& instance, Upstream& upstream,
                                              const Upstream::Header& header) {
  const bool is_stream = view(header[http::field::content_type]).starts_with("text/event-stream");
  const bool is_bodiless = request.exchange.request().method() == http::verb::head ||
                           header.result_int() == 204 || header.result_int() == 304;
  const std::optional<std::uint64_t> length = upstream.content_length();
  if (!is_stream && (is_bodiless || (length && *length <= kWholeMax)))
    co_return co_await answer_whole(request, instance, upstream, header);
  co_return co_await answer_stream(request, instance, upstream, header);
}

asio::awaitable<Front::Outcome> Front::answer_whole(Request& request, Instance& instance, Upstream& upstream,
                                                    const Upstream::Header& header) {
  HttpResponse response = response_of(header);
  for (;;) {
    const std::optional<std::string_view> piece = co_await upstream.read_piece();
    if (!piece) co_return Outcome::kLost;
    if (piece->empty()) break;
    response.body += *piece;
  }
  response.headers.emplace_back("X-Loci-Member", instance.member.id);
  if (response.status == 503 && is_not_ready(response.body)) {
    request.refusal = std::move(response);
    co_return Outcome::kRefused;
  }
  request.exchange.drop_body();  // it is never sent again
  if (response.status < 300) learn(request, instance, response.body);
  ++counts_.answered;
  co_await request.exchange.respond(std::move(response));
  co_return Outcome::kAnswered;
}

asio::awaitable<Front::Outcome> Front::answer_stream(Request& request, Instance& instance, Upstream& upstream,
                                                     const Upstream::Header& header) {
  Exchange& exchange = request.exchange;
  const HttpResponse head = response_of(header);
  const bool is_events = head.content_type.starts_with("text/event-stream");
  std::optional<std::string_view> piece = co_await upstream.read_piece();
  if (!piece) co_return Outcome::kLost;
  exchange.drop_body();  // it is never sent again
  if (head.status < 300) learn(request, instance, *piece);
  ++counts_.answered;
  for (const auto& [name, value] : head.headers) exchange.add_header(name, value);
  exchange.add_header("X-Loci-Member", instance.member.id);
  bool there = co_await exchange.begin_stream(head.content_type, head.status);
  // Of events whole ones are passed on, so that one that breaks off is never seen.
  WholeEvents events;
  while (there && piece && !piece->empty()) {
    there = co_await exchange.stream(is_events ? events.push(*piece) : *piece);
    if (there) piece = co_await upstream.read_piece();
  }
  if (!there || exchange.gone()) co_return Outcome::kAnswered;
  if (piece) {
    if (co_await exchange.stream(events.rest())) co_await exchange.end_stream();
    co_return Outcome::kAnswered;
  }
  ++counts_.lost;
  request.was_lost = true;
  if (!is_events) {
    exchange.cut_stream();
  } else if (co_await exchange.stream(lost_event(request.prompt.api))) {
    co_await exchange.end_stream();
  }
  co_return Outcome::kAnswered;
}

void Front::learn(Request& request, const Instance& instance, std::string_view reply) {
  if (!request.prompt.is_generated) return;
  const Nanos now = clock_.now();
  instances_.remember(request.prompt, instance, now);
  if (!request.prompt.begins_response) return;
  const std::string_view id = response_id_of(reply);
  if (!id.empty())
    instances_.remember_session(continued_key(id, request.seed), request.prompt, instance, now);
}

// --- the front's own ---

asio::awaitable<void> Front::refuse(Exchange& exchange, RoutedApi api, ApiError error) {
  ++counts_.refused;
  const ErrorStyle style = api == RoutedApi::kMessages ? ErrorStyle::kAnthropic : ErrorStyle::kOpenAi;
  HttpResponse response{.status = error.http_status, .body = to_json(error, style), .headers = {}};
  if (error.retry_after_seconds)
    response.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_seconds));
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> Front::answer_health(Exchange& exchange) {
  const auto serves = [&, now = clock_.now()](const auto& one) {
    return !one.second->member.draining && instances_.is_member(*one.second, now);
  };
  const auto serving = std::count_if(instances_.all().begin(), instances_.all().end(), serves);
  if (is_draining_ || serving == 0) {
    co_await refuse(
        exchange, RoutedApi::kOpenAi,
        no_instance(is_draining_ ? "the front is stopping" : "no instance of the cluster serves"));
    co_return;
  }
  HttpResponse response{.body = fmt::format(R"({{"status":"ok","instances":{}}})", serving), .headers = {}};
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> Front::answer_metrics(Exchange& exchange) {
  FrontInstances instances;
  std::uint64_t running = 0;
  for (const auto& [number, instance] : instances_.all()) {
    const bool is_member = instances_.is_member(*instance, clock_.now());
    ++(!is_member ? instances.unlisted : instance->member.draining ? instances.draining : instances.serving);
    running += instance->sent;
  }
  HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = front_metrics(counts_, instances, running),
                        .headers = {}};
  co_await exchange.respond(std::move(response));
}

// All that instances serve: one of each kind is asked, with the client's key.
asio::awaitable<void> Front::answer_models(Exchange& exchange) {
  ModelUnion models;
  std::vector<std::uint32_t> tried;
  std::set<std::vector<std::string>> asked;
  for (;;) {
    std::shared_ptr<Instance> instance;
    for (const auto& [number, one] : instances_.all()) {
      const bool is_tried = std::find(tried.begin(), tried.end(), number) != tried.end();
      if (!is_tried && !asked.contains(one->member.models) && instances_.is_member(*one, clock_.now()))
        instance = one;
    }
    if (instance == nullptr || tried.size() >= kTriesMax * kTriesMax) break;
    tried.push_back(instance->number);
    std::unique_ptr<Upstream> upstream = pool_.make(instance->member);
    if (!(co_await upstream->connect(instance->member, options_.connect_timeout)).ok()) continue;
    upstream->set_deadline(options_.connect_timeout);
    const std::string head =
        request_head(exchange.request(), instance->member.address(), exchange.request_id());
    if (!co_await upstream->send(head, {})) continue;
    const Upstream::Header* header = co_await upstream->read_header(false);
    if (header == nullptr) continue;
    HttpResponse response = response_of(*header);
    std::optional<std::string_view> piece = co_await upstream->read_piece();
    while (piece && !piece->empty() && response.body.size() <= kWholeMax) {
      response.body += *piece;
      piece = co_await upstream->read_piece();
    }
    if (!piece || !piece->empty()) continue;
    if (models.add(std::move(response))) asked.insert(instance->member.models);
  }
  if (models.empty()) {
    co_await refuse(exchange, RoutedApi::kOpenAi, no_instance("no instance of the cluster answers"));
    co_return;
  }
  HttpResponse response = models.take();
  co_await exchange.respond(std::move(response));
}

}  // namespace loci
