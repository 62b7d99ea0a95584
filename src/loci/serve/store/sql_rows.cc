// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/sql_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "loci/base/units.h"
#include "loci/serve/store/stored_text.h"

namespace loci::store_rows {
namespace {

SqlParameter nullable(const std::optional<std::int64_t>& value) {
  return value ? SqlParameter(*value) : SqlParameter(SqlNull{});
}

}  // namespace

Result<std::optional<ConversationRow>> find_conversation(SqlSession& session, std::string_view tenant,
                                                         std::string_view id) {
  if (!is_stored_id(tenant) || !is_stored_id(id)) return std::optional<ConversationRow>();
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                        session.run("SELECT conversation, thread, created_at, metadata FROM conversations "
                                    "WHERE tenant = $1 AND id = $2",
                                    {tenant, id}));
  if (rows.empty()) return std::optional<ConversationRow>();
  return std::optional(ConversationRow{
      .conversation = rows.integer(0, 0),
      .thread = rows.integer(0, 1),
      .stored = {.id = std::string(id), .created_at = rows.integer(0, 2), .metadata = rows.text(0, 3)}});
}

Result<ConversationRow> get_conversation(SqlSession& session, std::string_view tenant, std::string_view id) {
  LOCI_ASSIGN_OR_RETURN(std::optional<ConversationRow> row, find_conversation(session, tenant, id));
  if (!row) return not_found(fmt::format("there is no conversation {}", quoted_id(id)));
  return *std::move(row);
}

Result<std::optional<ResponseRow>> find_response(SqlSession& session, std::string_view tenant,
                                                 std::string_view id) {
  if (!is_stored_id(tenant) || !is_stored_id(id)) return std::optional<ResponseRow>();
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("SELECT response, thread, conversation, previous, status, sequence, "
                  "size_bytes, owner FROM responses WHERE tenant = $1 AND id = $2 AND EXISTS (SELECT 1 "
                  "FROM threads WHERE thread = responses.thread AND tenant = $1)",
                  {tenant, id}));
  if (rows.empty()) return std::optional<ResponseRow>();
  ResponseRow row{.response = rows.integer(0, 0),
                  .thread = rows.integer(0, 1),
                  .conversation = rows.text(0, 2),
                  .previous = rows.text(0, 3),
                  .status = rows.text(0, 4),
                  .owner = rows.text(0, 7),
                  .sequence = std::nullopt,
                  .bytes = rows.integer(0, 6)};
  if (!rows.is_null(0, 5)) row.sequence = rows.integer(0, 5);
  return std::optional(std::move(row));
}

Result<ResponseRow> get_response(SqlSession& session, std::string_view tenant, std::string_view id) {
  LOCI_ASSIGN_OR_RETURN(std::optional<ResponseRow> row, find_response(session, tenant, id));
  if (!row) return not_found(fmt::format("there is no response {}", quoted_id(id)));
  return *std::move(row);
}

// --- threads ---

Result<std::int64_t> add_thread(SqlSession& session, std::string_view tenant, std::int64_t now) {
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("INSERT INTO threads (tenant, active_at, size_bytes) VALUES ($1, $2, $3) RETURNING thread",
                  {tenant, now, kRowBytes}));
  LOCI_RETURN_IF_ERROR(count_usage(session, tenant, 1, kRowBytes));
  return rows.integer(0, 0);
}

Status grow_thread(SqlSession& session, std::int64_t thread, std::int64_t now, std::int64_t added_bytes) {
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("UPDATE threads SET active_at = CASE WHEN active_at > $1 THEN active_at ELSE $1 END, "
                  "size_bytes = size_bytes + $2 WHERE thread = $3 RETURNING tenant",
                  {now, added_bytes, thread}));
  return rows.empty() ? Status() : count_usage(session, rows.text(0, 0), 0, added_bytes);
}

Status drop_thread(SqlSession& session, std::int64_t thread) {
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows gone,
      session.run("DELETE FROM threads WHERE thread = $1 RETURNING tenant, size_bytes", {thread}));
  return gone.empty() ? Status() : count_usage(session, gone.text(0, 0), -1, -gone.integer(0, 1));
}

