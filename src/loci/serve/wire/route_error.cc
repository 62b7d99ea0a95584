// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/route_error.h"

#include <fmt/format.h>

#include "loci/serve/wire/json_parse.h"

namespace loci {

ApiError no_endpoint_error(std::string_view path, std::string_view hint) {
  return http_error(404, fmt::format("there is no endpoint at '{}'; {}", utf8_prefix(path, 200), hint),
                    "not_found");
}

ApiError wrong_method_error(std::string_view path, std::string_view allowed, std::string_view method,
                            std::string_view hint) {
  return http_error(405,
                    fmt::format("expected a method that {} takes ({}); got {}{}{}", path, allowed,
                                utf8_prefix(method, 100), hint.empty() ? "" : "; ", hint),
                    "method_not_allowed");
}

}  // namespace loci
