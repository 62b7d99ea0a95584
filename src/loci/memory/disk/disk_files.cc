// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_files.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/units.h"

namespace loci {
namespace {

using Secret = std::array<std::uint8_t, 32>;
using SetId = std::array<std::uint8_t, 16>;

// Names the set without telling the secret, so that files without their secret are recognised.
SetId set_of(const Secret& secret) {
  constexpr std::string_view kDomain = "loci disk store set";
  SetId set{};
  LOCI_CHECK(
      ::crypto_generichash(set.data(), set.size(), reinterpret_cast<const unsigned char*>(kDomain.data()),
                           kDomain.size(), secret.data(), secret.size()) == 0,
      "BLAKE2b");
  return set;
}

Secret new_secret() {
  LOCI_CHECK(::sodium_init() >= 0, "libsodium");
  Secret secret{};
  ::randombytes_buf(secret.data(), secret.size());
  return secret;
}

// All of a small file. Errors: kNotFound; kDataLoss where it has another size; kUnavailable.
Result<std::vector<std::byte>> read_small(DiskFolder& folder, std::string_view name, std::size_t bytes) {
  LOCI_ASSIGN_OR_RETURN(const std::shared_ptr<DiskFile> file, folder.open(name, FileCaching::kCached));
  std::vector<std::byte> content(bytes);
  const std::int64_t got = file->read(0, content);
  if (got < 0) {
    return Status(
        StatusCode::kUnavailable,
        fmt::format("{}/{}: cannot be read: {}", folder.path(), name, errno_text(static_cast<int>(-got))),
        "disk");
  }
  if (file->size_bytes() != bytes || got != static_cast<std::int64_t>(bytes))
    return data_loss(fmt::format("{} is damaged", name));
  return content;
}

// The disk does not answer, or something else is short for now: the files may well be whole.
bool may_be_whole(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kResourceExhausted;
}

// The groups that hold keys and values, which come first. What has another form is kept beside them, and is
// worth less: files with and without it are of one shape.
std::span<const DiskGroup> keys_and_values(const std::vector<DiskGroup>& groups) {
  const auto end = std::ranges::find(groups, StateForm::kHidden, &DiskGroup::form);
  return {groups.begin(), end};
}

// But for the numbers of slots, which can grow.
bool same_group(DiskGroup found, const DiskGroup& wanted) {
  found.slots = wanted.slots;
  return found == wanted;
}

class Opener {
 public:
  Opener(const DiskStoreOptions& options, DiskFileSet& set) : options_(options), set_(set) {}

  Status open(const MakeDiskFolder& make_folder) {
    for (const DiskDirectory& directory : options_.directories) {
      set_.directories.push_back({.folder = make_folder(directory.path)});
      LOCI_RETURN_IF_ERROR(set_.directories.back().folder->lock({.say = options_.say}));
    }
    LOCI_RETURN_IF_ERROR(leave_out_hidden());
    LOCI_RETURN_IF_ERROR(read_secret());
    for (std::size_t i = 0; i < set_.directories.size(); ++i) LOCI_RETURN_IF_ERROR(adopt_shape(i));
    bool any_kept = false;
    for (std::size_t i = 0; i < set_.directories.size(); ++i) {
      LOCI_ASSIGN_OR_RETURN(std::string reason, misfit(i));
      const Status opened = reason.empty() ? open_directory(i) : Status();
      if (may_be_whole(opened)) return opened;
      if (reason.empty() && opened.ok()) {
        any_kept = true;
      } else {
        stale_.push_back({i, std::move(reason)});
      }
    }
    // Entries cannot be found without the secret that their keys were made with.
    if (!any_kept) set_.secret = new_secret();
    // All space is given back before any is taken.
    for (const Stale& one : stale_) LOCI_RETURN_IF_ERROR(clear(one));
    for (const Stale& one : stale_) {
      Status made = make_directory(one.directory);
      if (made.ok()) continue;
      // What cannot be used takes no space either.
      for (const Stale& other : stale_) (void)remove_files(other.directory);
      return made;
    }
    LOCI_RETURN_IF_ERROR(note_limit());
    add_notes();
    return {};
  }

 private:
  struct Stale {
    std::size_t directory;
    std::string reason;  // empty: the files could not be opened
  };
  static constexpr const char* kNew = "new";

  // Both forms' files together are larger than the space, and keep to it by what is given back: where the
  // file system takes nothing back there are keys and values alone.
  Status leave_out_hidden() {
    if (set_.layout.layer_groups() == set_.layout.groups.size()) return {};
    for (const DiskFileSet::Directory& one : set_.directories) {
      if (gives_back(*one.folder)) continue;
      set_.notes.push_back(
          fmt::format("{}: the file system cannot punch holes in files, so hidden states are not kept on the "
                      "disk, but keys and values alone",
                      one.folder->path()));
      DiskStoreOptions without = options_;
      without.groups.resize(set_.layout.layer_groups());
      LOCI_ASSIGN_OR_RETURN(set_.layout, divide_space(without));
      return {};
    }
    return {};
  }

