// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/json.h"

#include <fmt/format.h>

namespace loci {

std::string dump_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json decimal_json(float value) { return Json::parse(fmt::format("{}", value)); }

}  // namespace loci
