// SPDX-License-Identifier: Apache-2.0
// For tests: a server in this process that speaks as much of Redis's protocol as the store uses, and that
// misbehaves as it is told: it lies, cuts, hangs, dribbles, answers garbage.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/memory/shared/server_testing.h"

namespace loci {

// Thread-safe.
class RedisFake {
 public:
  using Command = std::vector<std::string>;
  // What is sent for a command; absent: as Redis would answer. An empty string: nothing, ever. Stores ask
  // until they end: it owns what it has, or has what outlives them.
  using Answer = std::function<std::optional<std::string>(const Command&)>;

  ~RedisFake() { server_.stop(); }

  std::uint16_t port() const { return server_.port(); }
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
  void dribble(std::chrono::milliseconds pause) { server_.dribble(pause); }

 private:
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

  mutable Mutex mutex_;
  Answer answer_ GUARDED_BY(mutex_);
  std::map<std::string, std::string> values_ GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t> counts_ GUARDED_BY(mutex_);
  FakeServer server_{[this] {
    return [this](std::string& input) -> std::optional<std::string> {
      const std::optional<Command> command = take(input);
      if (!command) return std::nullopt;
      return reply_to(*command);
    };
  }};
};

}  // namespace loci
