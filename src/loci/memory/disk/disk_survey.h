// SPDX-License-Identifier: Apache-2.0
// What is in a directory of a disk store, without opening the store: read only, no lock is taken, and a
// server may be using it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/disk/disk_format.h"
#include "loci/memory/disk/disk_recovery.h"

namespace loci {

struct DiskSurvey {
  struct Group {
    std::uint64_t slots = 0;         // in this directory
    std::uint64_t slot_bytes = 0;    // of one, in the file
    std::uint64_t record_bytes = 0;  // likewise
    RecordScan records;
    std::int64_t oldest = 0, newest = 0;  // used_at; where there are any
  };

  int user = 0;  // the process that has it open; 0: none; -1: one that did not say its number
  Superblock superblock;
  std::vector<Group> groups;
  Group holes;                   // without slot_bytes
  std::uint64_t file_bytes = 0;  // that the files take of the file system
};

// Whether the directory holds a disk store's files.
bool is_disk_store(const std::string& path);

// Errors: kNotFound, kDataLoss, kUnimplemented (another version).
Result<Superblock> read_disk_superblock(const std::string& path);

// How long state there is kept without use, as its server noted it; kNever: there is no limit. Errors:
// kNotFound where nothing is noted; those of decode_state_limit(); kUnavailable.
Result<Nanos> read_disk_limit(const std::string& path, const std::array<std::uint8_t, 16>& model_fingerprint);

// Reads all headers of the directory (of a set of several, those that are in this one).
// Errors: kNotFound, kDataLoss (its superblock or a file's size), kUnimplemented (another version).
Result<DiskSurvey> survey_disk_store(const std::string& path);

}  // namespace loci
