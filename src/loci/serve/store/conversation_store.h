// SPDX-License-Identifier: Apache-2.0
// The durable store of conversations and responses: text, tokens, tenants, times. State is a cache; this
// is what must not be lost. Two implementations: SQLite (embedded) and PostgreSQL (many routers).
//
// A turn is durable when commit_turn() returns, and only then may its last event be sent. Everything is
// scoped by tenant: what belongs to another is not found.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"

namespace loci {

// What each row, an item's too, counts beside its texts where sizes are limited.
inline constexpr std::int64_t kRowBytes = 64;

// An item of the Responses API: a message, a call of a tool, its result, a reasoning.
struct StoredItem {
  std::string id;    // "msg_...", "fc_...", ...
  std::string json;  // the item as the API shows it, one object
};

struct StoredConversation {
  std::string id;               // "conv_..."
  std::int64_t created_at = 0;  // seconds since 1970
  std::string metadata = "{}";  // JSON object
};

struct StoredResponse {
  std::string id;            // "resp_..."
  std::string conversation;  // empty: of none
  std::string previous;      // the response that it continues; empty: of none
  std::int64_t created_at = 0;
  std::string status;  // as in the API: completed, incomplete, in_progress, queued, cancelled, failed
  std::string json;    // the response object as GET returns it
  // The whole sequence that the model saw and said, under the tokenizer that made it.
  std::vector<TokenId> tokens;
  std::string tokenizer;  // the model's fingerprint, hexadecimal
};

// How far a response is, and where.
struct ResponseState {
  std::string status;  // as StoredResponse's
  // The name of the server that makes it, or has made it in the background: only there are its events. Empty:
  // nobody says who, or the store is one server's.
  std::string server;
  // It is queued or in progress, and that server seems to have ended: if it has, the response will be failed.
  // (It may only have lost its connections to the database.)
  bool is_interrupted = false;
};

// What a model saw and said, under the tokenizer that made it.
struct StoredTokens {
  std::vector<TokenId> tokens;
  std::string tokenizer;  // as StoredResponse's
};

struct StoredTurn {
  StoredResponse response;
  // Of its conversation: what claim_turn() gave. 0: it has none, and none is asked for.
  std::int64_t claim = 0;
  std::vector<StoredItem> input;   // what the request added
  std::vector<StoredItem> output;  // what the model said
};

// Asked before what takes so many bytes is read, of ids and JSON, on the thread that reads. False: it is not
// read, and the call ends with kResourceExhausted. Empty: everything is read.
using ReadRoom = std::function<bool(std::uint64_t bytes)>;

// Which part of a list, and in which order. A page ends before the item with which its items would take more
// than kPageBytesMax, so that it costs little whatever is stored; it has at least one item.
struct ItemPage {
  std::string after;  // the id before the first one; empty: from the beginning
  std::uint32_t limit = 20;
  bool newest_first = false;
  ReadRoom room = {};
};
inline constexpr std::uint64_t kPageBytesMax = 4 << 20;  // of ids and JSON, with 64 bytes for each item

struct ItemList {
  std::vector<StoredItem> items;
  bool has_more = false;
};

// A conversation in a list of them.
struct ConversationSummary {
  StoredConversation conversation;
  std::int64_t active_at = 0;    // seconds since 1970: its latest turn
  std::uint64_t size_bytes = 0;  // with its responses
  std::uint64_t items = 0;
  // Of its items, at most kFirstItems: what it is about. Those that take more than kFirstItemBytesMax come
  // without their JSON, so that a page of the list costs little whatever is stored.
  std::vector<StoredItem> first;
};
inline constexpr std::uint32_t kFirstItems = 3;
inline constexpr std::uint32_t kFirstItemBytesMax = 64 << 10;

struct ConversationList {
  std::vector<ConversationSummary> conversations;
  bool has_more = false;
};

struct StoreLimits {
  std::optional<std::int64_t> age_seconds_max;  // since a conversation was last active
  // Of all tenants together. Beyond, the oldest go of those tenants that have more than their share
  // (store_shares.h).
  std::optional<std::uint64_t> bytes_max;
};

// By which time conversations are too old (expiry_clock.h).
struct ExpiryTime {
  std::int64_t now_seconds = 0;  // since 1970
  bool is_doubted = false;       // the clock has jumped ahead, and is not believed yet: this is from before
};

// What a call of expire() did.
struct StoreExpiry {
  std::uint64_t gone = 0;  // conversations and responses
  bool has_more = false;   // it may have left something to do
};

// What the store holds of one tenant, for people and metrics.
struct TenantStats {
  std::string tenant;
  std::uint64_t conversations = 0;
  std::uint64_t responses = 0;
  std::uint64_t items = 0;
  std::uint64_t size_bytes = 0;       // of texts, tokens and rows; a file is somewhat larger
  std::int64_t oldest_active_at = 0;  // when what was longest at rest was last active, since 1970
  std::int64_t newest_active_at = 0;
};

// Thread-safe. Calls block on the disk or the network: the store's threads make them. Errors of all:
// kNotFound (the tenant has no such thing), kUnavailable (the store can't be reached, the disk is full,
// another process holds its lock), kDataLoss; of what writes also kInvalidArgument naming the field: an id
// that exists already, text that is no UTF-8 or holds a NUL, what is larger than the store's limits
// (stored_text.h). A call that returned an error has changed nothing. Only after kCancelled (the connection
// was lost in the middle of a commit), or where the disk failed in one, may the change yet be found when the
// store is opened anew: all of it, or nothing.
//
// What is kept and deleted together is a *thread*: a conversation with its responses, or a chain of
// previous responses with all its forks. It is as old as its latest turn.
class ConversationStore {
 public:
  virtual ~ConversationStore() = default;

