// SPDX-License-Identifier: Apache-2.0
// The endpoints of OpenAI's API that need no store, and those that vLLM and llama.cpp have beside them.
#pragma once

#include <string_view>

#include "loci/serve/call/router.h"
#include "loci/serve/call/services.h"

namespace loci {

// Each adds its routes; `services` outlives the router.
void add_models_endpoints(Router& router, ApiServices& services);       // /v1/models
void add_chat_endpoints(Router& router, ApiServices& services);         // /v1/chat/completions
void add_completions_endpoints(Router& router, ApiServices& services);  // /v1/completions
void add_tokenize_endpoints(Router& router, ApiServices& services);     // /tokenize, /detokenize
void add_unserved_endpoints(Router& router, ApiServices& services);     // /v1/embeddings

// What to use in place of a path that is not served; empty: nothing is known of it.
std::string_view hint_for(std::string_view path);

}  // namespace loci
