// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/json.h"

namespace loci {

std::string dump_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace loci
