// SPDX-License-Identifier: Apache-2.0
// The tiers below the device: how much of each the server gets, and the disk's files opened.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/cluster/cluster_secret.h"
#include "loci/compute/backend.h"
#include "loci/memory/disk/disk_keeper.h"
#include "loci/memory/disk/disk_models.h"
#include "loci/memory/disk/disk_store.h"
#include "loci/server/disk_place.h"

namespace loci {

struct TierRequest {
  std::uint64_t host_bytes = 0;
  std::optional<std::vector<DiskPlace>> disk;  // absent: `default_folder`; none: no disk tier
  std::string disk_io = "auto";
  std::uint64_t io_limit = 0;  // bytes a second of the disk tier; 0: none
  std::string default_folder;
  const BackendInfo* backend = nullptr;
  std::uint64_t hidden_slice_bytes = 0;  // of blocks that are stored as hidden states; 0: there are none
  std::uint32_t context_tokens = 0;
  std::array<std::uint8_t, 16> model_fingerprint{};
  std::optional<ClusterSecret> cluster_secret;  // chain keys follow from it
  Nanos state_ttl = kNever;                     // of state without use
  ModelName model_name;                         // for `loci inspect` and `loci forget`
  // Of other models' state that is dropped, and for whom a start waits.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  std::function<void(const std::string&)> warn = [](const std::string&) {};  // DiskStoreOptions::warn
};

struct StateTiers {
  std::vector<std::uint32_t> host_blocks;  // by group; empty: no host tier
  std::unique_ptr<DiskStore> disk;         // null: no disk tier
  std::unique_ptr<DiskKeeper> keeper;      // of the disk tier; it may outlive the store
  std::string disk_folder;                 // the disk tier's first directory; empty: no disk tier
  // The key of the chain keys' hash: the cluster's, else the disk's, else one of this process.
  std::array<std::uint8_t, 32> chain_secret{};
  std::optional<SharedKeys> shared_keys;  // the cluster's; absent: there is no secret
  std::uint64_t room = 0;                 // bytes that the model may fill in each directory at first
  std::string host, disk_summary;         // for people
  std::vector<std::string> notes;         // each is a line of the log
  std::vector<std::string> warnings;
};

// If the default disk tier cannot be opened, that is only a warning. Errors: kInvalidArgument naming
// host_memory; those of DiskStore::open(), naming disk or disk_io.
Result<StateTiers> open_state_tiers(const TierRequest& request);

// The size of a directory's budget if none is given: a tenth of the free space of its file system, up to 16
// GiB. If the directory was used before, it keeps its earlier budget, so that the budget does not shrink as
// the directory fills.
std::uint64_t default_disk_bytes(const std::string& folder);

}  // namespace loci
