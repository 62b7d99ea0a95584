// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "loci/base/units.h"
#include "loci/memory/disk/disk_format.h"

namespace loci {
namespace {

// Lock, secret, superblock, the directory itself, and the file system's maps of where the files are.
constexpr std::uint64_t kSmallFilesBytes = 64 * 1024;
constexpr double kSlotsMost = std::numeric_limits<std::int32_t>::max();

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
}

Status check_options(const DiskStoreOptions& options) {
  if (options.directories.empty()) return invalid_argument("expected at least one directory", "disk");
  for (std::size_t i = 0; i < options.directories.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (options.directories[i].path != options.directories[j].path) continue;
      return invalid_argument(
          fmt::format("expected different directories, found {} twice", options.directories[i].path), "disk");
    }
  }
  if (options.groups.empty() || options.groups.size() > kDiskGroupsMax) {
    return invalid_argument(
        fmt::format("expected 1 to {} groups of layers, found {}", kDiskGroupsMax, options.groups.size()));
  }
  for (const DiskGroup& group : options.groups) {
    if (group.layers == 0 || group.layer_slice_bytes == 0) {
      return invalid_argument("expected groups of at least one layer and one byte, found one without");
    }
  }
  const DiskLayout layout{.groups = options.groups};
  const std::uint32_t layer_groups = layout.layer_groups();
  for (std::size_t g = layer_groups; g < options.groups.size(); ++g) {
    const DiskGroup& group = options.groups[g];
    const bool fits = group.form == StateForm::kHidden && g < 2 * layer_groups &&
                      group.layers == options.groups[g - layer_groups].layers &&
                      group.layer_slice_bytes <= options.groups[g - layer_groups].layer_slice_bytes;
    if (!fits)
      return invalid_argument(
          "expected hidden states behind the keys and values of the same layers, and no larger");
  }
  if (!options.shares.empty() && options.shares.size() != layer_groups) {
    return invalid_argument(fmt::format("expected a share for each of {} groups of layers, found {}",
                                        layer_groups, options.shares.size()));
  }
  if (std::find(options.shares.begin(), options.shares.end(), 0u) != options.shares.end()) {
    return invalid_argument("expected shares above 0, found 0");
  }
  return {};
}

// The layout with `rounds` times its share of slots for each group of layers in each directory.
void set_rows(DiskLayout& layout, const std::vector<std::uint32_t>& shares, double rounds) {
  const std::uint32_t layer_groups = layout.layer_groups();
  layout.holes = 0;
  for (std::uint32_t g = 0; g < layout.groups.size(); ++g) {
    DiskGroup& group = layout.groups[g];
    if (g >= layer_groups) {
      group.slots = layout.slots_as_hidden(g, layout.groups[g - layer_groups].slots);
      layout.holes += group.slots - std::min(group.slots, layout.groups[g - layer_groups].slots);
      continue;
    }
    const double rows = std::min(rounds * shares[g], kSlotsMost / layout.directories / layout.groups.size());
    group.slots = std::max(1u, static_cast<std::uint32_t>(rows)) * layout.directories;
    layout.holes += group.slots;
  }
}

// Of one round of slots in one directory, their records and their holes.
double round_bytes(const DiskLayout& layout, const std::vector<std::uint32_t>& shares) {
  double bytes = 0;
  for (std::uint32_t g = 0; g < layout.layer_groups(); ++g)
    bytes += shares[g] * static_cast<double>(layout.whole_slot_bytes(g));
  return bytes;
}

std::vector<std::uint32_t> shares_of(const std::vector<std::uint32_t>& shares, const DiskLayout& layout) {
  return shares.empty() ? std::vector<std::uint32_t>(layout.layer_groups(), 1) : shares;
}

}  // namespace

std::vector<std::uint32_t> slots_within(const DiskLayout& layout, const std::vector<std::uint32_t>& given,
                                        std::uint64_t bytes) {
  const std::vector<std::uint32_t> shares = shares_of(given, layout);
  const std::uint32_t layer_groups = layout.layer_groups();
  // Each file of headers may begin one more of the file system's blocks.
  const std::uint64_t fixed = kSmallFilesBytes + (layout.groups.size() + 1) * kDiskAlignment;
  const double rounds = bytes <= fixed ? 0 : static_cast<double>(bytes - fixed) / round_bytes(layout, shares);
  std::vector<std::uint32_t> slots;
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    const double most = layout.groups[g].slots;
    if (g >= layer_groups) {
      slots.push_back(std::min(layout.groups[g].slots, layout.slots_as_hidden(g, slots[g - layer_groups])));
      continue;
    }
    const double fit = std::floor(rounds * shares[g]) * layout.directories;
    // A group with a small share has a slot too, once there is room for anything.
    const double least = rounds * shares[g] > 0 && rounds >= 1 ? layout.directories : 0;
    slots.push_back(static_cast<std::uint32_t>(std::min(most, std::max(fit, least))));
  }
  return slots;
}

