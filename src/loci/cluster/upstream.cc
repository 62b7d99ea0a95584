// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/upstream.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <limits>

#include "loci/cluster/host_lookup.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::uint32_t kHeaderBytesMax = 64 << 10;

}  // namespace

struct Upstream::Piece {
  using value_type = std::string_view;  // what was read last; it lies in the connection's buffer

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(http::header<is_request, Fields>& /*header*/, value_type& piece) : piece_(piece) {}
    template <class Length>
    void init(const Length& /*length*/, error_code& error) {
      error = {};
    }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, error_code& error) {
      error = {};
      const asio::const_buffer first(*asio::buffer_sequence_begin(buffers));
      piece_ = {static_cast<const char*>(first.data()), first.size()};
      return first.size();
    }
    void finish(error_code& error) { error = {}; }

   private:
    value_type& piece_;
  };
};

Upstream::State::State(asio::io_context& io, TlsContext tls)
    : socket(tcp::socket(io), std::move(tls)), resolved(io), watchdog(io) {}

void Upstream::State::close() {
  is_closed = true;
  resolved.cancel();
  error_code ignored;
  socket.tcp().close(ignored);
}

Upstream::Upstream(asio::io_context& io, TlsContext tls)
    : io_(io),
      state_(std::make_shared<State>(io, std::move(tls))),
      buffer_(kHeaderBytesMax + 2 * kPieceBytes),
      on_chunk_([this](std::uint64_t remain, boost::core::string_view bytes, error_code& /*error*/) {
        parser_->get().body() = {bytes.data(), bytes.size()};
        chunk_left_ = remain - bytes.size();
        return bytes.size();
      }) {}

Upstream::~Upstream() = default;

asio::awaitable<Status> Upstream::connect(const Member& member, Nanos timeout) {
  set_deadline(timeout);
  error_code error;
  Endpoints endpoints;
  const asio::ip::address address = asio::ip::make_address(member.host, error);
  if (!error)
    endpoints =
        Endpoints::create(tcp::endpoint(address, member.port), member.host, std::to_string(member.port));
  else
    error = co_await look_up(member, endpoints);
  if (error) co_return Status(StatusCode::kUnavailable, "no connection: " + error.message());
  co_return co_await connect_to(state_->socket, member.host, endpoints);
}

asio::awaitable<error_code> Upstream::look_up(const Member& member, Endpoints& found) {
  struct Answer {
    std::optional<error_code> error;  // nothing: it is still looked for
    Endpoints endpoints;
  };
  const auto answer = std::make_shared<Answer>();
  state_->resolved.expires_at(std::chrono::steady_clock::time_point::max());
  const HostLookup lookup(io_, member.host, member.port,
                          [answer, state = state_](const error_code& error, const Endpoints& endpoints) {
                            *answer = {.error = error, .endpoints = endpoints};
                            state->resolved.cancel();
                          });
  error_code error;
  co_await state_->resolved.async_wait(asio::redirect_error(asio::use_awaitable, error));
  // What was closed meanwhile is not opened again.
  if (state_->is_closed || !answer->error)
    co_return state_->has_timed_out ? asio::error::timed_out : asio::error::operation_aborted;
  found = std::move(answer->endpoints);
  co_return *answer->error;
}

