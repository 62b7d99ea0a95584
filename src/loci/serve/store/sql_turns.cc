// SPDX-License-Identifier: Apache-2.0
// Turns: a response with its items and tokens.
#include <fmt/format.h>

#include <chrono>
#include <map>

#include "loci/serve/store/sql_rows.h"
#include "loci/serve/store/sql_store.h"
#include "loci/serve/store/stored_text.h"

namespace loci {

using namespace store_rows;

namespace {

bool is_running(std::string_view status) { return status == "in_progress" || status == "queued"; }

// Where a turn goes.
struct Place {
  std::int64_t thread = 0;
  std::optional<std::int64_t> conversation;  // whose list its items join
  std::optional<std::int64_t> continues;     // the previous response
  std::optional<std::int64_t> base;          // the sequence of tokens that its own probably begins with
  std::optional<ResponseRow> replaced;
};

Status check_replaced(const ResponseRow& row, const StoredResponse& response) {
  if (!is_running(row.status)) {
    return invalid_argument(
        fmt::format("expected an id that no response has yet, or that of one in progress; "
                    "found {}, which is {}",
                    quoted_id(response.id), row.status),
        "response.id");
  }
  if (row.conversation != response.conversation) {
    return invalid_argument(fmt::format("expected {}, as the response began; found {}",
                                        quoted_id(row.conversation), quoted_id(response.conversation)),
                            "response.conversation");
  }
  if (row.previous != response.previous) {
    return invalid_argument(fmt::format("expected {}, as the response began; found {}",
                                        quoted_id(row.previous), quoted_id(response.previous)),
                            "response.previous");
  }
  return {};
}

Result<Place> find_place(SqlSession& session, std::string_view tenant, const StoredResponse& response,
                         std::int64_t now) {
  Place place;
  LOCI_ASSIGN_OR_RETURN(place.replaced, find_response(session, tenant, response.id));
  if (place.replaced) LOCI_RETURN_IF_ERROR(check_replaced(*place.replaced, response));
  std::optional<std::int64_t> thread;
  if (!response.conversation.empty()) {
    LOCI_ASSIGN_OR_RETURN(const auto row, find_conversation(session, tenant, response.conversation));
    if (row) {
      place.conversation = row->conversation;
      thread = row->thread;
      LOCI_ASSIGN_OR_RETURN(place.base, newest_sequence(session, row->thread));
    } else if (!place.replaced) {
      return not_found(fmt::format("there is no conversation {}", quoted_id(response.conversation)));
    }
  }
  if (!response.previous.empty()) {
    LOCI_ASSIGN_OR_RETURN(const auto row, find_response(session, tenant, response.previous));
    if (!row && !place.replaced)
      return not_found(fmt::format("there is no response {}", quoted_id(response.previous)));
    if (row) place.continues = row->response;
    if (row && !thread) thread = row->thread;
    // Only what is deleted together may stand on one another.
    if (row && row->thread == *thread) place.base = row->sequence;
  }
  if (place.replaced) {
    // Its thread may have another conversation's or chain's no longer.
    if (place.base && thread != place.replaced->thread) place.base.reset();
    if (place.conversation && thread != place.replaced->thread) place.conversation.reset();
    thread = place.replaced->thread;
  }
  if (!thread) {
    LOCI_ASSIGN_OR_RETURN(thread, add_thread(session, tenant, now));
  }
  place.thread = *thread;
  return place;
}

// Returns the row's key, and adds to `bytes` what it takes, less what it replaces.
Result<std::int64_t> write_response(SqlSession& session, std::string_view tenant, const Place& place,
                                    const StoredResponse& response, std::string_view owner,
                                    SqlParameter sequence, std::int64_t& bytes) {
  const std::int64_t size = row_bytes(response.id, response.conversation, response.previous, response.status,
                                      response.json, response.tokenizer);
  bytes += size;
  if (place.replaced) {
    const std::int64_t key = place.replaced->response;
    LOCI_ASSIGN_OR_RETURN(const SqlRows items,
                          session.run("DELETE FROM items WHERE response = $1 RETURNING size_bytes, "
                                      "COALESCE(conversation, 0)",
                                      {key}));
    bytes -= place.replaced->bytes + sum_of(items, 0);
    std::map<std::int64_t, std::int64_t> fewer;  // by conversation
    for (std::size_t i = 0; i < items.size(); ++i) ++fewer[items.integer(i, 1)];
    fewer.erase(0);  // no conversation's
    for (const auto& [conversation, gone] : fewer)
      LOCI_RETURN_IF_ERROR(count_items(session, conversation, -gone));
    LOCI_RETURN_IF_ERROR(session
                             .run("UPDATE responses SET created_at = $1, status = $2, owner = $3, json = $4, "
                                  "tokenizer = $5, sequence = $6, size_bytes = $7 WHERE response = $8",
                                  {response.created_at, response.status, owner, response.json,
                                   response.tokenizer, sequence, size, key})
                             .status());
    return key;
  }
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("INSERT INTO responses (thread, tenant, id, conversation, previous, created_at, status, "
                  "owner, json, tokenizer, sequence, size_bytes, continues) "
                  "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING response",
                  {place.thread, tenant, response.id, response.conversation, response.previous,
                   response.created_at, response.status, owner, response.json, response.tokenizer, sequence,
                   size, place.continues ? SqlParameter(*place.continues) : SqlParameter(SqlNull{})}));
  return rows.integer(0, 0);
}

bool is_said(std::string_view status) { return status == "completed" || status == "incomplete"; }

// What is said in a conversation is added by who has its claim. What was not said just ends the claim.
Status check_claim(SqlSession& session, std::string_view tenant, const StoredTurn& turn,
                   std::string_view holder) {
  const StoredResponse& response = turn.response;
  if (turn.claim == 0 || is_running(response.status)) return {};
  LOCI_ASSIGN_OR_RETURN(const bool is_held,
                        end_claim(session, tenant, response.conversation, holder, turn.claim));
  if (is_held || !is_said(response.status)) return {};
  return {StatusCode::kCancelled,
          "another server has taken over the conversation, as this one did not answer for some time; nothing "
          "of this turn was stored: send it again"};
}

Result<WrittenThread> write_turn(SqlSession& session, std::string_view tenant, const StoredTurn& turn,
                                 std::string_view server, std::int64_t now) {
  const StoredResponse& response = turn.response;
  LOCI_ASSIGN_OR_RETURN(const Place place, find_place(session, tenant, response, now));
  // Who makes it or, of one that others may have asked after meanwhile, has made it.
  const std::string_view owner = place.replaced || is_running(response.status) ? server : std::string_view();
  std::int64_t bytes = 0;
  SqlParameter sequence = SqlNull{};
  if (!response.tokens.empty()) {
    LOCI_ASSIGN_OR_RETURN(const NewSequence made,
                          add_sequence(session, place.thread, place.base, response.tokens));
    sequence = made.sequence;
    bytes += made.added_bytes;
  }
  LOCI_ASSIGN_OR_RETURN(const std::int64_t key,
                        write_response(session, tenant, place, response, owner, sequence, bytes));
  ItemOwner owner_of_items{.thread = place.thread, .conversation = place.conversation, .response = key};
  LOCI_ASSIGN_OR_RETURN(const std::int64_t input,
                        store_rows::add_items(session, owner_of_items, turn.input, "input"));
  owner_of_items.part = ItemPart::kOutput;
  LOCI_ASSIGN_OR_RETURN(const std::int64_t output,
                        store_rows::add_items(session, owner_of_items, turn.output, "output"));
  if (place.replaced && place.replaced->sequence) {
    LOCI_ASSIGN_OR_RETURN(const std::int64_t released, release_sequence(session, *place.replaced->sequence));
    bytes -= released;
  }
  const WrittenThread written{.thread = place.thread, .added_bytes = bytes + input + output};
  LOCI_RETURN_IF_ERROR(grow_thread(session, written.thread, now, written.added_bytes));
  return written;
}

}  // namespace

