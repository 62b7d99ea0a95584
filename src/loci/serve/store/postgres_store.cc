// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/postgres_store.h"

#include "loci/serve/store/postgres_database.h"
#include "loci/serve/store/schema.h"

namespace loci {

PostgresStore::PostgresStore(std::unique_ptr<PostgresDatabase> database, const StoreOptions& options)
    : SqlStore(std::move(database), options) {}

Result<std::unique_ptr<ConversationStore>> PostgresStore::open(const std::string& url,
                                                               const StoreOptions& options) {
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<PostgresDatabase> database, PostgresDatabase::open(url, options));
  const auto to_newest = [&] { return migrate(*database, store_migrations(), seconds_since_1970()); };
  const Status migrated = database->alone(to_newest);
  if (migrated.code() == StatusCode::kInvalidArgument)
    return migrated.with_context("the conversation store (PostgreSQL)");
  LOCI_RETURN_IF_ERROR(migrated);
  return std::unique_ptr<ConversationStore>(new PostgresStore(std::move(database), options));
}

}  // namespace loci
