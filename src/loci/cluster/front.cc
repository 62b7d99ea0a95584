// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/front.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <random>
#include <utility>

#include "loci/cluster/front_request.h"
#include "loci/serve/http/page_guard.h"
#include "loci/serve/page/page.h"
#include "loci/serve/telemetry/log_line.h"
#include "loci/serve/wire/json_parse.h"
#include "loci/serve/wire/route_error.h"
#include "loci/serve/wire/sse.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

constexpr std::size_t kReadHereMax = 32 << 10;  // larger bodies are read by a worker
constexpr std::size_t kShownPathMax = 500;      // bytes, in the log

std::uint64_t random_seed() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

InstancesOptions with_seed(InstancesOptions options) {
  options.seed = random_seed();
  return options;
}

}  // namespace

// A request that ends whoever reads it must not go from one instance to the next until none is left.
bool Front::may_repeat(const Request& request) const {
  if (is_cut_off_) return false;
  const bool can_go_on =
      !request.is_streaming || (request.resumed && request.resumed->is_understood() && request.body_charge);
  return request.prompt.may_be_repeated && can_go_on && !request.is_too_late && request.losses < kLossesMax;
}

ApiError Front::lost_error(const Request& request, Outcome last) const {
  if (request.is_too_late)
    return http_error(504, "the reply took longer than this front allows (option request_timeout)",
                      "timeout");
  const auto lost = [](const char* message) { return http_error(502, message, "instance_lost"); };
  if (request.prompt.begins_response && request.prompt.is_conversation) {
    return lost(
        "the instance ended before it had answered; it may have stored the turn: GET the conversation before "
        "you send the request again");
  }
  if (is_cut_off_ && request.prompt.may_be_repeated)
    return lost("the front was stopped before the reply had ended; send the request again");
  if (is_cut_off_) {
    return lost(
        "the front was stopped before the instance had answered; look whether it did what was asked for "
        "before "
        "you send it again");
  }
  if (last == Outcome::kDiffers) {
    return lost(
        "the instance that wrote this reply ended, and another instance's reply begins differently; send the "
        "request again");
  }
  if (request.is_streaming && request.losses < kLossesMax)
    return lost("the instance that wrote this reply ended; send the request again");
  if (request.prompt.may_be_repeated)
    return lost(
        "two instances ended while they answered this request, so it is not given to a third one; send it "
        "again if you are sure of it");
  return lost(
      "the instance ended before it answered; look whether it did what was asked for before you send it "
      "again");
}

Front::Front(const FrontOptions& options, asio::io_context& io, WorkerPool& workers, const Clock& clock,
             std::shared_ptr<spdlog::logger> log)
    : options_(options),
      io_(io),
      workers_(workers),
      clock_(clock),
      log_(std::move(log)),
      instances_(with_seed(options.instances)),
      pool_(io),
      kept_bodies_(options.kept_bytes_max, PastShare::kWhatHasBegun) {}

// --- who there is ---

void Front::update(const MemberList& list) {
  counts_.refused_rows = list.refused;
  const std::size_t before = instances_.all().size();
  for (const std::uint32_t number : instances_.update(list.members, clock_.now(), list.old)) {
    log_->warn("an instance was replaced by another one at its address");
    pool_.drop(number);
  }
  if (instances_.all().size() != before) log_->info("{} instances", instances_.all().size());
  for (const auto& [number, instance] : instances_.all()) {
    if (feeds_ != nullptr && instance->is_listed) feeds_->follow(instance);
    if (!instance->is_listed && looked_after_.insert(number).second)
      asio::co_spawn(io_, look_after(instance), asio::detached);
  }
}

void Front::cut_off() {
  is_cut_off_ = true;
  std::vector<std::function<void()>> ends;
  for (const auto& [number, instance] : instances_.all()) {
    for (const auto& [id, end] : instance->enders) ends.push_back(end);
  }
  for (const std::function<void()>& end : ends) end();
}

void Front::follow(TlsContext tls) {
  // Other policies do not ask what instances have.
  if (options_.instances.policy != RoutingPolicy::kFirstToken) return;
  feeds_ = std::make_shared<FeedReader>(io_, std::move(tls), instances_, log_);
}