std::uint32_t DiskLayout::pack_layers(std::uint32_t group) const {
  const DiskGroup& of = groups[group];
  const std::uint64_t empty_part = of.form == StateForm::kHidden ? 50 : 32;  // at most one in so many bytes
  std::uint32_t best = 1;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (std::uint32_t layers = 1; layers <= of.layers; ++layers) {
    const std::uint64_t packs = (of.layers - 1) / layers + 1;
    const std::uint64_t slot = packs * aligned(layers * of.layer_slice_bytes);
    if (slot < least) {
      least = slot;
      best = layers;
    }
    if (slot - of.layers * of.layer_slice_bytes <= slot / empty_part) break;
  }
  return best;
}

std::uint64_t DiskLayout::pack_stride(std::uint32_t group) const {
  return aligned(pack_layers(group) * groups[group].layer_slice_bytes);
}

std::uint64_t DiskLayout::slot_stride(std::uint32_t group) const {
  return ((groups[group].layers - 1) / pack_layers(group) + 1) * pack_stride(group);
}

std::uint64_t DiskLayout::slice_offset(std::uint32_t group, std::uint32_t layer) const {
  const std::uint32_t pack = pack_layers(group);
  return layer / pack * pack_stride(group) + layer % pack * groups[group].layer_slice_bytes;
}

std::uint64_t DiskLayout::record_stride(std::uint32_t group) const {
  return record_bytes(groups[group].layers);
}

std::uint64_t DiskLayout::header_file_bytes(std::uint32_t group) const {
  return aligned(record_stride(group) * (groups[group].slots / directories));
}

std::uint64_t DiskLayout::slot_file_bytes(std::uint32_t group) const {
  return slot_stride(group) * (groups[group].slots / directories);
}

std::uint64_t DiskLayout::hole_file_bytes() const { return aligned(record_bytes(0) * (holes / directories)); }

std::uint64_t DiskLayout::directory_bytes() const {
  std::uint64_t bytes = kSmallFilesBytes + hole_file_bytes();
  const auto files = [this](std::uint32_t group) {
    return group < groups.size() ? header_file_bytes(group) + slot_file_bytes(group) : 0;
  };
  for (std::uint32_t g = 0; g < layer_groups(); ++g)
    bytes += std::max(files(g), files(pool_of(g, StateForm::kHidden, layer_groups())));
  return bytes;
}

std::uint32_t DiskLayout::layer_groups() const {
  return static_cast<std::uint32_t>(std::ranges::find(groups, StateForm::kHidden, &DiskGroup::form) -
                                    groups.begin());
}

std::uint64_t DiskLayout::whole_slot_bytes(std::uint32_t group) const {
  return slot_stride(group) + record_stride(group) + record_bytes(0);
}

std::uint32_t DiskLayout::slots_as_hidden(std::uint32_t group, std::uint32_t slots) const {
  const double rows = std::floor(static_cast<double>(slots / directories) *
                                 static_cast<double>(whole_slot_bytes(group - layer_groups())) /
                                 static_cast<double>(whole_slot_bytes(group)));
  return static_cast<std::uint32_t>(std::min(rows, kSlotsMost / directories / groups.size())) * directories;
}

std::string header_file_name(std::uint32_t group) { return fmt::format("group-{}.headers", group); }
std::string slot_file_name(std::uint32_t group) { return fmt::format("group-{}.slots", group); }

Result<DiskLayout> divide_space(const DiskStoreOptions& options) {
  LOCI_RETURN_IF_ERROR(check_options(options));
  DiskLayout layout{.directories = static_cast<std::uint32_t>(options.directories.size()),
                    .groups = options.groups};
  const std::vector<std::uint32_t> shares = shares_of(options.shares, layout);
  std::uint64_t space = std::numeric_limits<std::uint64_t>::max();
  for (const DiskDirectory& one : options.directories) space = std::min(space, one.bytes);
  set_rows(layout, shares, 0);
  if (const std::uint64_t least = layout.directory_bytes(); least > space) {
    return invalid_argument(fmt::format("expected at least {} for each directory, so that it holds a block, "
                                        "found {}",
                                        format_bytes(least), format_bytes(space)),
                            "disk");
  }
  double rounds = static_cast<double>(space - kSmallFilesBytes) / round_bytes(layout, shares);
  set_rows(layout, shares, rounds);
  // Files are rounded up, and a group with a small share still has a slot.
  while (layout.directory_bytes() > space) {
    rounds = rounds > 1000 ? rounds * 0.9999 : rounds - 0.05;
    set_rows(layout, shares, std::max(rounds, 0.0));
  }
  return layout;
}

}  // namespace loci
