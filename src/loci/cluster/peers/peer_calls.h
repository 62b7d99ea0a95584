// SPDX-License-Identifier: Apache-2.0
// Calls to peers. Connections are made when they are needed and kept for the next call. Each wait has a
// deadline.
//
// Everything runs on the thread of `io`.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/cluster/upstream.h"
#include "loci/serve/http/tls.h"

namespace loci {

class PeerCalls {
 public:
  static constexpr Nanos kConnectLimit = 2 * kNanosPerSecond;

  // One connection, which ends with this object unless it is kept.
  class Line {
   public:
    Line(PeerCalls& calls, std::unique_ptr<Upstream> connection)
        : calls_(calls), connection_(std::move(connection)) {
      calls_.busy_.insert(connection_.get());
    }
    ~Line() { calls_.busy_.erase(connection_.get()); }
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;

    // Sends a request and reads the reply's head; if the status is not 200, the error has the peer's message.
    boost::asio::awaitable<Status> call(std::string_view path, const std::string& body, Nanos limit);
    // True: the peer has answered the call, whatever it said.
    bool has_answered() const { return has_answered_; }
    // Reads the body of a short reply.
    boost::asio::awaitable<Result<std::string>> read_whole();
    // Reads more of the body, within `limit`; empty at its end. `room`: Upstream::read_piece().
    boost::asio::awaitable<Result<std::string_view>> read_piece(Nanos limit, std::span<std::byte> room = {});

   private:
    friend class PeerCalls;
    Status broken() const;

    PeerCalls& calls_;
    std::unique_ptr<Upstream> connection_;
    bool has_answered_ = false;
  };

  // `state`: the value of kPeerStateHeader.
  PeerCalls(boost::asio::io_context& io, TlsContext tls, std::string state);

  // Connects to peer number `peer` at this host and port. Errors: kDeadlineExceeded after `limit`.
  boost::asio::awaitable<Result<std::unique_ptr<Line>>> connect(std::uint32_t peer, std::string host,
                                                                std::uint16_t port,
                                                                Nanos limit = kConnectLimit);
  // Keeps a line whose reply was read to its end, or that was not used.
  void keep(std::uint32_t peer, std::unique_ptr<Line> line);
  void drop(std::uint32_t peer) { pool_.drop(peer); }
  // Running calls end with errors, and no more begin.
  void stop();

 private:
  UpstreamPool pool_;
  const std::string state_;
  std::set<Upstream*> busy_;
  bool is_stopping_ = false;
};

}  // namespace loci
