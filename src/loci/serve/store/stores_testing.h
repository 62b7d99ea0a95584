// SPDX-License-Identifier: Apache-2.0
// Stores for tests: an empty place for each kind, opened as often as a test likes.
#pragma once

#include <atomic>
#include <latch>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/store/store_options.h"

namespace loci {

class StorePlace {
 public:
  virtual ~StorePlace() = default;
  virtual Result<std::unique_ptr<ConversationStore>> open(const StoreOptions& options) = 0;
};

enum class StoreKind : std::uint8_t {
  kSqlite,
  kSqliteInMemory,  // on a disk that is none (fault_vfs_testing.h): fast
  kPostgres,
};

inline void PrintTo(StoreKind kind, std::ostream* out) {
  constexpr const char* kNames[] = {"sqlite", "sqlite_in_memory", "postgres"};
  *out << kNames[static_cast<std::size_t>(kind)];
}

// Null: this machine lacks what the kind needs.
std::unique_ptr<StorePlace> make_store_place(StoreKind kind);

// Readers of which each waits in the middle of its reading, as if it read 64 MiB from a slow disk.
class SlowReaders {
 public:
  ReadRoom room() {
    return [this](std::uint64_t) {
      const int now = ++reading_;
      for (int seen = most_; seen < now && !most_.compare_exchange_weak(seen, now);) {
      }
      go_.wait();
      --reading_;
      return true;
    };
  }
  int reading() const { return reading_; }
  int most() const { return most_; }  // at the same time
  void go_on() { go_.count_down(); }

 private:
  std::latch go_{1};
  std::atomic<int> reading_ = 0, most_ = 0;
};

StoredItem test_item(const std::string& id, const std::string& text = "hello");
// A completed response of no conversation, with a message in and one out.
StoredTurn test_turn(const std::string& id);

}  // namespace loci
