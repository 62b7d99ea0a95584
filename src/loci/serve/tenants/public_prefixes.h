// SPDX-License-Identifier: Apache-2.0
// The prefixes that an operator has declared public, by name (docs/tenants.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/mutex.h"

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
  // The prefix has been computed; or it has not, and the name is free.
  void finish(NamedPrefix prefix);
  void abandon(const std::string& name);
  // Frees the name and returns its prefix; absent: there is no such prefix, or it is still being computed.
  std::optional<NamedPrefix> take(const std::string& name);
  std::vector<NamedPrefix> list() const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::optional<NamedPrefix>> prefixes_ GUARDED_BY(mutex_);  // empty: being computed
};

}  // namespace loci