Status settle_thread(SqlSession& session, std::int64_t thread, std::int64_t added_bytes) {
  LOCI_ASSIGN_OR_RETURN(const SqlRows left,
                        session.run("SELECT CASE WHEN EXISTS (SELECT 1 FROM conversations WHERE thread = $1) "
                                    "OR EXISTS (SELECT 1 FROM responses WHERE thread = $1) THEN 1 ELSE 0 END",
                                    {thread}));
  if (left.integer(0, 0) == 0) return drop_thread(session, thread);
  return grow_thread(session, thread, 0, added_bytes);
}

std::int64_t sum_of(const SqlRows& rows, std::size_t column) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) sum += rows.integer(i, column);
  return sum;
}

namespace {

// Whose tenant is the empty name is nobody's. Its responses keep their names, as they may be large rows, and
// are found by nobody; but a conversation's may come again, and so may that of a response that still runs.
Result<DeletedThread> take_from_tenant(SqlSession& session, std::int64_t thread, std::string_view tenant,
                                       std::int64_t bytes) {
  LOCI_ASSIGN_OR_RETURN(const SqlRows conversations,
                        session.run("UPDATE conversations SET tenant = '', id = CAST(conversation AS TEXT) "
                                    "WHERE thread = $1 RETURNING conversation",
                                    {thread}));
  LOCI_RETURN_IF_ERROR(session
                           .run("UPDATE responses SET tenant = '', id = CAST(response AS TEXT) "
                                "WHERE thread = $1 AND status IN ('in_progress', 'queued')",
                                {thread})
                           .status());
  LOCI_ASSIGN_OR_RETURN(const SqlRows responses,
                        session.run("SELECT COUNT(*) FROM responses WHERE thread = $1", {thread}));
  LOCI_RETURN_IF_ERROR(session.run("UPDATE threads SET tenant = '' WHERE thread = $1", {thread}).status());
  LOCI_RETURN_IF_ERROR(count_usage(session, tenant, -1, -bytes));
  LOCI_RETURN_IF_ERROR(count_usage(session, "", 1, bytes));
  return DeletedThread{.gone = conversations.size() + static_cast<std::uint64_t>(responses.integer(0, 0)),
                       .taken_bytes = bytes};
}

}  // namespace

Result<DeletedThread> delete_thread(SqlSession& session, std::int64_t thread) {
  LOCI_ASSIGN_OR_RETURN(const SqlRows whole,
                        session.run("SELECT tenant, size_bytes FROM threads WHERE thread = $1", {thread}));
  if (!whole.empty() && whole.integer(0, 1) > kDeletedAtOnceBytes)
    return take_from_tenant(session, thread, whole.text(0, 0), whole.integer(0, 1));
  LOCI_RETURN_IF_ERROR(session.run("DELETE FROM items WHERE thread = $1", {thread}).status());
  LOCI_ASSIGN_OR_RETURN(const SqlRows responses,
                        session.run("DELETE FROM responses WHERE thread = $1 RETURNING response", {thread}));
  LOCI_RETURN_IF_ERROR(session.run("DELETE FROM sequences WHERE thread = $1", {thread}).status());
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows conversations,
      session.run("DELETE FROM conversations WHERE thread = $1 RETURNING conversation", {thread}));
  LOCI_RETURN_IF_ERROR(drop_thread(session, thread));
  return DeletedThread{.gone = responses.size() + conversations.size(), .taken_bytes = 0};
}

namespace {

#define LOCI_RUNNING "status IN ('in_progress', 'queued')"
constexpr std::string_view kCountRunning =
    "SELECT COUNT(*) FROM responses WHERE thread = $1 AND " LOCI_RUNNING;
constexpr std::string_view kDeleteItemsOfEnded =
    "DELETE FROM items WHERE thread = $1 AND (response IS NULL OR response NOT IN "
    "(SELECT response FROM responses WHERE thread = $1 AND " LOCI_RUNNING ")) RETURNING size_bytes";
constexpr std::string_view kDeleteEnded =
    "DELETE FROM responses WHERE thread = $1 AND NOT (" LOCI_RUNNING ") RETURNING sequence, size_bytes";
#undef LOCI_RUNNING

}  // namespace

