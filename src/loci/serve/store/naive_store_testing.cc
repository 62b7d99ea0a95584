// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/naive_store_testing.h"

#include <algorithm>
#include <map>

namespace loci {
namespace {

const Status kNone = not_found("none");
const Status kBad = invalid_argument("bad");
const Status kTooMuch(StatusCode::kResourceExhausted, "too much");

std::uint64_t bytes_of(const std::vector<StoredItem>& items) {
  std::uint64_t bytes = 0;
  for (const StoredItem& item : items) bytes += item.id.size() + item.json.size() + 64;
  return bytes;
}

bool has(const std::vector<StoredItem>& items, std::string_view id) {
  return std::any_of(items.begin(), items.end(), [&](const StoredItem& item) { return item.id == id; });
}

// Whether all could join a list whose ids differ.
bool can_join(std::vector<StoredItem> list, const std::vector<StoredItem>& added) {
  for (const StoredItem& item : added) {
    if (has(list, item.id)) return false;
    list.push_back(item);
  }
  return true;
}

Result<ItemList> page_of(std::vector<StoredItem> items, const ItemPage& page) {
  auto begin = items.begin();
  if (!page.after.empty()) {
    const auto at = std::find_if(begin, items.end(), [&](const auto& item) { return item.id == page.after; });
    if (at == items.end()) return kBad;
    if (page.newest_first) {
      items.erase(at, items.end());
    } else {
      items.erase(begin, at + 1);
    }
  }
  if (page.newest_first) std::reverse(items.begin(), items.end());
  ItemList list{.items = std::move(items), .has_more = false};
  std::size_t count = 0, bytes = 0;
  for (; count < std::min<std::size_t>(list.items.size(), page.limit); ++count) {
    bytes += list.items[count].id.size() + list.items[count].json.size() + 64;
    if (count > 0 && bytes > kPageBytesMax) break;
  }
  list.has_more = list.items.size() > count;
  list.items.resize(count);
  return list;
}

bool begins(const StoredTokens& a, const StoredTokens& b) {
  return a.tokenizer == b.tokenizer && a.tokens.size() <= b.tokens.size() &&
         std::equal(a.tokens.begin(), a.tokens.end(), b.tokens.begin());
}

// Of the same ones the newest is left.
std::vector<StoredTokens> without_beginnings(const std::vector<StoredTokens>& all) {
  std::vector<StoredTokens> left;
  for (auto one = all.rbegin(); one != all.rend(); ++one) {
    const auto begins_it = [&](const StoredTokens& other) { return begins(*one, other); };
    const bool known = std::any_of(left.begin(), left.end(), begins_it);
    if (!known && std::none_of(one + 1, all.rend(), [&](const StoredTokens& other) {
          return begins_it(other) && other.tokens.size() > one->tokens.size();
        }))
      left.push_back(*one);
  }
  return left;
}

std::vector<StoredItem> joined(const StoredTurn& turn) {
  std::vector<StoredItem> items = turn.input;
  items.insert(items.end(), turn.output.begin(), turn.output.end());
  return items;
}

}  // namespace

NaiveStore::Conversation* NaiveStore::find_conversation(std::string_view tenant, std::string_view id) {
  for (Conversation& one : conversations_) {
    if (one.tenant == tenant && one.stored.id == id) return &one;
  }
  return nullptr;
}

NaiveStore::Response* NaiveStore::find_response(std::string_view tenant, std::string_view id) {
  for (Response& one : responses_) {
    if (one.tenant == tenant && one.turn.response.id == id) return &one;
  }
  return nullptr;
}

bool NaiveStore::is_running(const Response& response) {
  const std::string& status = response.turn.response.status;
  return status == "in_progress" || status == "queued";
}

void NaiveStore::touch(int thread) {
  std::int64_t& active = active_at_[static_cast<std::size_t>(thread)];
  active = std::max(active, now);
}

Status NaiveStore::create_conversation(std::string_view tenant, const StoredConversation& conversation,
                                       const std::vector<StoredItem>& items) {
  if (find_conversation(tenant, conversation.id) != nullptr || !can_join({}, items)) return kBad;
  conversations_.push_back({.tenant = std::string(tenant),
                            .thread = static_cast<int>(active_at_.size()),
                            .stored = conversation,
                            .items = items,
                            .items_of = std::vector<std::string>(items.size())});
  active_at_.push_back(now);
  return {};
}

Result<StoredConversation> NaiveStore::conversation(std::string_view tenant, std::string_view id) {
  const Conversation* found = find_conversation(tenant, id);
  if (found == nullptr) return kNone;
  return found->stored;
}

Result<ConversationList> NaiveStore::conversations(std::string_view tenant, std::string_view after,
                                                   std::uint32_t limit) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < conversations_.size(); ++i) {
    if (conversations_[i].tenant == tenant) order.push_back(i);
  }
  const auto active = [&](std::size_t i) {
    return active_at_[static_cast<std::size_t>(conversations_[i].thread)];
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return active(a) != active(b) ? active(a) > active(b) : a > b;
  });
  if (!after.empty()) {
    const auto at = std::find_if(order.begin(), order.end(),
                                 [&](std::size_t i) { return conversations_[i].stored.id == after; });
    if (at == order.end()) return kBad;
    order.erase(order.begin(), at + 1);
  }
  ConversationList list{.conversations = {}, .has_more = order.size() > limit};
  for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), limit); ++i) {
    const Conversation& one = conversations_[order[i]];
    ConversationSummary summary{
        .conversation = one.stored, .active_at = active(order[i]), .items = one.items.size()};
    const std::size_t first = std::min<std::size_t>(one.items.size(), kFirstItems);
    summary.first.assign(one.items.begin(), one.items.begin() + static_cast<std::ptrdiff_t>(first));
    for (StoredItem& item : summary.first) {
      if (item.json.size() > kFirstItemBytesMax) item.json.clear();
    }
    list.conversations.push_back(std::move(summary));
  }
  return list;
}

