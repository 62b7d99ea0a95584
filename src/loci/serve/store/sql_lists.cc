// SPDX-License-Identifier: Apache-2.0
// What a tenant has, in pages.
#include <algorithm>
#include <string>

#include "loci/serve/store/sql_rows.h"
#include "loci/serve/store/sql_store.h"

namespace loci {

using namespace store_rows;

namespace {

// CROSS: SQLite walks the tenant's threads, the newest first, and stops at the limit.
constexpr std::string_view kColumns =
    "SELECT conversations.conversation, conversations.id, conversations.created_at, conversations.metadata, "
    "threads.active_at, threads.size_bytes, conversations.items "
    "FROM threads CROSS JOIN conversations "
    "WHERE conversations.thread = threads.thread AND threads.tenant = $1 ";
constexpr std::string_view kOrder =
    " ORDER BY threads.active_at DESC, conversations.conversation DESC LIMIT ";
// Statements are constants (SqlSession::run()).
const std::string kFirstPage = std::string(kColumns) + std::string(kOrder) + "$2";
const std::string kNextPage =
    std::string(kColumns) +
    "AND threads.active_at <= $2 AND (threads.active_at < $2 OR (threads.active_at = $2 "
    "AND conversations.conversation < $3))" +
    std::string(kOrder) + "$4";

// What a conversation is about, of items that are small enough to look for it.
const std::string kFirstOf =
    "SELECT id, CASE WHEN size_bytes <= $2 THEN json ELSE '' END FROM items WHERE conversation = $1 "
    "ORDER BY item LIMIT " +
    std::to_string(kFirstItems);

// One more than asked for, so that it is known whether there are more.
Result<SqlRows> read_rows(SqlSession& session, std::string_view tenant, std::string_view after,
                          std::int64_t limit) {
  if (after.empty()) return session.run(kFirstPage, {tenant, limit + 1});
  LOCI_ASSIGN_OR_RETURN(const auto before, find_conversation(session, tenant, after));
  if (!before) return invalid_argument("expected the id of a conversation", "after");
  LOCI_ASSIGN_OR_RETURN(const SqlRows thread,
                        session.run("SELECT active_at FROM threads WHERE thread = $1", {before->thread}));
  if (thread.empty()) return data_loss("the conversation store lacks a conversation's thread");
  return session.run(kNextPage, {tenant, thread.integer(0, 0), before->conversation, limit + 1});
}

}  // namespace

Result<ConversationList> SqlStore::conversations(std::string_view tenant, std::string_view after,
                                                 std::uint32_t limit) {
  ConversationList list;
  const Status done = read(tenant, [&](SqlSession& session) -> Status {
    list = {};
    LOCI_ASSIGN_OR_RETURN(const SqlRows rows, read_rows(session, tenant, after, limit));
    list.has_more = rows.size() > limit;
    for (std::size_t i = 0; i < std::min<std::size_t>(rows.size(), limit); ++i) {
      ConversationSummary one{
          .conversation = {.id = rows.text(i, 1),
                           .created_at = rows.integer(i, 2),
                           .metadata = rows.text(i, 3)},
          .active_at = rows.integer(i, 4),
          .size_bytes = static_cast<std::uint64_t>(rows.integer(i, 5)),
          .items = static_cast<std::uint64_t>(std::max<std::int64_t>(rows.integer(i, 6), 0))};
      LOCI_ASSIGN_OR_RETURN(const SqlRows first,
                            session.run(kFirstOf, {rows.integer(i, 0), std::int64_t{kFirstItemBytesMax}}));
      one.first = to_items(first);
      list.conversations.push_back(std::move(one));
    }
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return list;
}

}  // namespace loci