Result<std::int64_t> delete_ended(SqlSession& session, std::int64_t thread) {
  LOCI_ASSIGN_OR_RETURN(const SqlRows running, session.run(kCountRunning, {thread}));
  if (running.integer(0, 0) == 0) {
    LOCI_ASSIGN_OR_RETURN(const DeletedThread deleted, delete_thread(session, thread));
    return deleted.taken_bytes;
  }
  LOCI_ASSIGN_OR_RETURN(const SqlRows items, session.run(kDeleteItemsOfEnded, {thread}));
  LOCI_RETURN_IF_ERROR(
      session.run("UPDATE items SET conversation = NULL WHERE thread = $1", {thread}).status());
  LOCI_ASSIGN_OR_RETURN(const SqlRows ended, session.run(kDeleteEnded, {thread}));
  std::int64_t bytes = sum_of(items, 0) + sum_of(ended, 1);
  for (std::size_t i = 0; i < ended.size(); ++i) {
    if (ended.is_null(i, 0)) continue;
    LOCI_ASSIGN_OR_RETURN(const std::int64_t released, release_sequence(session, ended.integer(i, 0)));
    bytes += released;
  }
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows conversations,
      session.run("DELETE FROM conversations WHERE thread = $1 RETURNING size_bytes", {thread}));
  LOCI_RETURN_IF_ERROR(settle_thread(session, thread, -bytes - sum_of(conversations, 0)));
  return std::int64_t{0};
}

// --- items ---

Status count_items(SqlSession& session, std::int64_t conversation, std::int64_t added) {
  if (added == 0) return {};
  return session
      .run("UPDATE conversations SET items = items + $1 WHERE conversation = $2", {added, conversation})
      .status();
}

std::uint64_t bytes_of(const std::vector<StoredItem>& items) {
  std::uint64_t bytes = 0;
  for (const StoredItem& item : items) bytes += item.id.size() + item.json.size();
  return bytes;
}

Result<std::int64_t> add_items(SqlSession& session, const ItemOwner& owner,
                               const std::vector<StoredItem>& items, std::string_view field) {
  std::int64_t added = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const StoredItem& item = items[i];
    if (owner.conversation) {
      LOCI_ASSIGN_OR_RETURN(const SqlRows same,
                            session.run("SELECT item FROM items WHERE conversation = $1 AND id = $2",
                                        {*owner.conversation, item.id}));
      if (!same.empty()) {
        return invalid_argument(
            fmt::format("expected an id that the conversation does not have yet, found {}",
                        quoted_id(item.id)),
            fmt::format("{}[{}].id", field, i));
      }
    }
    const std::int64_t bytes = row_bytes(item.id, item.json);
    LOCI_RETURN_IF_ERROR(
        session
            .run("INSERT INTO items (thread, conversation, response, part, id, json, size_bytes) "
                 "VALUES ($1, $2, $3, $4, $5, $6, $7)",
                 {owner.thread, nullable(owner.conversation), nullable(owner.response),
                  static_cast<std::int64_t>(owner.part), item.id, item.json, bytes})
            .status());
    added += bytes;
  }
  if (owner.conversation) {
    LOCI_RETURN_IF_ERROR(count_items(session, *owner.conversation, static_cast<std::int64_t>(items.size())));
  }
  return added;
}

Result<std::int64_t> get_item(SqlSession& session, std::int64_t conversation, std::string_view id) {
  const Status none = not_found(fmt::format("the conversation has no item {}", quoted_id(id)));
  if (!is_stored_id(id)) return none;
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("SELECT item FROM items WHERE conversation = $1 AND id = $2", {conversation, id}));
  if (rows.empty()) return none;
  return rows.integer(0, 0);
}

