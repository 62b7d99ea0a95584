// SPDX-License-Identifier: Apache-2.0
// For the world's own files: ends the process with a message if something does not hold.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace loci {

// Stands for the tenant of all public prefixes, and is no tenant's name.
inline constexpr const char* kPublicTenant = "*";

inline void require(bool condition, std::string_view what) {
  if (condition) return;
  fmt::print(stderr, "world: {}\n", what);
  std::abort();
}

template <class T>
void erase_value(std::vector<T>& values, const T& value) {
  values.erase(std::remove(values.begin(), values.end(), value), values.end());
}

}  // namespace loci
