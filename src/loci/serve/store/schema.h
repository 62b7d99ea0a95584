// SPDX-License-Identifier: Apache-2.0
// The tables of the store, and how those of an older version become those of a newer one. See
// docs/conversation-store.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "loci/base/status.h"
#include "loci/serve/store/sql_database.h"

namespace loci {

// One step from the version before. What was released is never changed: a new step is added.
struct Migration {
  std::int64_t version;  // 1, 2, ...
  // In SQLite's or PostgreSQL's words by {identity}, {int}, {blob}, {strict}.
  std::string_view statements;
  std::optional<SqlDialect> only = std::nullopt;  // in the other one there is nothing to do
};

std::span<const Migration> store_migrations();

// Takes the database to the last of `migrations`, each in a transaction of its own with the version that
// it leads to. Errors: kInvalidArgument where a newer program has written it.
Status migrate(SqlDatabase& database, std::span<const Migration> migrations, std::int64_t now_seconds);

// The version that the database has; 0: it is empty.
Result<std::int64_t> schema_version(SqlDatabase& database);

}  // namespace loci