Status NaiveStore::set_metadata(std::string_view tenant, std::string_view id, std::string_view metadata) {
  Conversation* found = find_conversation(tenant, id);
  if (found == nullptr) return kNone;
  found->stored.metadata = metadata;
  touch(found->thread);
  return {};
}

Result<std::vector<StoredTokens>> NaiveStore::delete_conversation(std::string_view tenant,
                                                                  std::string_view id) {
  Conversation* found = find_conversation(tenant, id);
  if (found == nullptr) return kNone;
  const int thread = found->thread;
  std::vector<StoredTokens> said;
  for (const Response& one : responses_) {
    const StoredResponse& response = one.turn.response;
    if (one.thread == thread && !response.tokens.empty())
      said.push_back({.tokens = response.tokens, .tokenizer = response.tokenizer});
  }
  std::erase_if(responses_, [&](const Response& one) { return one.thread == thread && !is_running(one); });
  for (Response& one : responses_) {
    if (one.thread == thread) one.joins_conversation = false;
  }
  conversations_.erase(conversations_.begin() + (found - conversations_.data()));
  return without_beginnings(said);
}

Status NaiveStore::add_items(std::string_view tenant, std::string_view conversation,
                             const std::vector<StoredItem>& items) {
  Conversation* found = find_conversation(tenant, conversation);
  if (found == nullptr) return kNone;
  if (!can_join(found->items, items)) return kBad;
  found->items.insert(found->items.end(), items.begin(), items.end());
  found->items_of.resize(found->items.size());
  touch(found->thread);
  return {};
}

Result<ItemList> NaiveStore::conversation_items(std::string_view tenant, std::string_view conversation,
                                                const ItemPage& page) {
  const Conversation* found = find_conversation(tenant, conversation);
  if (found == nullptr) return kNone;
  return page_of(found->items, page);
}

