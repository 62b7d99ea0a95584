// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace loci {
namespace {

constexpr std::array kMigrations = {
    Migration{.version = 1, .statements = R"sql(
CREATE TABLE threads (
  thread {identity},
  tenant TEXT NOT NULL,
  active_at {int} NOT NULL,
  size_bytes {int} NOT NULL
){strict};
CREATE INDEX threads_by_activity ON threads (active_at, thread);

CREATE TABLE conversations (
  conversation {identity},
  thread {int} NOT NULL REFERENCES threads (thread),
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  created_at {int} NOT NULL,
  metadata TEXT NOT NULL,
  size_bytes {int} NOT NULL,
  UNIQUE (tenant, id)
){strict};
CREATE INDEX conversations_by_thread ON conversations (thread);

CREATE TABLE sequences (
  sequence {identity},
  thread {int} NOT NULL REFERENCES threads (thread),
  base {int} REFERENCES sequences (sequence),
  base_tokens {int} NOT NULL,
  depth {int} NOT NULL,
  tokens {blob} NOT NULL,
  size_bytes {int} NOT NULL
){strict};
CREATE INDEX sequences_by_thread ON sequences (thread, sequence);
CREATE INDEX sequences_by_base ON sequences (base);

CREATE TABLE responses (
  response {identity},
  thread {int} NOT NULL REFERENCES threads (thread),
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  conversation TEXT NOT NULL,
  previous TEXT NOT NULL,
  created_at {int} NOT NULL,
  status TEXT NOT NULL,
  owner TEXT NOT NULL,
  json TEXT NOT NULL,
  tokenizer TEXT NOT NULL,
  sequence {int} REFERENCES sequences (sequence),
  size_bytes {int} NOT NULL,
  UNIQUE (tenant, id)
){strict};
CREATE INDEX responses_by_thread ON responses (thread);
CREATE INDEX responses_by_sequence ON responses (sequence);
CREATE INDEX responses_running ON responses (owner) WHERE status IN ('in_progress', 'queued');

CREATE TABLE items (
  item {identity},
  thread {int} NOT NULL REFERENCES threads (thread),
  conversation {int} REFERENCES conversations (conversation),
  response {int} REFERENCES responses (response),
  part {int} NOT NULL,
  id TEXT NOT NULL,
  json TEXT NOT NULL,
  size_bytes {int} NOT NULL
){strict};
CREATE INDEX items_by_thread ON items (thread);
CREATE INDEX items_by_conversation ON items (conversation, item);
CREATE UNIQUE INDEX items_by_id ON items (conversation, id);
CREATE INDEX items_by_response ON items (response, part, item);
)sql"},
    // What a response continues, by its row: an id may be deleted and come again.
    Migration{.version = 2, .statements = R"sql(
ALTER TABLE responses ADD COLUMN continues {int} REFERENCES responses (response) ON DELETE SET NULL;
CREATE INDEX responses_by_continued ON responses (continues);
UPDATE responses SET continues = (
  SELECT earlier.response FROM responses AS earlier WHERE earlier.tenant = responses.tenant
  AND earlier.id = responses.previous AND earlier.response < responses.response
) WHERE previous <> '';
)sql"},
    // What each tenant has, counted as it changes, and its threads by their age.
    Migration{.version = 3, .statements = R"sql(
CREATE TABLE tenant_usage (
  tenant TEXT NOT NULL,
  writer {int} NOT NULL,
  threads {int} NOT NULL,
  size_bytes {int} NOT NULL,
  PRIMARY KEY (tenant, writer)
){strict};
INSERT INTO tenant_usage (tenant, writer, threads, size_bytes)
  SELECT tenant, 0, COUNT(*), SUM(size_bytes) FROM threads GROUP BY tenant;
CREATE INDEX threads_by_tenant ON threads (tenant, active_at, thread);
)sql"},
    // Who makes a conversation's next turn, until when in milliseconds since 1970. Only servers that share a
    // database claim turns.
    Migration{.version = 4, .statements = R"sql(
CREATE TABLE turn_claims (
  tenant TEXT NOT NULL,
  conversation TEXT NOT NULL,
  holder TEXT NOT NULL,
  claim {int} NOT NULL,
  expires_at {int} NOT NULL,
  PRIMARY KEY (tenant, conversation)
){strict};
CREATE INDEX turn_claims_by_holder ON turn_claims (holder);
)sql"},
    // What a thread has, the newest first: the eraser takes a part of it. (SQLite's indexes end with the
    // row's key by themselves.) The old indexes go last, since others wait for that.
    Migration{.version = 5,
              .statements = R"sql(
{patience}
CREATE INDEX items_by_thread_and_item ON items (thread, item);
CREATE INDEX responses_by_thread_and_response ON responses (thread, response);
DROP INDEX items_by_thread;
DROP INDEX responses_by_thread;
)sql",
              .only = SqlDialect::kPostgres},
    // How many items a conversation has, counted as they come and go: a list of conversations tells it.
    Migration{.version = 6, .statements = R"sql(
{patience}
ALTER TABLE conversations ADD COLUMN items {int} NOT NULL DEFAULT 0;
UPDATE conversations SET items = (
  SELECT COUNT(*) FROM items WHERE items.conversation = conversations.conversation
);
)sql"},
    // Which time was last believed, and what is not yet (expiry_clock.h): at first that of the latest
    // activity.
    Migration{.version = 7, .statements = R"sql(
CREATE TABLE expiry_clock (
  one {int} PRIMARY KEY,
  believed_at {int} NOT NULL,
  doubted_at {int},
  steady_seconds {int} NOT NULL
){strict};
INSERT INTO expiry_clock (one, believed_at, steady_seconds)
  SELECT 1, active_at, 0 FROM threads ORDER BY active_at DESC, thread DESC LIMIT 1;
)sql"},
};

