// SPDX-License-Identifier: Apache-2.0
// Instances' answers, as a front passes them on (front.h).
#include <boost/beast/http/status.hpp>
#include <string>
#include <utility>

#include "loci/cluster/front.h"
#include "loci/cluster/front_request.h"
#include "loci/serve/wire/api_error.h"
#include "loci/serve/wire/sse.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

constexpr std::uint64_t kWholeMax = 256 << 10;  // larger answers are passed on as they come
constexpr Nanos kDeviceLostPause = 10 * kNanosPerSecond;

bool are_events(std::string_view content_type) { return content_type.starts_with("text/event-stream"); }

std::string_view view(const boost::beast::string_view& text) { return {text.data(), text.size()}; }

}  // namespace

asio::awaitable<Front::Outcome> Front::answer(Request& request, Instance& instance, Upstream& upstream,
                                              const Upstream::Header& header) {
  if (request.is_streaming) co_return co_await go_on(request, instance, upstream, header);
  const bool is_head = request.exchange.request().method == http::verb::head;
  const bool is_bodiless = header.result_int() == 204 || header.result_int() == 304;
  const std::optional<std::uint64_t> length = upstream.content_length();
  if (!are_events(view(header[http::field::content_type])) &&
      (is_bodiless || (length && (is_head || *length <= kWholeMax))))
    co_return co_await answer_whole(request, instance, upstream, header);
  co_return co_await answer_stream(request, instance, upstream, header);
}

asio::awaitable<Front::Outcome> Front::answer_whole(Request& request, Instance& instance, Upstream& upstream,
                                                    const Upstream::Header& header) {
  request.sent->begun();
  HttpResponse response = response_of(header);
  std::optional<std::string> body = co_await upstream.read_body(kWholeMax);
  if (!body) co_return Outcome::kLost;
  response.body = *std::move(body);
  if (request.exchange.request().method == http::verb::head) response.body_bytes = upstream.content_length();
  response.headers.emplace_back("X-Loci-Member", instance.member.id);
  if (response.status >= 400 &&
      find_owner(request, view(header[{kOwnerHeader.data(), kOwnerHeader.size()}]))) {
    request.refusal = std::move(response);
    co_return Outcome::kElsewhere;
  }
  const std::string code = response.status == 503 ? code_of_error(response.body) : std::string();
  if (is_not_ready(code)) {
    if (code == error_codes::kDeviceLost) {
      ++request.losses;
      instance.avoided_until = clock_.now() + kDeviceLostPause;
    }
    request.refusal = std::move(response);
    co_return Outcome::kRefused;
  }
  request.exchange.drop_body();  // it is never sent again
  if (response.status < 300) learn(request, instance, response.body);
  ++counts_.answered;
  if (response.status == 401) request.exchange.give_way();
  co_await request.exchange.respond(std::move(response));
  co_return Outcome::kAnswered;
}

bool Front::find_owner(Request& request, std::string_view owner) {
  if (owner.empty()) return false;
  const std::shared_ptr<Instance> found = instances_.find_store(owner, clock_.now());
  if (found == nullptr || request.has_tried(*found)) return false;
  request.owner = found;
  return true;
}

// The body makes room for other requests' ones, but for what a reply may have to be gone on with from.
void Front::keep_body(Request& request) {
  HttpRequest& message = request.exchange.request();
  if (request.resumed) {
    request.body_charge.emplace(kept_bodies_, std::string(request.key.begin(), request.key.end()));
    if (request.body_charge->grow_to(message.body.size())) {
      request.body = std::move(message.body);
    } else {
      request.body_charge.reset();
      request.resumed->forget_said();
    }
  }
  request.exchange.drop_body();
}

asio::awaitable<Front::Outcome> Front::answer_stream(Request& request, Instance& instance, Upstream& upstream,
                                                     const Upstream::Header& header) {
  Exchange& exchange = request.exchange;
  const HttpResponse head = response_of(header);
  const std::optional<std::string_view> piece = co_await upstream.read_piece();
  if (!piece) co_return Outcome::kLost;
  request.is_events = are_events(head.content_type);
  if (!request.is_events || head.status != 200) request.resumed.reset();
  if (!request.is_events) request.sent->begun();
  keep_body(request);
  if (head.status < 300) learn(request, instance, *piece);
  ++counts_.answered;
  for (const auto& [name, value] : head.headers) exchange.add_header(name, value);
  exchange.add_header("X-Loci-Member", instance.member.id);
  request.is_streaming = true;
  if (!co_await exchange.begin_stream(head.content_type, head.status)) co_return Outcome::kAnswered;
  if (request.is_events) co_return co_await pass_events(request, instance, upstream, *piece);
  co_return co_await pass_bytes(request, upstream, *piece);
}