void Front::close() {
  pool_.clear();
  if (feeds_ != nullptr) feeds_->stop();
  feeds_.reset();
}

// Who is listed no more may live, without the database. A connection says it.
asio::awaitable<void> Front::look_after(std::shared_ptr<Instance> instance) {
  bool lives = false;
  try {
    lives = co_await is_alive(instance->member);
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
  exchange.give_way();
  try {
    const std::string_view path = exchange.path();
    const http::verb method = exchange.request().method;
    const bool is_health = path == "/health" || path == "/v1/health";
    const bool is_page = options_.page && is_page_path(path);
    const bool is_own = is_health || path == "/live" || path == "/metrics" || is_page;
    // A key excuses no name: a page whose name was bound to this address may send any. A preflight does
    // nothing.
    std::optional<ApiError> stranger;
    if (method != http::verb::options) stranger = options_.pages.check_host(exchange.request());
    // An instance would take the front's own page for a stranger's, since its Host is another.
    if (is_from_own_page(exchange.request()))
      std::erase_if(exchange.request().headers,
                    [](const auto& header) { return boost::beast::iequals(header.first, "Origin"); });
    if (stranger) {
      co_await refuse(exchange, routed_api(path), *std::move(stranger));
    } else if (is_own && method != http::verb::get && method != http::verb::head) {
      co_await answer_other_method(exchange);
    } else if (is_health) {
      co_await answer_health(exchange);
    } else if (path == "/live") {
      HttpResponse response{.body = R"({"status":"ok"})", .headers = {}};
      co_await exchange.respond(std::move(response));
    } else if (path == "/metrics") {
      co_await answer_metrics(exchange);
    } else if (is_page) {
      co_await answer_page(exchange);
    } else {
      co_await trace_and_pass_on(exchange);
    }
  } catch (const std::exception& error) {
    failed = error.what();
  }
  if (failed.empty()) co_return;
  log_->error("a request failed: {}", failed);
  if (exchange.status() == 0)
    co_await refuse(exchange, routed_api(exchange.path()),
                    api_error(internal_error("the request failed: " + failed)));
}

asio::awaitable<void> Front::pass_on(Exchange& exchange, Traced* traced) {
  const std::string_view path = exchange.path();
  if (!is_routed_path(path)) {
    const char* hint = path == "/v1/loci" || path.starts_with("/v1/loci/")
                           ? "a front does not pass this on: send the request to a member itself"
                       : path.starts_with("/v1") ? "the API is described at /openapi.json"
                                                 : "the API's paths begin with /v1";
    ApiError error = no_endpoint_error(path, hint);
    co_await refuse(exchange, RoutedApi::kOpenAi, std::move(error));
    co_return;
  }
  // Whoever has no key must not fill the room of all bodies.
  if (has_large_body(exchange.request()) && !co_await let_in(exchange)) co_return;
  if (std::optional<ApiError> unread = co_await exchange.read_body()) {
    co_await refuse(exchange, routed_api(path), *std::move(unread));
    co_return;
  }
  // Who has no key is told so by an instance, soon.
  exchange.keep_place();
  if (path == "/v1/models" && exchange.request().method == http::verb::get) {
    co_await answer_models(exchange);
    co_return;
  }
  Request request{.exchange = exchange,
                  .key = prompt_key_of(exchange.request(), options_.prompt_key),
                  .prompt = {},
                  .begun_at = clock_.now(),
                  .traced = traced};
  const auto read = [&] {
    return read_prompt(exchange.request().method, path, exchange.request().body, request.key);
  };
  if (exchange.request().body.size() <= kReadHereMax)
    request.prompt = read();
  else
    request.prompt =
        co_await workers_.run({reinterpret_cast<const char*>(request.key.data()), request.key.size()}, read);
  if (request.prompt.is_named())
    request.reply = {.name = random_reply_name(), .created_at = seconds_since_1970(), .said = {}};
  if (request.prompt.may_go_on()) request.resumed.emplace(request.prompt.api);
  exchange.watch([current = request.current] {
    if (*current != nullptr) (*current)->close();
  });
  co_await send_until_answered(request);
  co_await exchange.unwatch();
  if (traced != nullptr) {
    traced->was_lost = request.was_lost;
    traced->member = request.member;
    traced->tries = request.tried.size();
  }
  if (!options_.access_log) co_return;
  LogLine line("routed");
  line.text("request_id", exchange.request_id()).text("path", utf8_prefix(path, kShownPathMax));
  line.count("status", exchange.status());
  line.text("member", request.member).count("tries", static_cast<std::int64_t>(request.tried.size()));
  line.duration("duration", clock_.now() - request.begun_at);
  if (request.prompt.is_generated) line.text("why", routed_why_name(request.why));
  if (request.predicted) line.duration("predicted", *request.predicted);
  if (request.prefilled != PrefillEnd::kNone)
    line.text("prefill", prefill_end_name(request.prefilled))
        .text("prefill_member", request.prefill->member.id);
  if (request.was_lost)
    line.text("lost", is_cut_off_           ? "the front was stopped"
                      : request.is_too_late ? "it took longer than this front allows"
                                            : "its instance ended before the reply did");
  log(*log_, spdlog::level::info, line);
}

Instances::Choice Front::choose(Request& request) {
  Instances::Choice choice;
  const bool is_to_owner = request.owner != nullptr && !request.has_tried(*request.owner);
  if (is_to_owner)
    choice.instance = request.owner;
  else
    choice = instances_.choose(request.prompt, request.tried, clock_.now());
  if (choice.instance == nullptr) return choice;
  if (request.prompt.is_generated) ++counts_.chosen[static_cast<std::size_t>(choice.why)];
  request.why = choice.why;
  request.predicted = choice.predicted;
  request.prefill.reset();
  request.prefilled = PrefillEnd::kNone;
  request.awaits_prefill = false;
  if (choice.prefill) hand_over(request, *choice.prefill);
  if (!request.tried.empty()) ++(is_to_owner ? counts_.redirected : counts_.retried);
  request.tried.push_back(choice.instance->number);
  request.member = choice.instance->member.id;
  return choice;
}

asio::awaitable<void> Front::send_until_answered(Request& request) {
  Exchange& exchange = request.exchange;
  std::optional<HttpResponse> refusal;  // an instance's own
  while (request.tried.size() < kTriesMax && !exchange.gone() && !is_cut_off_) {
    const Instances::Choice choice = choose(request);
    const std::shared_ptr<Instance>& instance = choice.instance;
    if (instance == nullptr) break;
    const Outcome outcome = co_await trace_try(request, choice);
    request.prefill_sent.reset();
    if (std::exchange(request.awaits_prefill, false)) note_prefill(request, PrefillEnd::kNone);
    // The instance ended before it could tell what had become of the prompt, and the other member is gone
    // too: it may be the prompt's fault, or that of the machine that they shared.
    if (outcome == Outcome::kLost && request.prefill && request.prefilled == PrefillEnd::kNone &&
        !exchange.gone() && !request.is_too_late && !co_await takes_connections(request.prefill->member)) {
      note_prefill(request, PrefillEnd::kUnreached);
      request.prompt.may_be_handed = false;
    }
    if (outcome == Outcome::kAnswered || exchange.gone()) co_return;
    if (outcome == Outcome::kNotSent) instance->connects.fail(clock_.now());
    if (outcome == Outcome::kRefused || outcome == Outcome::kElsewhere) refusal = std::move(request.refusal);
    const bool has_ended = outcome == Outcome::kLost || outcome == Outcome::kDrained;
    if (outcome == Outcome::kDiffers || (has_ended && !may_repeat(request))) {
      co_await give_up(request, lost_error(request, outcome));
      co_return;
    }
    // What ends devices must not get to all of them.
    if (outcome == Outcome::kRefused && request.losses >= kLossesMax) break;
  }
  if (exchange.gone()) co_return;
  const bool may_be_stored =
      request.losses > 0 && request.prompt.begins_response && request.prompt.is_conversation;
  if (request.is_streaming || may_be_stored) {
    co_await give_up(request, lost_error(request, Outcome::kLost));
    co_return;
  }
  if (refusal) {
    co_await exchange.respond(*std::move(refusal));
    co_return;
  }
  co_await refuse(exchange, request.prompt.api,
                  no_instance(request.tried.empty() ? why_nobody() : "no instance of the cluster answers"));
}

const char* Front::why_nobody() const {
  bool is_anybody = false;
  for (const auto& [number, instance] : instances_.all()) {
    if (!instances_.is_member(*instance, clock_.now())) continue;
    if (!instance->member.draining)
      return "no member of the cluster that serves this model takes requests; try again later";
    is_anybody = true;
  }
  return is_anybody ? "all members of the cluster drain; try again later"
                    : "no member of the cluster is running; try again later";
}

asio::awaitable<Front::Outcome> Front::try_at(Request& request, std::shared_ptr<Instance> instance,
                                              std::uint64_t work_bytes) {
  const auto end = [current = request.current] {
    if (*current != nullptr) (*current)->close();
  };
  Sent sent(instance, next_sent_++, work_bytes, end);
  request.sent = &sent;
  // What must not be done twice, and a stream that goes on elsewhere, which may lose only so many instances,
  // go over a connection that nobody can have closed meanwhile. It is not kept: such requests would add to
  // the pool and never take from it.
  const bool uses_pool = request.prompt.may_be_repeated && !request.is_streaming;
  std::unique_ptr<Upstream> upstream = uses_pool ? pool_.take(instance->number) : nullptr;
  bool was_lost_here = false;
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
    upstream->set_deadline(std::max<Nanos>(1, request.begun_at + options_.request_timeout - clock_.now()));
    const Outcome outcome = co_await ask(request, *instance, *upstream);
    request.is_too_late = upstream->timed_out();
    if (outcome == Outcome::kLost) ++request.losses;
    if (outcome == Outcome::kLost && !is_fresh && !request.is_streaming && may_repeat(request) &&
        !request.exchange.gone() && instances_.all().contains(instance->number)) {
      was_lost_here = true;
      continue;
    }
    // A process that is being killed closes its connections before its port: the second connection waited in
    // the port's queue, and nobody read it.
    if (outcome == Outcome::kLost && was_lost_here && !co_await takes_connections(instance->member))
      --request.losses;
    if (uses_pool && upstream->is_reusable() && instances_.all().contains(instance->number))
      pool_.give(instance->number, std::move(upstream));
    co_return outcome;
  }
}

