// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_suffix.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <iterator>
#include <utility>

#include "loci/base/ascii.h"
#include "loci/serve/wire/api_error.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

using boost::system::error_code;
using std::chrono::steady_clock;

namespace {

constexpr std::size_t kReadBytes = 16 << 10;
constexpr Nanos kLingerTimeout = 2 * kNanosPerSecond;
constexpr Nanos kCancelAgain = kNanosPerSecond / 10;
constexpr std::size_t kLingerBytes = std::size_t{64} << 20;
constexpr auto kRefusalHold = std::chrono::milliseconds(50);
constexpr std::uint32_t kRefusalsHeldMax = 64;
constexpr std::ptrdiff_t kHeadersMax = 256;           // of a request: each costs more memory than its bytes
constexpr std::size_t kLookedAtMax = 64;              // of the connections that wait, to close one
constexpr std::uint64_t kSkippedBytesMax = 64 << 10;  // of a body that nobody wants, to keep the connection

std::string_view plain(beast::string_view text) { return {text.data(), text.size()}; }

// The header that was read.
HttpRequest request_of(const http::request<http::string_body>& message) {
  HttpRequest out{.method = message.method(),
                  .method_text = std::string(plain(message.method_string())),
                  .target = std::string(plain(message.target())),
                  .version = message.version(),
                  .headers = {},
                  .is_chunked = message.chunked(),
                  .body = {}};
  for (const auto& field : message)
    out.headers.emplace_back(plain(field.name_string()), plain(field.value()));
  take_authority(out);
  return out;
}

ApiError bad_http(const std::string& why) {
  return http_error(400, "this is not a valid HTTP request: " + why, "bad_http");
}

// Skips empty lines: some clients send one behind a request's body (RFC 9112, 2.2). False: nothing of a
// request is there yet.
bool begins_request(beast::flat_buffer& buffer) {
  const auto text = [&] {
    return std::string_view(static_cast<const char*>(buffer.data().data()), buffer.size());
  };
  while (text().starts_with("\r\n")) buffer.consume(2);
  return !text().empty() && text() != "\r";
}

// Where a request ends must be beyond doubt: whoever passes requests on to this server could take a part of
// one for another, or the other way round. (Beast takes a coding that it does not know for no body at all.)
std::optional<ApiError> framing_error(const http::request<http::string_body>& message) {
  const std::size_t codings = message.count(http::field::transfer_encoding);
  if (codings == 0) return std::nullopt;
  if (message.version() < 11) return bad_http("HTTP/1.0 has no Transfer-Encoding");
  if (message.count(http::field::content_length) > 0)
    return bad_http("it has both Transfer-Encoding and Content-Length");
  const std::string_view coding = plain(message[http::field::transfer_encoding]);
  if (codings == 1 && equal_ascii(coding, "chunked")) return std::nullopt;
  return bad_http(fmt::format("expected one Transfer-Encoding, chunked, found {} that begin with '{}'",
                              codings, utf8_prefix(coding, 100)));
}

// Of two names a proxy may have judged one, and this server would judge the other (RFC 9112, 3.2).
std::optional<ApiError> host_error(const http::request<http::string_body>& message) {
  const std::size_t hosts = message.count(http::field::host);
  if (hosts == 1 || (hosts == 0 && message.version() < 11)) return std::nullopt;
  return bad_http(fmt::format("expected one Host, found {}", hosts));
}

// Nobody is named by an empty authority, and a name before an '@' is none that a server is called by.
std::optional<ApiError> target_error(const http::request<http::string_body>& message) {
  const std::optional<AbsoluteTarget> target = absolute_target(plain(message.target()));
  if (!target || (!target->authority.empty() && target->authority.find('@') == std::string_view::npos))
    return std::nullopt;
  return bad_http(fmt::format("expected a target that names a host, found the authority '{}'",
                              utf8_prefix(target->authority, 100)));
}

// Of one body: no room is ever found for more than all bodies may have.
struct BodyLimit {
  std::uint64_t bytes;
  const char* option;
};
BodyLimit body_limit(const HttpLimits& limits) {
  const std::uint64_t room = limits.bodies_bytes_max + ByteBudget::kFreeBytes;
  if (room < limits.body_bytes_max) return {room, "max_bodies"};
  return {limits.body_bytes_max, "max_body"};
}

ApiError too_many_bodies(const HttpLimits& limits) {
  ApiError error =
      http_error(503,
                 fmt::format("the bodies of all requests together are larger than {} bytes (option "
                             "max_bodies), or this client's are larger than its share; try again later",
                             limits.bodies_bytes_max),
                 "too_many_bodies");
  error.retry_after_seconds = 1;
  return error;
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, TlsContext tls, ConnectionContext& context)
    : socket_(std::move(socket), std::move(tls)),
      context_(context),
      buffer_(context.limits.header_bytes_max + (std::size_t{128} << 10)),
      watchdog_(context.io),
      body_charge_(context.bodies),
      watch_ended_(context.io, steady_clock::time_point::max()),
      half_closed_timer_(context.io) {}

// --- deadlines ---

void Connection::set_deadline(Nanos from_now) {
  deadline_ = steady_clock::now() + std::chrono::nanoseconds(from_now);
  if (deadline_ < armed_for_) arm_watchdog();
}

void Connection::clear_deadline() { deadline_ = steady_clock::time_point::max(); }

// A deadline that moves on (every write has one) costs nothing: the timer is looked at when it fires.
void Connection::arm_watchdog() {
  armed_for_ = deadline_;
  watchdog_.expires_at(deadline_);
  watchdog_.async_wait([weak = weak_from_this()](error_code error) {
    const std::shared_ptr<Connection> self = weak.lock();
    if (error == asio::error::operation_aborted || !self) return;
    self->armed_for_ = steady_clock::time_point::max();
    if (self->deadline_ == steady_clock::time_point::max()) return;
    if (self->deadline_ > steady_clock::now()) return self->arm_watchdog();
    self->timed_out_ = true;
    error_code ignored;
    self->socket_.tcp().cancel(ignored);
    // What has just been read is not cancelled, and its reader may wait for more: once more, until it sees
    // it.
    self->set_deadline(kCancelAgain);
  });
}

void Connection::close_now() {
  closing_ = true;
  keep_alive_ = false;
  error_code ignored;
  socket_.tcp().close(ignored);
  watchdog_.cancel();
}

void Connection::close_when_idle() {
  closing_ = true;
  keep_alive_ = false;
  if (idle_) close_now();
}

// --- reading requests ---

asio::awaitable<void> Connection::run() {
  keep_alive_ = co_await accept_tls() && take_place();
  for (bool first = true; keep_alive_; first = false) {
    if (!co_await read_header(first)) break;
    clear_deadline();
    keep_alive_ = parser_->get().keep_alive() && !context_.stopping && !closing_;
    Exchange exchange(*this, request_of(parser_->get()), context_.clock.now());
    co_await context_.handler(exchange);
    co_await exchange.unwatch();
    waits_.emplace(context_, this);  // whoever has its answer
    body_charge_.release();
    if (gone_ || timed_out_ || exchange.status() == 0) break;
    if (!parser_->is_done() && !co_await skip_body()) break;
    socket_.rest();
  }
  if (!gone_ && !timed_out_) co_await end_sending();
  close_now();
  waits_.reset();
}

asio::awaitable<bool> Connection::accept_tls() {
  set_deadline(context_.limits.header_timeout);
  std::shared_ptr<void> greeted;
  const std::size_t most = context_.limits.greetings_max;
  if (most == 0) {
    waits_.emplace(context_, this);
  } else {
    // Until it is greeted, or gone: also while it is told that it spoke plain HTTP.
    context_.greeting.push_back(this);
    greeted = {nullptr, [this](void*) { std::erase(context_.greeting, this); }};
    if (context_.greeting.size() > most) context_.greeting.front()->close_now();
  }
  const error_code error = co_await socket_.handshake_as_server(context_.limits.hello_bytes_max);
  if (!error) co_return !closing_;
  context_.metrics.tls_handshake_failed();
  if (is_plain_http(error)) {
    // Said as it was asked.
    static constexpr std::string_view kAnswer =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 37\r\nConnection: "
        "close\r\n\r\n"
        "this port speaks HTTPS: use https://\n";
    error_code ignored;
    co_await asio::async_write(socket_.tcp(), asio::buffer(kAnswer),
                               asio::redirect_error(asio::use_awaitable, ignored));
    co_await linger();
  }
  co_return false;
}

bool Connection::take_place() {
  const HttpLimits& limits = context_.limits;
  if (limits.greetings_max == 0 || context_.all.size() - context_.greeting.size() <= limits.connections_max)
    return true;
  return context_.make_room();
}

bool ConnectionContext::make_room() {
  std::size_t looked_at = 0;
  for (Connection* const one : waiting) {
    if (++looked_at > kLookedAtMax) return false;
    if (!one->may_be_closed()) continue;
    one->close_now();
    return true;
  }
  return false;
}

// What has arrived and is not read yet may be its request.
bool Connection::may_be_closed() {
  error_code error;
  return !closing_ && (gives_way_ || socket_.tcp().available(error) == 0);
}

asio::awaitable<bool> Connection::read_header(bool first) {
  error_code error;
  // Until the whole header is there: who stops in the middle of it waits like who says nothing.
  waits_.emplace(context_, this);
  gives_way_ = false;
  if (!begins_request(buffer_)) {
    idle_ = true;
    set_deadline(first ? context_.limits.header_timeout : context_.limits.idle_timeout);
    do {
      const std::size_t bytes = co_await socket_.async_read_some(
          buffer_.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return false;
      buffer_.commit(bytes);
    } while (!begins_request(buffer_));
    waits_->begin_again();
  }
  idle_ = false;
  body_ = BodyState::kUnread;
  parser_.emplace();
  parser_->header_limit(context_.limits.header_bytes_max);
  parser_->body_limit(boost::none);  // read_body() has one, and its handler says so
  set_deadline(context_.limits.header_timeout);
  co_await http::async_read_header(socket_, buffer_, *parser_,
                                   asio::redirect_error(asio::use_awaitable, error));
  if (!socket_.tcp().is_open()) co_return false;  // closed for another one as this one's last bytes came
  keep_alive_ = !error;
  if (!error) timed_out_ = false;  // it came at the last moment
  std::optional<ApiError> refused;
  if (error) {
    refused = reason(error);
  } else if (std::distance(parser_->get().begin(), parser_->get().end()) > kHeadersMax) {
    refused = http_error(431, fmt::format("the request has more than {} header fields", kHeadersMax),
                         "header_too_large");
  } else {
    refused = framing_error(parser_->get());
    if (!refused) refused = host_error(parser_->get());
    if (!refused) refused = target_error(parser_->get());
  }
  if (refused) {
    gives_way_ = true;
    co_await refuse(*std::move(refused));
  } else {
    waits_.reset();
  }
  co_return !error && !refused;
}

asio::awaitable<std::optional<ApiError>> Connection::read_body(HttpRequest& request, std::string party) {
  if (body_ != BodyState::kUnread) co_return std::nullopt;
  body_charge_.charge_to(std::move(party));
  error_code error;
  const steady_clock::time_point end =
      steady_clock::now() + std::chrono::nanoseconds(context_.limits.body_timeout);
  const std::uint64_t bytes_max = body_limit(context_.limits).bytes;
  parser_->body_limit(bytes_max);
  // It need not come to be refused.
  if (parser_->content_length().value_or(0) > bytes_max) error = http::error::body_limit;
  if (!error && !parser_->is_done() && beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    set_deadline(context_.limits.write_timeout);
    co_await asio::async_write(socket_, asio::buffer(kContinue),
                               asio::redirect_error(asio::use_awaitable, error));
  }
  parser_->eager(true);
  bool over_budget = false;
  while (!error && !over_budget && !timed_out_ && !parser_->is_done()) {
    const Nanos left = std::chrono::nanoseconds(end - steady_clock::now()).count();
    set_deadline(std::min(left, context_.limits.body_stall_timeout));
    co_await http::async_read_some(socket_, buffer_, *parser_,
                                   asio::redirect_error(asio::use_awaitable, error));
    over_budget = !body_charge_.grow_to(parser_->get().body().size());
  }
  clear_deadline();
  if (!error && !over_budget && parser_->is_done()) {
    timed_out_ = false;  // it came at the last moment
    body_ = BodyState::kRead;
    request.body = std::move(parser_->get().body());
    context_.metrics.received(request.body.size());
    co_return std::nullopt;
  }
  body_ = BodyState::kFailed;
  keep_alive_ = false;
  // What was refused makes room at once.
  parser_->get().body() = std::string();
  body_charge_.release();
  if (over_budget) co_return too_many_bodies(context_.limits);
  std::optional<ApiError> answer = reason(error);
  if (answer) co_return answer;
  gone_ = true;
  co_return http_error(400, "the client closed the connection before the end of the body");
}

// --- what could not be read, and what nobody wanted ---

std::optional<ApiError> Connection::reason(error_code error) {
  const HttpLimits& limits = context_.limits;
  if (timed_out_) {
    timed_out_ = false;
    return http_error(
        408, "the request did not arrive whole in the time that the server waits for it; send it again",
        "request_timeout");
  }
  if (error == http::error::body_limit) {
    const auto [bytes, option] = body_limit(limits);
    return http_error(
        413, fmt::format("the body is larger than {} bytes (option {}); send a smaller one", bytes, option),
        "body_too_large");
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return http_error(
        431,
        fmt::format("the header is larger than {} bytes (option max_header); send a smaller one",
                    limits.header_bytes_max),
        "header_too_large");
  }
  if (error.category() == http::make_error_code(http::error::bad_method).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message) {
    return bad_http(error.message());
  }
  return std::nullopt;
}

asio::awaitable<void> Connection::refuse(ApiError error) {
  keep_alive_ = false;
  Exchange exchange(*this, HttpRequest{}, context_.clock.now());
  HttpResponse response{.status = error.http_status, .body = to_json(error), .headers = {}};
  context_.metrics.request_done("unread", error.http_status, 0);
  if (co_await exchange.respond(std::move(response))) co_await linger();
}

bool Connection::may_skip_body() {
  if (body_ == BodyState::kFailed || beast::iequals(parser_->get()[http::field::expect], "100-continue"))
    return false;
  const auto left = parser_->content_length_remaining();
  return left && *left <= kSkippedBytesMax;
}

void Connection::before_answer() {
  if (keep_alive_ && !parser_->is_done() && !may_skip_body()) keep_alive_ = false;
}

asio::awaitable<void> Connection::hold_refusal() {
  if (body_ != BodyState::kUnread || context_.refusals_held >= kRefusalsHeldMax) co_return;
  ++context_.refusals_held;
  error_code ignored;
  asio::steady_timer timer(context_.io, kRefusalHold);
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  --context_.refusals_held;
}

asio::awaitable<bool> Connection::skip_body() {
  if (!keep_alive_) {
    co_await linger();
    co_return false;
  }
  error_code error;
  set_deadline(context_.limits.body_stall_timeout);
  parser_->eager(true);
  while (!error && !parser_->is_done()) {
    co_await http::async_read_some(socket_, buffer_, *parser_,
                                   asio::redirect_error(asio::use_awaitable, error));
  }
  clear_deadline();
  co_return !error;
}

// Closing a socket that has unread input resets the connection, and the client may lose the answer. So
// the rest is read and dropped for a while.
asio::awaitable<void> Connection::linger() {
  error_code error;
  gives_way_ = true;
  co_await end_sending();
  buffer_.consume(buffer_.size());
  for (std::size_t dropped = 0; !error && dropped < kLingerBytes;) {
    dropped += co_await socket_.tcp().async_read_some(buffer_.prepare(kReadBytes),
                                                      asio::redirect_error(asio::use_awaitable, error));
  }
}

asio::awaitable<void> Connection::end_sending() {
  set_deadline(kLingerTimeout);
  co_await socket_.end_sending();
}

// --- writing ---

asio::awaitable<bool> Connection::write(std::array<asio::const_buffer, 3> buffers) {
  beast::buffers_suffix<std::array<asio::const_buffer, 3>> rest(buffers);
  const HttpLimits& limits = context_.limits;
  const auto bytes_to_write = static_cast<Nanos>(asio::buffer_size(buffers));
  const Nanos time_in_all =
      limits.write_timeout + bytes_to_write * kNanosPerSecond / static_cast<Nanos>(limits.write_rate_min);
  const steady_clock::time_point end = steady_clock::now() + std::chrono::nanoseconds(time_in_all);
  while (asio::buffer_size(rest) > 0) {
    if (gone_ || timed_out_) co_return false;
    const Nanos left = std::chrono::nanoseconds(end - steady_clock::now()).count();
    set_deadline(std::min(left, limits.write_timeout));
    error_code error;
    const std::size_t bytes =
        co_await socket_.async_write_some(rest, asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      gone_ = true;
      co_return false;
    }
    context_.metrics.sent(bytes);
    rest.consume(bytes);
  }
  clear_deadline();
  co_return !gone_;
}

// --- watching for the client's end ---

void Connection::watch_read() {
  // A client that sends that much ahead is not read any further; its end shows when it is written to.
  if (buffer_.size() >= context_.limits.header_bytes_max) return;
  watch_reading_ = true;
  socket_.async_read_some(
      buffer_.prepare(kReadBytes),
      asio::bind_cancellation_slot(
          watch_cancel_.slot(), [self = shared_from_this()](error_code error, std::size_t bytes) {
            self->watch_reading_ = false;
            self->buffer_.commit(bytes);
            if (error == asio::error::eof) self->half_closed_ = true;
            if (self->watch_stopping_) {
              self->gone_ = self->gone_ || (error && error != asio::error::operation_aborted);
              self->watch_ended_.cancel();
            } else if (error == asio::error::eof && self->half_closed_patience_ > 0) {
              self->await_half_closed();
            } else if (error) {
              self->client_gone();
            } else {
              self->watch_read();
            }
          }));
}

void Connection::client_gone() {
  gone_ = true;
  if (on_gone_) on_gone_();
}

void Connection::await_half_closed() {
  half_closed_timer_.expires_after(std::chrono::nanoseconds(half_closed_patience_));
  half_closed_timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error && !self->watch_stopping_) self->client_gone();
  });
}

