// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/fault_vfs_testing.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "loci/base/check.h"

namespace loci {

// --- what the disk keeps ---

namespace {

constexpr std::uint64_t kSectorBytes = 512;
constexpr std::size_t kRegionsMax = 64;

}  // namespace

void FaultDisk::apply(const Change& change, std::string& bytes) {
  if (change.truncates) {
    bytes.resize(change.offset, '\0');
    return;
  }
  const std::uint64_t end = change.offset + change.bytes.size();
  if (bytes.size() < end) bytes.resize(end, '\0');
  std::copy(change.bytes.begin(), change.bytes.end(),
            bytes.begin() + static_cast<std::ptrdiff_t>(change.offset));
}

// Each sector of a write arrives or does not; one in eight of those that do arrives in part.
void FaultDisk::apply_torn(const Change& change, std::string& bytes) {
  if (change.truncates) {
    if (random_.below(2) == 0) apply(change, bytes);
    return;
  }
  for (std::uint64_t at = 0; at < change.bytes.size();) {
    const std::uint64_t sector_end = ((change.offset + at) / kSectorBytes + 1) * kSectorBytes - change.offset;
    const std::uint64_t end = std::min<std::uint64_t>(sector_end, change.bytes.size());
    if (random_.below(2) == 0) {
      std::uint64_t length = end - at;
      if (random_.below(8) == 0) length = random_.below(length + 1);
      if (length > 0) apply({.offset = change.offset + at, .bytes = change.bytes.substr(at, length)}, bytes);
    }
    at = end;
  }
}

void FaultDisk::lose_power_in(File& file) {
  // Nothing, everything in order, or anything: the first two are as likely as they are in life.
  const std::uint64_t how = random_.below(4);
  if (how == 1) {
    for (const Change& change : file.pending) apply(change, file.durable);
  } else if (how > 1) {
    std::vector<std::size_t> order(file.pending.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::size_t i = order.size(); i > 1 && how == 3; --i)
      std::swap(order[i - 1], order[random_.below(i)]);
    for (const std::size_t i : order) {
      if (random_.below(4) == 0) {
        apply(file.pending[i], file.durable);
      } else if (random_.below(3) != 0) {
        apply_torn(file.pending[i], file.durable);
      }
    }
  }
  file.pending.clear();
  file.seen = file.durable;
  file.shared_memory.clear();
}

void FaultDisk::restart() {
  for (auto file = files_.begin(); file != files_.end();) {
    // A name that was made or removed and not synchronised may or may not be there.
    bool exists = file->second->exists_durably;
    if (exists != file->second->exists && random_.below(2) == 0) exists = !exists;
    if (!exists) {
      file = files_.erase(file);
      continue;
    }
    lose_power_in(*file->second);
    file->second->exists = file->second->exists_durably = true;
    ++file;
  }
  crashed_ = false;
  crash_at_ = 0;
}

bool FaultDisk::power_fails() {
  ++operations_;
  if (operations_ == crash_at_) crashed_ = true;
  return crashed_;
}

void FaultDisk::fail(DiskFault fault, std::uint64_t from, std::uint64_t count) {
  failing_ = fault;
  failing_from_ = from;
  failing_count_ = count;
}

bool FaultDisk::fails(DiskFault fault) {
  if (failing_count_ == 0 || fault != failing_) return false;
  if (failing_from_ > 1) {
    --failing_from_;
    return false;
  }
  --failing_count_;
  return true;
}

// --- what SQLite calls ---

struct FaultVfs {
  // What SQLite has allocated for an open file.
  struct Handle {
    sqlite3_file base;
    FaultDisk* disk;
    std::shared_ptr<FaultDisk::File>* file;
  };

  static FaultDisk& disk(sqlite3_vfs* vfs) { return *static_cast<FaultDisk*>(vfs->pAppData); }
  static FaultDisk& disk(sqlite3_file* file) { return *reinterpret_cast<Handle*>(file)->disk; }
  static FaultDisk::File& file(sqlite3_file* file) { return **reinterpret_cast<Handle*>(file)->file; }

  static int close(sqlite3_file* file) {
    auto* handle = reinterpret_cast<Handle*>(file);
    delete handle->file;
    handle->file = nullptr;
    return SQLITE_OK;
  }

