// SPDX-License-Identifier: Apache-2.0
// Clients that come to a server of this machine all at once, on one thread. Each sends the same request, and
// reads to the end of its connection. Every other one sends the second half only when its answer has begun.
#pragma once

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/descriptor.h"

namespace loci {

class Crowd {
 public:
  struct Guest {
    std::string answer;
    int error = 0;  // what its connection ended with: ECONNRESET, or EPIPE where that came behind the answer
  };

  // Must be called before sockets are opened, of clients and server together.
  static void allow_descriptors(rlim_t count) {
    rlimit limit{};
    LOCI_CHECK(::getrlimit(RLIMIT_NOFILE, &limit) == 0, "a process has a limit of descriptors");
    if (limit.rlim_cur >= count) return;
    limit.rlim_cur = count;
    LOCI_CHECK(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "a test needs more descriptors (ulimit -Hn)");
  }

  Crowd(std::uint16_t port, int count, std::string request)
      : request_(std::move(request)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < count; ++i) {
      Open& one = open_.emplace_back(Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)));
      LOCI_CHECK(one.socket.is_open(), "a test needs its sockets");
      if (::connect(one.socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 &&
          errno != EINPROGRESS)
        one.guest.error = errno;
      one.sends_to = i % 2 == 0 ? request_.size() : request_.size() / 2;
      epoll_event wanted{.events = EPOLLOUT, .data = {.u32 = static_cast<std::uint32_t>(i)}};
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, one.socket.get(), &wanted);
    }
  }

  // Those whose connections have ended within the time.
  std::vector<Guest> until_all_ended(std::chrono::seconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    std::vector<Guest> ended;
    std::array<epoll_event, 256> ready{};
    while (ended.size() < open_.size() && std::chrono::steady_clock::now() < end) {
      const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 100);
      for (int i = 0; i < count; ++i) {
        const std::uint32_t number = ready[static_cast<std::size_t>(i)].data.u32;
        if (goes_on(number)) continue;
        open_[number].socket = Descriptor();
        ended.push_back(std::move(open_[number].guest));
      }
    }
    return ended;
  }

 private:
  struct Open {
    Descriptor socket;
    std::size_t sent = 0, sends_to = 0;
    Guest guest{};
  };

  // False: its connection has ended.
  bool goes_on(std::uint32_t number) {
    Open& one = open_[number];
    if (one.sent < one.sends_to) return send(number);
    if (one.sent == request_.size()) return receive(one);
    one.sends_to = request_.size();  // its answer has begun
    wait_for(EPOLLOUT, number);
    return true;
  }
  void wait_for(std::uint32_t events, std::uint32_t number) {
    epoll_event wanted{.events = events, .data = {.u32 = number}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, open_[number].socket.get(), &wanted);
  }
  bool send(std::uint32_t number) {
    Open& one = open_[number];
    const ssize_t bytes =
        ::send(one.socket.get(), request_.data() + one.sent, one.sends_to - one.sent, MSG_NOSIGNAL);
    if (bytes < 0) return is_ready_later(one);
    one.sent += static_cast<std::size_t>(bytes);
    if (one.sent == one.sends_to) wait_for(EPOLLIN, number);
    return true;
  }
  static bool receive(Open& one) {
    std::array<char, 4096> piece{};
    const ssize_t bytes = ::recv(one.socket.get(), piece.data(), piece.size(), 0);
    if (bytes < 0) return is_ready_later(one);
    one.guest.answer.append(piece.data(), static_cast<std::size_t>(bytes));
    if (bytes > 0) return true;
    socklen_t size = sizeof one.guest.error;
    ::getsockopt(one.socket.get(), SOL_SOCKET, SO_ERROR, &one.guest.error, &size);
    return false;
  }
  static bool is_ready_later(Open& one) {
    if (errno == EAGAIN || errno == EINTR) return true;
    one.guest.error = errno;
    return false;
  }

  const std::string request_;
  const Descriptor epoll_;
  std::vector<Open> open_;
};

}  // namespace loci
