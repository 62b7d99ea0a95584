// SPDX-License-Identifier: Apache-2.0
// The endpoints of one file each; the larger APIs have rooms of their own (../responses, ../anthropic).
#pragma once

#include <string_view>

#include "loci/serve/router.h"
#include "loci/serve/services.h"

namespace loci {

// Each adds its routes; `services` outlives the router.
void add_operations_endpoints(Router& router, ApiServices& services);     // health, metrics
void add_models_endpoints(Router& router, ApiServices& services);         // /v1/models
void add_chat_endpoints(Router& router, ApiServices& services);           // /v1/chat/completions
void add_completions_endpoints(Router& router, ApiServices& services);    // /v1/completions
void add_messages_endpoints(Router& router, ApiServices& services);       // /v1/messages (../anthropic)
void add_warm_endpoints(Router& router, ApiServices& services);           // /v1/loci/warm
void add_tokenize_endpoints(Router& router, ApiServices& services);       // /tokenize, /detokenize
void add_responses_endpoints(Router& router, ApiServices& services);      // /v1/responses
void add_conversations_endpoints(Router& router, ApiServices& services);  // /v1/conversations
void add_unserved_endpoints(Router& router, ApiServices& services);       // /v1/embeddings

// What to tell who asked for a path at which nothing is.
std::string_view hint_for(std::string_view path);

}  // namespace loci