Status SqlStore::commit_turn(std::string_view tenant, const StoredTurn& turn) {
  LOCI_RETURN_IF_ERROR(check_stored_turn(tenant, turn));
  const auto begin = std::chrono::steady_clock::now();
  const StoredResponse& response = turn.response;
  const std::uint64_t bytes = response.json.size() + sizeof(TokenId) * response.tokens.size() +
                              bytes_of(turn.input) + bytes_of(turn.output);
  const Status done = write(tenant, bytes, [&](SqlSession& session) -> Result<WrittenThread> {
    LOCI_RETURN_IF_ERROR(check_claim(session, tenant, turn, database_->instance()));
    LOCI_ASSIGN_OR_RETURN(const std::int64_t now, now_seconds(session));
    return write_turn(session, tenant, turn, database_->instance(), now);
  });
  LOCI_RETURN_IF_ERROR(done);
  if (options_.committed) {
    const auto duration = std::chrono::steady_clock::now() - begin;
    options_.committed(std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
  }
  return {};
}

namespace {

constexpr std::string_view kWholeResponse =
    "SELECT created_at, json, tokenizer FROM responses WHERE response = $1";
constexpr std::string_view kContinuedResponse =
    "SELECT created_at, '', tokenizer FROM responses WHERE response = $1";

// `columns`: one of the two above.
Result<StoredResponse> read_response(SqlDatabase& database, std::string_view columns, std::string_view tenant,
                                     std::string_view id) {
  StoredResponse found;
  const SqlCaller caller{.tenant = tenant};
  const Status done = database.transact(SqlAccess::kRead, caller, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const ResponseRow row, get_response(session, tenant, id));
    LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run(columns, {row.response}));
    found = {.id = std::string(id),
             .conversation = row.conversation,
             .previous = row.previous,
             .created_at = rows.integer(0, 0),
             .status = row.status,
             .json = rows.text(0, 1),
             .tokens = {},
             .tokenizer = rows.text(0, 2)};
    if (row.sequence) {
      LOCI_ASSIGN_OR_RETURN(found.tokens, read_sequence(session, *row.sequence));
    }
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return found;
}

}  // namespace

