// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_models.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "loci/base/hex.h"
#include "loci/memory/disk/disk_file.h"
#include "loci/memory/disk/disk_layout.h"
#include "loci/memory/disk/disk_recovery.h"
#include "loci/memory/disk/disk_survey.h"

namespace loci {
namespace {

constexpr const char* kModelsFolder = "models";
constexpr std::string_view kLeftoverEnd = "-going";

Status make_folder(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return invalid_argument(fmt::format("{}: cannot be made: {}", path, errno_text(errno)), "disk");
}

ModelName read_name(const std::string& folder) {
  std::ifstream file(folder + "/" + kNameFileName);
  ModelName name;
  std::getline(file, name.name);
  std::getline(file, name.path);
  return name;
}

std::string one_line(std::string text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return text;
}

// A store that lies in the directory itself, as before there was a folder for each model.
void move_old_store(const std::string& directory) {
  if (!is_disk_store(directory) || disk_folder_user(directory) != 0) return;
  const Result<Superblock> superblock = read_disk_superblock(directory);
  if (!superblock.ok()) return;
  const std::string folder = model_folder(directory, model_id(superblock->model_fingerprint));
  std::error_code error;
  if (std::filesystem::exists(folder, error) || !make_folder(folder).ok()) return;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    const bool known = name == kSuperblockFileName || name == kSecretFileName || name == kHoleFileName ||
                       (name.starts_with("group-") && entry.is_regular_file(error));
    if (known) std::filesystem::rename(entry.path(), folder + "/" + name, error);
  }
  std::filesystem::remove(directory + "/" + kLockFileName, error);
}

// All entries of the folder's files, of the directory that it is of its set. Errors: kUnavailable where there
// may be more, which the disk does not read now: by a part alone nobody can tell what is the oldest, or that
// nothing is left.
Result<std::vector<RecoveredEntry>> scan_folder(DiskFolder& locked, const Superblock& superblock,
                                                const DiskLayout& layout) {
  std::vector<RecoveredEntry> entries;
  const std::string& folder = locked.path();
  const auto go_on = [&locked] {
    locked.go_on();
    return false;
  };
  const auto read = [&](const std::string& name, std::uint32_t group) -> Status {
    const auto file = open_disk_file_to_read(folder + "/" + name);
    if (file.status().code() == StatusCode::kNotFound) return {};
    if (!file.ok()) return file.status();
    const RecordScan scan = scan_records(
        **file, layout, layout.record_of(superblock.model_fingerprint, group, superblock.directory), go_on,
        [&](const RecoveredEntry& one) { entries.push_back(one); });
    if (scan.unread == 0) return {};
    return {StatusCode::kUnavailable,
            fmt::format("{}/{}: {} records cannot be read; `loci forget` frees the model's space", folder,
                        name, scan.unread)};
  };
  for (std::uint32_t g = 0; g < layout.groups.size(); ++g) LOCI_RETURN_IF_ERROR(read(header_file_name(g), g));
  LOCI_RETURN_IF_ERROR(read(kHoleFileName, kHoleGroup));
  return entries;
}

// Indices of the entries with state: who was used longest ago first, who hangs from a block before it.
std::vector<std::uint32_t> dropping_order(std::vector<RecoveredEntry>& entries) {
  const std::vector<std::uint32_t> parents_first = recovery_order(entries);
  date_by_youngest(entries, parents_first);
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].hole) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const BlockEntry &x = entries[a].entry, &y = entries[b].entry;
    return std::tuple(x.used_at, y.depth, a) < std::tuple(y.used_at, x.depth, b);
  });
  return order;
}

