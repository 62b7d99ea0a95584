// SPDX-License-Identifier: Apache-2.0
// The prefixes that an operator has declared public, by name (docs/tenants.md).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/engine/run/engine.h"
#include "loci/serve/request/api_error.h"
#include "loci/serve/served_model.h"

namespace loci {

struct NamedPrefix {
  std::string name;
  RequestId id;  // of its arrival in the engine
  std::uint32_t tokens = 0;
  std::int64_t created = 0;  // seconds since 1970
};

// Thread-safe.
class PublicPrefixes {
 public:
  // Takes the name for a prefix that is being computed. False: it is taken.
  bool begin(const std::string& name);
  // The prefix is there, or is not.
  void finish(NamedPrefix prefix);
  void abandon(const std::string& name);
  // Gives the name free; absent: there is no such prefix (or it is not there yet).
  std::optional<NamedPrefix> take(const std::string& name);
  std::vector<NamedPrefix> list() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::optional<NamedPrefix>> prefixes_;  // empty: being computed
};

// What the engine is asked to do for a public prefix; `tenant` queues for it.
GenerationRequest public_prefix_request(std::string tenant, std::vector<TokenId> tokens);

// The body of POST /v1/loci/warm for a file: a JSON object with "messages", an array of them, or text.
std::string warm_body(std::string_view name, std::string_view file_text);

// The tokens of such a body: "messages" rendered without a generation prompt, or "prompt". Thread-safe.
std::variant<std::vector<TokenId>, ApiError> public_prefix_tokens(std::string_view body,
                                                                  const ServedModel& served);

// Computes a prefix and waits for it, at the start. Errors: the engine's, and those of the body.
Status warm_and_wait(const ServedModel& served, PublicPrefixes& prefixes, const std::string& name,
                     const std::string& body);

}  // namespace loci