  // A trial that fails for another reason says nothing: what is not given back is tried again (DiskClears).
  static bool gives_back(DiskFolder& folder) {
    constexpr std::string_view kTrial = kPunchTrialFileName;
    const auto file = folder.create(kTrial, kDiskAlignment, FileCaching::kCached);
    if (!file.ok()) return true;
    const std::int64_t given = (*file)->discard(0, kDiskAlignment);
    (void)folder.remove(kTrial).ok();
    return !never_discards(given);
  }

  Superblock expected(std::size_t directory) const {
    return {.set = set_of(set_.secret),
            .model_fingerprint = set_.model_fingerprint,
            .directory = static_cast<std::uint32_t>(directory),
            .directories = set_.layout.directories,
            .groups = set_.layout.groups,
            .holes = set_.layout.holes};
  }

  Result<Superblock> read_superblock(std::size_t directory) {
    LOCI_ASSIGN_OR_RETURN(
        const std::vector<std::byte> bytes,
        read_small(*set_.directories[directory].folder, kSuperblockFileName, kSuperblockBytes));
    return decode_superblock(bytes);
  }

  // Files that were made for more space, or another proportion of groups, are kept with all that is in them.
  Status adopt_shape(std::size_t directory) {
    const Result<Superblock> found = read_superblock(directory);
    if (!found.ok()) return may_be_whole(found.status()) ? found.status() : Status();
    if (!same_shape(*found, expected(directory))) return {};
    DiskLayout& layout = set_.layout;
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      if (has_group(*found, g, layout.groups[g]))
        layout.groups[g].slots = std::max(layout.groups[g].slots, found->groups[g].slots);
    }
    layout.holes = std::max(layout.holes, found->holes);
    return {};
  }

  static bool has_group(const Superblock& found, std::size_t group, const DiskGroup& wanted) {
    return group < found.groups.size() && same_group(found.groups[group], wanted);
  }

  static bool same_shape(Superblock found, const Superblock& wanted) {
    if (!std::ranges::equal(keys_and_values(found.groups), keys_and_values(wanted.groups), same_group))
      return false;
    found.groups = wanted.groups;
    found.holes = wanted.holes;
    return found == wanted;
  }

  // Why the directory's files cannot be kept; empty where they can.
  Result<std::string> misfit(std::size_t directory) {
    const Result<Superblock> found = read_superblock(directory);
    if (found.status().code() == StatusCode::kNotFound)
      return std::string(any_record(directory) ? "superblock is missing" : kNew);
    if (may_be_whole(found.status())) return found.status();
    if (!found.ok()) return found.status().message();
    const Superblock wanted = expected(directory);
    if (found->model_fingerprint != wanted.model_fingerprint)
      return std::string("state of another model, type or version");
    if (found->set != wanted.set) return std::string("state of another set of directories");
    if (!same_shape(*found, wanted)) return std::string("another shape");
    return std::string();
  }

  // Whether something was written to the first group's records: not where the making was cut short.
  bool any_record(std::size_t directory) {
    const auto records = set_.directories[directory].folder->open(header_file_name(0), FileCaching::kCached);
    return records.ok() && (*records)->next_data(0) < (*records)->size_bytes();
  }

  Status read_secret() {
    const auto secret = read_small(*set_.directories[0].folder, kSecretFileName, set_.secret.size());
    if (!secret.ok()) return may_be_whole(secret.status()) ? secret.status() : Status();
    std::transform(secret->begin(), secret->end(), set_.secret.begin(),
                   [](std::byte byte) { return static_cast<std::uint8_t>(byte); });
    return {};
  }

  // Longer, where it was made for fewer slots; `found` is what it was made for.
  static Status fit(const DiskFolder& folder, DiskFile& file, std::uint64_t found, std::uint64_t wanted) {
    if (file.size_bytes() < found) return data_loss("a file is shorter than it was made");
    if (file.size_bytes() >= wanted) return {};
    const std::int64_t grown = file.grow(wanted);
    if (grown == 0) return {};
    return {StatusCode::kUnavailable,
            fmt::format("{}: a file of {} cannot be made: {}", folder.path(), format_bytes(wanted),
                        errno_text(static_cast<int>(-grown))),
            "disk"};
  }

