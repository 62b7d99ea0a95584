// SPDX-License-Identifier: Apache-2.0
// The open files of a disk store: made, found again, or replaced.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/memory/disk/disk_file.h"
#include "loci/memory/disk/disk_format.h"
#include "loci/memory/disk/disk_layout.h"

namespace loci {

// Opens a directory: the real one, or a test's.
using MakeDiskFolder = std::function<std::unique_ptr<DiskFolder>(std::string path)>;

struct DiskFileSet {
  struct Directory {
    std::unique_ptr<DiskFolder> folder;                     // holds the lock
    std::vector<std::shared_ptr<DiskFile>> headers, slots;  // by group
    std::shared_ptr<DiskFile> holes;
  };

  DiskLayout layout;
  std::array<std::uint8_t, 16> model_fingerprint{};
  std::array<std::uint8_t, 32> secret{};
  std::vector<Directory> directories;
  std::vector<std::string> notes;
  std::vector<std::string> losses;  // what was in the directory and could not be kept

  // Where a record is: of a group's slot, or (kHoleGroup) of a hole.
  struct Place {
    std::uint32_t directory = 0;
    std::shared_ptr<DiskFile> file;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    RecordPlace record;
  };
  Place record_place(std::uint32_t group, SlotId slot) const;
  // What the record there says of its place.
  RecordPlace record_of(std::uint32_t group, std::uint32_t slot) const {
    return layout.record_of(model_fingerprint, group, slot);
  }
  // All of a slot.
  Place slot_place(std::uint32_t group, SlotId slot) const {
    return slice_place(group, slot, 0, layout.groups[group].layers);
  }
  Place slice_place(std::uint32_t group, SlotId slot, std::uint32_t first, std::uint32_t count) const;
};

// Leaves out hidden states, with a note, where a directory's file system cannot punch holes.
// Errors: as DiskStore::open().
Result<DiskFileSet> open_disk_files(const DiskStoreOptions& options, const MakeDiskFolder& make_folder);

}  // namespace loci
