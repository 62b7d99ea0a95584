// SPDX-License-Identifier: Apache-2.0
// For tests: a server in this process, which answers as its kind does and misbehaves as it is told.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/check.h"

namespace loci {

// Thread-safe.
class FakeServer {
 public:
  // Takes what is next in a connection's input. Absent: there is nothing whole; otherwise what is sent.
  using Conversation = std::function<std::optional<std::string>(std::string& input)>;

  // `begin`: called for each connection, on a thread of its own.
  explicit FakeServer(std::function<Conversation()> begin) : begin_(std::move(begin)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    LOCI_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                   ::listen(listener_, 128) == 0,
               "a port of loopback");
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepter_ = std::thread([this] { accept_all(); });
  }
  ~FakeServer() { stop(); }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::uint16_t port() const { return port_; }
  // Sends are cut into pieces of a byte, a pause before each.
  void dribble(std::chrono::milliseconds pause) { dribble_ms_ = pause.count(); }
  // The next replies, so many of them, are each the last of its connection.
  void hang_up(int replies) { hang_ups_ = replies; }
  // Ends all connections; no conversation goes on afterwards.
  void stop() {
    if (stopping_.exchange(true)) return;
    ::shutdown(listener_, SHUT_RDWR);
    accepter_.join();
    ::close(listener_);
    for (std::thread& thread : serving_) thread.join();
  }

 private:
  void accept_all() {
    while (!stopping_) {
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) continue;
      serving_.emplace_back([this, socket] { serve(socket); });
    }
  }

  void serve(int socket) {
    const Conversation conversation = begin_();
    std::string input;
    std::vector<char> buffer(1 << 16);
    while (!stopping_) {
      pollfd watched{.fd = socket, .events = POLLIN, .revents = 0};
      if (::poll(&watched, 1, 20) <= 0) continue;
      const ssize_t got = ::recv(socket, buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      input.append(buffer.data(), static_cast<std::size_t>(got));
      bool alive = true;
      while (alive) {
        const std::optional<std::string> reply = conversation(input);
        if (!reply) break;
        alive = say(socket, *reply) && (hang_ups_ == 0 || hang_ups_.fetch_sub(1) <= 0);
      }
      if (!alive) break;
    }
    ::close(socket);
  }

  bool say(int socket, const std::string& text) {
    if (dribble_ms_ == 0) return ::send(socket, text.data(), text.size(), MSG_NOSIGNAL) >= 0;
    for (const char byte : text) {
      if (stopping_) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(dribble_ms_));
      if (::send(socket, &byte, 1, MSG_NOSIGNAL) < 0) return false;
    }
    return true;
  }

  const std::function<Conversation()> begin_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> dribble_ms_{0};
  std::atomic<int> hang_ups_{0};
  std::vector<std::thread> serving_;  // the accepter's until that has ended
  std::thread accepter_;
};

}  // namespace loci