  static int read(sqlite3_file* handle, void* out, int size, sqlite3_int64 offset) {
    ++disk(handle).reads_;
    if (disk(handle).crashed_ || disk(handle).fails(DiskFault::kReadError)) return SQLITE_IOERR_READ;
    const std::string& bytes = file(handle).seen;
    const auto wanted = static_cast<std::size_t>(size);
    const auto begin = std::min(static_cast<std::size_t>(offset), bytes.size());
    const std::size_t there = std::min(wanted, bytes.size() - begin);
    std::memcpy(out, bytes.data() + begin, there);
    std::memset(static_cast<char*>(out) + there, 0, wanted - there);
    return there == wanted ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
  }

  // The change of the operation in which the power fails is among what may arrive.
  static int change(sqlite3_file* handle, FaultDisk::Change change, int error) {
    if (disk(handle).crashed_) return error;
    FaultDisk::apply(change, file(handle).seen);
    file(handle).pending.push_back(std::move(change));
    return disk(handle).power_fails() ? error : SQLITE_OK;
  }

  static int write(sqlite3_file* handle, const void* bytes, int size, sqlite3_int64 offset) {
    const auto length = static_cast<std::size_t>(size);
    const bool grows = static_cast<std::size_t>(offset) + length > file(handle).seen.size();
    if (grows && disk(handle).fails(DiskFault::kFull)) return SQLITE_FULL;
    if (disk(handle).fails(DiskFault::kWriteError)) return SQLITE_IOERR_WRITE;
    return change(handle,
                  {.offset = static_cast<std::uint64_t>(offset),
                   .bytes = std::string(static_cast<const char*>(bytes), length)},
                  SQLITE_IOERR_WRITE);
  }

  static int truncate(sqlite3_file* handle, sqlite3_int64 size) {
    return change(handle, {.offset = static_cast<std::uint64_t>(size), .bytes = {}, .truncates = true},
                  SQLITE_IOERR_TRUNCATE);
  }

  static int sync(sqlite3_file* handle, int) {
    FaultDisk& on = disk(handle);
    FaultDisk::File& of = file(handle);
    if (on.crashed_ || on.power_fails()) return SQLITE_IOERR_FSYNC;
    if (on.fails(DiskFault::kSyncError)) {
      std::erase_if(of.pending, [&](const auto&) { return on.random_.below(2) == 0; });
      return SQLITE_IOERR_FSYNC;
    }
    ++on.syncs_;
    if (on.ignores_syncs_) return SQLITE_OK;
    for (const FaultDisk::Change& change : of.pending) FaultDisk::apply(change, of.durable);
    of.pending.clear();
    of.exists_durably = true;  // SQLite's own VFS synchronises the folder with a new file
    return SQLITE_OK;
  }

  static int file_size(sqlite3_file* handle, sqlite3_int64* size) {
    if (disk(handle).crashed_) return SQLITE_IOERR_FSTAT;
    *size = static_cast<sqlite3_int64>(file(handle).seen.size());
    return SQLITE_OK;
  }

