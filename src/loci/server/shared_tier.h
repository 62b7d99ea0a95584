// SPDX-License-Identifier: Apache-2.0
// The store that servers of a cluster share, as a server opens it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/memory/shared/shared_format.h"
#include "loci/memory/shared/shared_store.h"

namespace loci {

struct SharedTierRequest {
  std::string url;                    // empty: none
  std::optional<Nanos> time_to_live;  // absent: as long as the store likes
  std::optional<SharedKeys> keys;     // of the cluster's secret; absent: there is none
  const BackendInfo* backend = nullptr;
  std::function<void(const std::string&)> warn = [](const std::string&) {};  // on the store's threads
};

struct SharedTier {
  std::unique_ptr<SharedStore> store;  // null: none
  std::string summary = "none";        // for people; without the password
};

// What can be said without the model: that the URL is one, and that there is a secret. Errors: as below.
Status check_shared_options(const std::string& url, bool has_secret);
// `clock` must outlive it. Errors: kInvalidArgument naming shared (the URL, or the store refuses us) or
// cluster_secret (there is none).
Result<SharedTier> open_shared_tier(SharedTierRequest request, const Clock& clock);

// Of how many parts of each group what the store said is remembered, beside a device of so many blocks.
std::uint32_t shared_blocks_remembered(std::uint32_t device_blocks);

}  // namespace loci
