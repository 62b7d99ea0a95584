// SPDX-License-Identifier: Apache-2.0
// What the statements of the store share: rows of conversations, items, threads and sequences, inside a
// transaction that is open. Not for callers of the store.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/store/sql_database.h"
#include "loci/serve/store/store_shares.h"

namespace loci::store_rows {

template <class... Texts>
std::int64_t row_bytes(const Texts&... texts) {
  return kRowBytes + (static_cast<std::int64_t>(texts.size()) + ...);
}

struct ConversationRow {
  std::int64_t conversation = 0;
  std::int64_t thread = 0;
  StoredConversation stored;
};
// Absent: the tenant has none of that id.
Result<std::optional<ConversationRow>> find_conversation(SqlSession& session, std::string_view tenant,
                                                         std::string_view id);
// The same, where its absence is an error (kNotFound).
Result<ConversationRow> get_conversation(SqlSession& session, std::string_view tenant, std::string_view id);

struct ResponseRow {
  std::int64_t response = 0;
  std::int64_t thread = 0;
  std::string conversation;
  std::string previous;
  std::string status;
  std::string owner;  // the server that makes it, or has made it in the background; empty: another one
  std::optional<std::int64_t> sequence;
  std::int64_t bytes = 0;  // without its items and its sequence
};
Result<std::optional<ResponseRow>> find_response(SqlSession& session, std::string_view tenant,
                                                 std::string_view id);
Result<ResponseRow> get_response(SqlSession& session, std::string_view tenant, std::string_view id);

// --- threads ---

Result<std::int64_t> add_thread(SqlSession& session, std::string_view tenant, std::int64_t now);
// It was active, and so many bytes were added to it.
Status grow_thread(SqlSession& session, std::int64_t thread, std::int64_t now, std::int64_t added_bytes);
// Something of it was deleted (so many bytes fewer) or replaced; it ends when nothing is left.
Status settle_thread(SqlSession& session, std::int64_t thread, std::int64_t added_bytes);
// Of what a deletion returned.
std::int64_t sum_of(const SqlRows& rows, std::size_t column);
// What one transaction deletes, or a row more: some tens of milliseconds, for which others' turns wait.
inline constexpr std::int64_t kDeletedAtOnceBytes = 4 << 20;

struct DeletedThread {
  std::uint64_t gone = 0;        // conversations and responses
  std::int64_t taken_bytes = 0;  // that the tenant has no more, and SqlEraser has still to erase
};
// With everything in it. A large one is only taken from its tenant, who finds nothing of it any more;
// SqlEraser deletes what is in it.
Result<DeletedThread> delete_thread(SqlSession& session, std::int64_t thread);
// Deletes all of a thread but responses that still run, and their items. Returns DeletedThread::taken_bytes.
Result<std::int64_t> delete_ended(SqlSession& session, std::int64_t thread);
// The row itself; nothing is in it.
Status drop_thread(SqlSession& session, std::int64_t thread);

// --- what tenants have ---

// Counts what was added to what the tenant has, or taken (negative). Of threads, their functions above do it.
Status count_usage(SqlSession& session, std::string_view tenant, std::int64_t threads, std::int64_t bytes);
// Of whom what is counted is not what their threads are: an operator's own statements, a file that was put
// together by hand. O(threads).
Result<std::vector<std::string>> tenants_miscounted(SqlSession& session);
// Counts the tenant's threads anew. O(its threads).
Status recount(SqlSession& session, std::string_view tenant);
Result<StoreUsage> usage_of(SqlSession& session, std::string_view tenant);
// Of all tenants, by name: as many rows as there are tenants.
Result<std::vector<StoreUsage>> all_usage(SqlSession& session);
// What a write did: to which thread, and how many bytes it added there.
struct WrittenThread {
  std::int64_t thread = 0;
  std::int64_t added_bytes = 0;
};
struct MadeRoom {
  DeletedThread deleted;  // all together
  bool is_over = false;   // the tenant may still be: the rest would have taken this write too long
};
// After a write to `kept_thread`: while the tenant is over its quota, its own threads that were longest at
// rest go. Errors: kInvalidArgument (the thread alone is over the quota).
Result<MadeRoom> make_room(SqlSession& session, std::string_view tenant, const StoreQuota& quota,
                           std::int64_t kept_thread);

// --- claims of turns ---

// The claim of a turn that is committed ends. False: it was taken over, or it ended long ago.
Result<bool> end_claim(SqlSession& session, std::string_view tenant, std::string_view conversation,
                       std::string_view holder, std::int64_t claim);

// --- items ---

enum class ItemPart : std::uint8_t { kInput = 0, kOutput = 1 };

struct ItemOwner {
  std::int64_t thread = 0;
  std::optional<std::int64_t> conversation;
  std::optional<std::int64_t> response;
  ItemPart part = ItemPart::kInput;
};
// So many items more are in the conversation's list; negative: fewer.
Status count_items(SqlSession& session, std::int64_t conversation, std::int64_t added);
// Of their ids and JSON.
std::uint64_t bytes_of(const std::vector<StoredItem>& items);
// Returns their bytes. Errors: kInvalidArgument (the conversation has an item of such an id already).
Result<std::int64_t> add_items(SqlSession& session, const ItemOwner& owner,
                               const std::vector<StoredItem>& items, std::string_view field);

// The item of a conversation. Errors: kNotFound.
Result<std::int64_t> get_item(SqlSession& session, std::int64_t conversation, std::string_view id);

enum class ItemsOf : std::uint8_t { kConversation, kResponseInput };
// A page of the items of a conversation, or of a response's input. Reads no more than it returns. Errors:
// kInvalidArgument (there is no item `after`), kResourceExhausted (ItemPage::room).
Result<ItemList> read_page(SqlSession& session, ItemsOf kind, std::int64_t owner, const ItemPage& page);

// Errors: kResourceExhausted (there is no room for so many bytes, which are not read then).
Status check_room(const ReadRoom& room, std::int64_t bytes);

// `sum`: what the items of a history take. Errors: kResourceExhausted (more than `bytes_max`).
Status check_history_bytes(const SqlRows& sum, std::uint64_t bytes_max);

// Rows of (id, json).
std::vector<StoredItem> to_items(const SqlRows& rows);

// --- sequences of tokens: what one has in common with an earlier one of its thread is stored once ---

struct NewSequence {
  std::int64_t sequence = 0;
  std::int64_t added_bytes = 0;
};
Result<NewSequence> add_sequence(SqlSession& session, std::int64_t thread, std::optional<std::int64_t> base,
                                 std::span<const TokenId> tokens);
Result<std::vector<TokenId>> read_sequence(SqlSession& session, std::int64_t sequence);
// Deletes it, and what it stands on, as far as nothing else needs them. Returns their bytes.
Result<std::int64_t> release_sequence(SqlSession& session, std::int64_t sequence);
// What the thread's responses saw and said: see ConversationStore::delete_conversation.
Result<std::vector<StoredTokens>> said_in(SqlSession& session, std::int64_t thread, std::size_t tokens_max);
// The thread's newest; absent: it has none.
Result<std::optional<std::int64_t>> newest_sequence(SqlSession& session, std::int64_t thread);

}  // namespace loci::store_rows
