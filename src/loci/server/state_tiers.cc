// SPDX-License-Identifier: Apache-2.0
#include "loci/server/state_tiers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sodium.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "loci/base/units.h"
#include "loci/memory/chain_key.h"
#include "loci/policy/pool_split.h"

namespace loci {
namespace {

constexpr std::uint64_t kDefaultDiskBytesMax = std::uint64_t{16} << 30;
constexpr const char* kSizeFile = "size";  // in a directory whose size nobody gave

std::vector<PoolGroup> pool_groups(const BackendInfo& backend) {
  std::vector<PoolGroup> groups;
  for (const LayerGroup& group : backend.groups) groups.push_back({group.window, group.block_bytes});
  return groups;
}

// The tokens of one sequence's state that the slots hold.
std::uint64_t tokens_in(const BackendInfo& backend, const std::vector<std::uint32_t>& slots) {
  std::uint64_t blocks = UINT32_MAX;
  for (std::size_t group = 0; group < backend.groups.size(); ++group) {
    if (backend.groups[group].window == 0) blocks = std::min<std::uint64_t>(blocks, slots[group]);
  }
  return blocks == UINT32_MAX ? 0 : blocks * kBlockTokens;
}

std::string describe(const BackendInfo& backend, const std::vector<std::uint32_t>& slots) {
  std::uint64_t bytes = 0;
  for (std::size_t group = 0; group < backend.groups.size(); ++group)
    bytes += slots[group] * backend.groups[group].block_bytes;
  const std::uint64_t tokens = tokens_in(backend, slots);
  return tokens == 0 ? format_bytes(bytes)
                     : fmt::format("{} for {} tokens of state", format_bytes(bytes), format_count(tokens));
}

Status size_host(const TierRequest& request, StateTiers& tiers) {
  tiers.host = "none";
  if (request.host_bytes == 0) return {};
  const std::vector<PoolGroup> groups = pool_groups(*request.backend);
  std::vector<std::uint32_t> blocks = split_pool(request.host_bytes, groups, request.context_tokens);
  if (std::find(blocks.begin(), blocks.end(), 0u) != blocks.end()) {
    return invalid_argument(
        fmt::format("expected 0 or room for a block of each group of layers, {}; got {}",
                    format_bytes(request.backend->block_bytes), format_bytes(request.host_bytes)),
        "host_memory");
  }
  LOCI_RETURN_IF_ERROR(check_pool_slots(request.host_bytes, blocks, "host_memory"));
  tiers.host_blocks = std::move(blocks);
  tiers.host = describe(*request.backend, tiers.host_blocks);
  return {};
}

// State of another model, or of the same one computed or laid out in another way, is foreign.
std::array<std::uint8_t, 16> state_fingerprint(const TierRequest& request) {
  const std::string provenance =
      fmt::format("state {} {} {} ", kNumericsVersion, kBlockTokens, request.backend->layout) +
      std::string(request.model_fingerprint.begin(), request.model_fingerprint.end());
  std::array<std::uint8_t, 16> out{};
  crypto_generichash(out.data(), out.size(), reinterpret_cast<const unsigned char*>(provenance.data()),
                     provenance.size(), nullptr, 0);
  return out;
}

// What the models of a directory hold, but for this one.
std::uint64_t held_by_others(const std::string& directory, const std::string& model) {
  std::uint64_t bytes = 0;
  for (const StoredModel& one : list_stored_models(directory)) {
    if (one.id != model) bytes += one.held_bytes;
  }
  return bytes;
}

// The store, and what divides its directories among models.
Status open_disk(const TierRequest& request, const std::vector<DiskPlace>& folders, StateTiers& tiers) {
  DiskStoreOptions options;
  options.model_fingerprint = state_fingerprint(request);
  options.state_ttl = request.state_ttl;
  if (request.cluster_secret)
    options.model_fingerprint = cluster_state_id(*request.cluster_secret, options.model_fingerprint);
  KeeperOptions keeper{.directories = {},
                       .model = model_id(options.model_fingerprint),
                       .say = request.say,
                       .warn = request.warn};
  for (const DiskPlace& folder : folders) {
    const std::uint64_t bytes = folder.bytes > 0 ? folder.bytes : default_disk_bytes(folder.path);
    LOCI_RETURN_IF_ERROR(prepare_model_folder(folder.path, keeper.model, request.model_name));
    keeper.directories.push_back({.path = folder.path, .bytes = bytes});
    options.directories.push_back({.path = model_folder(folder.path, keeper.model),
                                   .bytes = bytes,
                                   .held_bytes = held_by_others(folder.path, keeper.model)});
  }
  const std::vector<PoolGroup> pools = pool_groups(*request.backend);
  const std::uint32_t expected = expected_tokens(pools, request.context_tokens);
  for (std::size_t group = 0; group < pools.size(); ++group) {
    const LayerGroup& layers = request.backend->groups[group];
    options.groups.push_back({.layers = static_cast<std::uint32_t>(layers.layers.size()),
                              .layer_slice_bytes = layers.layer_slice_bytes});
    options.shares.push_back(blocks_needed(pools[group], expected));
  }
  if (request.hidden_slice_bytes > 0) {
    options.groups.push_back({.layers = options.groups.front().layers,
                              .layer_slice_bytes = request.hidden_slice_bytes,
                              .form = StateForm::kHidden});
  }
  options.io = request.disk_io;
  options.bytes_per_second = request.io_limit;
  options.say = request.say;
  options.warn = request.warn;
  LOCI_ASSIGN_OR_RETURN(tiers.disk, DiskStore::open(options));
  for (std::size_t i = 0; i < folders.size(); ++i) {
    if (folders[i].bytes == 0)
      std::ofstream(folders[i].path + "/" + kSizeFile) << options.directories[i].bytes << "\n";
  }
  tiers.disk_folder = folders.front().path;
  tiers.keeper = std::make_unique<DiskKeeper>(std::move(keeper));
  tiers.room = tiers.keeper->look(std::nullopt);
  return {};
}

void describe_disk(const TierRequest& request, const std::vector<DiskPlace>& folders, StateTiers& tiers) {
  std::vector<std::uint32_t> slots;
  for (const DiskGroup& group : tiers.disk->groups()) slots.push_back(group.slots);
  std::vector<std::string> paths;
  for (const DiskPlace& folder : folders) paths.push_back(folder.path);
  const std::string limit =
      request.io_limit == 0 ? "" : fmt::format(", {}/s at most", format_bytes(request.io_limit));
  std::string hidden;
  if (slots.size() > request.backend->groups.size()) {
    hidden = fmt::format(", or for {} tokens as hidden states",
                         format_count(std::uint64_t{slots.back()} * kBlockTokens));
  }
  tiers.disk_summary = fmt::format("{}{} in {} ({}{})", describe(*request.backend, slots), hidden,
                                   fmt::join(paths, ", "), tiers.disk->stats().io, limit);
}

Result<StateTiers> open_tiers(const TierRequest& request) {
  StateTiers tiers;
  LOCI_RETURN_IF_ERROR(size_host(request, tiers));
  const std::vector<DiskPlace> folders =
      request.disk.value_or(std::vector<DiskPlace>{{.path = request.default_folder}});
  tiers.disk_summary = "none";
  if (folders.empty()) return tiers;
  const Status disk = open_disk(request, folders, tiers);
  if (disk.ok()) {
    tiers.notes = tiers.disk->notes();
    tiers.warnings = tiers.disk->losses();
    describe_disk(request, folders, tiers);
    return tiers;
  }
  if (request.disk) return disk;
  tiers.warnings.push_back(
      fmt::format("no disk tier, so state does not outlive this server: {} (the option `disk` names another "
                  "place, or `none`)",
                  disk.message()));
  return tiers;
}

}  // namespace

std::uint64_t default_disk_bytes(const std::string& folder) {
  std::uint64_t before = 0;
  if (std::ifstream(folder + "/" + kSizeFile) >> before && before > 0) return before;
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(folder, error);
  while (!std::filesystem::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(place, error);
  return error ? 0 : std::min<std::uint64_t>(kDefaultDiskBytesMax, space.available / 10);
}

Result<StateTiers> open_state_tiers(const TierRequest& request) {
  LOCI_ASSIGN_OR_RETURN(StateTiers tiers, open_tiers(request));
  if (request.cluster_secret) {
    tiers.chain_secret = cluster_chain_secret(*request.cluster_secret, state_fingerprint(request));
    tiers.shared_keys = cluster_shared_keys(*request.cluster_secret, state_fingerprint(request));
  } else if (tiers.disk != nullptr) {
    tiers.chain_secret = tiers.disk->secret();
  } else {
    if (sodium_init() < 0) return internal_error("the system gives no random numbers");
    randombytes_buf(tiers.chain_secret.data(), tiers.chain_secret.size());
  }
  return tiers;
}

}  // namespace loci
