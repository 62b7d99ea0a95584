// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/peer_calls.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "loci/cluster/peers/peer_wire.h"

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr std::size_t kShortReplyBytesMax = 64 << 10;
constexpr std::size_t kIdleMax = 4;  // of a peer, whose places all members share

}  // namespace

PeerCalls::PeerCalls(asio::io_context& io, TlsContext tls, std::string state)
    : pool_(io, kIdleMax), state_(std::move(state)) {
  pool_.trust(std::move(tls));
}

asio::awaitable<Result<std::unique_ptr<PeerCalls::Line>>> PeerCalls::connect(std::uint32_t peer,
                                                                             std::string host,
                                                                             std::uint16_t port,
                                                                             Nanos limit) {
  if (is_stopping_) co_return Status(StatusCode::kCancelled, "this server stops");
  if (auto idle = pool_.take(peer)) co_return std::make_unique<Line>(*this, std::move(idle));
  const Member member{.host = std::move(host), .port = port, .tls = true};
  auto line = std::make_unique<Line>(*this, pool_.make(member));
  const Status status = co_await line->connection_->connect(member, limit);
  if (!status.ok()) co_return line->connection_->timed_out() ? line->broken() : status;
  co_return line;
}

void PeerCalls::keep(std::uint32_t peer, std::unique_ptr<Line> line) {
  if (is_stopping_) return;
  busy_.erase(line->connection_.get());
  pool_.give(peer, std::move(line->connection_));
}

void PeerCalls::stop() {
  is_stopping_ = true;
  for (Upstream* connection : busy_) connection->close();
}

Status PeerCalls::Line::broken() const {
  return connection_->timed_out() ? Status(StatusCode::kDeadlineExceeded, "it does not answer in time")
                                  : Status(StatusCode::kUnavailable, "the connection broke");
}

asio::awaitable<Status> PeerCalls::Line::call(std::string_view path, const std::string& body, Nanos limit) {
  const std::string head = fmt::format(
      "POST {} HTTP/1.1\r\nHost: loci-peer\r\n{}: {}\r\nContent-Type: application/octet-stream\r\n"
      "Content-Length: {}\r\n\r\n",
      path, kPeerStateHeader, calls_.state_, body.size());
  connection_->set_deadline(limit);
  if (!co_await connection_->send(head, body)) co_return broken();
  const Upstream::Header* header = co_await connection_->read_header(false);
  has_answered_ = header != nullptr;
  if (header == nullptr) co_return broken();
  const unsigned status = header->result_int();
  if (status == 200) co_return Status();
  const Result<std::string> why = co_await read_whole();
  co_return Status(StatusCode::kUnavailable,
                   fmt::format("it answers {}: {}", status, why.ok() ? *why : why.status().message()));
}

asio::awaitable<Result<std::string>> PeerCalls::Line::read_whole() {
  std::string whole;
  while (true) {
    const std::optional<std::string_view> piece = co_await connection_->read_piece();
    if (!piece) co_return broken();
    if (piece->empty()) co_return whole;
    whole += *piece;
    if (whole.size() > kShortReplyBytesMax)
      co_return data_loss(fmt::format("a reply of more than {} bytes", kShortReplyBytesMax));
  }
}

asio::awaitable<Result<std::string_view>> PeerCalls::Line::read_piece(Nanos limit,
                                                                      std::span<std::byte> room) {
  connection_->set_deadline(limit);
  const std::optional<std::string_view> piece = co_await connection_->read_piece(room);
  if (!piece) co_return broken();
  // What the caller does with it may take longer.
  connection_->clear_deadline();
  co_return *piece;
}

}  // namespace loci
