// SPDX-License-Identifier: Apache-2.0
// Where in a disk store's files each slot and record is, and how the space is divided. Pure.
//
// Slot s is in directory s % n, at row s / n of the directory's files; so all directories have the same
// number of rows, and the one with the least space decides it.
//
// Keys and values and hidden states of a group share its space: each form's files have slots for all of it,
// and the store's user takes care that both together hold no more (slots_beside()). Files are
// sparse, and what is forgotten gives its space back: where the file system takes none back there are keys
// and values alone (disk_files.h). That is of all directories together: one may have more than its part.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/memory/disk/disk_format.h"
#include "loci/memory/disk/disk_store.h"

namespace loci {

struct DiskLayout {
  std::uint32_t directories = 1;
  std::vector<DiskGroup> groups;  // with slots, a multiple of `directories`
  std::uint32_t holes = 0;        // likewise

  StateForm form(std::uint32_t group) const {
    return group < groups.size() ? groups[group].form : StateForm::kKeysAndValues;
  }
  // What a record of the model there says of its place.
  RecordPlace record_of(const std::array<std::uint8_t, 16>& model_fingerprint, std::uint32_t group,
                        std::uint32_t slot) const {
    return {model_fingerprint, group, slot, form(group)};
  }
  std::uint32_t directory_of(SlotId slot) const { return slot.value % directories; }
  std::uint64_t row_of(SlotId slot) const { return slot.value / directories; }

  // A slot is a row of *packs*: so many slices one after the other, then zeros up to the alignment. As few as
  // leave little of a slot empty, one where slices are as large as the alignment: packs are what is read
  // alone.
  std::uint32_t pack_layers(std::uint32_t group) const;
  std::uint64_t pack_stride(std::uint32_t group) const;
  std::uint64_t slot_stride(std::uint32_t group) const;
  // Of a layer's slice in its slot.
  std::uint64_t slice_offset(std::uint32_t group, std::uint32_t layer) const;
  std::uint64_t record_stride(std::uint32_t group) const;

  // The sizes of one directory's files, multiples of the alignment.
  std::uint64_t header_file_bytes(std::uint32_t group) const;
  std::uint64_t slot_file_bytes(std::uint32_t group) const;
  std::uint64_t hole_file_bytes() const;
  // The most that all files of a directory take, small ones and what the file system adds included.
  std::uint64_t directory_bytes() const;

  // Groups of keys and values; those of hidden states come behind them.
  std::uint32_t layer_groups() const;
  // A slot, its record and that of a hole.
  std::uint64_t whole_slot_bytes(std::uint32_t group) const;
  // How many slots of hidden states have room where so many of keys and values have. Both are of all
  // directories; `group`: of hidden states.
  std::uint32_t slots_as_hidden(std::uint32_t group, std::uint32_t slots) const;
};

std::string header_file_name(std::uint32_t group);  // group-0.headers
std::string slot_file_name(std::uint32_t group);    // group-0.slots
inline constexpr const char* kHoleFileName = "holes.headers";
inline constexpr const char* kSuperblockFileName = "superblock";
inline constexpr const char* kSecretFileName = "secret";
inline constexpr const char* kLimitFileName = "limit";
inline constexpr const char* kLockFileName = "lock";
inline constexpr const char* kNameFileName = "name";
inline constexpr const char* kPunchTrialFileName = "punch-trial";

// Slots of each group, in all directories together, that `bytes` of each directory have room for, each form
// as if there were no other; at most the layout's. Zeros where it is room for nothing.
std::vector<std::uint32_t> slots_within(const DiskLayout& layout, const std::vector<std::uint32_t>& shares,
                                        std::uint64_t bytes);

// Divides the directories' space among the groups of layers by `shares`. There is a hole's record for each
// slot that can be used (512 bytes beside a slot of at least 4,096, so holes take less than an eighth).
// Errors: kInvalidArgument naming disk where the space is too small for one slot of each group, or the
// options make no sense.
Result<DiskLayout> divide_space(const DiskStoreOptions& options);

}  // namespace loci
