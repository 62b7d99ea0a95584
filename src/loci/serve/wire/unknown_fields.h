// SPDX-License-Identifier: Apache-2.0
// Fields of requests that the server does not know: accepted, and each listed once in the log, so that a
// misspelt one can be found.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Members of `object` whose names are in none of the lists; at most 16, the names printable and cut to 64
// bytes.
std::vector<std::string> unknown_fields(const Json& object,
                                        std::initializer_list<std::span<const std::string_view>> known);
// The same of an object inside of `object`, if it is there: `path` ("response_format.json_schema") stands in
// front of each name.
std::vector<std::string> unknown_members(const Json& object, std::string_view path,
                                         std::span<const std::string_view> known);

// Which names were listed, of one process. Thread-safe; bounded.
class UnknownFieldLog {
 public:
  static constexpr std::size_t kNamesMax = 256;

  // Whether it is the first time at this endpoint, and there is room to remember it.
  bool is_new(std::string_view endpoint, std::string_view name);

 private:
  Mutex mutex_;
  std::set<std::pair<std::string, std::string>> seen_ GUARDED_BY(mutex_);
};

}  // namespace loci
