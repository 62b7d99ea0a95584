// Who asks. Each API key is a tenant: it names the sharing group of the index, owns conversations, and
// carries limits. A server without keys has one tenant, "default", without limits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "loci/serve/http/http_message.h"
#include "loci/serve/request/api_error.h"

namespace loci {

// Immutable.
struct Tenant {
  std::string id = "default";  // the sharing group of its state, the owner of its conversations
};

// Thread-safe.
class Tenants {
 public:
  // Whose key the request carries ("Authorization: Bearer ..." or "x-api-key: ..."). Errors: 401.
  std::variant<std::shared_ptr<const Tenant>, ApiError> authenticate(const HttpRequest& request) const;

 private:
  std::shared_ptr<const Tenant> default_ = std::make_shared<const Tenant>();
};

}  // namespace loci