Result<StoredResponse> SqlStore::response(std::string_view tenant, std::string_view id) {
  return read_response(*database_, kWholeResponse, tenant, id);
}

Result<std::string> SqlStore::response_json(std::string_view tenant, std::string_view id,
                                            const ReadRoom& room) {
  std::string json;
  const Status done = read(tenant, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const ResponseRow row, get_response(session, tenant, id));
    LOCI_RETURN_IF_ERROR(check_room(room, row.bytes));
    LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                          session.run("SELECT json FROM responses WHERE response = $1", {row.response}));
    json = rows.text(0, 0);
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return json;
}

Result<ResponseState> SqlStore::response_state(std::string_view tenant, std::string_view id) {
  const bool is_shared = !server().empty();
  ResponseState state;
  const Status done = read(tenant, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(ResponseRow row, get_response(session, tenant, id));
    state = {.status = std::move(row.status), .server = {}};
    if (!is_shared || row.owner.empty()) return {};
    if (is_running(state.status)) {
      LOCI_ASSIGN_OR_RETURN(state.is_interrupted, database_->seems_ended(session, row.owner));
    }
    state.server = std::move(row.owner);
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return state;
}

Result<StoredResponse> SqlStore::continued_response(std::string_view tenant, std::string_view id) {
  return read_response(*database_, kContinuedResponse, tenant, id);
}

Status SqlStore::delete_response(std::string_view tenant, std::string_view id) {
  const SqlCaller caller{.tenant = tenant};
  const Status done = database_->transact(SqlAccess::kWrite, caller, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const ResponseRow row, get_response(session, tenant, id));
    if (is_running(row.status) && row.owner != database_->instance()) {
      LOCI_ASSIGN_OR_RETURN(const bool has_ended, database_->has_ended(session, row.owner));
      if (!has_ended) {
        return invalid_argument(
            fmt::format("the response {} runs on another server: cancel or delete it there", quoted_id(id)));
      }
    }
    LOCI_RETURN_IF_ERROR(session
                             .run("UPDATE items SET response = NULL "
                                  "WHERE response = $1 AND conversation IS NOT NULL",
                                  {row.response})
                             .status());
    LOCI_ASSIGN_OR_RETURN(
        const SqlRows items,
        session.run("DELETE FROM items WHERE response = $1 RETURNING size_bytes", {row.response}));
    LOCI_RETURN_IF_ERROR(session.run("DELETE FROM responses WHERE response = $1", {row.response}).status());
    std::int64_t bytes = row.bytes + sum_of(items, 0);
    if (row.sequence) {
      LOCI_ASSIGN_OR_RETURN(const std::int64_t released, release_sequence(session, *row.sequence));
      bytes += released;
    }
    return settle_thread(session, row.thread, -bytes);
  });
  if (done.ok()) erase_deleted();
  return done;
}

