#include "loci/serve/tenants/tenants.h"

namespace loci {

std::variant<std::shared_ptr<const Tenant>, ApiError> Tenants::authenticate(const HttpRequest&) const {
  return default_;
}

}  // namespace loci
