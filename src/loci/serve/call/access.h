// SPDX-License-Identifier: Apache-2.0
// Who may call a route (router.h), for configurations that name it.
#pragma once

#include <cstdint>

namespace loci {

// Who may call a route.
enum class Access : std::uint8_t {
  kOpen,      // anyone: health
  kTenant,    // whoever has a key, where the server has keys
  kOperator,  // whoever has an operator's key; without keys, programs on the server's own machine
};

}  // namespace loci
