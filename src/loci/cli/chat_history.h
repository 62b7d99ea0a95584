// SPDX-License-Identifier: Apache-2.0
// What was said in `loci chat`: the conversation that goes on, and those that were left (forks). No I/O.
//
// A conversation is [the system's message,] then turns, each a question with its reply. Between ask() or
// ask_again() and what follows them, answer() or give_up(), the last question has no reply.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace loci {

// Thread-compatible.
class ChatHistory {
 public:
  // `system`: the system's message; empty: none.
  explicit ChatHistory(std::string system) { restart(std::move(system)); }

  // What goes on, as the API takes it: [{"role", "content"}].
  const nlohmann::json& messages() const { return messages_; }
  std::size_t turns() const { return (messages_.size() - (system_.empty() ? 0 : 1)) / 2; }

  // Begins anew: with the same system's message, or with another one.
  void restart() { restart(system_); }
  void restart(std::string system);

  void ask(const std::string& question);
  // Asks the last question again; its reply stays until another one is there. False: no reply is there.
  bool ask_again();
  // Whether a reply waits for another one to take its place.
  bool asks_again() const { return replaced_.has_value(); }
  void answer(const std::string& reply);
  // No reply came: a new question is taken back, one that was asked again keeps its reply.
  void give_up();

  // Goes back by so many turns; what was said since stays as a fork, the last one. False: not 1 to turns().
  bool fork(std::size_t turns_back);
  std::size_t forks() const { return forks_.size(); }
  // Goes on with that fork (from 1), whose place this conversation takes. False: there is none.
  bool go_to(std::size_t fork);
  // The messages of that fork (from 1, at most forks()), as messages() has them.
  const nlohmann::json& fork_messages(std::size_t fork) const { return forks_.at(fork - 1).messages; }

 private:
  // A conversation has a system's message of its own.
  struct Fork {
    std::string system;
    nlohmann::json messages;
  };

  std::string system_;
  nlohmann::json messages_;
  std::optional<nlohmann::json> replaced_;  // the reply that ask_again() took off
  std::vector<Fork> forks_;
};

}  // namespace loci