Result<StoredItem> NaiveStore::conversation_item(std::string_view tenant, std::string_view conversation,
                                                 std::string_view item, const ReadRoom&) {
  const Conversation* found = find_conversation(tenant, conversation);
  if (found == nullptr) return kNone;
  for (const StoredItem& one : found->items) {
    if (one.id == item) return one;
  }
  return kNone;
}

Status NaiveStore::delete_item(std::string_view tenant, std::string_view conversation,
                               std::string_view item) {
  Conversation* found = find_conversation(tenant, conversation);
  if (found == nullptr) return kNone;
  for (std::size_t i = 0; i < found->items.size(); ++i) {
    if (found->items[i].id != item) continue;
    found->items.erase(found->items.begin() + static_cast<std::ptrdiff_t>(i));
    found->items_of.erase(found->items_of.begin() + static_cast<std::ptrdiff_t>(i));
    return {};
  }
  return kNone;
}

Status NaiveStore::commit_turn(std::string_view tenant, const StoredTurn& turn) {
  const StoredResponse& response = turn.response;
  Response* replaced = find_response(tenant, response.id);
  if (replaced != nullptr) {
    const StoredResponse& before = replaced->turn.response;
    if (!is_running(*replaced)) return kBad;
    if (before.conversation != response.conversation || before.previous != response.previous) return kBad;
  }
  Conversation* conversation = find_conversation(tenant, response.conversation);
  const Response* previous = find_response(tenant, response.previous);
  if (replaced == nullptr && !response.conversation.empty() && conversation == nullptr) return kNone;
  if (replaced == nullptr && !response.previous.empty() && previous == nullptr) return kNone;
  if (replaced != nullptr && !replaced->joins_conversation) conversation = nullptr;
  if (conversation != nullptr) {
    std::vector<StoredItem> items;
    std::vector<std::string> items_of;
    for (std::size_t i = 0; i < conversation->items.size(); ++i) {
      if (conversation->items_of[i] == response.id) continue;
      items.push_back(conversation->items[i]);
      items_of.push_back(conversation->items_of[i]);
    }
    const std::vector<StoredItem> added = joined(turn);
    if (!can_join(items, added)) return kBad;
    items.insert(items.end(), added.begin(), added.end());
    items_of.resize(items.size(), response.id);
    conversation->items = std::move(items);
    conversation->items_of = std::move(items_of);
  }
  if (replaced != nullptr) {
    replaced->turn = turn;
    touch(replaced->thread);
    return {};
  }
  const std::uint64_t continues = previous != nullptr ? previous->serial : 0;
  int thread = static_cast<int>(active_at_.size());
  if (conversation != nullptr) {
    thread = conversation->thread;
  } else if (previous != nullptr) {
    thread = previous->thread;
  } else {
    active_at_.push_back(now);
  }
  responses_.push_back({.tenant = std::string(tenant),
                        .thread = thread,
                        .turn = turn,
                        .joins_conversation = conversation != nullptr,
                        .serial = ++serial_,
                        .continues = continues});
  touch(thread);
  return {};
}

Result<StoredResponse> NaiveStore::response(std::string_view tenant, std::string_view id) {
  const Response* found = find_response(tenant, id);
  if (found == nullptr) return kNone;
  return found->turn.response;
}

Result<std::string> NaiveStore::response_json(std::string_view tenant, std::string_view id, const ReadRoom&) {
  LOCI_ASSIGN_OR_RETURN(StoredResponse found, response(tenant, id));
  return std::move(found.json);
}

Result<ResponseState> NaiveStore::response_state(std::string_view tenant, std::string_view id) {
  const Response* found = find_response(tenant, id);
  if (found == nullptr) return kNone;
  return ResponseState{.status = found->turn.response.status, .server = {}};
}

Result<StoredResponse> NaiveStore::continued_response(std::string_view tenant, std::string_view id) {
  LOCI_ASSIGN_OR_RETURN(StoredResponse found, response(tenant, id));
  found.json.clear();
  return found;
}

