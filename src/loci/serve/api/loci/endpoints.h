// SPDX-License-Identifier: Apache-2.0
// The endpoints that are Loci's own, for operators.
#pragma once

#include "loci/serve/call/router.h"
#include "loci/serve/call/services.h"

namespace loci {

// Each adds its routes; `services` outlives the router.
void add_operations_endpoints(Router& router, ApiServices& services);  // health, metrics
void add_page_endpoints(Router& router, ApiServices& services);  // the web page, where the options have it
void add_warm_endpoints(Router& router, ApiServices& services);  // /v1/loci/warm

}  // namespace loci
