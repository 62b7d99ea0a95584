// SPDX-License-Identifier: Apache-2.0
// Finds the tenant that a request's key belongs to. A tenant keeps its state to itself, owns
// conversations, and has limits. A server without keys has one tenant, "default", without limits.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/serve/files/file_watch.h"
#include "loci/serve/http/http_message.h"
#include "loci/serve/tenants/keys_file.h"
#include "loci/serve/tenants/tenant.h"
#include "loci/serve/wire/api_error.h"

namespace spdlog {
class logger;
}

namespace loci {

// Where keys come from. All empty: requests need no key.
struct KeySources {
  std::string file;                        // docs/tenants.md; empty: none
  std::vector<std::string> keys;           // of the tenant "default", as they are
  std::vector<std::string> operator_keys;  // the same, and operators'
  bool empty() const { return file.empty() && keys.empty() && operator_keys.empty(); }
};

// LOCI_API_KEY and LOCI_OPERATOR_KEY: one key each, or several with commas between them.
KeySources keys_of_environment();

// The API key that a request bears: of its Authorization, else its X-Api-Key. Empty: none.
std::string_view api_key_of(const HttpRequest& request);

// Thread-safe.
class Tenants {
 public:
  Tenants() = default;  // no keys
  Tenants(const Tenants&) = delete;
  Tenants& operator=(const Tenants&) = delete;

  // Reads the keys, and from then on reads the file again within a second of its change. A file that is
  // wrong changes nothing and is logged once. Errors: those of the file as it is now.
  // Called once, before the first request.
  Status open(KeySources sources, std::shared_ptr<spdlog::logger> log);

  // Whose key the request carries ("Authorization: Bearer ..." or "x-api-key: ..."). Errors: 401.
  std::variant<std::shared_ptr<const Tenant>, ApiError> authenticate(const HttpRequest& request) const;

  // What the tenant may use, whether it has a key or had one. Absent: there is no file of keys, and so one
  // tenant without limits.
  std::optional<TenantLimits> limits_of(std::string_view tenant) const;

  // Whether requests need a key.
  bool has_keys() const { return closed_; }

 private:
  struct Table {
    // Whoever guesses keys chooses none of their hashes, so the time of a search tells nothing of a key.
    std::map<KeyHash, std::shared_ptr<const Tenant>> keys;
    TenantLimits default_limits;
    std::map<std::string, TenantLimits, std::less<>> tenants;
  };
  Status read();
  bool read_again();
  void warn_of_writers() const;
  std::shared_ptr<const Table> current() const;

  std::atomic<bool> closed_ = false;  // set by open()
  KeySources sources_;
  std::shared_ptr<spdlog::logger> log_;
  // A mutex, since the atomic shared_ptr of g++ 12 has a race between load and store.
  mutable Mutex table_mutex_;
  std::shared_ptr<const Table> table_ GUARDED_BY(table_mutex_);
  std::shared_ptr<const Tenant> default_ = std::make_shared<const Tenant>();

  std::string told_;  // what was wrong when it was last said; the watch's
  FileWatch watch_;   // last: its thread reads what is above
};

}  // namespace loci