// Gives up one entry. Bytes that the file system has back. Errors: kUnimplemented where it never takes any,
// kUnavailable.
Result<std::uint64_t> drop_entry(DiskFolder& folder, const DiskLayout& layout, const RecoveredEntry& one) {
  LOCI_ASSIGN_OR_RETURN(const auto headers, folder.open(header_file_name(one.group), FileCaching::kCached));
  LOCI_ASSIGN_OR_RETURN(const auto slots, folder.open(slot_file_name(one.group), FileCaching::kCached));
  const std::uint64_t row = layout.row_of(one.slot);
  const std::vector<std::byte> zeros(layout.record_stride(one.group));
  const std::int64_t put = headers->write(row * zeros.size(), zeros);
  const std::uint64_t bytes = layout.slot_stride(one.group);
  if (put != static_cast<std::int64_t>(zeros.size()))
    return Status(StatusCode::kUnavailable, fmt::format("{}: state cannot be dropped", folder.path()));
  const std::int64_t discarded = slots->discard(row * bytes, bytes);
  if (discarded == 0) return bytes;
  return Status(never_discards(discarded) ? StatusCode::kUnimplemented : StatusCode::kUnavailable,
                fmt::format("{}: state cannot be dropped: {}", folder.path(),
                            errno_text(static_cast<int>(-discarded))));
}

// The files that the superblock does not name: hidden states as version 1 had them, or what was cut short.
// Bytes that the file system has back.
Result<std::uint64_t> drop_unnamed(DiskFolder& folder, std::size_t named) {
  const std::uint64_t before = held_bytes_of(folder.path());
  for (auto g = static_cast<std::uint32_t>(named); g < kDiskGroupsMax; ++g) {
    LOCI_RETURN_IF_ERROR(folder.remove(header_file_name(g)));
    LOCI_RETURN_IF_ERROR(folder.remove(slot_file_name(g)));
  }
  return before - std::min(before, held_bytes_of(folder.path()));
}

// Under another name first: a server that starts meanwhile makes a folder of its own, of which nothing goes.
// (What a crash leaves of it is listed as a model that nobody serves, and goes in its turn.)
Status remove_folder(const std::string& folder) {
  const std::string going = leftover_of(folder);
  std::error_code error;
  std::filesystem::remove_all(going, error);
  if (!error) std::filesystem::rename(folder, going, error);
  if (!error) std::filesystem::remove_all(going, error);
  if (!error) return {};
  return {StatusCode::kUnavailable, fmt::format("{}: cannot be removed: {}", folder, error.message())};
}

}  // namespace

std::string model_id(const std::array<std::uint8_t, 16>& fingerprint) { return to_hex(fingerprint); }

std::optional<std::array<std::uint8_t, 16>> fingerprint_of(std::string_view id) {
  std::array<std::uint8_t, 16> fingerprint{};
  if (id.size() != 2 * fingerprint.size()) return std::nullopt;
  for (std::size_t i = 0; i < fingerprint.size(); ++i) {
    const char* const digits = id.data() + 2 * i;
    if (std::from_chars(digits, digits + 2, fingerprint[i], 16).ptr != digits + 2) return std::nullopt;
  }
  // Digits in capitals are no id.
  if (model_id(fingerprint) != id) return std::nullopt;
  return fingerprint;
}

std::string model_folder(const std::string& directory, const std::string& id) {
  return fmt::format("{}/{}", models_place(directory), id);
}

std::string models_place(const std::string& directory) {
  return fmt::format("{}/{}", directory, kModelsFolder);
}

std::string leftover_of(std::string_view id) { return fmt::format("{}{}", id, kLeftoverEnd); }
bool is_leftover(std::string_view name) { return name.ends_with(kLeftoverEnd); }
std::string_view model_of_leftover(std::string_view name) {
  while (is_leftover(name)) name.remove_suffix(kLeftoverEnd.size());  // of a removal of what was left, too
  return name;
}

Status prepare_model_folder(const std::string& directory, const std::string& id, const ModelName& name) {
  LOCI_RETURN_IF_ERROR(make_folder(directory));
  LOCI_RETURN_IF_ERROR(make_folder(models_place(directory)));
  move_old_store(directory);
  const std::string folder = model_folder(directory, id);
  LOCI_RETURN_IF_ERROR(make_folder(folder));
  if (disk_folder_user(folder) == 0)
    std::ofstream(folder + "/" + kNameFileName) << one_line(name.name) << "\n" << one_line(name.path) << "\n";
  return {};
}

