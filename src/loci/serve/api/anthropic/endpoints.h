// SPDX-License-Identifier: Apache-2.0
// The endpoints of Anthropic's API.
#pragma once

#include "loci/serve/call/router.h"
#include "loci/serve/call/services.h"

namespace loci {

// Each adds its routes; `services` outlives the router.
void add_messages_endpoints(Router& router, ApiServices& services);  // /v1/messages

}  // namespace loci
