// SPDX-License-Identifier: Apache-2.0
// The conversation store in a database of PostgreSQL's, for many servers and routers together.
#pragma once

#include <memory>
#include <string>

#include "loci/base/status.h"
#include "loci/serve/store/sql_store.h"
#include "loci/serve/store/store_options.h"

namespace loci {

class PostgresDatabase;

class PostgresStore final : public SqlStore {
 public:
  // Makes the tables where they are missing, and takes older ones to the newest version; one server does so
  // at a time. Errors: postgres_database.h's; kInvalidArgument where a newer program has written them.
  static Result<std::unique_ptr<ConversationStore>> open(const std::string& url, const StoreOptions& options);

 private:
  PostgresStore(std::unique_ptr<PostgresDatabase> database, const StoreOptions& options);
};

}  // namespace loci
