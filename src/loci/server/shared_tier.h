// SPDX-License-Identifier: Apache-2.0
// Opens the store that the servers of a cluster share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/memory/shared/shared_format.h"
#include "loci/memory/shared/shared_store.h"

namespace loci {

struct SharedTierRequest {
  std::string url;                    // empty: none
  std::optional<Nanos> time_to_live;  // absent: the store decides
  std::optional<SharedKeys> keys;     // derived from the cluster's secret; absent: there is none
  const BackendInfo* backend = nullptr;
  std::function<void(const std::string&)> warn = [](const std::string&) {};  // called on the store's threads
};

struct SharedTier {
  std::unique_ptr<SharedStore> store;  // null: none
  std::string summary = "none";        // for people; without the password
};

// Checks what needs no model: that the URL is valid, that there is a secret, and for an S3 store that there
// are credentials. Errors: as of open_shared_tier().
Status check_shared_options(const std::string& url, bool has_secret);
// `clock` must outlive the tier. Errors: kInvalidArgument naming shared (the URL is wrong, there are
// no credentials, or the store refuses them) or cluster_secret (there is none).
Result<SharedTier> open_shared_tier(SharedTierRequest request, const Clock& clock);

// `url` for people and logs, valid or not: without what may be a password.
std::string describe_shared(std::string_view url);

// For how many parts of each group the server remembers whether the store has them, if the device has
// `device_blocks` blocks.
std::uint32_t shared_blocks_remembered(std::uint32_t device_blocks);

}  // namespace loci
