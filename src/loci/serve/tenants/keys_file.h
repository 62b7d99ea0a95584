// SPDX-License-Identifier: Apache-2.0
// The file of keys and limits (docs/tenants.md): TOML that people edit and `loci keys` adds to. Text in,
// values out; no I/O.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/tenants/api_key.h"
#include "loci/serve/tenants/tenant.h"

namespace loci {

struct KeyEntry {
  std::string name;    // unique in the file; for people
  std::string tenant;  // the name where it is not given
  KeyHash hash;
  bool is_operator = false;
  std::string created;  // "2026-01-31", or empty
};

struct KeysFile {
  std::vector<KeyEntry> keys;                   // in the file's order
  TenantLimits default_limits;                  // [limits]; a file that was read bounds reads always
  std::map<std::string, TenantLimits> tenants;  // [tenants.NAME]: default_limits, and what is changed there
  const TenantLimits& limits_of(const std::string& tenant) const;
};

// All of these: thread-safe.

// Errors: kInvalidArgument naming the line or the field, what was expected and what was found; never a
// hash or a key.
Result<KeysFile> parse_keys_file(std::string_view text);

// Names of keys and tenants: 1 to 64 letters, digits, '-', '_', '.', '@'.
Status check_name(std::string_view name, std::string_view field);

// The text with the key added at its end; everything else stays as it is, comments too.
// Errors: kInvalidArgument (a key of that name is there; the text is no keys file).
Result<std::string> add_key(std::string_view text, const KeyEntry& key);
// The text without the key and nothing else changed. Errors: kNotFound; kInvalidArgument.
Result<std::string> remove_key(std::string_view text, std::string_view name);

}  // namespace loci
