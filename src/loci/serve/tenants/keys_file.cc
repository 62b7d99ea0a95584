// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tenants/keys_file.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <map>
#include <set>

#include "loci/base/printable.h"
#include "loci/base/units.h"

namespace loci {
namespace {

constexpr std::size_t kNameBytesMax = 64;

// The beginning of a text, as errors show it.
std::string excerpt_of(std::string_view text) {
  return fmt::format("'{}'{}", printable(text.substr(0, kNameBytesMax), LineEnds::kReplace),
                     text.size() > kNameBytesMax ? "..." : "");
}

// One table of the file: reads fields, and at the end names those that nobody asked for.
class Table {
 public:
  Table(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

  std::string text(std::string_view field, std::string otherwise) {
    const toml::node* node = take(field);
    if (node == nullptr) return otherwise;
    if (const auto* value = node->as_string()) return value->get();
    fail(field, "a string", *node);
    return otherwise;
  }
  bool flag(std::string_view field, bool otherwise) {
    const toml::node* node = take(field);
    if (node == nullptr) return otherwise;
    if (const auto* value = node->as_boolean()) return value->get();
    fail(field, "true or false", *node);
    return otherwise;
  }
  std::optional<std::uint32_t> number(std::string_view field, std::uint32_t most) {
    const toml::node* node = take(field);
    if (node == nullptr) return std::nullopt;
    const auto* value = node->as_integer();
    if (value != nullptr && value->get() >= 1 && value->get() <= most) {
      return static_cast<std::uint32_t>(value->get());
    }
    fail(field, fmt::format("a whole number from 1 to {}", most), *node);
    return std::nullopt;
  }
  // Bytes: a number, or a text such as "512MiB".
  std::optional<std::uint64_t> size(std::string_view field) {
    constexpr std::string_view kExpected = "a size above 0, as 1073741824 or \"1GiB\"";
    const toml::node* node = take(field);
    if (node == nullptr) return std::nullopt;
    if (const auto* value = node->as_integer(); value != nullptr && value->get() >= 1)
      return static_cast<std::uint64_t>(value->get());
    if (const auto* text = node->as_string()) {
      const Result<std::uint64_t> bytes = parse_bytes(text->get(), field);
      if (bytes.ok() && *bytes > 0) return *bytes;
    }
    fail(field, kExpected, *node);
    return std::nullopt;
  }
  // A table inside; null: absent.
  const toml::table* inner(std::string_view field) {
    const toml::node* node = take(field);
    if (node != nullptr && node->as_table() == nullptr) fail(field, "a table", *node);
    return node == nullptr ? nullptr : node->as_table();
  }
  const toml::array* tables(std::string_view field) {
    const toml::node* node = take(field);
    if (node == nullptr) return nullptr;
    const toml::array* array = node->as_array();
    if (array == nullptr || (!array->empty() && !array->is_homogeneous<toml::table>())) {
      fail(field, "tables, each under [[keys]]", *node);
      return nullptr;
    }
    return array;
  }
  void keep(Status status) {
    if (status_.ok() && !status.ok()) status_ = status.with_context(where_);
  }
  Status finish() {
    for (const auto& [key, node] : table_) {
      if (seen_.contains(std::string(key.str()))) continue;
      keep(invalid_argument(fmt::format("line {}: unknown field", node.source().begin.line),
                            std::string(key.str())));
    }
    return status_;
  }

 private:
  const toml::node* take(std::string_view field) {
    seen_.emplace(field);
    return table_.get(field);
  }
  void fail(std::string_view field, std::string_view expected, const toml::node& node) {
    std::string found = "another type";
    if (const auto* value = node.as_integer()) found = std::to_string(value->get());
    if (const auto* value = node.as_string()) found = excerpt_of(value->get());
    keep(invalid_argument(
        fmt::format("line {}: expected {}, found {}", node.source().begin.line, expected, found),
        std::string(field)));
  }

  const toml::table& table_;
  std::string where_;
  std::set<std::string> seen_;
  Status status_;
};

Result<TenantLimits> read_limits(const toml::table& from, TenantLimits limits, std::string where) {
  Table table(from, std::move(where));
  const auto set = [&table](const char* field, std::uint32_t most, auto& to) {
    if (const auto value = table.number(field, most)) to = *value;
  };
  set("requests_per_minute", kTenantRateMax, limits.requests_per_minute);
  set("tokens_per_minute", kTenantRateMax, limits.tokens_per_minute);
  set("concurrent_requests", kTenantRateMax, limits.concurrent_requests);
  set("concurrent_reads", kTenantRateMax, limits.concurrent_reads);
  set("weight", kTenantWeightMax, limits.weight);
  set("queue_percent", 100, limits.queue_percent);
  set("stored_conversations", kTenantRateMax, limits.stored_conversations);
  if (const auto bytes = table.size("stored_bytes")) limits.stored_bytes = *bytes;
  LOCI_RETURN_IF_ERROR(table.finish());
  return limits;
}

Result<KeyEntry> read_key(const toml::table& from) {
  Table table(from, fmt::format("[[keys]] at line {}", from.source().begin.line));
  KeyEntry key;
  key.name = table.text("name", "");
  key.tenant = table.text("tenant", key.name);
  key.is_operator = table.flag("operator", false);
  key.created = table.text("created", "");
  table.keep(check_name(key.name, "name"));
  table.keep(check_name(key.tenant, "tenant"));
  const Result<KeyHash> hash = parse_key_hash(table.text("hash", ""));
  if (hash.ok()) key.hash = *hash;
  table.keep(hash.status());
  LOCI_RETURN_IF_ERROR(table.finish());
  return key;
}

Status read_keys(const toml::array& from, KeysFile& file) {
  std::set<std::string> names;
  std::map<KeyHash, std::string> names_of;  // by the key's hash
  for (const toml::node& node : from) {
    LOCI_ASSIGN_OR_RETURN(KeyEntry key, read_key(*node.as_table()));
    if (!names.insert(key.name).second)
      return invalid_argument(fmt::format("two keys have the name '{}'", key.name), "name");
    // Whose key it is would depend on the order.
    const auto [other, is_new] = names_of.emplace(key.hash, key.name);
    if (!is_new)
      return invalid_argument(fmt::format("'{}' and '{}' are the same key", other->second, key.name), "hash");
    file.keys.push_back(std::move(key));
  }
  return {};
}

// Without the lines of the table that begins at line `first` (from 1), up to the next table's header.
// Comments directly before that are the next table's, and stay.
std::string without_table(std::string_view text, std::size_t first) {
  std::string out, comments;
  std::size_t line = 0;
  bool inside = false;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view whole = text.substr(0, end == std::string_view::npos ? end : end + 1);
    text.remove_prefix(whole.size());
    ++line;
    const std::size_t begin = whole.find_first_not_of(" \t");
    const bool header = begin != std::string_view::npos && whole[begin] == '[';
    if (line == first) {
      inside = true;
    } else if (header) {
      out += comments;
      inside = false;
    }
    if (!inside) out += whole;
    const bool comment = inside && begin != std::string_view::npos && whole[begin] == '#';
    comments = comment ? comments.append(whole) : std::string();
  }
  return out;
}

bool same(const KeyEntry& a, const KeyEntry& b) {
  return a.name == b.name && a.tenant == b.tenant && a.hash == b.hash && a.is_operator == b.is_operator;
}

}  // namespace

const TenantLimits& KeysFile::limits_of(const std::string& tenant) const {
  const auto found = tenants.find(tenant);
  return found == tenants.end() ? default_limits : found->second;
}

Status check_name(std::string_view name, std::string_view field) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '@';
  };
  if (!name.empty() && name.size() <= kNameBytesMax && std::all_of(name.begin(), name.end(), allowed))
    return {};
  return invalid_argument(fmt::format("expected 1 to {} letters, digits, '-', '_', '.' or '@', found {}",
                                      kNameBytesMax, excerpt_of(name)),
                          std::string(field));
}

