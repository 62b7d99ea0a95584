// SPDX-License-Identifier: Apache-2.0
// From the body of POST /v1/loci/warm to a prefix that everybody shares. No networking.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/engine/run/engine.h"
#include "loci/serve/generation/served_model.h"
#include "loci/serve/tenants/public_prefixes.h"
#include "loci/serve/wire/api_error.h"

namespace loci {

// What the engine is asked to do for a public prefix; `tenant` queues for it.
GenerationRequest public_prefix_request(std::string tenant, std::vector<TokenId> tokens);

// The body of POST /v1/loci/warm for a file: a JSON object with "messages", an array of them, or text.
std::string warm_body(std::string_view name, std::string_view file_text);

// The tokens of such a body: "messages" rendered without a generation prompt, or "prompt". Thread-safe.
std::variant<std::vector<TokenId>, ApiError> public_prefix_tokens(std::string_view body,
                                                                  const ServedModel& served);

// Computes a prefix and waits for it, at the start. Errors: the engine's, and those of the body.
Status warm_and_wait(const ServedModel& served, PublicPrefixes& prefixes, const std::string& name,
                     const std::string& body);

}  // namespace loci
