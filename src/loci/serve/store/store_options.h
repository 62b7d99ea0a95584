// SPDX-License-Identifier: Apache-2.0
// What both kinds of stores can be told.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/serve/store/store_shares.h"

namespace loci {

struct StoreOptions {
  // How long a call waits for another process's lock (SQLite), or for the server (PostgreSQL).
  Nanos lock_timeout = 10 * kNanosPerSecond;
  // PostgreSQL alone: a transaction that the server does not answer for so long is given up, and so is its
  // connection. (A server that stands still keeps its connections, and no timeout of its own runs.)
  Nanos answer_timeout = 30 * kNanosPerSecond;
  // PostgreSQL alone: a connection that nobody has used for so long is closed, but for the last one.
  Nanos idle_limit = 60 * kNanosPerSecond;
  // For how long a turn is claimed (ConversationStore::claim_turn).
  Nanos turn_lease = 10 * kNanosPerSecond;
  // When something was active: seconds since 1970. Null: what the database says, so that servers that share
  // one agree (SqlSession::now_seconds).
  std::function<std::int64_t()> now_seconds;
  // What a tenant may keep. A write that takes a tenant over it deletes the tenant's own threads that were
  // longest at rest. Null: whatever it likes.
  QuotaOf quota_of;
  // So many of the tenant's conversations and responses went, since a write of its own took it over its
  // quota. Called on the thread that wrote; may be null.
  std::function<void(std::string_view tenant, std::uint64_t gone)> made_room;
  // expire() has something to do before its time: a write of a tenant that is at its quota left large
  // conversations to erase, or more than its quota. Called on the thread that wrote; may be null.
  std::function<void()> expire_soon;
  // Tokens that the deletion of a conversation tells at most, so that the longest ones cost a bounded time.
  std::size_t said_tokens_max = std::size_t{4} << 20;
  // How long a turn took to become durable. Called on the thread that committed it; may be null.
  std::function<void(Nanos)> committed;
  // SQLite alone: pages of the log that are gathered before they are moved into the file.
  int sqlite_checkpoint_pages = 1'000;
  // SQLite alone: the name of the virtual file system to use. Null: the system's own.
  const char* sqlite_vfs = nullptr;
};

}  // namespace loci
