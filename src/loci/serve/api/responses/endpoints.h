// SPDX-License-Identifier: Apache-2.0
// The endpoints of OpenAI's API that keep conversations.
#pragma once

#include "loci/serve/call/router.h"
#include "loci/serve/call/services.h"

namespace loci {

// Each adds its routes; `services` outlives the router.
void add_responses_endpoints(Router& router, ApiServices& services);      // /v1/responses
void add_conversations_endpoints(Router& router, ApiServices& services);  // /v1/conversations

}  // namespace loci