// Another instance's answer in place of one that broke off. One that has no stream leaves the next its
// chance, unless it says that what all instances share is away: the stores of conversations.
asio::awaitable<Front::Outcome> Front::go_on(Request& request, Instance& instance, Upstream& upstream,
                                             const Upstream::Header& header) {
  const std::optional<std::string_view> piece = co_await upstream.read_piece();
  if (!piece) co_return Outcome::kLost;
  if (header.result_int() == 503 && code_of_error(*piece) == error_codes::kUnavailable) {
    // (Of one that begins a response the store is read first, as it may have been stored.)
    const ApiError error = unavailable_error(
        request.prompt.begins_response
            ? "the store of conversations is away, and whether the reply was stored is not known: look "
              "for it before you send the request again"
            : "what all instances share is away, so the reply cannot go on: send the request again later",
        std::string(error_codes::kUnavailable), 1);
    co_await give_up(request, error);
    co_return Outcome::kAnswered;
  }
  if (header.result_int() != 200 || !are_events(view(header[http::field::content_type])))
    co_return Outcome::kRefused;
  learn(request, instance, *piece);
  ++counts_.moved;
  request.resumed->begin_again();
  co_return co_await pass_events(request, instance, upstream, *piece);
}

// Whole ones are passed on, so that one that breaks off is never seen.
asio::awaitable<Front::Outcome> Front::pass_events(Request& request, Instance& instance, Upstream& upstream,
                                                   std::string_view first) {
  Exchange& exchange = request.exchange;
  WholeEvents whole;
  std::optional<std::string_view> piece = first;
  for (; piece && !piece->empty(); piece = co_await upstream.read_piece()) {
    std::string events = whole.push(*piece);
    ResumedStream::Part part;
    if (request.resumed) part = request.resumed->push(events);
    if (part.prefilled && std::exchange(request.awaits_prefill, false))
      learn_prefill(request, instance, *part.prefilled);
    // While a prompt is computed there are comments alone.
    if (has_event(events)) {
      request.sent->begun();
      if (request.awaits_id) learn_id(request, instance, events);
    }
    if (request.resumed) {
      events = std::move(part.events);
      if (request.body_charge &&
          !request.body_charge->grow_to(request.body.size() + request.resumed->said_bytes()))
        request.resumed->forget_said();
    }
    if (const auto next = number_after(events)) request.next_event = *next;
    if (!co_await exchange.stream(events)) co_return Outcome::kAnswered;
    if (part.state == ResumedStream::State::kGivenUp) co_return Outcome::kLost;
    if (part.state == ResumedStream::State::kDrained) {
      request.was_drained = true;
      co_return Outcome::kDrained;
    }
    if (part.state == ResumedStream::State::kDiffers) co_return Outcome::kDiffers;
  }
  if (exchange.gone()) co_return Outcome::kAnswered;
  if (!piece) co_return Outcome::kLost;
  if (request.resumed && !request.resumed->has_caught_up()) co_return Outcome::kDiffers;
  if (co_await exchange.stream(whole.rest())) co_await exchange.end_stream();
  co_return Outcome::kAnswered;
}

asio::awaitable<Front::Outcome> Front::pass_bytes(Request& request, Upstream& upstream,
                                                  std::string_view first) {
  std::optional<std::string_view> piece = first;
  for (; piece && !piece->empty(); piece = co_await upstream.read_piece()) {
    if (!co_await request.exchange.stream(*piece)) co_return Outcome::kAnswered;
  }
  if (!piece) co_return Outcome::kLost;
  co_await request.exchange.end_stream();
  co_return Outcome::kAnswered;
}

asio::awaitable<void> Front::give_up(Request& request, ApiError error) {
  Exchange& exchange = request.exchange;
  if (!is_cut_off_ && !request.is_too_late) ++counts_.lost;  // else no instance is to blame
  request.was_lost = true;
  if (!request.is_streaming) {
    co_await refuse(exchange, request.prompt.api, std::move(error));
  } else if (!request.is_events) {
    exchange.cut_stream();
  } else if (co_await exchange.stream(error_event(request.prompt.api, error, request.next_event))) {
    co_await exchange.end_stream();
  }
}

Instances::Answering Front::answering(const Request& request, const Instance& instance) {
  const bool was_handed = request.prefilled == PrefillEnd::kDone || request.prefilled == PrefillEnd::kUntold;
  return {instance, was_handed ? request.prefill.get() : nullptr};
}

void Front::learn(Request& request, const Instance& instance, std::string_view reply) {
  // (Where it was not found first, it is looked for there from now on.)
  if (request.owner.get() == &instance && request.prompt.continues)
    instances_.remember_session(*request.prompt.continues, request.prompt, {instance}, clock_.now());
  if (!request.prompt.is_generated) return instances_.renew(request.prompt, instance, clock_.now());
  instances_.remember(request.prompt, answering(request, instance), clock_.now());
  request.awaits_id = request.prompt.begins_response;
  // (Where the reply still tells of the prefill member, that comes before its first event.)
  if (request.awaits_id && !request.awaits_prefill) learn_id(request, instance, reply);
}

void Front::learn_prefill(Request& request, const Instance& instance, PrefillEnd end) {
  note_prefill(request, end);
  request.prefill_sent.reset();
  instances_.remember_prefill(request.prompt, answering(request, instance), clock_.now());
}

void Front::learn_id(Request& request, const Instance& instance, std::string_view reply) {
  const std::string_view id = response_id_of(reply);
  if (id.empty()) return;
  request.awaits_id = false;
  instances_.remember_session(continued_key(id, request.key), request.prompt, answering(request, instance),
                              clock_.now());
}

}  // namespace loci
