// SPDX-License-Identifier: Apache-2.0
// Random operations on a store, for tests that compare a real one with the naive one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loci/base/random.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {

// Something to do to a store; what the store says, as text.
struct StoreOperation {
  std::string name;
  std::function<std::string(ConversationStore&)> run;
};

// What operations there are.
enum class WalkKind : std::uint8_t {
  kAll,
  kWithoutInterruption,  // no fail_interrupted(): PostgreSQL knows that this server has not ended
};

// One random walk. Few ids, so that they meet. Thread-compatible.
class StoreWalk {
 public:
  StoreWalk(WalkKind kind, std::uint64_t seed) : kind_(kind), random_(seed) {}

  StoreOperation next();
  // The time that the operations' stores are to take for now.
  std::int64_t now() const { return now_; }

 private:
  StoreOperation upkeep();
  StoreOperation on_conversation(std::uint64_t which, const std::string& tenant);
  StoreOperation on_response(std::uint64_t which, const std::string& tenant);
  std::string id(const char* kind, std::uint64_t count);
  std::vector<StoredItem> items(std::uint64_t count_max);
  ItemPage page();
  StoredTurn turn();

  WalkKind kind_;
  Random random_;
  std::int64_t now_ = 1'000;
};

// All that a walk can have stored, as text.
std::string dump_store(ConversationStore& store);

}  // namespace loci
