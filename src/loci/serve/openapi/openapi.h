// SPDX-License-Identifier: Apache-2.0
// The OpenAPI 3.1 document of what is served, at /openapi.json.
//
// It is made of parts/*.json, which the build embeds: what each operation takes and answers. What the code
// knows is not written there a second time: a "$name" stands for one of the parsers' limits
// (openapi_limits()); path parameters, keys and the answers of errors follow from the router's routes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/call/router.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Limits by the names that the parts use.
const std::map<std::string, std::int64_t>& openapi_limits();

// The document of the routes that are described; each of the others is left out.
// Errors: kInternal (a part is no JSON, names an unknown limit, or two of them describe the same).
Result<Json> openapi_document(const Router& router);

// The paths of all routes that are described: "/v1/responses/{id}". Those without parameters come first, as
// the router prefers them. Thread-safe.
const std::vector<std::string>& openapi_paths();

// GET /openapi.json of all that `router` has when it is called: the last one to be called. `router` outlives
// it.
Status add_openapi_endpoint(Router& router);

}  // namespace loci