Result<ItemList> SqlStore::input_items(std::string_view tenant, std::string_view response,
                                       const ItemPage& page) {
  ItemList list;
  const Status done = read(tenant, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const ResponseRow row, get_response(session, tenant, response));
    LOCI_ASSIGN_OR_RETURN(list, read_page(session, ItemsOf::kResponseInput, row.response, page));
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return list;
}

namespace {

// The response and what it continues, back to the first; but nothing of a thread that was taken from the
// tenant. A row is there before one that continues it, so a chain has no cycle.
#define LOCI_CHAIN                                                                           \
  "WITH RECURSIVE chain (response, previous, continues, depth) AS ("                         \
  "SELECT response, previous, continues, 0 FROM responses WHERE tenant = $1 AND id = $2 "    \
  "UNION ALL SELECT earlier.response, earlier.previous, earlier.continues, chain.depth + 1 " \
  "FROM chain JOIN responses AS earlier ON earlier.response = chain.continues "              \
  "JOIN threads ON threads.thread = earlier.thread AND threads.tenant = $1) "
constexpr std::string_view kChainEnd = LOCI_CHAIN "SELECT previous FROM chain ORDER BY depth DESC LIMIT 1";
constexpr std::string_view kChainBytes = LOCI_CHAIN
    "SELECT CAST(COALESCE(SUM(items.size_bytes), 0) AS BIGINT) "
    "FROM chain JOIN items ON items.response = chain.response";
constexpr std::string_view kChainItems = LOCI_CHAIN
    "SELECT items.id, items.json FROM chain JOIN items ON items.response = chain.response "
    "ORDER BY chain.depth DESC, items.part, items.item";
#undef LOCI_CHAIN

}  // namespace

Result<std::vector<StoredItem>> SqlStore::response_history(std::string_view tenant, std::string_view id,
                                                           std::uint64_t bytes_max) {
  std::vector<StoredItem> items;
  const Status done = read(tenant, [&](SqlSession& session) -> Status {
    LOCI_RETURN_IF_ERROR(get_response(session, tenant, id).status());
    LOCI_ASSIGN_OR_RETURN(const SqlRows end, session.run(kChainEnd, {tenant, id}));
    if (!end.text(0, 0).empty()) {
      return not_found(fmt::format("the response {}, which {} continues, was deleted or has expired",
                                   quoted_id(end.text(0, 0)), quoted_id(id)));
    }
    LOCI_ASSIGN_OR_RETURN(const SqlRows bytes, session.run(kChainBytes, {tenant, id}));
    LOCI_RETURN_IF_ERROR(check_history_bytes(bytes, bytes_max));
    LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run(kChainItems, {tenant, id}));
    items = to_items(rows);
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return items;
}

}  // namespace loci
