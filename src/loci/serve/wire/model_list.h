// SPDX-License-Identifier: Apache-2.0
// The list that GET /v1/models answers, of a server's models or of all that a front's instances serve.
#pragma once

#include <string>

#include "loci/serve/wire/json.h"

namespace loci {

// OpenAI's list, with the members of Anthropic's: both kinds of client ask there. `models`: at least one
// object, each with an id.
std::string model_list_json(Json models);

}  // namespace loci
