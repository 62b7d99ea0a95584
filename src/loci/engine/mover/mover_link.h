// SPDX-License-Identifier: Apache-2.0
// Shared by all kinds of moves: the device, the host tier's memory, and the desk at which ends are reported.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/copy_bytes.h"
#include "loci/engine/mover/host_tier.h"
#include "loci/engine/mover/mover.h"
#include "loci/engine/mover/mover_desk.h"

namespace loci {

struct MoverLink {
  Backend& backend;
  const HostTier& host;
  MoverDesk& desk;
  const MoverOptions& options;

  const LayerGroup& group(std::uint32_t index) const { return backend.info().groups[index]; }

  Status before_slice(const Move& move, std::uint32_t layer) const {
    return options.before_slice ? options.before_slice(move, layer) : Status();
  }

  // Bytes of a layer's slice in a group of the disk store, by the form of state that the move carries.
  std::uint64_t slice_bytes(const Move& move, std::uint32_t group_number) const {
    return move.form == StateForm::kHidden ? kBlockTokens * backend.info().hidden_row_bytes
                                           : group(group_number).layer_slice_bytes;
  }
  std::uint32_t disk_group(const Move& move, std::uint32_t group_number) const {
    return pool_of(group_number, move.form, static_cast<std::uint32_t>(backend.info().groups.size()));
  }

  // Brings a whole and verified slice of the move to the device. Only here are keys moved to another
  // position; this is done in a copy, so that the source keeps the keys as they were computed. `index`: of
  // the layer in its group. `use`: of a slice that is copied as it is.
  void arrive(const Move& move, const MovePart& part, std::uint32_t index, std::span<const std::byte> slice,
              CacheUse use = CacheUse::kFill) const {
    if (move.form == StateForm::kHidden) return arrive_hidden(move, part, index, slice);
    if (move.rotate_by == 0) return load_slice(part, index, slice, use);
    std::vector<std::byte> rotated(slice.begin(), slice.end());
    backend.rotate_keys(group(part.group).layers[index], move.rotate_by, rotated);
    load_slice(part, index, rotated);
  }

  // Brings a layer's hidden states to the device; the pass that reads them projects them. If keys must be
  // rotated, they are projected at their old position here and then rotated. Projecting them at the new
  // position would give other bits than rotating the block's saved keys.
  void arrive_hidden(const Move& move, const MovePart& part, std::uint32_t index,
                     std::span<const std::byte> rows) const {
    const std::uint32_t position = (move.entry.depth - 1) * kBlockTokens;  // position of the source
    if (move.rotate_by == 0) return backend.load_hidden(part.group, part.to, index, position, rows);
    const std::uint32_t layer = group(part.group).layers[index];
    std::vector<std::byte> slice(group(part.group).layer_slice_bytes);
    backend.project(layer, position, rows, slice);
    backend.rotate_keys(layer, move.rotate_by, slice);
    load_slice(part, index, slice);
  }

  void load_slice(const MovePart& part, std::uint32_t index, std::span<const std::byte> slice,
                  CacheUse use = CacheUse::kFill) const {
    const LoadPiece piece{part.to, slice, use};
    backend.load(part.group, {index, index + 1}, {&piece, 1}, BytesHeld::kDuringCall);
  }
};

}  // namespace loci