bool Upstream::is_stale() {
  char byte = 0;
  const ssize_t got = ::recv(state_->socket.tcp().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

asio::awaitable<bool> Upstream::send(std::string_view head, std::string_view body) {
  error_code error;
  const std::array<asio::const_buffer, 2> buffers = {asio::buffer(head), asio::buffer(body)};
  co_await asio::async_write(state_->socket, buffers, asio::redirect_error(asio::use_awaitable, error));
  co_return !error;
}

void Upstream::State::cancel_every(asio::steady_timer& timer, Nanos limit, std::weak_ptr<bool> has_passed) {
  timer.expires_after(std::chrono::nanoseconds(limit));
  timer.async_wait([this, &timer, limit, weak = std::move(has_passed),
                    state = shared_from_this()](const error_code& error) {
    const std::shared_ptr<bool> passed = weak.lock();
    if (error || passed == nullptr) return;
    *passed = true;
    error_code ignored;
    socket.tcp().cancel(ignored);
    // Of a read that had just come to its end and goes on with the next this has cancelled nothing.
    cancel_every(timer, limit, weak);
  });
}

std::shared_ptr<bool> Upstream::cancel_after(asio::steady_timer& timer, Nanos limit) {
  auto has_passed = std::make_shared<bool>(false);
  state_->cancel_every(timer, limit, has_passed);
  return has_passed;
}

asio::awaitable<const Upstream::Header*> Upstream::read_header(bool is_head_request, Quiet quiet) {
  parser_ = std::make_unique<Parser>();
  parser_->header_limit(kHeaderBytesMax);
  parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
  parser_->on_chunk_body(on_chunk_);
  chunk_left_ = 0;
  if (is_head_request) parser_->skip(true);
  error_code error;
  asio::steady_timer timer(io_);
  while (true) {
    std::shared_ptr<bool> has_passed;
    if (quiet.say) has_passed = cancel_after(timer, quiet.limit);
    co_await http::async_read_header(state_->socket, buffer_, *parser_,
                                     asio::redirect_error(asio::use_awaitable, error));
    const bool is_quiet = has_passed && *has_passed && error == asio::error::operation_aborted;
    has_passed.reset();
    // (What has come of it is kept, and read on from.)
    if (!is_quiet || state_->is_closed) break;
    co_await quiet.say();
  }
  // A status that Exchange can't say (1xx, which nobody asked for, too) is as good as none.
  const unsigned status = error ? 0 : parser_->get().result_int();
  co_return status >= 200 && status <= 599 ? &parser_->get().base() : nullptr;
}

std::optional<std::uint64_t> Upstream::content_length() const {
  const auto length = parser_->content_length();
  return length ? std::optional<std::uint64_t>(*length) : std::nullopt;
}

asio::awaitable<std::optional<std::string_view>> Upstream::read_more(std::span<std::byte> room,
                                                                     std::size_t bytes_max) {
  // (Beast reads no more at once than the buffer has taken so far, which a short header leaves at 512 bytes.)
  buffer_.reserve(bytes_max);
  while (!parser_->is_done()) {
    parser_->get().body() = {};
    error_code error = http::error::need_more;
    if (buffer_.size() > 0) buffer_.consume(parser_->put(buffer_.data(), error));
    if (error == http::error::need_more && buffer_.size() == 0 && chunk_left_ > 0 && !room.empty()) {
      error = co_await read_into(room);
    } else if (error == http::error::need_more) {
      co_await http::async_read_some(state_->socket, buffer_, *parser_,
                                     asio::redirect_error(asio::use_awaitable, error));
    }
    if (error) co_return std::nullopt;
    // (Where it lies is not written to before the next read.)
    if (const std::string_view got = parser_->get().body(); !got.empty()) co_return got;
  }
  co_return std::string_view();
}

// The parser goes by the number of these bytes alone.
asio::awaitable<error_code> Upstream::read_into(std::span<std::byte> room) {
  room = room.first(std::min<std::uint64_t>(room.size(), chunk_left_));
  const bool ends_chunk = room.size() == chunk_left_;
  const std::array<asio::mutable_buffer, 2> targets = {
      asio::buffer(room.data(), room.size()),
      ends_chunk ? asio::mutable_buffer(buffer_.prepare(kBehindBytes)) : asio::mutable_buffer()};
  error_code error;
  const std::size_t bytes =
      co_await state_->socket.async_read_some(targets, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return error;
  const std::size_t of_chunk = std::min(bytes, room.size());
  buffer_.commit(bytes - of_chunk);
  parser_->put(asio::buffer(room.data(), of_chunk), error);
  co_return error;
}

asio::awaitable<std::optional<std::string>> Upstream::read_body(std::uint64_t bytes_max) {
  std::string body;
  for (;;) {
    const std::optional<std::string_view> piece = co_await read_piece();
    if (!piece || body.size() + piece->size() > bytes_max) co_return std::nullopt;
    if (piece->empty()) co_return body;
    body += *piece;
  }
}

bool Upstream::is_reusable() const {
  const bool is_unused = !parser_ && !state_->is_closed;
  return (is_unused || (parser_ && parser_->is_done() && parser_->keep_alive())) && buffer_.size() == 0 &&
         !state_->socket.has_input() && !state_->has_timed_out && state_->socket.tcp().is_open();
}

// What an answer took: a front may keep hundreds of idle connections to each of its instances.
void Upstream::rest() {
  parser_.reset();
  buffer_.clear();
  buffer_.shrink_to_fit();
  state_->socket.rest();
}

void Upstream::close() { state_->close(); }

void Upstream::set_deadline(Nanos from_now) {
  state_->has_timed_out = false;
  state_->deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(from_now);
  if (state_->deadline < state_->armed_for) state_->arm();
}

// A deadline that moves on, as each piece of a body moves it, is looked at when the timer fires.
void Upstream::State::arm() {
  armed_for = deadline;
  watchdog.expires_at(deadline);
  watchdog.async_wait([weak = weak_from_this()](const error_code& error) {
    const std::shared_ptr<State> state = weak.lock();
    if (error || !state) return;
    state->armed_for = std::chrono::steady_clock::time_point::max();
    if (state->deadline > std::chrono::steady_clock::now()) return state->arm();
    state->has_timed_out = true;
    state->close();
  });
}

std::unique_ptr<Upstream> UpstreamPool::take(std::uint32_t instance) {
  const auto at = idle_.find(instance);
  if (at == idle_.end()) return nullptr;
  const auto oldest = std::chrono::steady_clock::now() - kIdleTime;
  while (!at->second.empty()) {
    Idle last = std::move(at->second.back());
    at->second.pop_back();
    if (last.since >= oldest && !last.connection->is_stale()) return std::move(last.connection);
    if (last.since < oldest) at->second.clear();  // those below are older
  }
  return nullptr;
}

std::unique_ptr<Upstream> UpstreamPool::make(const Member& member) {
  return std::make_unique<Upstream>(io_, member.tls ? tls_ : nullptr);
}

void UpstreamPool::give(std::uint32_t instance, std::unique_ptr<Upstream> connection) {
  if (!connection->is_reusable()) return;
  std::vector<Idle>& idle = idle_[instance];
  if (idle.size() >= idle_max_) return;
  connection->rest();
  connection->set_deadline(std::chrono::nanoseconds(kIdleTime).count());
  idle.push_back({.connection = std::move(connection), .since = std::chrono::steady_clock::now()});
}

}  // namespace loci
