// SPDX-License-Identifier: Apache-2.0
// Errors of a request for which there is no route, in a server's words and in a front's.
#pragma once

#include <string_view>

#include "loci/serve/wire/api_error.h"

namespace loci {

// 404. `hint` says what there is instead.
ApiError no_endpoint_error(std::string_view path, std::string_view hint);
// 405. `allowed`: as in the header Allow, "GET, HEAD, OPTIONS". `hint` may be empty.
ApiError wrong_method_error(std::string_view path, std::string_view allowed, std::string_view method,
                            std::string_view hint = {});

}  // namespace loci
