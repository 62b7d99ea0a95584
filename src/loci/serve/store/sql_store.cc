// SPDX-License-Identifier: Apache-2.0
// Conversations and their items. Turns and responses are in sql_turns.cc, what is done to everything in
// sql_upkeep.cc.
#include "loci/serve/store/sql_store.h"

#include <fmt/format.h>

#include "loci/serve/store/sql_rows.h"
#include "loci/serve/store/stored_text.h"

namespace loci {

using namespace store_rows;

SqlStore::SqlStore(std::unique_ptr<SqlDatabase> database, StoreOptions options)
    : database_(std::move(database)), options_(std::move(options)) {}
SqlStore::~SqlStore() = default;

Status SqlStore::write(std::string_view tenant, std::uint64_t bytes, const WriteThread& body) {
  WrittenThread written;
  MadeRoom made;
  const SqlCaller caller{.tenant = tenant, .bytes = bytes};
  const Status done = database_->transact(SqlAccess::kWrite, caller, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(written, body(session));
    LOCI_ASSIGN_OR_RETURN(made, make_room(session, tenant, quota_of(tenant), written.thread));
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  const std::int64_t taken = made.deleted.taken_bytes;
  if (made.deleted.gone > 0 && options_.made_room) options_.made_room(tenant, made.deleted.gone);
  if ((taken > 0 || made.is_over) && options_.expire_soon) options_.expire_soon();
  // It is durable: nobody else waits for what its caller waits for now.
  eraser_.keep_pace(tenant, written.added_bytes, taken);
  return {};
}

Status SqlStore::create_conversation(std::string_view tenant, const StoredConversation& conversation,
                                     const std::vector<StoredItem>& items) {
  LOCI_RETURN_IF_ERROR(check_stored_id(tenant, "tenant"));
  LOCI_RETURN_IF_ERROR(check_stored_id(conversation.id, "conversation.id"));
  LOCI_RETURN_IF_ERROR(check_stored_text(conversation.metadata, kStoredMetadataBytesMax, "metadata"));
  LOCI_RETURN_IF_ERROR(check_stored_items(items, "items"));
  return write(tenant, bytes_of(items), [&](SqlSession& session) -> Result<WrittenThread> {
    LOCI_ASSIGN_OR_RETURN(const std::int64_t now, now_seconds(session));
    LOCI_ASSIGN_OR_RETURN(const auto same, find_conversation(session, tenant, conversation.id));
    if (same) {
      return invalid_argument(
          fmt::format("expected an id that no conversation has yet, found {}", quoted_id(conversation.id)),
          "conversation.id");
    }
    LOCI_ASSIGN_OR_RETURN(const std::int64_t thread, add_thread(session, tenant, now));
    const std::int64_t bytes = row_bytes(conversation.id, conversation.metadata);
    LOCI_ASSIGN_OR_RETURN(
        const SqlRows made,
        session.run(
            "INSERT INTO conversations (thread, tenant, id, created_at, metadata, size_bytes) "
            "VALUES ($1, $2, $3, $4, $5, $6) RETURNING conversation",
            {thread, tenant, conversation.id, conversation.created_at, conversation.metadata, bytes}));
    const ItemOwner owner{.thread = thread, .conversation = made.integer(0, 0), .response = {}};
    LOCI_ASSIGN_OR_RETURN(const std::int64_t added, store_rows::add_items(session, owner, items, "items"));
    LOCI_RETURN_IF_ERROR(grow_thread(session, thread, now, bytes + added));
    return WrittenThread{.thread = thread, .added_bytes = bytes + added};
  });
}

Result<StoredConversation> SqlStore::conversation(std::string_view tenant, std::string_view id) {
  StoredConversation found;
  const Status done = read(tenant, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(ConversationRow row, get_conversation(session, tenant, id));
    found = std::move(row.stored);
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return found;
}

Status SqlStore::set_metadata(std::string_view tenant, std::string_view id, std::string_view metadata) {
  LOCI_RETURN_IF_ERROR(check_stored_text(metadata, kStoredMetadataBytesMax, "metadata"));
  return write(tenant, metadata.size(), [&](SqlSession& session) -> Result<WrittenThread> {
    LOCI_ASSIGN_OR_RETURN(const ConversationRow row, get_conversation(session, tenant, id));
    const std::int64_t bytes = row_bytes(id, metadata);
    const std::int64_t before = row_bytes(id, row.stored.metadata);
    LOCI_RETURN_IF_ERROR(
        session
            .run("UPDATE conversations SET metadata = $1, size_bytes = $2 WHERE conversation = $3",
                 {metadata, bytes, row.conversation})
            .status());
    LOCI_ASSIGN_OR_RETURN(const std::int64_t now, now_seconds(session));
    LOCI_RETURN_IF_ERROR(grow_thread(session, row.thread, now, bytes - before));
    return WrittenThread{.thread = row.thread, .added_bytes = bytes - before};
  });
}

Result<std::vector<StoredTokens>> SqlStore::delete_conversation(std::string_view tenant,
                                                                std::string_view id) {
  std::vector<StoredTokens> said;
  std::int64_t thread = 0, taken_bytes = 0;
  const SqlCaller caller{.tenant = tenant};
  const Status done = database_->transact(SqlAccess::kWrite, caller, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const ConversationRow row, get_conversation(session, tenant, id));
    thread = row.thread;
    LOCI_ASSIGN_OR_RETURN(said, said_in(session, thread, options_.said_tokens_max));
    LOCI_ASSIGN_OR_RETURN(taken_bytes, delete_ended(session, thread));
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  if (taken_bytes > 0) (void)eraser_.erase_thread(thread);
  erase_deleted();
  return said;
}

// It is deleted whatever comes of these: what fails here expire() tries again, and tells.
void SqlStore::erase_deleted() { (void)database_->erase_deleted(); }

Status SqlStore::add_items(std::string_view tenant, std::string_view conversation,
                           const std::vector<StoredItem>& items) {
  LOCI_RETURN_IF_ERROR(check_stored_items(items, "items"));
  return write(tenant, bytes_of(items), [&](SqlSession& session) -> Result<WrittenThread> {
    LOCI_ASSIGN_OR_RETURN(const ConversationRow row, get_conversation(session, tenant, conversation));
    const ItemOwner owner{.thread = row.thread, .conversation = row.conversation, .response = {}};
    LOCI_ASSIGN_OR_RETURN(const std::int64_t added, store_rows::add_items(session, owner, items, "items"));
    LOCI_ASSIGN_OR_RETURN(const std::int64_t now, now_seconds(session));
    LOCI_RETURN_IF_ERROR(grow_thread(session, row.thread, now, added));
    return WrittenThread{.thread = row.thread, .added_bytes = added};
  });
}

Result<ItemList> SqlStore::conversation_items(std::string_view tenant, std::string_view conversation,
                                              const ItemPage& page) {
  ItemList list;
  const Status done = read(tenant, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const ConversationRow row, get_conversation(session, tenant, conversation));
    LOCI_ASSIGN_OR_RETURN(list, read_page(session, ItemsOf::kConversation, row.conversation, page));
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return list;
}

Result<StoredItem> SqlStore::conversation_item(std::string_view tenant, std::string_view conversation,
                                               std::string_view item, const ReadRoom& room) {
  StoredItem found;
  const Status done = read(tenant, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const ConversationRow row, get_conversation(session, tenant, conversation));
    LOCI_ASSIGN_OR_RETURN(const std::int64_t key, get_item(session, row.conversation, item));
    LOCI_ASSIGN_OR_RETURN(const SqlRows size,
                          session.run("SELECT size_bytes FROM items WHERE item = $1", {key}));
    LOCI_RETURN_IF_ERROR(check_room(room, sum_of(size, 0)));
    LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                          session.run("SELECT id, json FROM items WHERE item = $1", {key}));
    found = {.id = rows.text(0, 0), .json = rows.text(0, 1)};
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return found;
}

Status SqlStore::delete_item(std::string_view tenant, std::string_view conversation, std::string_view item) {
  const SqlCaller caller{.tenant = tenant};
  const Status done = database_->transact(SqlAccess::kWrite, caller, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const ConversationRow row, get_conversation(session, tenant, conversation));
    LOCI_ASSIGN_OR_RETURN(const std::int64_t key, get_item(session, row.conversation, item));
    LOCI_ASSIGN_OR_RETURN(
        const SqlRows gone,
        session.run("DELETE FROM items WHERE item = $1 AND response IS NULL RETURNING size_bytes", {key}));
    LOCI_RETURN_IF_ERROR(session.run("UPDATE items SET conversation = NULL WHERE item = $1", {key}).status());
    LOCI_RETURN_IF_ERROR(count_items(session, row.conversation, -1));
    return settle_thread(session, row.thread, -sum_of(gone, 0));
  });
  if (done.ok()) erase_deleted();
  return done;
}

namespace {

// The thread has more than the items, and what it has is known: mostly that is few enough.
Status check_history(SqlSession& session, const ConversationRow& row, std::uint64_t bytes_max) {
  LOCI_ASSIGN_OR_RETURN(const SqlRows thread,
                        session.run("SELECT size_bytes FROM threads WHERE thread = $1", {row.thread}));
  if (!thread.empty() && static_cast<std::uint64_t>(thread.integer(0, 0)) <= bytes_max) return {};
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows items,
      session.run("SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM items WHERE conversation = $1",
                  {row.conversation}));
  return check_history_bytes(items, bytes_max);
}

}  // namespace

Result<std::vector<StoredItem>> SqlStore::conversation_history(std::string_view tenant, std::string_view id,
                                                               std::uint64_t bytes_max) {
  std::vector<StoredItem> items;
  const Status done = read(tenant, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const ConversationRow row, get_conversation(session, tenant, id));
    LOCI_RETURN_IF_ERROR(check_history(session, row, bytes_max));
    LOCI_ASSIGN_OR_RETURN(
        const SqlRows rows,
        session.run("SELECT id, json FROM items WHERE conversation = $1 ORDER BY item", {row.conversation}));
    items = to_items(rows);
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return items;
}

}  // namespace loci
