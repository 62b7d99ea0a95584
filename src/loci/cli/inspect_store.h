// SPDX-License-Identifier: Apache-2.0
// `loci inspect STORE.db`: what is in a conversation store of SQLite's, for people. Only reads; a server may
// be using the file.
#pragma once

#include <string>

#include "loci/base/status.h"

namespace loci {

// Whether the file begins as SQLite's do.
bool is_store_file(const std::string& path);

// Version, sizes, tenants, and whether the file is sound. Errors: as SqliteDatabase::open().
Result<std::string> inspect_store(const std::string& path);

// The items of a conversation, or of a response with what it continues, whoever owns it; one a line.
// Errors: as above; kNotFound.
Result<std::string> inspect_conversation(const std::string& path, const std::string& id);

}  // namespace loci