Result<KeysFile> parse_keys_file(std::string_view text) {
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return invalid_argument(fmt::format("line {}: {}", error.source().begin.line, error.description()));
  }
  KeysFile file;
  file.default_limits.concurrent_reads = kConcurrentReadsDefault;
  Table table(root, "the file");
  if (const toml::table* limits = table.inner("limits")) {
    LOCI_ASSIGN_OR_RETURN(file.default_limits, read_limits(*limits, file.default_limits, "[limits]"));
  }
  if (const toml::table* tenants = table.inner("tenants")) {
    for (const auto& [key, node] : *tenants) {
      const std::string name(key.str());
      LOCI_RETURN_IF_ERROR(check_name(name, "tenants"));
      const toml::table* limits = node.as_table();
      if (limits == nullptr)
        return invalid_argument("expected a table, as [tenants.NAME]", "tenants." + name);
      LOCI_ASSIGN_OR_RETURN(file.tenants[name],
                            read_limits(*limits, file.default_limits, fmt::format("[tenants.{}]", name)));
    }
  }
  if (const toml::array* keys = table.tables("keys")) LOCI_RETURN_IF_ERROR(read_keys(*keys, file));
  LOCI_RETURN_IF_ERROR(table.finish());
  return file;
}

Result<std::string> add_key(std::string_view text, const KeyEntry& key) {
  LOCI_ASSIGN_OR_RETURN(const KeysFile before, parse_keys_file(text));
  std::string out(text);
  if (!out.empty() && !out.ends_with('\n')) out += '\n';
  if (!out.empty()) out += '\n';
  out += fmt::format("[[keys]]\nname = \"{}\"\ntenant = \"{}\"\nhash = \"{}\"\n", key.name, key.tenant,
                     to_text(key.hash));
  if (key.is_operator) out += "operator = true\n";
  if (!key.created.empty()) out += fmt::format("created = \"{}\"\n", key.created);
  const Result<KeysFile> after = parse_keys_file(out);
  if (!after.ok() && !after.status().field().empty()) return after.status();  // a name that is taken
  if (!after.ok() || after->keys.size() != before.keys.size() + 1) {
    return invalid_argument(
        "the file's keys are not written as [[keys]] tables, so none can be added at its end: add this one "
        "by hand",
        "keys");
  }
  return out;
}

Result<std::string> remove_key(std::string_view text, std::string_view name) {
  LOCI_ASSIGN_OR_RETURN(KeysFile file, parse_keys_file(text));
  const auto found =
      std::find_if(file.keys.begin(), file.keys.end(), [&](const KeyEntry& key) { return key.name == name; });
  if (found == file.keys.end()) return not_found(fmt::format("there is no key '{}'", name));
  const toml::table root = toml::parse(text);
  const auto number = static_cast<std::size_t>(found - file.keys.begin());
  const toml::node& table = *root.get_as<toml::array>("keys")->get(number);
  std::string out = without_table(text, table.source().begin.line);
  file.keys.erase(found);
  const Result<KeysFile> after = parse_keys_file(out);
  if (!after.ok() ||
      !std::equal(after->keys.begin(), after->keys.end(), file.keys.begin(), file.keys.end(), same) ||
      after->tenants != file.tenants || after->default_limits != file.default_limits) {
    return invalid_argument(
        "the key is not written as a [[keys]] table of its own, so it cannot be removed without changing "
        "others: remove it by hand",
        "keys");
  }
  return out;
}

}  // namespace loci
