// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/random_walk_testing.h"

#include <fmt/format.h>

#include <set>

namespace loci {
namespace {

constexpr std::uint64_t kConversations = 4, kResponses = 12, kItems = 30;

std::string show(const Status& status) { return std::string(status_code_name(status.code())); }
std::string show(const std::vector<StoredItem>& items) {
  std::string out;
  for (const StoredItem& item : items) out += item.id + "=" + item.json + " ";
  return out;
}
std::string show(const ItemList& list) { return show(list.items) + (list.has_more ? "..." : "."); }
std::string show(const StoredItem& item) { return item.id + "=" + item.json; }
std::string show(const StoredConversation& one) {
  return fmt::format("{} {} {}", one.id, one.created_at, one.metadata);
}
std::string show(const StoredResponse& one) {
  std::string out = fmt::format("{} {} {} {} {} {}:", one.id, one.conversation, one.previous, one.created_at,
                                one.status, one.tokenizer);
  for (const TokenId token : one.tokens) out += fmt::format(" {}", token.value);
  return out;
}
std::string show(std::uint64_t count) { return std::to_string(count); }
std::string show(const StoreExpiry& expiry) { return show(expiry.gone); }
std::string show(const std::vector<TenantStats>& stats) {
  std::string out;
  for (const TenantStats& one : stats) {
    out += fmt::format("{}: {} {} {} {} {}; ", one.tenant, one.conversations, one.responses, one.items,
                       one.oldest_active_at, one.newest_active_at);
  }
  return out;
}
// In any order.
std::string show(const std::vector<StoredTokens>& said) {
  std::set<std::string> sequences;
  for (const StoredTokens& one : said) {
    std::string sequence = one.tokenizer + ":";
    for (const TokenId token : one.tokens) sequence += fmt::format(" {}", token.value);
    sequences.insert(std::move(sequence));
  }
  std::string out;
  for (const std::string& sequence : sequences) out += sequence + "; ";
  return out;
}
template <class T>
std::string show(const Result<T>& result) {
  return result.ok() ? show(*result) : show(result.status());
}

template <class Call>
StoreOperation operation(std::string name, Call call) {
  return {std::move(name), [call](ConversationStore& store) { return show(call(store)); }};
}

}  // namespace

StoreOperation StoreWalk::next() {
  const std::string tenant = random_.below(4) == 0 ? "bob" : "ann";
  const std::uint64_t which = random_.below(16);
  if (which == 0) return upkeep();
  if (which < 8) return on_conversation(which, tenant);
  return on_response(which, tenant);
}

StoreOperation StoreWalk::on_conversation(std::uint64_t which, const std::string& tenant) {
  const std::string c = id("c", kConversations), i = id("i", kItems);
  switch (which) {
    case 1: {
      const StoredConversation made{.id = c, .created_at = now_, .metadata = "{}"};
      return operation("create " + c,
                       [=, list = items(3)](auto& s) { return s.create_conversation(tenant, made, list); });
    }
    case 2: {
      const std::string metadata = fmt::format(R"({{"n":"{}"}})", random_.below(1'000));
      return operation("set " + c, [=](auto& s) { return s.set_metadata(tenant, c, metadata); });
    }
    case 3:
      if (random_.below(3) == 0)
        return operation("delete " + c, [=](auto& s) { return s.delete_conversation(tenant, c); });
      return operation("get " + c, [=](auto& s) { return s.conversation(tenant, c); });
    case 4:
      return operation("add to " + c, [=, list = items(3)](auto& s) { return s.add_items(tenant, c, list); });
    case 5:
      return operation("list " + c,
                       [=, at = page()](auto& s) { return s.conversation_items(tenant, c, at); });
    case 6: return operation("item " + i, [=](auto& s) { return s.conversation_item(tenant, c, i, {}); });
    default: return operation("delete item " + i, [=](auto& s) { return s.delete_item(tenant, c, i); });
  }
}

StoreOperation StoreWalk::on_response(std::uint64_t which, const std::string& tenant) {
  const std::string r = id("r", kResponses);
  switch (which) {
    case 8: return operation("delete " + r, [=](auto& s) { return s.delete_response(tenant, r); });
    case 9:
      return operation("input " + r, [=, at = page()](auto& s) { return s.input_items(tenant, r, at); });
    case 10: {
      const std::uint64_t bytes_max = random_.below(2) == 0 ? UINT64_MAX : random_.below(1'000);
      return operation("history " + r, [=](auto& s) { return s.response_history(tenant, r, bytes_max); });
    }
    case 11:
      if (random_.below(2) == 0)
        return operation("go on from " + r, [=](auto& s) { return s.continued_response(tenant, r); });
      return operation("get " + r, [=](auto& s) { return s.response(tenant, r); });
    default: {
      const StoredTurn made = turn();
      return operation("commit " + made.response.id, [=](auto& s) { return s.commit_turn(tenant, made); });
    }
  }
}

StoreOperation StoreWalk::upkeep() {
  switch (random_.below(kind_ == WalkKind::kAll ? 5 : 4)) {
    case 0: now_ += static_cast<std::int64_t>(random_.below(120)); [[fallthrough]];
    case 1: return operation("stats", [](auto& s) { return s.stats(); });
    case 2: {
      const StoreLimits limits{.age_seconds_max = 200, .bytes_max = {}};
      return operation("expire", [=, now = now_](auto& s) { return s.expire(now, limits); });
    }
    // What was counted was right.
    case 3: return operation("recount", [](auto& s) { return s.recount_usage(); });
    default: return operation("fail", [](auto& s) { return s.fail_interrupted({}, {}); });
  }
}

std::string StoreWalk::id(const char* kind, std::uint64_t count) {
  return fmt::format("{}{}", kind, random_.below(count));
}

std::vector<StoredItem> StoreWalk::items(std::uint64_t count_max) {
  std::vector<StoredItem> out(random_.below(count_max));
  for (StoredItem& item : out) item = test_item(id("i", kItems), std::to_string(random_.below(1'000)));
  return out;
}

ItemPage StoreWalk::page() {
  return {.after = random_.below(3) == 0 ? id("i", kItems) : "",
          .limit = static_cast<std::uint32_t>(random_.below(5)),
          .newest_first = random_.below(2) == 0};
}

StoredTurn StoreWalk::turn() {
  StoredTurn made = test_turn(id("r", kResponses));
  made.input = items(3);
  made.output = items(3);
  made.response.created_at = now_;
  if (random_.below(3) == 0) {
    made.response.conversation = id("c", kConversations);
  } else if (random_.below(2) == 0) {
    made.response.previous = id("r", kResponses);
  }
  constexpr const char* kStatuses[] = {"completed", "in_progress", "queued", "incomplete", "failed"};
  made.response.status = kStatuses[random_.below(5)];
  // Many have much in common.
  std::vector<TokenId>& tokens = made.response.tokens;
  tokens.clear();
  const std::uint64_t length = random_.below(300);
  for (std::uint64_t k = 0; k < length; ++k) tokens.push_back(TokenId(static_cast<std::uint32_t>(k)));
  if (random_.below(2) == 0) tokens.push_back(TokenId(static_cast<std::uint32_t>(random_.next())));
  return made;
}

std::string dump_store(ConversationStore& store) {
  std::string out;
  const auto add = [&](const auto& result) {
    if (result.ok()) out += show(*result) + "\n";
    // A fault in reading must not pass for an absence.
    if (!result.ok() && result.status().code() != StatusCode::kNotFound) out += result.status().to_string();
  };
  for (const char* tenant : {"ann", "bob"}) {
    for (std::uint64_t i = 0; i < kConversations; ++i) {
      const std::string c = fmt::format("c{}", i);
      add(store.conversation(tenant, c));
      add(store.conversation_history(tenant, c, UINT64_MAX));
    }
    for (std::uint64_t i = 0; i < kResponses; ++i) {
      const std::string r = fmt::format("r{}", i);
      add(store.response(tenant, r));
      add(store.response_history(tenant, r, UINT64_MAX));
      add(store.input_items(tenant, r, {}));
    }
  }
  add(store.stats());
  return out;
}

}  // namespace loci
