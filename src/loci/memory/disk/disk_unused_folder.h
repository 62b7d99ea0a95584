// SPDX-License-Identifier: Apache-2.0
// A model's folder that nobody serves, for who serves another model and drops what is unused (UnusedState).
// It is read without its lock, and changed only under it. Folder and files are held by descriptors: no link
// is followed, and what takes the place of one of them meanwhile is not touched.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/descriptor.h"
#include "loci/base/status.h"
#include "loci/memory/disk/disk_file.h"
#include "loci/memory/disk/disk_format.h"
#include "loci/memory/disk/disk_layout.h"
#include "loci/memory/disk/disk_recovery.h"

namespace loci {

using StopAsked = std::function<bool()>;

// An entry that is to go, as its record was read.
struct UnusedEntry {
  ChainKey key;
  std::int64_t used_at = 0;
  std::uint32_t group = 0;  // kHoleGroup: a hole
  SlotId slot;
};

// DIR/models of a directory: the folders of its models.
class ModelsPlace {
 public:
  // Errors: kNotFound; what else keeps it from being read (it is a link, its permissions).
  static Result<ModelsPlace> open(const std::string& directory);

  // The names of what is in it and may be a model's folder, or what is left of one that is being removed.
  // Incomplete if a stop is asked for.
  Result<std::vector<std::string>> names(const StopAsked& stop) const;
  // Removes what is left of a model's folder that was set aside, file by file, unless somebody does. Errors:
  // kCancelled where a stop is asked for, or somebody does; kDataLoss where files that are not Loci's stay.
  Status remove_leftover(const std::string& name, const StopAsked& stop) const;

  int descriptor() const { return folder_->get(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::shared_ptr<Descriptor> folder_;
};

// Movable. Thread-compatible.
class UnusedFolder {
 public:
  // The lock; destroying it lets it go.
  using Lock = DiskLock;

  // Reads the lock's mark, and then the note. Errors: kNotFound where it is not there, or no store's; what
  // else keeps it from being read.
  static Result<UnusedFolder> open(const ModelsPlace& place, const std::string& id);

  const ModelsPlace& place() const { return place_; }
  const std::string& path() const { return path_; }
  // As people call it; its id where no name is there.
  std::string model() const;
  // Somebody had it when it was opened here.
  bool held() const { return mark_.held; }
  // Whoever had it last notes how long state is kept.
  bool is_noted_anew() const { return names_its_time(mark_); }
  // What is noted. Errors: kNotFound where nothing is; those of decode_state_limit(); kUnavailable.
  const Result<Nanos>& limit() const { return limit_; }

  // Errors: where it cannot be read, is damaged, or is another model's or version's.
  Status read_superblock();
  // After read_superblock().
  const Superblock& superblock() const { return superblock_; }

  // Reads all records. `found`: as of scan_records(). Errors: kCancelled where a stop is asked for; where
  // there may be records that are not found: the disk does not read them, or files are damaged.
  Result<RecordScan> scan(const StopAsked& stop,
                          const std::function<void(const RecoveredEntry&)>& found) const;
  // When any of its files was last written: milliseconds since 1970. Of some of them if a stop is asked for.
  std::int64_t written_at(const StopAsked& stop) const;
  std::uint64_t held_bytes() const;
  // The name of something in it that is no file of Loci's; empty: there is none.
  Result<std::string> stranger(const StopAsked& stop) const;

  // Takes its lock, without waiting. Errors: kCancelled where somebody has it, or had it since open(), or it
  // is another folder by now; kUnavailable.
  Result<Lock> lock();
  // Under the lock: clears the record, if it is still the one that was read, and gives its slot's space back.
  // Returns the bytes that the file system has back. Errors: kUnavailable; then the record still stands.
  Result<std::uint64_t> drop(const UnusedEntry& one);
  // Under the lock: nobody finds the folder any more; ModelsPlace::remove_leftover() removes it. Returns the
  // name that it has now. Errors: kUnavailable.
  Result<std::string> set_aside();

 private:
  struct Files {
    std::shared_ptr<DiskFile> headers, slots;  // no slots of holes
  };

  UnusedFolder(const ModelsPlace& place, std::string id, Descriptor folder);
  // To be changed; opened at the first call.
  Result<Files> files_of(std::uint32_t group);
  bool is_there() const;

  ModelsPlace place_;
  std::string id_, path_;
  Descriptor folder_;
  DiskLockMark mark_;
  Result<Nanos> limit_;
  Superblock superblock_;
  DiskLayout layout_;
  std::map<std::uint32_t, Files> files_;
};

}  // namespace loci