  // The conversation and its first items. The items' ids are unique in their conversation.
  virtual Status create_conversation(std::string_view tenant, const StoredConversation& conversation,
                                     const std::vector<StoredItem>& items) = 0;
  virtual Result<StoredConversation> conversation(std::string_view tenant, std::string_view id) = 0;
  // The tenant's, the last active first. `after`: the id before the first one; empty: from the newest.
  // Errors: kInvalidArgument (there is no such conversation `after`).
  virtual Result<ConversationList> conversations(std::string_view tenant, std::string_view after,
                                                 std::uint32_t limit) = 0;
  virtual Status set_metadata(std::string_view tenant, std::string_view id, std::string_view metadata) = 0;
  // Its thread goes with it: items, responses and what continues these. Only responses that are still
  // running stay, each for itself. Returns what was said there, so that computed state can be deleted too:
  // the sequences of which none begins another, the newest first, as many as StoreOptions::said_tokens_max
  // lets. SQLite: when it returns, nothing of it is in the store's files; PostgreSQL: once its vacuum was
  // there.
  virtual Result<std::vector<StoredTokens>> delete_conversation(std::string_view tenant,
                                                                std::string_view id) = 0;

  virtual Status add_items(std::string_view tenant, std::string_view conversation,
                           const std::vector<StoredItem>& items) = 0;
  virtual Result<ItemList> conversation_items(std::string_view tenant, std::string_view conversation,
                                              const ItemPage& page) = 0;
  virtual Result<StoredItem> conversation_item(std::string_view tenant, std::string_view conversation,
                                               std::string_view item, const ReadRoom& room) = 0;
  virtual Status delete_item(std::string_view tenant, std::string_view conversation,
                             std::string_view item) = 0;

  // Writes the turn, and adds its items to its conversation if it has one; all or nothing. kNotFound where
  // the conversation or the previous response does not exist. A response of the same id that is in_progress
  // or queued is replaced with its items (its conversation and previous response stay the same; items of a
  // conversation deleted meanwhile are the response's alone); one that has ended is not: kInvalidArgument.
  virtual Status commit_turn(std::string_view tenant, const StoredTurn& turn) = 0;