  // There is one connection: locks are its own.
  static int lock(sqlite3_file*, int) { return SQLITE_OK; }
  static int check_reserved_lock(sqlite3_file*, int* reserved) {
    *reserved = 0;
    return SQLITE_OK;
  }
  static int shared_memory_lock(sqlite3_file*, int, int, int) { return SQLITE_OK; }
  static void shared_memory_barrier(sqlite3_file*) { std::atomic_thread_fence(std::memory_order_seq_cst); }
  static int file_control(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
  static int sector_size(sqlite3_file*) { return 4'096; }
  static int device_characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

  static int shared_memory_map(sqlite3_file* handle, int region, int size, int extend, void volatile** out) {
    auto& regions = file(handle).shared_memory;
    const auto index = static_cast<std::size_t>(region);
    LOCI_CHECK(index < kRegionsMax, "a test's log is small");
    *out = nullptr;
    if (index >= regions.size() && extend == 0) return SQLITE_OK;
    while (index >= regions.size())
      regions.push_back(std::make_unique<std::uint8_t[]>(static_cast<std::size_t>(size)));
    *out = regions[index].get();
    return SQLITE_OK;
  }
  static int shared_memory_unmap(sqlite3_file* handle, int) {
    file(handle).shared_memory.clear();
    return SQLITE_OK;
  }

  static const sqlite3_io_methods* methods() {
    static const sqlite3_io_methods table = {
        .iVersion = 2,
        .xClose = close,
        .xRead = read,
        .xWrite = write,
        .xTruncate = truncate,
        .xSync = sync,
        .xFileSize = file_size,
        .xLock = lock,
        .xUnlock = lock,
        .xCheckReservedLock = check_reserved_lock,
        .xFileControl = file_control,
        .xSectorSize = sector_size,
        .xDeviceCharacteristics = device_characteristics,
        .xShmMap = shared_memory_map,
        .xShmLock = shared_memory_lock,
        .xShmBarrier = shared_memory_barrier,
        .xShmUnmap = shared_memory_unmap,
        .xFetch = nullptr,
        .xUnfetch = nullptr,
    };
    return &table;
  }

  static int open(sqlite3_vfs* vfs, const char* path, sqlite3_file* out, int flags, int* out_flags) {
    FaultDisk& on = disk(vfs);
    auto* handle = reinterpret_cast<Handle*>(out);
    handle->base.pMethods = nullptr;
    if (on.crashed_) return SQLITE_CANTOPEN;
    std::shared_ptr<FaultDisk::File> opened;
    if (path == nullptr) {
      opened = std::make_shared<FaultDisk::File>();
    } else {
      std::shared_ptr<FaultDisk::File>& named = on.files_[path];
      const bool missing = named == nullptr || !named->exists;
      if (missing && (flags & SQLITE_OPEN_CREATE) == 0) {
        if (named == nullptr) on.files_.erase(path);
        return SQLITE_CANTOPEN;
      }
      if (named == nullptr) named = std::make_shared<FaultDisk::File>();
      if (missing) {
        named->exists = true;
        named->seen.clear();
        named->pending.push_back({.offset = 0, .bytes = {}, .truncates = true});
      }
      opened = named;
    }
    handle->base.pMethods = methods();
    handle->disk = &on;
    handle->file = new std::shared_ptr<FaultDisk::File>(std::move(opened));
    if (out_flags != nullptr) *out_flags = flags;
    return SQLITE_OK;
  }

  static int remove(sqlite3_vfs* vfs, const char* path, int sync_folder) {
    FaultDisk& on = disk(vfs);
    if (on.crashed_ || on.power_fails()) return SQLITE_IOERR_DELETE;
    const auto found = on.files_.find(path);
    if (found == on.files_.end() || !found->second->exists) return SQLITE_IOERR_DELETE_NOENT;
    found->second->exists = false;
    if (sync_folder != 0 && !on.ignores_syncs_) on.files_.erase(found);
    return SQLITE_OK;
  }

  static int access(sqlite3_vfs* vfs, const char* path, int, int* out) {
    const auto found = disk(vfs).files_.find(path);
    *out = found != disk(vfs).files_.end() && found->second->exists ? 1 : 0;
    return SQLITE_OK;
  }

  static int full_path(sqlite3_vfs*, const char* path, int size, char* out) {
    sqlite3_snprintf(size, out, "%s", path);
    return SQLITE_OK;
  }
};

FaultDisk::FaultDisk(std::uint64_t seed) : vfs_(std::make_unique<sqlite3_vfs>()), random_(seed) {
  sqlite3_initialize();
  const sqlite3_vfs& system = *sqlite3_vfs_find(nullptr);
  *vfs_ = system;  // randomness, sleeping and the time are the system's
  name_ = fmt::format("fault-{}", static_cast<const void*>(this));
  vfs_->zName = name_.c_str();
  vfs_->pNext = nullptr;
  vfs_->pAppData = this;
  vfs_->szOsFile = sizeof(FaultVfs::Handle);
  vfs_->xOpen = FaultVfs::open;
  vfs_->xDelete = FaultVfs::remove;
  vfs_->xAccess = FaultVfs::access;
  vfs_->xFullPathname = FaultVfs::full_path;
  LOCI_CHECK(sqlite3_vfs_register(vfs_.get(), 0) == SQLITE_OK, "SQLite takes a VFS");
}

FaultDisk::~FaultDisk() { sqlite3_vfs_unregister(vfs_.get()); }

}  // namespace loci
