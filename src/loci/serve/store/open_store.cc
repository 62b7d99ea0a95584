// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/open_store.h"

#include <algorithm>

#include "loci/serve/store/postgres_store.h"
#include "loci/serve/store/sqlite_store.h"

namespace loci {

bool is_store_url(std::string_view where) {
  return where.starts_with("postgresql://") || where.starts_with("postgres://");
}

Status check_store_place(std::string_view where) {
  if (is_store_url(where) || where.find("://") == std::string_view::npos) return {};
  return invalid_argument("expected a file, or postgresql://USER@HOST/DATABASE, found another URL");
}

Result<std::unique_ptr<ConversationStore>> open_store(const std::string& where, const StoreOptions& options) {
  if (is_store_url(where)) return PostgresStore::open(where, options);
  return SqliteStore::open(where, options);
}

std::string describe_store(std::string_view where) {
  std::string out(where);
  if (!is_store_url(where)) return out;
  // scheme://user:password@host/database?password=...
  const std::size_t host = out.find("://") + 3;
  const std::size_t end = std::min(out.find('/', host), out.size());
  const std::size_t at = out.rfind('@', end);
  const std::size_t colon = out.find(':', host);
  if (at != std::string::npos && at > host && colon < at) out.replace(colon + 1, at - colon - 1, "***");
  for (const std::string_view key : {"?password=", "&password="}) {
    const std::size_t found = out.find(key);
    if (found == std::string::npos) continue;
    const std::size_t value = found + key.size();
    out.replace(value, std::min(out.find('&', value), out.size()) - value, "***");
  }
  return out;
}

}  // namespace loci
