// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/sqlite_store.h"

#include "loci/serve/store/schema.h"
#include "loci/serve/store/sqlite_database.h"

namespace loci {

SqliteStore::SqliteStore(std::unique_ptr<SqliteDatabase> database, const StoreOptions& options)
    : SqlStore(std::move(database), options) {}

Result<std::unique_ptr<ConversationStore>> SqliteStore::open(const std::string& path,
                                                             const StoreOptions& options) {
  LOCI_ASSIGN_OR_RETURN(auto database, SqliteDatabase::open(path, SqliteDatabase::Mode::kReadWrite, options));
  const Status migrated = migrate(*database, store_migrations(), seconds_since_1970());
  if (migrated.code() == StatusCode::kInvalidArgument)
    return migrated.with_context("the conversation store " + path);
  LOCI_RETURN_IF_ERROR(migrated);
  return std::unique_ptr<ConversationStore>(new SqliteStore(std::move(database), options));
}

}  // namespace loci