  virtual Result<StoredResponse> response(std::string_view tenant, std::string_view id) = 0;
  // Its JSON alone.
  virtual Result<std::string> response_json(std::string_view tenant, std::string_view id,
                                            const ReadRoom& room) = 0;
  // Reads neither its JSON nor its tokens.
  virtual Result<ResponseState> response_state(std::string_view tenant, std::string_view id) = 0;
  // The response without its JSON, which is not read: what another turn goes on from.
  virtual Result<StoredResponse> continued_response(std::string_view tenant, std::string_view id) = 0;
  // Items that it added to a conversation stay there. kInvalidArgument: it is queued or in progress on
  // another server that is alive, which would store it again when it ends.
  virtual Status delete_response(std::string_view tenant, std::string_view id) = 0;
  virtual Result<ItemList> input_items(std::string_view tenant, std::string_view response,
                                       const ItemPage& page) = 0;

  // What the next turn follows: all items, the oldest first. Of a response: its chain of previous ones,
  // each input then output. A chain that is cut (one was deleted or has expired) is kNotFound naming it.
  // `bytes_max`: of their ids and JSON, with 64 bytes for each item. kResourceExhausted where they take more:
  // they are counted before any is read.
  virtual Result<std::vector<StoredItem>> response_history(std::string_view tenant, std::string_view id,
                                                           std::uint64_t bytes_max) = 0;
  virtual Result<std::vector<StoredItem>> conversation_history(std::string_view tenant, std::string_view id,
                                                               std::uint64_t bytes_max) = 0;

  // The name of this server in the store, drawn when it was opened; empty: a store that is one server's.
  virtual std::string server() const = 0;
  // Responses queued or in progress whose server has ended: they become "failed", their JSON too (status
  // and error). Called at start, before requests are served, and then from time to time. `ended`: names of
  // servers that are known to have ended, beside those of which the store itself knows it. `confirm`, called
  // once, is given all these and leaves those of which it is sure; empty: all. Returns how many responses.
  using ConfirmEnded = std::function<std::vector<std::string>(std::vector<std::string>)>;
  virtual Result<std::uint64_t> fail_interrupted(const std::vector<std::string>& ended,
                                                 const ConfirmEnded& confirm) = 0;
  // What each tenant has is counted anew, should the count be wrong: somebody changed the database by hand.
  // Where servers share it, the items of conversations are, too. Returns of how many tenants the sizes were
  // wrong. Called at start. O(threads), or O(threads and items); it reads alone where all is right.
  virtual Result<std::uint64_t> recount_usage() = 0;
  // For a stop that must not wait: nothing more is erased of large conversations, which the next start goes
  // on with. Of a database server, which may stand still: calls that wait for it end with kUnavailable, and
  // so does every later one.
  virtual void abandon() = 0;
  // The `now_seconds` of expire(): the database's clock, or this machine's where the store is a file. Keeps
  // in the store what it believed.
  virtual Result<ExpiryTime> expiry_time(std::int64_t age_seconds_max) = 0;
  // Deletes threads that are too old, or the oldest of tenants that have too much, and erases what is left of
  // large ones that were deleted. A call does a bounded part of the work, so that turns can be committed in
  // between: call again while there is more.
  virtual Result<StoreExpiry> expire(std::int64_t now_seconds, const StoreLimits& limits) = 0;

  // Of all tenants together; cheap.
  virtual Result<std::uint64_t> size_bytes() = 0;
  // By name. Reads everything's index.
  virtual Result<std::vector<TenantStats>> stats() = 0;

  // --- turns, where several servers share the store ---

  // The right to make a conversation's next turn, for StoreOptions::turn_lease by the database's clock: the
  // claim, or nothing where another server has it and neither its lease nor that server has ended. A turn
  // that carries its claim is committed only while nobody has taken that over (else kCancelled), and ends
  // it; so a server that was paused adds nothing to what another went on with. This server's own calls are
  // not kept apart: it makes one turn of a conversation at a time. A store that is one server's gives 0.
  virtual Result<std::optional<std::int64_t>> claim_turn(std::string_view tenant,
                                                         std::string_view conversation) = 0;
  // Ends a claim, unless it has ended.
  virtual Status release_turn(std::string_view tenant, std::string_view conversation, std::int64_t claim) = 0;
  // Those of this server's claims go on for another lease, but for what others have taken over. Its other
  // ones, whose release failed or that were made without its knowledge (a commit in doubt), end with their
  // lease. A row that somebody else is writing just then is left to the next call.
  virtual Status renew_claims(const std::vector<std::int64_t>& held) = 0;
};

}  // namespace loci
