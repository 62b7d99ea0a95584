// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_unused_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <span>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/printable.h"
#include "loci/memory/disk/disk_models.h"

namespace loci {
namespace {

constexpr std::uint64_t kShrinkBytes = std::uint64_t{1} << 30;  // of a file that goes, at a time
constexpr std::size_t kNameBytesMax = 256;

Status cancelled() { return {StatusCode::kCancelled, "a stop was asked for, or somebody uses it"}; }

Status unavailable(std::string_view what, int error) {
  return {StatusCode::kUnavailable, fmt::format("{}: {}", what, errno_text(error))};
}

// `path`: for people.
Result<Descriptor> open_folder(int at, const std::string& name, const std::string& path) {
  Descriptor folder(::openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.is_open()) return folder;
  const int error = errno;
  if (error == ENOENT) return not_found(path + ": not there");
  if (error == ENOTDIR || error == ELOOP)
    return data_loss("expected a folder, found a link or something else");
  return unavailable("cannot be opened", error);
}

// Calls with each name until it returns false.
Status for_each_name(int folder, const std::function<bool(const std::string&)>& call) {
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* names = again < 0 ? nullptr : ::fdopendir(again);
  if (names == nullptr) {
    const int error = errno;
    if (again >= 0) ::close(again);
    return unavailable("cannot be listed", error);
  }
  int error = 0;
  for (bool more = true; more;) {
    errno = 0;
    const dirent* one = ::readdir(names);
    error = one == nullptr ? errno : 0;
    if (one == nullptr) break;
    const std::string name = one->d_name;
    more = name == "." || name == ".." || call(name);
  }
  ::closedir(names);
  return error == 0 ? Status() : unavailable("cannot be listed", error);
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Whether a store, or what it replaces its files by, has the name.
bool is_stores(std::string_view name) {
  constexpr std::string_view kFresh = ".new-", kGroup = "group-";
  if (const std::size_t at = name.find(kFresh); at != std::string_view::npos) {
    if (!is_number(name.substr(at + kFresh.size()))) return false;
    name = name.substr(0, at);
  }
  for (const char* one : {kSuperblockFileName, kSecretFileName, kLimitFileName, kLockFileName, kNameFileName,
                          kHoleFileName, kPunchTrialFileName}) {
    if (name == one) return true;
  }
  if (!name.starts_with(kGroup)) return false;
  std::uint32_t group = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kGroup.size(), end, group);
  if (error != std::errc() || group >= kDiskGroupsMax) return false;
  return name == header_file_name(group) || name == slot_file_name(group);
}

bool is_file(int folder, const std::string& name) {
  struct stat facts{};
  return ::fstatat(folder, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(facts.st_mode);
}

// All of a small file, or so many bytes of a larger one.
Result<std::vector<std::byte>> read_small(int folder, const char* name, std::uint64_t bytes_max) {
  LOCI_ASSIGN_OR_RETURN(const std::shared_ptr<DiskFile> file,
                        open_disk_file_in(folder, name, DiskAccess::kRead));
  std::vector<std::byte> content(std::min(file->size_bytes(), bytes_max));
  const std::int64_t got = file->read(0, content);
  if (got < 0) return unavailable(name, static_cast<int>(-got));
  content.resize(static_cast<std::size_t>(got));
  return content;
}

Result<Nanos> read_limit(int folder, const std::string& id) {
  LOCI_ASSIGN_OR_RETURN(const std::vector<std::byte> note,
                        read_small(folder, kLimitFileName, kStateLimitBytesMax));
  return decode_state_limit(*fingerprint_of(id), note);
}

// To unlink a file of hundreds of gigabytes takes seconds, in which no stop would be seen: so it is made
// shorter first. (Not one that has another name too: under that it is whole.)
Status remove_file(int folder, const std::string& name, const StopAsked& stop) {
  const auto file = open_disk_file_in(folder, name, DiskAccess::kChange);
  struct stat facts{};
  if (file.ok() && ::fstat((*file)->descriptor(), &facts) == 0 && facts.st_nlink == 1) {
    for (std::uint64_t size = (*file)->size_bytes(); size > kShrinkBytes; size -= kShrinkBytes) {
      if (stop()) return cancelled();
      if ((*file)->grow(size - kShrinkBytes) != 0) break;
    }
  }
  if (stop()) return cancelled();
  if (::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) return {};
  return unavailable(name + " cannot be removed", errno);
}

}  // namespace

// --- the place of models ---

Result<ModelsPlace> ModelsPlace::open(const std::string& directory) {
  ModelsPlace place;
  place.path_ = models_place(directory);
  LOCI_ASSIGN_OR_RETURN(Descriptor folder, open_folder(AT_FDCWD, place.path_, place.path_));
  place.folder_ = std::make_shared<Descriptor>(std::move(folder));
  return place;
}

Result<std::vector<std::string>> ModelsPlace::names(const StopAsked& stop) const {
  std::vector<std::string> names;
  const Status listed = for_each_name(descriptor(), [&](const std::string& name) {
    if (fingerprint_of(model_of_leftover(name))) names.push_back(name);
    return !stop();
  });
  if (!listed.ok()) return listed;
  std::ranges::sort(names);
  return names;
}

Status ModelsPlace::remove_leftover(const std::string& name, const StopAsked& stop) const {
  const Result<Descriptor> folder = open_folder(descriptor(), name, path_ + "/" + name);
  if (folder.status().code() == StatusCode::kNotFound) return {};
  if (!folder.ok()) return folder.status();
  const int at = folder->get();
  const auto lock = open_disk_file_in(at, kLockFileName, DiskAccess::kRead);
  if (lock.ok() && read_disk_lock(**lock).held) return cancelled();
  std::vector<std::string> names;
  LOCI_RETURN_IF_ERROR(for_each_name(at, [&](const std::string& one) {
    if (is_stores(one) && is_file(at, one)) names.push_back(one);
    return !stop();
  }));
  // What tells that it is a store goes last: until then whoever looks for models finds it.
  std::ranges::stable_partition(
      names, [](const std::string& one) { return one != kSuperblockFileName && one != kLockFileName; });
  for (const std::string& one : names) LOCI_RETURN_IF_ERROR(remove_file(at, one, stop));
  if (::unlinkat(descriptor(), name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
  if (errno == ENOTEMPTY || errno == EEXIST) return data_loss("files there are not Loci's, and stay");
  return unavailable("cannot be removed", errno);
}

// --- a folder ---

UnusedFolder::UnusedFolder(const ModelsPlace& place, std::string id, Descriptor folder)
    : place_(place),
      id_(std::move(id)),
      path_(place.path() + "/" + id_),
      folder_(std::move(folder)),
      limit_(kNever) {}

Result<UnusedFolder> UnusedFolder::open(const ModelsPlace& place, const std::string& id) {
  LOCI_CHECK(fingerprint_of(id).has_value(), "a model's folder");
  LOCI_ASSIGN_OR_RETURN(Descriptor opened, open_folder(place.descriptor(), id, place.path() + "/" + id));
  UnusedFolder folder(place, id, std::move(opened));
  const int at = folder.folder_.get();
  const auto superblock = open_disk_file_in(at, kSuperblockFileName, DiskAccess::kRead);
  if (!superblock.ok()) return superblock.status();
  const auto lock = open_disk_file_in(at, kLockFileName, DiskAccess::kRead);
  if (lock.status().code() == StatusCode::kNotFound) return data_loss("the lock's file is missing");
  if (!lock.ok()) return lock.status();
  // First: what is read after it is as it was then, if the mark is found again.
  folder.mark_ = read_disk_lock(**lock);
  folder.limit_ = read_limit(at, id);
  return folder;
}

std::string UnusedFolder::model() const {
  const auto content = read_small(folder_.get(), kNameFileName, kNameBytesMax);
  if (!content.ok()) return id_;
  std::string name(reinterpret_cast<const char*>(content->data()), content->size());
  name.resize(std::min(name.find('\n'), name.size()));
  return name.empty() ? id_ : printable(name, LineEnds::kReplace);
}

Status UnusedFolder::read_superblock() {
  LOCI_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                        read_small(folder_.get(), kSuperblockFileName, kSuperblockBytes));
  LOCI_ASSIGN_OR_RETURN(superblock_, decode_superblock(bytes));
  if (model_id(superblock_.model_fingerprint) != id_) return data_loss("the superblock is another model's");
  layout_ = {
      .directories = superblock_.directories, .groups = superblock_.groups, .holes = superblock_.holes};
  return {};
}

Result<RecordScan> UnusedFolder::scan(const StopAsked& stop,
                                      const std::function<void(const RecoveredEntry&)>& found) const {
  RecordScan all;
  const auto read = [&](const std::string& name, std::uint32_t group, std::uint64_t bytes) -> Status {
    LOCI_ASSIGN_OR_RETURN(const std::shared_ptr<DiskFile> file,
                          open_disk_file_in(folder_.get(), name, DiskAccess::kRead));
    if (file->size_bytes() < bytes) return data_loss(name + " is shorter than it was made");
    const RecordScan one = scan_records(
        *file, layout_, layout_.record_of(superblock_.model_fingerprint, group, superblock_.directory), stop,
        found);
    if (stop()) return cancelled();
    if (one.unread > 0)
      return {StatusCode::kUnavailable, fmt::format("{}: {} records cannot be read", name, one.unread)};
    all.valid += one.valid;
    all.damaged += one.damaged;
    all.foreign += one.foreign;
    return {};
  };
  for (std::uint32_t g = 0; g < layout_.groups.size(); ++g)
    LOCI_RETURN_IF_ERROR(read(header_file_name(g), g, layout_.header_file_bytes(g)));
  LOCI_RETURN_IF_ERROR(read(kHoleFileName, kHoleGroup, layout_.hole_file_bytes()));
  return all;
}

std::int64_t UnusedFolder::written_at(const StopAsked& stop) const {
  std::int64_t latest = 0;
  (void)for_each_name(folder_.get(), [&](const std::string& name) {
    struct stat facts{};
    if (is_stores(name) && ::fstatat(folder_.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0) {
      latest = std::max<std::int64_t>(
          latest, std::int64_t{facts.st_mtim.tv_sec} * 1000 + facts.st_mtim.tv_nsec / kNanosPerMilli);
    }
    return !stop();
  }).ok();
  return latest;
}

std::uint64_t UnusedFolder::held_bytes() const {
  std::uint64_t bytes = 0;
  (void)for_each_name(folder_.get(), [&](const std::string& name) {
    struct stat facts{};
    if (is_stores(name) && ::fstatat(folder_.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0)
      bytes += static_cast<std::uint64_t>(facts.st_blocks) * 512;
    return true;
  }).ok();
  return bytes;
}

Result<std::string> UnusedFolder::stranger(const StopAsked& stop) const {
  std::string found;
  LOCI_RETURN_IF_ERROR(for_each_name(folder_.get(), [&](const std::string& name) {
    if (!is_stores(name) || !is_file(folder_.get(), name)) found = name;
    return found.empty() && !stop();
  }));
  if (found.empty() && stop()) return cancelled();
  return found;
}

bool UnusedFolder::is_there() const {
  struct stat held{}, there{};
  return ::fstat(folder_.get(), &held) == 0 &&
         ::fstatat(place_.descriptor(), id_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

Result<UnusedFolder::Lock> UnusedFolder::lock() {
  const Result<std::shared_ptr<DiskFile>> file =
      open_disk_file_in(folder_.get(), kLockFileName, DiskAccess::kChange);
  if (file.status().code() == StatusCode::kNotFound) return cancelled();
  if (!file.ok()) return file.status();
  LOCI_ASSIGN_OR_RETURN(Lock lock, take_disk_lock(folder_.get(), *file));
  // (Without a mark of its own nobody can tell who had it since.)
  if (!is_there() || mark_.text.empty() || read_disk_lock(**file).text != mark_.text) return cancelled();
  mark_ = mark_disk_lock(**file, true);
  return lock;
}

Result<UnusedFolder::Files> UnusedFolder::files_of(std::uint32_t group) {
  if (const auto known = files_.find(group); known != files_.end()) return known->second;
  const bool hole = group == kHoleGroup;
  Files files;
  LOCI_ASSIGN_OR_RETURN(
      files.headers,
      open_disk_file_in(folder_.get(), hole ? kHoleFileName : header_file_name(group), DiskAccess::kChange));
  if (!hole) {
    LOCI_ASSIGN_OR_RETURN(files.slots,
                          open_disk_file_in(folder_.get(), slot_file_name(group), DiskAccess::kChange));
  }
  files_.emplace(group, files);
  return files;
}

Result<std::uint64_t> UnusedFolder::drop(const UnusedEntry& one) {
  LOCI_ASSIGN_OR_RETURN(const Files files, files_of(one.group));
  const bool hole = one.group == kHoleGroup;
  const std::uint32_t layers = hole ? 0 : layout_.groups[one.group].layers;
  const std::uint64_t row = layout_.row_of(one.slot);
  std::vector<std::byte> record(record_bytes(layers));
  const auto whole = static_cast<std::int64_t>(record.size());
  if (files.headers->read(row * record.size(), record) != whole)
    return Status(StatusCode::kUnavailable, "a record cannot be read");
  BlockEntry entry;
  const RecordState state = decode_record(
      layout_.record_of(superblock_.model_fingerprint, one.group, one.slot.value), layers, record, entry);
  if (state != RecordState::kValid || entry.key != one.key || entry.used_at != one.used_at)
    return std::uint64_t{0};
  std::uint64_t freed = 0;
  // The state before its record, so that what is refused is tried again.
  if (!hole) {
    const std::uint64_t bytes = layout_.slot_stride(one.group);
    const std::int64_t discarded = files.slots->discard(row * bytes, bytes);
    if (discarded != 0 && !never_discards(discarded))
      return unavailable("state cannot be dropped", static_cast<int>(-discarded));
    if (discarded == 0) freed = bytes;
  }
  std::ranges::fill(record, std::byte{0});
  const std::int64_t put = files.headers->write(row * record.size(), record);
  if (put != whole) return unavailable("a record cannot be cleared", put < 0 ? static_cast<int>(-put) : EIO);
  return freed;
}

Result<std::string> UnusedFolder::set_aside() {
  const std::string name = leftover_of(id_);
  // (Onto what is left of another one, which is not empty, it does not go.)
  if (::renameat(place_.descriptor(), id_.c_str(), place_.descriptor(), name.c_str()) == 0) return name;
  return unavailable("cannot be set aside", errno);
}

}  // namespace loci