void Exchange::watch(std::function<void()> on_gone, Nanos half_closed_patience) {
  connection_.on_gone_ = std::move(on_gone);
  connection_.half_closed_patience_ = half_closed_patience;
  connection_.watch_stopping_ = false;
  if (!connection_.watch_reading_) connection_.watch_read();
}

asio::awaitable<void> Exchange::unwatch() {
  connection_.on_gone_ = nullptr;
  connection_.watch_stopping_ = true;
  connection_.half_closed_timer_.cancel();
  while (connection_.watch_reading_) {
    connection_.watch_cancel_.emit(asio::cancellation_type::terminal);
    error_code ignored;
    co_await connection_.watch_ended_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void Exchange::answer_half_closed() {
  if (!connection_.half_closed_) return;
  connection_.gone_ = false;
  // No request comes behind those that it has sent.
  connection_.keep_alive_ = connection_.keep_alive_ && connection_.buffer_.size() > 0;
}

asio::awaitable<std::optional<ApiError>> Exchange::read_body() {
  std::string charged = party();
  std::optional<ApiError> error = co_await connection_.read_body(request_, std::move(charged));
  connection_.socket_.rest();  // a large body has made TLS's buffer large, and the reply may take long
  received_at_ = connection_.context_.clock.now();
  co_return error;
}

void Exchange::give_way() {
  connection_.waits_.emplace(connection_.context_, &connection_);
  connection_.gives_way_ = true;
}

void Exchange::keep_place() {
  connection_.waits_.reset();
  connection_.gives_way_ = false;
}

void Exchange::drop_body() {
  request_.body = std::string();
  connection_.body_charge_.release();
}

bool Exchange::gone() const { return connection_.gone_ || connection_.timed_out_; }

asio::io_context& Exchange::io() { return connection_.context_.io; }

}  // namespace loci