std::uint64_t held_bytes_of(const std::string& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator at(folder, error); !error && at != end; at.increment(error)) {
    struct stat facts{};
    if (::stat(at->path().c_str(), &facts) == 0) bytes += static_cast<std::uint64_t>(facts.st_blocks) * 512;
  }
  return bytes;
}

std::vector<StoredModel> list_stored_models(const std::string& directory) {
  std::vector<StoredModel> models;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  std::filesystem::directory_iterator at(models_place(directory), error);
  for (; !error && at != end; at.increment(error)) {
    const std::string folder = at->path();
    if (!is_disk_store(folder)) continue;
    models.push_back({.id = at->path().filename(),
                      .folder = folder,
                      .name = read_name(folder),
                      .user = disk_folder_user(folder),
                      .held_bytes = held_bytes_of(folder)});
  }
  std::sort(models.begin(), models.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return models;
}

bool is_models_directory(const std::string& directory) {
  const std::string place = models_place(directory);
  std::error_code error;
  const bool is_empty =
      std::filesystem::is_directory(place, error) && std::filesystem::is_empty(place, error);
  return (is_empty && !error) || !list_stored_models(directory).empty();
}

std::vector<StoredModel> find_stored_models(const std::string& directory, const std::string& text) {
  constexpr std::size_t kDigitsMin = 4;
  std::vector<StoredModel> found;
  for (StoredModel& model : list_stored_models(directory)) {
    const bool by_id = text.size() >= kDigitsMin && model.id.starts_with(text);
    if (by_id || model.name.name == text || model.name.path == text) found.push_back(std::move(model));
  }
  return found;
}

Status forget_stored_model(const StoredModel& model, std::function<void(const std::string&)> say) {
  const std::unique_ptr<DiskFolder> folder = make_disk_folder(model.folder);
  LOCI_RETURN_IF_ERROR(folder->lock({.for_a_moment = true, .say = std::move(say)}));
  return remove_folder(model.folder);
}

Result<DroppedState> drop_oldest_state(const StoredModel& model, std::uint64_t bytes) {
  const std::unique_ptr<DiskFolder> folder = make_disk_folder(model.folder);
  // Others wait for the budget meanwhile: it tries again.
  LOCI_RETURN_IF_ERROR(folder->lock({.for_a_moment = true, .patience = 0}));
  const std::uint64_t before = held_bytes_of(model.folder);
  DroppedState dropped;
  const Result<Superblock> superblock = read_disk_superblock(model.folder);
  // What cannot be read now may be whole.
  if (superblock.status().code() == StatusCode::kUnavailable) return superblock.status();
  if (superblock.ok()) {
    const DiskLayout layout{
        .directories = superblock->directories, .groups = superblock->groups, .holes = superblock->holes};
    LOCI_ASSIGN_OR_RETURN(std::vector<RecoveredEntry> entries, scan_folder(*folder, *superblock, layout));
    LOCI_ASSIGN_OR_RETURN(dropped.freed_bytes, drop_unnamed(*folder, layout.groups.size()));
    for (const std::uint32_t index : dropping_order(entries)) {
      if (dropped.freed_bytes >= bytes) {
        dropped.oldest_used_at = entries[index].entry.used_at;
        return dropped;
      }
      folder->go_on();
      const Result<std::uint64_t> freed = drop_entry(*folder, layout, entries[index]);
      if (freed.status().code() == StatusCode::kUnimplemented) break;
      if (!freed.ok()) return freed.status();  // what is left may be whole
      dropped.freed_bytes += *freed;
    }
  }
  LOCI_RETURN_IF_ERROR(remove_folder(model.folder));
  dropped.freed_bytes = before;
  return dropped;
}

}  // namespace loci
