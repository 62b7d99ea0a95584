// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/chat_history.h"

#include <utility>

namespace loci {

void ChatHistory::restart(std::string system) {
  system_ = std::move(system);
  messages_ = nlohmann::json::array();
  replaced_.reset();
  if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
}

void ChatHistory::ask(const std::string& question) {
  messages_.push_back({{"role", "user"}, {"content", question}});
}

bool ChatHistory::ask_again() {
  if (messages_.empty() || messages_.back()["role"] != "assistant") return false;
  replaced_ = std::move(messages_.back());
  messages_.erase(messages_.size() - 1);
  return true;
}

void ChatHistory::answer(const std::string& reply) {
  messages_.push_back({{"role", "assistant"}, {"content", reply}});
  replaced_.reset();
}

void ChatHistory::give_up() {
  if (replaced_)
    messages_.push_back(*std::exchange(replaced_, std::nullopt));
  else
    messages_.erase(messages_.size() - 1);
}

bool ChatHistory::fork(std::size_t turns_back) {
  if (turns_back == 0 || turns_back > turns()) return false;
  forks_.push_back({.system = system_, .messages = messages_});
  messages_.erase(messages_.end() - static_cast<std::ptrdiff_t>(2 * turns_back), messages_.end());
  return true;
}

bool ChatHistory::go_to(std::size_t fork) {
  if (fork == 0 || fork > forks_.size()) return false;
  Fork& other = forks_[fork - 1];
  std::swap(system_, other.system);
  std::swap(messages_, other.messages);
  return true;
}

}  // namespace loci
