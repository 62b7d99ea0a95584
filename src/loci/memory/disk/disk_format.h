// SPDX-License-Identifier: Apache-2.0
// The bytes of a disk store's records: entries' headers, holes, the superblock, the note of a limit
// (docs/disk-store.md).
//
// Every record verifies itself: its checksum covers all of it and is seeded with its place, so a record
// that is torn, flipped or was written for another place does not verify. Pure functions; numbers are
// little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/block_entry.h"
#include "loci/memory/disk/disk_store.h"

namespace loci {

// Hidden states are in the rows of version 2; keys and values and holes are as they were in version 1, which
// is what their records and files without hidden states say.
inline constexpr std::uint16_t kDiskVersion = 2, kDiskVersionFirst = 1;
inline constexpr std::uint64_t kDiskAlignment = 4096;  // of slices in the files and in memory
inline constexpr std::uint64_t kDiskSector = 512;      // what a disk writes whole or not at all
inline constexpr std::uint32_t kHoleGroup = 0xffffffff;
inline constexpr std::uint64_t kSuperblockBytes = 4096;
inline constexpr std::uint64_t kSuperblockSeed = 0x6b636f6c62726570;  // of its checksum
inline constexpr std::size_t kDiskGroupsMax = 64;

// Where a record stands, which it must say of itself. (DiskLayout::record_of() makes it.)
struct RecordPlace {
  // All of it, each time: whoever left out the form would find each record of hidden states damaged.
  constexpr RecordPlace(const std::array<std::uint8_t, 16>& fingerprint, std::uint32_t g, std::uint32_t s,
                        StateForm f)
      : model_fingerprint(fingerprint), group(g), slot(s), form(f) {}

  std::array<std::uint8_t, 16> model_fingerprint;
  std::uint32_t group;  // or kHoleGroup
  std::uint32_t slot;
  StateForm form;  // the group's
};

enum class RecordState : std::uint8_t {
  kEmpty,  // nothing was written, or it was invalidated: all bytes are zero
  kValid,
  kDamaged,  // does not verify, or says something impossible
  kForeign,  // verifies, but is another model's or version's
};

// A multiple of kDiskSector. Holes have no layers.
std::uint64_t record_bytes(std::uint32_t layers);

// Fills all of `into`, which is record_bytes(checksums.size()) long.
void encode_record(const RecordPlace& place, const BlockEntry& entry,
                   std::span<const std::uint64_t> checksums, std::span<std::byte> into);

// Gives a valid record another date. All that changes is in its first sector, so a disk writes both or
// neither.
void date_record(const RecordPlace& place, std::int64_t used_at, std::span<std::byte> record);

// Reads a record of record_bytes(layers) bytes; `entry` is set where it is valid. Any bytes are allowed.
RecordState decode_record(const RecordPlace& place, std::uint32_t layers, std::span<const std::byte> bytes,
                          BlockEntry& entry);

// The checksum that a valid record holds for the layer's slice.
std::uint64_t recorded_checksum(std::span<const std::byte> record, std::uint32_t layer);

// XXH3 of a slice, seeded with its place, so that a slice which was written elsewhere does not verify.
std::uint64_t slice_checksum(std::uint32_t slot, std::uint32_t layer, std::span<const std::byte> slice);

// What a directory's files are: their shape, and to which set of directories they belong.
struct Superblock {
  std::array<std::uint8_t, 16> set{};  // a hash of the set's secret
  std::array<std::uint8_t, 16> model_fingerprint{};
  std::uint32_t directory = 0;  // of `directories`
  std::uint32_t directories = 1;
  std::vector<DiskGroup> groups;  // with slots, of all directories together
  std::uint32_t holes = 0;        // likewise

  bool operator==(const Superblock&) const = default;
};

// The version of files that hold these groups.
std::uint16_t version_of_files(std::span<const DiskGroup> groups);
std::vector<std::byte> encode_superblock(const Superblock& superblock);
// Hidden states of version 1 are left out: nobody finds their rows any more.
// Errors: kDataLoss (damaged, or no superblock), kUnimplemented (another version).
Result<Superblock> decode_superblock(std::span<const std::byte> bytes);

inline constexpr std::uint64_t kStateLimitSeed = 0x746c5f6574617473;  // of its checksum
inline constexpr std::uint64_t kStateLimitBytesMax = 4096;            // of any version

// The note of how long the model's state is kept without use; kNever: for as long as there is room. A limit
// is kept to the millisecond, and never made shorter.
std::vector<std::byte> encode_state_limit(const std::array<std::uint8_t, 16>& model_fingerprint, Nanos limit);
// Any bytes are allowed. Errors: kDataLoss (damaged, or another model's), kUnimplemented (another version).
Result<Nanos> decode_state_limit(const std::array<std::uint8_t, 16>& model_fingerprint,
                                 std::span<const std::byte> bytes);

}  // namespace loci
