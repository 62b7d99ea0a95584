// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/inspect_store.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "loci/base/printable.h"
#include "loci/base/units.h"
#include "loci/serve/store/schema.h"
#include "loci/serve/store/sql_store.h"
#include "loci/serve/store/sqlite_database.h"

namespace loci {
namespace {

// Stored text in one line.
std::string shown(std::string_view text) { return printable(text, LineEnds::kReplace); }

std::string utc(std::int64_t seconds) {
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::string line(std::string_view name, std::string_view value) {
  return fmt::format("  {:<20} {}\n", name, value);
}

std::uint64_t file_bytes(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : bytes;
}

std::string tenants_table(const std::vector<TenantStats>& tenants) {
  std::string out = fmt::format("\nTenants\n  {:<20} {:>13} {:>10} {:>10} {:>10}  {:<16}  {}\n", "tenant",
                                "conversations", "responses", "items", "size", "oldest (UTC)", "newest");
  for (const TenantStats& one : tenants) {
    out += fmt::format("  {:<20} {:>13} {:>10} {:>10} {:>10}  {:<16}  {}\n", shown(one.tenant),
                       format_count(one.conversations), format_count(one.responses), format_count(one.items),
                       format_bytes(one.size_bytes), utc(one.oldest_active_at), utc(one.newest_active_at));
  }
  if (tenants.empty()) out += "  none\n";
  return out;
}

constexpr std::uint32_t kListedMax = 20;

// The last active conversations of a tenant, by their ids.
Result<std::string> conversations_table(ConversationStore& store, const std::string& tenant) {
  LOCI_ASSIGN_OR_RETURN(const ConversationList list, store.conversations(tenant, "", kListedMax));
  if (list.conversations.empty()) return std::string();
  std::string out = fmt::format("\nConversations of {}\n  {:<48} {:<16} {:>8} {:>10}\n", shown(tenant), "id",
                                "active (UTC)", "items", "size");
  for (const ConversationSummary& one : list.conversations) {
    out += fmt::format("  {:<48} {:<16} {:>8} {:>10}\n", shown(one.conversation.id), utc(one.active_at),
                       format_count(one.items), format_bytes(one.size_bytes));
  }
  if (list.has_more) out += "  ... and older ones (GET /v1/conversations lists all)\n";
  return out;
}

// Where a part cannot be read: the report goes on with the next one.
std::string unread(const Status& status) { return "cannot be read: " + status.message(); }

std::string tenants_report(SqlStore& store) {
  const Result<std::vector<TenantStats>> tenants = store.stats();
  if (!tenants.ok()) return fmt::format("\nTenants\n  {}\n", unread(tenants.status()));
  std::string out = tenants_table(*tenants);
  for (const TenantStats& one : *tenants) {
    const Result<std::string> table = conversations_table(store, one.tenant);
    out += table.ok()
               ? *table
               : fmt::format("\nConversations of {}\n  {}\n", shown(one.tenant), unread(table.status()));
  }
  return out;
}

}  // namespace

bool is_store_file(const std::string& path) {
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  std::string head(kMagic.size(), ' ');
  std::ifstream file(path, std::ios::binary);
  return file.read(head.data(), static_cast<std::streamsize>(head.size())) && head == kMagic;
}

Result<std::string> inspect_store(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> database,
                        SqliteDatabase::open(path, SqliteDatabase::Mode::kReadOnly, {}));
  SqliteDatabase& file = *database;
  const Result<std::int64_t> version = schema_version(file);
  const std::int64_t known = store_migrations().back().version;
  std::string out = "Conversation store\n" + line("path", shown(path)) +
                    line("size", fmt::format("{}, log {}", format_bytes(file_bytes(path)),
                                             format_bytes(file_bytes(path + "-wal")))) +
                    line("schema version", version.ok() ? fmt::format("{} (this Loci's: {})", *version, known)
                                                        : unread(version.status()));
  LOCI_ASSIGN_OR_RETURN(const std::string integrity, file.integrity_check());
  out += line("integrity", integrity);
  if (!version.ok() || *version != known) return out;
  SqlStore store(std::move(database), {});
  return out + tenants_report(store);
}

Result<std::string> inspect_conversation(const std::string& path, const std::string& id) {
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> database,
                        SqliteDatabase::open(path, SqliteDatabase::Mode::kReadOnly, {}));
  SqlStore store(std::move(database), {});
  LOCI_ASSIGN_OR_RETURN(const std::vector<TenantStats> tenants, store.stats());
  std::string out;
  Status missing = not_found(fmt::format("no conversation or response has the id {}", shown(id)));
  for (const TenantStats& one : tenants) {
    Result<std::vector<StoredItem>> items = store.conversation_history(one.tenant, id, UINT64_MAX);
    if (items.status().code() == StatusCode::kNotFound && store.response(one.tenant, id).ok()) {
      items = store.response_history(one.tenant, id, UINT64_MAX);
      if (!items.ok()) missing = items.status();
    }
    if (items.status().code() == StatusCode::kNotFound) continue;
    LOCI_RETURN_IF_ERROR(items.status());
    out += fmt::format("{} of {}: {} items\n", shown(id), shown(one.tenant), items->size());
    for (const StoredItem& item : *items) out += shown(item.json) + "\n";
  }
  if (out.empty()) return missing;
  return out;
}

}  // namespace loci