  Status open_directory(std::size_t index) {
    DiskFileSet::Directory& one = set_.directories[index];
    const DiskLayout& layout = set_.layout;
    LOCI_ASSIGN_OR_RETURN(Superblock superblock, read_superblock(index));
    LOCI_RETURN_IF_ERROR(drop_other_forms(index, superblock));
    const DiskLayout found{
        .directories = layout.directories, .groups = superblock.groups, .holes = superblock.holes};
    const std::size_t groups = layout.groups.size();
    one.headers.resize(groups);
    one.slots.resize(groups);
    for (std::uint32_t g = 0; g < groups; ++g) {
      const Status opened = g < found.groups.size() ? open_group(index, g, found) : create_group(index, g);
      if (opened.ok()) continue;
      if (layout.groups[g].form != StateForm::kHidden || may_be_whole(opened)) return opened;
      set_.losses.push_back(
          fmt::format("{}: the hidden states there cannot be kept ({}); their files are made anew",
                      one.folder->path(), opened.message()));
      LOCI_RETURN_IF_ERROR(remove_group(*one.folder, g));
      LOCI_RETURN_IF_ERROR(create_group(index, g));
    }
    LOCI_ASSIGN_OR_RETURN(one.holes, one.folder->open(kHoleFileName, FileCaching::kCached));
    LOCI_RETURN_IF_ERROR(fit(*one.folder, *one.holes, found.hole_file_bytes(), layout.hole_file_bytes()));
    // Last: until then the files are longer than it says, which is no harm.
    if (superblock == expected(index)) return {};
    return one.folder->replace(kSuperblockFileName, encode_superblock(expected(index)));
  }

  // Hidden states that are not wanted any more, or in other rows. The superblock names them no longer before
  // their files go: what is cut short there begins anew.
  Status drop_other_forms(std::size_t index, Superblock& superblock) {
    DiskFolder& folder = *set_.directories[index].folder;
    const std::vector<DiskGroup>& wanted = set_.layout.groups;
    const std::size_t first = keys_and_values(superblock.groups).size();
    bool as_wanted = superblock.groups.size() <= wanted.size();
    for (std::size_t g = first; as_wanted && g < superblock.groups.size(); ++g)
      as_wanted = same_group(superblock.groups[g], wanted[g]);
    if (!as_wanted) {
      superblock.groups.resize(first);
      LOCI_RETURN_IF_ERROR(folder.replace(kSuperblockFileName, encode_superblock(superblock)));
    }
    for (auto g = static_cast<std::uint32_t>(superblock.groups.size()); g < kDiskGroupsMax; ++g)
      LOCI_RETURN_IF_ERROR(remove_group(folder, g));
    return {};
  }

  // `found`: what its files were made for.
  Status open_group(std::size_t index, std::uint32_t group, const DiskLayout& found) {
    DiskFileSet::Directory& one = set_.directories[index];
    const DiskLayout& wanted = set_.layout;
    LOCI_ASSIGN_OR_RETURN(one.headers[group],
                          one.folder->open(header_file_name(group), FileCaching::kCached));
    LOCI_ASSIGN_OR_RETURN(one.slots[group], one.folder->open(slot_file_name(group), FileCaching::kDirect));
    LOCI_RETURN_IF_ERROR(fit(*one.folder, *one.headers[group], found.header_file_bytes(group),
                             wanted.header_file_bytes(group)));
    return fit(*one.folder, *one.slots[group], found.slot_file_bytes(group), wanted.slot_file_bytes(group));
  }

  static Status remove_group(DiskFolder& folder, std::uint32_t group) {
    LOCI_RETURN_IF_ERROR(folder.remove(header_file_name(group)));
    return folder.remove(slot_file_name(group));
  }

  Status create_group(std::size_t index, std::uint32_t group) {
    DiskFileSet::Directory& one = set_.directories[index];
    const DiskLayout& layout = set_.layout;
    LOCI_ASSIGN_OR_RETURN(
        one.headers[group],
        one.folder->create(header_file_name(group), layout.header_file_bytes(group), FileCaching::kCached));
    LOCI_ASSIGN_OR_RETURN(
        one.slots[group],
        one.folder->create(slot_file_name(group), layout.slot_file_bytes(group), FileCaching::kDirect));
    return {};
  }

  Status clear(const Stale& stale) {
    const DiskFileSet::Directory& one = set_.directories[stale.directory];
    if (stale.reason != kNew) {
      set_.losses.push_back(fmt::format("{}: the state there cannot be kept ({}); its files are made anew",
                                        one.folder->path(),
                                        stale.reason.empty() ? "files are missing" : stale.reason));
    }
    return remove_files(stale.directory);
  }

