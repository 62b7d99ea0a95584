// SPDX-License-Identifier: Apache-2.0
// The conversation store in one file of SQLite's: what a server uses when it is told nothing else.
#pragma once

#include <memory>
#include <string>

#include "loci/base/status.h"
#include "loci/serve/store/sql_store.h"
#include "loci/serve/store/store_options.h"

namespace loci {

class SqliteDatabase;

class SqliteStore final : public SqlStore {
 public:
  // Makes the file where it is missing, and takes an older one's tables to the newest version.
  // Errors: sqlite_database.h's; kInvalidArgument where a newer program has written it.
  static Result<std::unique_ptr<ConversationStore>> open(const std::string& path,
                                                         const StoreOptions& options);

 private:
  SqliteStore(std::unique_ptr<SqliteDatabase> database, const StoreOptions& options);
};

}  // namespace loci
