// SPDX-License-Identifier: Apache-2.0
// One turn at a time: which conversations have a response on its way. Network thread only.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace loci {

// Held while a turn of a conversation is made; dropping it lets the next one begin. A default one holds
// nothing.
class ConversationLock {
 public:
  using Held = std::set<std::pair<std::string, std::string>>;  // tenant, conversation

  ConversationLock() = default;
  ConversationLock(ConversationLock&& other) noexcept { swap(other); }
  ConversationLock& operator=(ConversationLock&& other) noexcept {
    ConversationLock taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~ConversationLock() {
    if (held_) held_->erase(key_);
  }

 private:
  friend class ConversationLocks;
  ConversationLock(std::shared_ptr<Held> held, Held::value_type key)
      : held_(std::move(held)), key_(std::move(key)) {}
  void swap(ConversationLock& other) noexcept {
    std::swap(held_, other.held_);
    std::swap(key_, other.key_);
  }

  std::shared_ptr<Held> held_;  // shared: a turn may outlive the API that began it
  Held::value_type key_;
};

class ConversationLocks {
 public:
  // Nothing where a turn of the conversation is being made.
  std::optional<ConversationLock> take(const std::string& tenant, const std::string& conversation) {
    ConversationLock::Held::value_type key(tenant, conversation);
    if (!held_->insert(key).second) return std::nullopt;
    return ConversationLock(held_, std::move(key));
  }

 private:
  std::shared_ptr<ConversationLock::Held> held_ = std::make_shared<ConversationLock::Held>();
};

}  // namespace loci