namespace {

// What reads pages of one kind of list. The items of a response's input need not have different ids: the
// first one counts.
struct PageStatements {
  std::string_view find;
  // What items take, before any of them is read; then the items up to the last one that the page has.
  std::string_view forward_sizes, forward, backward_sizes, backward;
};

constexpr PageStatements kConversationPages = {
    .find = "SELECT MIN(item) FROM items WHERE conversation = $1 AND id = $2",
    .forward_sizes =
        "SELECT item, size_bytes FROM items WHERE conversation = $1 AND item > $2 ORDER BY item LIMIT $3",
    .forward =
        "SELECT id, json FROM items WHERE conversation = $1 AND item > $2 AND item <= $3 ORDER BY item",
    .backward_sizes =
        "SELECT item, size_bytes FROM items WHERE conversation = $1 AND item < $2 "
        "ORDER BY item DESC LIMIT $3",
    .backward =
        "SELECT id, json FROM items WHERE conversation = $1 AND item < $2 AND item >= $3 "
        "ORDER BY item DESC"};
constexpr PageStatements kInputPages = {
    .find = "SELECT MIN(item) FROM items WHERE response = $1 AND part = 0 AND id = $2",
    .forward_sizes =
        "SELECT item, size_bytes FROM items WHERE response = $1 AND part = 0 AND item > $2 "
        "ORDER BY item LIMIT $3",
    .forward =
        "SELECT id, json FROM items WHERE response = $1 AND part = 0 AND item > $2 AND item <= $3 "
        "ORDER BY item",
    .backward_sizes =
        "SELECT item, size_bytes FROM items WHERE response = $1 AND part = 0 AND item < $2 "
        "ORDER BY item DESC LIMIT $3",
    .backward =
        "SELECT id, json FROM items WHERE response = $1 AND part = 0 AND item < $2 AND item >= $3 "
        "ORDER BY item DESC"};

// How many of the items, in their order, a page has.
std::size_t page_items(const SqlRows& sizes, std::size_t limit) {
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  for (; count < std::min(sizes.size(), limit); ++count) {
    bytes += static_cast<std::uint64_t>(sizes.integer(count, 1));
    if (count > 0 && bytes > kPageBytesMax) break;
  }
  return count;
}

}  // namespace

Result<ItemList> read_page(SqlSession& session, ItemsOf kind, std::int64_t owner, const ItemPage& page) {
  const PageStatements& statements = kind == ItemsOf::kConversation ? kConversationPages : kInputPages;
  std::int64_t after = page.newest_first ? INT64_MAX : INT64_MIN;
  if (!page.after.empty()) {
    const Status none = invalid_argument(
        fmt::format("expected the id of an item of the list, found {}", quoted_id(page.after)), "after");
    if (!is_stored_id(page.after)) return none;
    LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run(statements.find, {owner, page.after}));
    if (rows.is_null(0, 0)) return none;
    after = rows.integer(0, 0);
  }
  // One more than asked for tells whether there are more.
  LOCI_ASSIGN_OR_RETURN(const SqlRows sizes,
                        session.run(page.newest_first ? statements.backward_sizes : statements.forward_sizes,
                                    {owner, after, std::int64_t{page.limit} + 1}));
  const std::size_t count = page_items(sizes, page.limit);
  if (count == 0) return ItemList{.items = {}, .has_more = !sizes.empty()};
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += sizes.integer(i, 1);
  LOCI_RETURN_IF_ERROR(check_room(page.room, bytes));
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                        session.run(page.newest_first ? statements.backward : statements.forward,
                                    {owner, after, sizes.integer(count - 1, 0)}));
  return ItemList{.items = to_items(rows), .has_more = sizes.size() > count};
}

Status check_room(const ReadRoom& room, std::int64_t bytes) {
  if (!room || room(static_cast<std::uint64_t>(bytes))) return {};
  return resource_exhausted(fmt::format("there is no room for {} bytes of the store", format_count(bytes)));
}

Status check_history_bytes(const SqlRows& sum, std::uint64_t bytes_max) {
  const auto found = static_cast<std::uint64_t>(sum.integer(0, 0));
  if (found <= bytes_max) return {};
  return {StatusCode::kResourceExhausted,
          fmt::format("expected items that take at most {} bytes in the store, found {}",
                      format_count(bytes_max), format_count(found))};
}

std::vector<StoredItem> to_items(const SqlRows& rows) {
  std::vector<StoredItem> items;
  items.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    items.push_back({.id = rows.text(i, 0), .json = rows.text(i, 1)});
  return items;
}

}  // namespace loci::store_rows