constexpr std::string_view kVersionTable =
    "CREATE TABLE IF NOT EXISTS schema_version (version {int} PRIMARY KEY, applied_at {int} NOT "
    "NULL){strict}";

std::string in_dialect(std::string_view text, SqlDialect dialect) {
  const bool sqlite = dialect == SqlDialect::kSqlite;
  const std::array<std::array<std::string_view, 2>, 5> words = {{
      {"{identity}", sqlite ? "INTEGER PRIMARY KEY" : "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"},
      {"{int}", sqlite ? "INTEGER" : "BIGINT"},
      {"{blob}", sqlite ? "BLOB" : "BYTEA"},
      {"{strict}", sqlite ? " STRICT" : ""},
      {"{patience}", sqlite ? "" : "SET LOCAL statement_timeout = 0;"},
  }};
  std::string out(text);
  for (const auto& [name, word] : words) {
    for (std::size_t at = out.find(name); at != std::string::npos; at = out.find(name, at + word.size()))
      out.replace(at, name.size(), word);
  }
  return out;
}

Status read_version(SqlSession& session, std::int64_t& version) {
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                        session.run("SELECT COALESCE(MAX(version), 0) FROM schema_version", {}));
  version = rows.integer(0, 0);
  return {};
}

}  // namespace

std::span<const Migration> store_migrations() { return kMigrations; }

Result<std::int64_t> schema_version(SqlDatabase& database) {
  std::int64_t version = 0;
  const Status done = database.transact(SqlAccess::kRead,
                                        [&](SqlSession& session) { return read_version(session, version); });
  LOCI_RETURN_IF_ERROR(done);
  return version;
}

Status migrate(SqlDatabase& database, std::span<const Migration> migrations, std::int64_t now_seconds) {
  const SqlDialect dialect = database.dialect();
  const std::int64_t newest = migrations.empty() ? 0 : migrations.back().version;
  std::int64_t version = 0;
  const Status found = database.transact(SqlAccess::kWrite, [&](SqlSession& session) -> Status {
    LOCI_RETURN_IF_ERROR(session.execute(in_dialect(kVersionTable, dialect)));
    return read_version(session, version);
  });
  LOCI_RETURN_IF_ERROR(found);
  while (version < newest) {
    // The version is read in the transaction that changes it: many servers may start at once.
    const Status done = database.transact(SqlAccess::kSchema, [&](SqlSession& session) -> Status {
      LOCI_RETURN_IF_ERROR(read_version(session, version));
      const auto next = std::find_if(migrations.begin(), migrations.end(),
                                     [&](const Migration& one) { return one.version > version; });
      if (next == migrations.end()) return {};
      if (!next->only || *next->only == dialect)
        LOCI_RETURN_IF_ERROR(session.execute(in_dialect(next->statements, dialect)));
      LOCI_RETURN_IF_ERROR(session
                               .run("INSERT INTO schema_version (version, applied_at) VALUES ($1, $2)",
                                    {next->version, now_seconds})
                               .status());
      version = next->version;
      return {};
    });
    LOCI_RETURN_IF_ERROR(done);
  }
  if (version == newest) return {};
  return invalid_argument(
      fmt::format("its schema has version {}, written by a newer Loci; this one knows versions up to {}: use "
                  "the newer one, or another store",
                  version, newest));
}

}  // namespace loci