Status NaiveStore::delete_response(std::string_view tenant, std::string_view id) {
  Response* found = find_response(tenant, id);
  if (found == nullptr) return kNone;
  for (Conversation& conversation : conversations_) {
    if (conversation.thread != found->thread) continue;
    for (std::string& of : conversation.items_of) {
      if (of == id) of.clear();
    }
  }
  responses_.erase(responses_.begin() + (found - responses_.data()));
  return {};
}

Result<ItemList> NaiveStore::input_items(std::string_view tenant, std::string_view response,
                                         const ItemPage& page) {
  const Response* found = find_response(tenant, response);
  if (found == nullptr) return kNone;
  return page_of(found->turn.input, page);
}

Result<std::vector<StoredItem>> NaiveStore::response_history(std::string_view tenant, std::string_view id,
                                                             std::uint64_t bytes_max) {
  const Response* found = find_response(tenant, id);
  if (found == nullptr) return kNone;
  std::vector<StoredItem> items;
  if (!found->turn.response.previous.empty()) {
    const Response* previous = find_response(tenant, found->turn.response.previous);
    if (previous == nullptr || previous->serial != found->continues) return kNone;
    LOCI_ASSIGN_OR_RETURN(items, response_history(tenant, found->turn.response.previous, UINT64_MAX));
  }
  for (StoredItem& item : joined(found->turn)) items.push_back(std::move(item));
  if (bytes_of(items) > bytes_max) return kTooMuch;
  return items;
}

Result<std::vector<StoredItem>> NaiveStore::conversation_history(std::string_view tenant, std::string_view id,
                                                                 std::uint64_t bytes_max) {
  const Conversation* found = find_conversation(tenant, id);
  if (found == nullptr) return kNone;
  if (bytes_of(found->items) > bytes_max) return kTooMuch;
  return found->items;
}

Result<std::uint64_t> NaiveStore::fail_interrupted(const std::vector<std::string>&, const ConfirmEnded&) {
  std::uint64_t failed = 0;
  for (Response& one : responses_) {
    std::string& status = one.turn.response.status;
    if (status != "in_progress" && status != "queued") continue;
    status = "failed";
    ++failed;
  }
  return failed;
}

Result<StoreExpiry> NaiveStore::expire(std::int64_t now_seconds, const StoreLimits& limits) {
  std::uint64_t gone = 0;
  const auto too_old = [&](const auto& one) {
    return now_seconds - active_at_[static_cast<std::size_t>(one.thread)] > *limits.age_seconds_max;
  };
  gone += std::erase_if(responses_, too_old);
  gone += std::erase_if(conversations_, too_old);
  return StoreExpiry{.gone = gone, .has_more = false};
}

Result<std::vector<TenantStats>> NaiveStore::stats() {
  std::map<std::string, TenantStats> tenants;
  const auto add = [&](const std::string& tenant, int thread) -> TenantStats& {
    const std::int64_t active = active_at_[static_cast<std::size_t>(thread)];
    const auto [at, fresh] = tenants.try_emplace(
        tenant, TenantStats{.tenant = tenant, .oldest_active_at = active, .newest_active_at = active});
    at->second.oldest_active_at = std::min(at->second.oldest_active_at, active);
    at->second.newest_active_at = std::max(at->second.newest_active_at, active);
    return at->second;
  };
  for (const Conversation& one : conversations_) {
    TenantStats& stats = add(one.tenant, one.thread);
    ++stats.conversations;
    stats.items += static_cast<std::uint64_t>(
        std::count_if(one.items_of.begin(), one.items_of.end(), [](const auto& of) { return of.empty(); }));
  }
  for (const Response& one : responses_) {
    TenantStats& stats = add(one.tenant, one.thread);
    ++stats.responses;
    stats.items += one.turn.input.size() + one.turn.output.size();
  }
  std::vector<TenantStats> all;
  for (const auto& [name, stats] : tenants) all.push_back(stats);
  return all;
}

}  // namespace loci
