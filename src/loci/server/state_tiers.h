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
  // Of 100 blocks so many are to be stored as hidden states, whose slices have so many bytes
  // (hidden_share.h).
  std::uint32_t hidden_percent = 0;
  std::uint64_t hidden_slice_bytes = 0;
  std::uint32_t context_tokens = 0;
  std::array<std::uint8_t, 16> model_fingerprint{};
  std::optional<ClusterSecret> cluster_secret;  // chain keys follow from it
  ModelName model_name;                         // for `loci inspect` and `loci forget`
  std::function<void(const std::string&)> say = [](const std::string&) {};  // of room made for this model
};

struct StateTiers {
  std::vector<std::uint32_t> host_blocks;  // by group; empty: no host tier
  std::unique_ptr<DiskStore> disk;         // null: no disk tier
  std::unique_ptr<DiskKeeper> keeper;      // of the disk tier; may outlive the store
  std::string disk_folder;                 // the disk tier's first directory; empty: no disk tier
  // Keys the chain keys: of the cluster, else of the disk, else of this process.
  std::array<std::uint8_t, 32> chain_secret{};
  std::optional<SharedKeys> shared_keys;  // of the cluster; absent: there is no secret
  std::uint64_t room = 0;                 // bytes in each directory that the model may fill to begin with
  std::string host, disk_summary;         // for people
  std::vector<std::string> notes;         // a line of the log each
  std::vector<std::string> warnings;
};

// A disk tier that was not asked for and cannot be had is a warning. Errors: kInvalidArgument naming
// host_memory; DiskStore::open()'s, naming disk or disk_io.
Result<StateTiers> open_state_tiers(const TierRequest& request);

// What a directory gets without a size: a tenth of what is free on its file system, up to 16 GiB; once it
// was used, what that was, so that the budget does not shrink as it fills.
std::uint64_t default_disk_bytes(const std::string& folder);

}  // namespace loci
