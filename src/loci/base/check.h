// SPDX-License-Identifier: Apache-2.0
// Assertions of the program's own invariants. They stay on in release builds. They must never depend on input
// from a user, a file or a peer; errors in that are a Status.
#pragma once

#include <source_location>

namespace loci {

// Prints the expression and its place to standard error and aborts.
[[noreturn]] void check_failed(const char* expression, const char* message,
                               std::source_location where = std::source_location::current());

}  // namespace loci

#define LOCI_CHECK(condition, message)           \
  do {                                           \
    if (!(condition)) [[unlikely]]               \
      ::loci::check_failed(#condition, message); \
  } while (false)
