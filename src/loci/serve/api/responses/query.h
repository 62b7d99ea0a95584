// SPDX-License-Identifier: Apache-2.0
// The query of a request's target: "?limit=5&order=asc&include[]=x". Thread-compatible.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/store/conversation_store.h"

namespace loci {

class Query {
 public:
  // `target`: a request's whole target. Without a '?' it has no values.
  explicit Query(std::string_view target);

  // The last value of that name.
  std::optional<std::string_view> value(std::string_view name) const;

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

// after, limit (1 to 100, 20 where it is not given) and order ("asc", "desc"; "desc" where it is not given).
// Errors: kInvalidArgument naming the parameter.
Result<ItemPage> read_page(const Query& query);

// What GET /v1/responses/{id} can be told.
struct ResponseQuery {
  bool stream = false;
  std::uint64_t first_event = 0;  // the number of the first one that is wanted: starting_after + 1
};
Result<ResponseQuery> read_response_query(const Query& query);

}  // namespace loci