void Front::hand_over(Request& request, const Instances::Prefill& prefill) {
  request.prefill = prefill.instance;
  request.prefill_sent = std::make_shared<Sent>(prefill.instance, next_sent_++, prefill.work_bytes, [] {});
  request.prefill_predicted = prefill.predicted;
  const Member& member = prefill.instance->member;
  request.prefill_place = {.host = member.host,
                           .port = member.peer_port,
                           .begin_limit = prefill.begin_limit,
                           .silence_limit = prefill.silence_limit};
}

void Front::note_prefill(Request& request, PrefillEnd end) {
  request.prefilled = end;
  ++counts_.prefills[static_cast<std::size_t>(end)];
  request.prefill->note_prefill(end, clock_.now());
  if (end == PrefillEnd::kUntold) {
    // It counts there for as long as was predicted.
    auto timer =
        std::make_shared<asio::steady_timer>(io_, std::chrono::nanoseconds(request.prefill_predicted));
    timer->async_wait([timer, sent = request.prefill_sent](const boost::system::error_code&) {});
  }
  // What ends devices, or makes processes stand still, must not get to all of them.
  if (end == PrefillEnd::kLost || end == PrefillEnd::kQuiet) request.prompt.may_be_handed = false;
  if (end == PrefillEnd::kLost) ++request.losses;
}