  Status remove_files(std::size_t directory) {
    DiskFileSet::Directory& one = set_.directories[directory];
    one.headers.clear();
    one.slots.clear();
    one.holes.reset();
    LOCI_RETURN_IF_ERROR(one.folder->remove(kSuperblockFileName));
    LOCI_RETURN_IF_ERROR(one.folder->remove(kHoleFileName));
    // Of a store with more groups, too.
    for (std::uint32_t g = 0; g < kDiskGroupsMax; ++g) LOCI_RETURN_IF_ERROR(remove_group(*one.folder, g));
    return {};
  }

  // The superblock comes last: without it a directory whose making was cut short is made again.
  Status make_directory(std::size_t index) {
    DiskFileSet::Directory& one = set_.directories[index];
    DiskFolder& folder = *one.folder;
    const DiskLayout& layout = set_.layout;
    // What other models hold of the same budget may be had too.
    const std::uint64_t free = folder.free_bytes(), others = options_.directories[index].held_bytes;
    if (free < layout.directory_bytes() && free + others < layout.directory_bytes()) {
      return resource_exhausted(fmt::format("{}: expected {} of free space, found {}", folder.path(),
                                            format_bytes(layout.directory_bytes()), format_bytes(free)),
                                "disk");
    }
    one.headers.resize(layout.groups.size());
    one.slots.resize(layout.groups.size());
    for (std::uint32_t g = 0; g < layout.groups.size(); ++g) LOCI_RETURN_IF_ERROR(create_group(index, g));
    LOCI_ASSIGN_OR_RETURN(one.holes,
                          folder.create(kHoleFileName, layout.hole_file_bytes(), FileCaching::kCached));
    if (index == 0)
      LOCI_RETURN_IF_ERROR(folder.replace(kSecretFileName, std::as_bytes(std::span(set_.secret))));
    return folder.replace(kSuperblockFileName, encode_superblock(expected(index)));
  }

  // By which limit others may drop the model's state when nobody serves it. What is noted from before may be
  // a shorter one, so it does not stay where the new one cannot be written: without a note nothing is
  // dropped.
  Status note_limit() {
    const std::vector<std::byte> note = encode_state_limit(set_.model_fingerprint, options_.state_ttl);
    for (const DiskFileSet::Directory& one : set_.directories) {
      const auto found = read_small(*one.folder, kLimitFileName, note.size());
      if (found.ok() && *found == note) continue;
      const Status noted = one.folder->replace(kLimitFileName, note);
      if (noted.ok()) continue;
      LOCI_RETURN_IF_ERROR(one.folder->remove(kLimitFileName));
      set_.losses.push_back(fmt::format(
          "{}: how long state is kept cannot be noted ({}), so once this model is served no more, "
          "its state stays until its room is wanted",
          one.folder->path(), noted.message()));
    }
    return {};
  }

  void add_notes() {
    for (const DiskFileSet::Directory& one : set_.directories) {
      if (std::all_of(one.slots.begin(), one.slots.end(), [](const auto& file) { return file->direct(); })) {
        continue;
      }
      set_.notes.push_back(fmt::format(
          "{}: the file system refuses O_DIRECT, so state goes through the page cache", one.folder->path()));
    }
  }

  const DiskStoreOptions& options_;
  DiskFileSet& set_;
  std::vector<Stale> stale_;
};

}  // namespace

DiskFileSet::Place DiskFileSet::record_place(std::uint32_t group, SlotId slot) const {
  const Directory& one = directories[layout.directory_of(slot)];
  const bool hole = group == kHoleGroup;
  const std::uint64_t stride = hole ? record_bytes(0) : layout.record_stride(group);
  return {.directory = layout.directory_of(slot),
          .file = hole ? one.holes : one.headers[group],
          .offset = layout.row_of(slot) * stride,
          .bytes = stride,
          .record = record_of(group, slot.value)};
}

DiskFileSet::Place DiskFileSet::slice_place(std::uint32_t group, SlotId slot, std::uint32_t first,
                                            std::uint32_t count) const {
  const std::uint64_t packs = (count - 1) / layout.pack_layers(group) + 1;
  return {.directory = layout.directory_of(slot),
          .file = directories[layout.directory_of(slot)].slots[group],
          .offset = layout.row_of(slot) * layout.slot_stride(group) + layout.slice_offset(group, first),
          .bytes = packs * layout.pack_stride(group),
          .record = record_of(group, slot.value)};
}

Result<DiskFileSet> open_disk_files(const DiskStoreOptions& options, const MakeDiskFolder& make_folder) {
  DiskFileSet set{.model_fingerprint = options.model_fingerprint};
  LOCI_ASSIGN_OR_RETURN(set.layout, divide_space(options));
  LOCI_RETURN_IF_ERROR(Opener(options, set).open(make_folder));
  return set;
}

}  // namespace loci
