// SPDX-License-Identifier: Apache-2.0
#include "loci/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace loci {

void check_failed(const char* expression, const char* message, std::source_location where) {
  std::fprintf(stderr, "%s:%u: invariant broken: %s (%s)\n", where.file_name(),
               static_cast<unsigned>(where.line()), message, expression);
  std::fflush(stderr);
  std::abort();
}

}  // namespace loci
