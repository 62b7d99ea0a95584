// SPDX-License-Identifier: Apache-2.0
// For tests: a server in this process that speaks as much of Redis's protocol as the store uses, and that
// misbehaves as it is told: it lies, cuts, hangs, dribbles, answers garbage.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/mutex.h"

namespace loci {

// Thread-safe.
class RedisFake {
 public:
  using Command = std::vector<std::string>;
  // What is sent for a command; absent: as Redis would answer. An empty string: nothing, ever.
  using Answer = std::function<std::optional<std::string>(const Command&)>;

  RedisFake() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    LOCI_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                   ::listen(listener_, 16) == 0,
               "a port of loopback");
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepter_ = std::thread([this] { accept_all(); });
  }
  ~RedisFake() {
    stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    accepter_.join();
    ::close(listener_);
    for (std::thread& thread : serving_) thread.join();
  }
  RedisFake(const RedisFake&) = delete;
  RedisFake& operator=(const RedisFake&) = delete;

  std::uint16_t port() const { return port_; }
  void answer(Answer answer) {
    const MutexLock lock(mutex_);
    answer_ = std::move(answer);
  }
  std::map<std::string, std::string> values() const {
    const MutexLock lock(mutex_);
    return values_;
  }
  void set_values(std::map<std::string, std::string> values) {
    const MutexLock lock(mutex_);
    values_ = std::move(values);
  }
  // Of that name, ever.
  std::uint64_t commands(const std::string& name) const {
    const MutexLock lock(mutex_);
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }
  // Sends are cut into pieces of a byte, a pause before each.
  void dribble(std::chrono::milliseconds pause) { dribble_ms_ = pause.count(); }

 private:
  void accept_all() {
    while (!stopping_) {
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) continue;
      serving_.emplace_back([this, socket] { serve(socket); });
    }
  }

  void serve(int socket) {
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
        const std::optional<Command> command = take(input);
        if (!command) break;
        alive = say(socket, reply_to(*command));
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

  // *N\r\n then N times $SIZE\r\nBYTES\r\n.
  static std::optional<Command> take(std::string& input) {
    std::size_t at = 0;
    const auto line = [&]() -> std::optional<std::string> {
      const std::size_t end = input.find("\r\n", at);
      if (end == std::string::npos) return std::nullopt;
      std::string text = input.substr(at, end - at);
      at = end + 2;
      return text;
    };
    const auto head = line();
    if (!head) return std::nullopt;
    Command command;
    for (int i = std::atoi(head->c_str() + 1); i > 0; --i) {
      const auto size = line();
      if (!size) return std::nullopt;
      const auto bytes = static_cast<std::size_t>(std::atoll(size->c_str() + 1));
      if (input.size() < at + bytes + 2) return std::nullopt;
      command.push_back(input.substr(at, bytes));
      at += bytes + 2;
    }
    input.erase(0, at);
    return command;
  }

  static std::string integer(std::size_t value) { return ":" + std::to_string(value) + "\r\n"; }
  static std::string bulk(const std::string& text) {
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
  }

  std::string reply_to(const Command& command) {
    Answer special;
    {
      const MutexLock lock(mutex_);
      ++counts_[command[0]];
      special = answer_;
    }
    if (special) {
      if (const auto text = special(command)) return *text;
    }
    const MutexLock lock(mutex_);
    const auto found = command.size() > 1 ? values_.find(command[1]) : values_.end();
    if (command[0] == "STRLEN") return integer(found == values_.end() ? 0 : found->second.size());
    if (command[0] == "EXPIRE") return integer(found == values_.end() ? 0 : 1);
    if (command[0] == "DEL") return integer(values_.erase(command[1]));
    if (command[0] == "SET") values_[command[1]] = command[2];
    if (command[0] != "GETRANGE") return "+OK\r\n";
    const auto first = static_cast<std::size_t>(std::atoll(command[2].c_str()));
    const auto last = static_cast<std::size_t>(std::atoll(command[3].c_str()));
    if (found == values_.end() || first >= found->second.size()) return bulk("");
    return bulk(found->second.substr(first, last - first + 1));
  }

  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> dribble_ms_{0};
  mutable Mutex mutex_;
  Answer answer_ GUARDED_BY(mutex_);
  std::map<std::string, std::string> values_ GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t> counts_ GUARDED_BY(mutex_);
  std::vector<std::thread> serving_;  // the accepter's until that has ended
  std::thread accepter_;
};

}  // namespace loci