asio::awaitable<Front::Outcome> Front::ask(Request& request, Instance& instance, Upstream& upstream) {
  const HttpRequest& message = request.exchange.request();
  // What the client has of a stream, behind the body.
  std::string said = request.is_streaming ? request.resumed->said() : std::string();
  request.reply.was_lost = request.losses > 0 || request.was_drained;
  const std::string loci_reply = request.prompt.is_named()
                                     ? reply_header(options_.reply_key, message, request.reply, said)
                                     : std::string();
  std::string with_said = said.empty() ? std::string() : request.text() + said;
  const std::string& body = said.empty() ? request.text() : with_said;
  std::string sealed = loci_reply;
  if (request.prefill) {
    // (What runs in the background has no name.)
    const std::string_view reply =
        std::string_view(loci_reply).substr(std::min(loci_reply.size(), kReplyHeader.size() + 2));
    sealed += prefill_header(options_.prefill_key, message, request.prefill_place,
                             reply.substr(0, reply.find('\r')));
  }
  const std::string head =
      request_head(message, body.size(), instance.member.address(), request.exchange.request_id(), sealed);
  request.reply.is_again = true;
  const bool is_sent = co_await upstream.send(head, body);
  said = {};  // this goes on as long as the stream
  with_said = {};
  Upstream::Quiet quiet;
  const auto say_comment = [&request]() -> asio::awaitable<void> {
    co_await request.exchange.stream(kSseComment);
  };
  if (request.is_streaming && request.is_events) quiet = {.limit = options_.quiet_limit, .say = say_comment};
  // An instance may have refused the request before all of it was sent.
  const Upstream::Header* header =
      co_await upstream.read_header(message.method == http::verb::head, std::move(quiet));
  if (header == nullptr) co_return Outcome::kLost;
  instance.connects.succeed();
  if (request.prefill) {
    const boost::beast::string_view field = (*header)[{kPrefillHeader.data(), kPrefillHeader.size()}];
    const std::string_view told(field.data(), field.size());
    request.awaits_prefill = told == kPrefillLater && request.resumed.has_value();
    if (!request.awaits_prefill) note_prefill(request, parse_prefill_end(told).value_or(PrefillEnd::kNone));
  }
  if (!request.awaits_prefill) request.prefill_sent.reset();
  if (!is_sent && header->result_int() < 400) co_return Outcome::kLost;
  co_return co_await answer(request, instance, upstream, *header);
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

asio::awaitable<void> Front::answer_other_method(Exchange& exchange) {
  constexpr const char* kAllowed = "GET, HEAD, OPTIONS";
  if (exchange.request().method == http::verb::options) {
    HttpResponse response{.status = 204, .body = {}, .headers = {{"Allow", kAllowed}}};
    co_await exchange.respond(std::move(response));
    co_return;
  }
  exchange.add_header("Allow", kAllowed);
  ApiError error = wrong_method_error(exchange.path(), kAllowed, exchange.request().method_text);
  co_await refuse(exchange, RoutedApi::kOpenAi, std::move(error));
}

asio::awaitable<void> Front::answer_page(Exchange& exchange) {
  std::optional<HttpResponse> file = page_response(exchange.path(), exchange.request());
  if (file)
    co_await exchange.respond(*std::move(file));
  else
    co_await refuse(exchange, RoutedApi::kOpenAi,
                    http_error(404, "the page has no file of this name", "not_found"));
}

asio::awaitable<void> Front::answer_health(Exchange& exchange) {
  const auto serves = [&, now = clock_.now()](const auto& one) {
    return !one.second->member.draining && instances_.is_member(*one.second, now);
  };
  const auto serving = std::count_if(instances_.all().begin(), instances_.all().end(), serves);
  if (is_draining_ || serving == 0) {
    co_await refuse(exchange, RoutedApi::kOpenAi,
                    no_instance(is_draining_ ? "the front is stopping; try again later"
                                             : "no member of the cluster takes requests; try again later"));
    co_return;
  }
  HttpResponse response{.body = fmt::format(R"({{"status":"ok","instances":{}}})", serving), .headers = {}};
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> Front::answer_metrics(Exchange& exchange) {
  FrontInstances instances;
  FrontFeeds feeds;
  std::uint64_t running = 0;
  for (const auto& [number, instance] : instances_.all()) {
    const bool is_member = instances_.is_member(*instance, clock_.now());
    ++(!is_member ? instances.unlisted : instance->member.draining ? instances.draining : instances.serving);
    running += instance->sent;
    ++(instance->costs ? feeds.read : feeds.guessed);
    feeds.chunks += instance->held.size();
  }
  if (feeds_ != nullptr) feeds.stats = feeds_->stats();
  std::optional<TraceCounts> traces;
  if (tracer_ != nullptr) traces = tracer_->counts();
  HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = front_metrics(counts_, instances, feeds, running, traces),
                        .headers = {}};
  co_await exchange.respond(std::move(response));
}

}  // namespace loci
