// SPDX-License-Identifier: Apache-2.0
// The store that a user names: a file (SQLite) or a URL (PostgreSQL).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/store/store_options.h"

namespace loci {

// "postgresql://..." or "postgres://...": many servers may share it.
bool is_store_url(std::string_view where);
// Errors: kInvalidArgument for another URL, which is not repeated: it may hold a password.
Status check_store_place(std::string_view where);

// Errors: those of SqliteStore::open() and PostgresStore::open().
Result<std::unique_ptr<ConversationStore>> open_store(const std::string& where, const StoreOptions& options);

// `where` for people and logs: a URL without its password.
std::string describe_store(std::string_view where);

}  // namespace loci
