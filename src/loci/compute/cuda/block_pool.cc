// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/block_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "loci/base/check.h"
#include "loci/compute/wake.h"

namespace loci::cuda {
namespace {

// A slot's word: how many layers are queued, how many of them were hidden states and have been projected,
// and what is known of the rest.
constexpr std::uint32_t kFailed = 1u << 31;
constexpr std::uint32_t kSettled = 1u << 30;     // all layers are slices, whose copies are done, too
constexpr std::uint32_t kProjecting = 1u << 29;  // somebody projects a layer
constexpr std::uint32_t kHidden = 1u << 28;      // the layers come as hidden states
constexpr std::uint32_t kOneProjected = 1u << 12;
constexpr std::uint32_t kLayers = kOneProjected - 1;
constexpr std::uint32_t queued_of(std::uint32_t word) { return word & kLayers; }
constexpr std::uint32_t projected_of(std::uint32_t word) { return word / kOneProjected & kLayers; }
// Layer `index` of the group came as hidden states, which nobody has projected.
constexpr bool is_hidden(std::uint32_t word, std::uint32_t index) {
  return (word & kHidden) != 0 && index >= projected_of(word) && index < queued_of(word);
}

constexpr std::uint64_t kStagingBytes = 16u << 20;  // of loads: more than a disk brings while one is copied
constexpr std::uint32_t kStagingBuffersMin = 4;
constexpr std::uint32_t kReadBuffers = 2;

}  // namespace

BlockPool::BlockPool(const Device& device, std::vector<LayerGroup> groups, std::uint32_t kv_heads,
                     std::uint32_t head_dim)
    : device_(device),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      slice_bytes_(std::uint64_t{2} * kv_heads * head_dim * kBlockTokens * sizeof(std::uint16_t)),
      groups_(std::move(groups)),
      pools_(groups_.size()),
      loads_(device, "loci-loads"),
      saves_(device, "loci-saves"),
      reads_(device, "loci-reads"),
      staged_loads_(loads_),
      staged_reads_(reads_),
      projections_(device) {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    LayerGroup& group = groups_[g];
    group.layer_slice_bytes = slice_bytes_;
    group.block_bytes = slice_bytes_ * group.layers.size();
    LOCI_CHECK(group.layers.size() <= kLayers, "a slot's word counts the layers");
    for (std::uint32_t i = 0; i < group.layers.size(); ++i) {
      layers_.resize(std::max<std::size_t>(layers_.size(), group.layers[i] + 1));
      layers_[group.layers[i]] = {g, i};
    }
  }
}

Result<std::unique_ptr<BlockPool>> BlockPool::make(const Device& device, std::vector<LayerGroup> groups,
                                                   std::uint32_t kv_heads, std::uint32_t head_dim) {
  std::unique_ptr<BlockPool> pool(new BlockPool(device, std::move(groups), kv_heads, head_dim));
  const auto buffers = static_cast<std::uint32_t>(
      std::max<std::uint64_t>(kStagingBytes / pool->slice_bytes_, kStagingBuffersMin));
  LOCI_RETURN_IF_ERROR(pool->staged_loads_.allocate(device, pool->slice_bytes_, buffers));
  LOCI_RETURN_IF_ERROR(pool->staged_reads_.allocate(device, pool->slice_bytes_, kReadBuffers));
  return pool;
}

Status BlockPool::allocate(std::uint32_t group, std::uint32_t count) {
  Pool& pool = pools_[group];
  LOCI_CHECK(pool.count == 0, "blocks are allocated once");
  const std::uint64_t bytes = groups_[group].block_bytes * count;
  LOCI_ASSIGN_OR_RETURN(pool.blocks, Memory::allocate(device_, MemoryKind::kDevice, bytes, "device_memory"));
  Stream stream(device_);
  stream.fill(pool.blocks.data(), 0, bytes);
  stream.synchronize();
  const std::size_t tickets = std::size_t{count} * layers_of(group);
  pool.states = std::make_unique<std::atomic<std::uint32_t>[]>(count);
  pool.tickets = std::make_unique<std::atomic<Ticket>[]>(tickets);
  pool.positions = std::make_unique<std::uint32_t[]>(count);
  pool.projections = std::make_unique<std::atomic<Ticket>[]>(count);
  pool.count = count;
  for (std::uint32_t slot = 0; slot < count; ++slot) set_whole(group, SlotId(slot));
  return device_.status();
}

LayerState BlockPool::layer(std::uint32_t layer) const {
  const Layer place = layers_[layer];
  return {.base = slice(place.group, SlotId(0), place.index),
          .slot_stride = groups_[place.group].block_bytes,
          .kv_heads = kv_heads_,
          .head_dim = head_dim_};
}

std::byte* BlockPool::slice(std::uint32_t group, SlotId slot, std::uint32_t index) const {
  return pools_[group].blocks.data() + slot.value * groups_[group].block_bytes + index * slice_bytes_;
}

std::atomic<std::uint32_t>& BlockPool::state(std::uint32_t group, SlotId slot) const {
  LOCI_CHECK(slot.value < pools_[group].count, "a slot outside the pool");
  return pools_[group].states[slot.value];
}

std::atomic<Ticket>& BlockPool::ticket(std::uint32_t group, SlotId slot, std::uint32_t index) const {
  LOCI_CHECK(slot.value < pools_[group].count, "a slot outside the pool");
  return pools_[group].tickets[std::size_t{slot.value} * layers_of(group) + index];
}

// --- passes ---

bool BlockPool::is_whole(std::uint32_t group, SlotId slot) const {
  std::atomic<std::uint32_t>& word = state(group, slot);
  std::uint32_t now = word.load(std::memory_order_acquire);
  if ((now & kSettled) != 0) return true;
  const std::uint32_t layers = layers_of(group);
  const bool slices = (now & kHidden) == 0 || projected_of(now) == layers;
  // Copies are in order: the last layer's is the last. (What passes have projected comes before what they
  // compute from now on.)
  if (queued_of(now) != layers || (now & kFailed) != 0 || !slices ||
      !loads_.tickets().done(ticket(group, slot, layers - 1)))
    return false;
  word.compare_exchange_strong(now, layers | kSettled, std::memory_order_acq_rel);
  return true;
}

void BlockPool::set_whole(std::uint32_t group, SlotId slot) {
  state(group, slot).store(layers_of(group) | kSettled, std::memory_order_release);
}

bool BlockPool::wait_layer(std::uint32_t layer, std::span<const SlotId> slots, Stream& stream,
                           Patience& patience) {
  const Layer place = layers_[layer];
  Ticket last = 0;
  for (const SlotId slot : slots) {
    const std::atomic<std::uint32_t>& word = state(place.group, slot);
    while (true) {
      const std::uint32_t now = word.load(std::memory_order_acquire);
      if ((now & kSettled) != 0) break;
      if (queued_of(now) > place.index) {
        last = std::max(last, ticket(place.group, slot, place.index).load(std::memory_order_relaxed));
        break;
      }
      if ((now & kFailed) != 0) return false;
      if (!patience.wait(word, now)) return false;
    }
  }
  // Once for all blocks that came together. A stream that has ended has done what it waited for.
  if (held_by_ == &stream && last <= held_) return true;
  loads_.tickets().hold(stream, last);
  held_by_ = &stream;
  held_ = last;
  return true;
}

// --- projecting ---

std::optional<std::uint32_t> BlockPool::claim_hidden(std::uint32_t layer, SlotId slot) {
  const Layer place = layers_[layer];
  std::atomic<std::uint32_t>& word = state(place.group, slot);
  std::uint32_t now = word.load(std::memory_order_acquire);
  while (is_hidden(now, place.index)) {
    if ((now & kProjecting) != 0) {
      word.wait(now, std::memory_order_acquire);
      now = word.load(std::memory_order_acquire);
    } else if (word.compare_exchange_weak(now, now | kProjecting, std::memory_order_acq_rel)) {
      return groups_[place.group].layers[projected_of(now)];
    }
  }
  return std::nullopt;
}

std::uint32_t BlockPool::position(std::uint32_t group, SlotId slot) const {
  return pools_[group].positions[slot.value];
}

std::shared_ptr<Event> BlockPool::arrival_of(std::uint32_t layer, SlotId slot) const {
  const Layer place = layers_[layer];
  return loads_.tickets().event_of(ticket(place.group, slot, place.index).load(std::memory_order_relaxed));
}

Ticket BlockPool::note_projections(Stream& stream) {
  std::shared_ptr<Event> event = projections_.take_event();
  stream.record(*event);
  projections_.add(++projections_queued_, std::move(event));
  return projections_queued_;
}

void BlockPool::projected(std::uint32_t layer, SlotId slot, Ticket ticket) {
  const std::uint32_t group = layers_[layer].group;
  if (ticket > 0) pools_[group].projections[slot.value].store(ticket, std::memory_order_relaxed);
  std::atomic<std::uint32_t>& word = state(group, slot);
  word.fetch_sub(kProjecting - kOneProjected, std::memory_order_release);  // one more, and the claim ends
  wake_all(word);
}

void BlockPool::projection_refused(std::uint32_t layer, SlotId slot, Ticket ticket) {
  const std::uint32_t group = layers_[layer].group;
  pools_[group].projections[slot.value].store(ticket, std::memory_order_relaxed);
  std::atomic<std::uint32_t>& word = state(group, slot);
  word.fetch_and(~kProjecting, std::memory_order_release);
  wake_all(word);
}

template <class Piece>
Ticket BlockPool::projections_of(std::uint32_t group, std::span<const Piece> pieces) const {
  Ticket last = 0;
  for (const Piece& piece : pieces) {
    last = std::max(last, pools_[group].projections[piece.slot.value].load(std::memory_order_relaxed));
  }
  return last;
}

// --- movers ---

Result<HostMemory> BlockPool::allocate_host(std::uint64_t bytes) const {
  LOCI_ASSIGN_OR_RETURN(Memory memory, Memory::allocate(device_, MemoryKind::kPinned, bytes, "host memory"));
  std::byte* data = memory.data();
  auto held = std::make_shared<Memory>(std::move(memory));  // a std::function is copied
  return HostMemory(data, bytes, [held]() mutable { held.reset(); });
}

void BlockPool::begin_fill(std::uint32_t group, SlotId slot) {
  // (Whoever projects what the slot had before has queued it, so what comes now waits for that.)
  std::atomic<std::uint32_t>& word = state(group, slot);
  std::uint32_t now = word.load(std::memory_order_acquire);
  do {
    while ((now & kProjecting) != 0) {
      word.wait(now, std::memory_order_acquire);
      now = word.load(std::memory_order_acquire);
    }
  } while (!word.compare_exchange_weak(now, 0, std::memory_order_acq_rel));
}

void BlockPool::check_piece(std::uint32_t group, SlotId slot, LayerRange layers, std::size_t bytes) const {
  LOCI_CHECK(group < groups_.size() && slot.value < pools_[group].count && layers.begin < layers.end &&
                 layers.end <= layers_of(group) && bytes == (layers.end - layers.begin) * slice_bytes_,
             "not layers of a block");
}

void BlockPool::layers_queued(std::uint32_t group, SlotId slot, std::uint32_t end) {
  std::atomic<std::uint32_t>& word = state(group, slot);
  word.store(end, std::memory_order_release);
  wake_all(word);
}

void BlockPool::load(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces,
                     BytesHeld held) {
  for (const LoadPiece& piece : pieces) check_piece(group, piece.slot, layers, piece.bytes.size());
  if (held == BytesHeld::kDuringCall) return load_staged(group, layers, pieces);
  std::vector<CopyPiece> copies;
  copies.reserve(pieces.size());
  for (const LoadPiece& piece : pieces) {
    copies.push_back({slice(group, piece.slot, layers.begin), piece.bytes.data(), piece.bytes.size()});
  }
  const Ticket queued = loads_.copy(copies, {{projections_, projections_of(group, pieces)}});
  for (const LoadPiece& piece : pieces) {
    for (std::uint32_t i = layers.begin; i < layers.end; ++i) {
      ticket(group, piece.slot, i).store(queued, std::memory_order_relaxed);
    }
    layers_queued(group, piece.slot, layers.end);
  }
}

void BlockPool::load_staged(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces) {
  for (std::uint32_t i = layers.begin; i < layers.end; ++i) {
    for (const LoadPiece& piece : pieces) {
      std::byte* staged = staged_loads_.take();
      std::memcpy(staged, piece.bytes.data() + (i - layers.begin) * slice_bytes_, slice_bytes_);
      const CopyPiece copy{slice(group, piece.slot, i), staged, slice_bytes_};
      const Ticket projected = projections_of(group, std::span(&piece, 1));
      const Ticket queued = loads_.copy({&copy, 1}, {{projections_, projected}});
      staged_loads_.give(staged, queued);
      ticket(group, piece.slot, i).store(queued, std::memory_order_relaxed);
      layers_queued(group, piece.slot, i + 1);
    }
  }
}

void BlockPool::hidden_queued(std::uint32_t group, const HiddenPiece& piece, std::uint32_t index,
                              Ticket queued) {
  ticket(group, piece.slot, index).store(queued, std::memory_order_relaxed);
  std::uint32_t& said = pools_[group].positions[piece.slot.value];
  if (index == 0) said = piece.position;  // said once: a pass may read it while later layers arrive
  LOCI_CHECK(said == piece.position, "a block's layers are of one position");
  std::atomic<std::uint32_t>& word = state(group, piece.slot);
  word.fetch_add(index == 0 ? kHidden + 1 : 1, std::memory_order_release);
  wake_all(word);
}

void BlockPool::load_hidden(std::uint32_t group, std::uint32_t index, std::span<const HiddenPiece> pieces,
                            BytesHeld held) {
  std::vector<CopyPiece> copies;
  for (const HiddenPiece& piece : pieces) {
    const std::uint32_t now = state(group, piece.slot).load(std::memory_order_relaxed);
    LOCI_CHECK(index < layers_of(group) && piece.rows.size() < slice_bytes_, "a layer's hidden states");
    LOCI_CHECK((now & kSettled) == 0 && queued_of(now) == index, "a fill's layers come in order");
    copies.push_back({slice(group, piece.slot, index), piece.rows.data(), piece.rows.size()});
  }
  const Ticket projected = projections_of(group, pieces);
  if (held == BytesHeld::kUntilCopied) {
    const Ticket queued = loads_.copy(copies, {{projections_, projected}});
    for (const HiddenPiece& piece : pieces) hidden_queued(group, piece, index, queued);
    return;
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::byte* staged = staged_loads_.take();
    std::memcpy(staged, pieces[i].rows.data(), pieces[i].rows.size());
    copies[i].from = staged;
    const Ticket queued = loads_.copy({&copies[i], 1}, {{projections_, projected}});
    staged_loads_.give(staged, queued);
    hidden_queued(group, pieces[i], index, queued);
  }
}

void BlockPool::save(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces,
                     BytesHeld held) {
  for (const SavePiece& piece : pieces) check_piece(group, piece.slot, layers, piece.bytes.size());
  if (held == BytesHeld::kDuringCall) return save_staged(group, layers, pieces);
  std::vector<CopyPiece> copies;
  copies.reserve(pieces.size());
  Ticket brought = 0;
  for (const SavePiece& piece : pieces) {
    brought = std::max(brought, ticket(group, piece.slot, layers.end - 1).load(std::memory_order_relaxed));
    copies.push_back({piece.bytes.data(), slice(group, piece.slot, layers.begin), piece.bytes.size()});
  }
  saves_.copy(copies, {{loads_.tickets(), brought}, {projections_, projections_of(group, pieces)}});
}

void BlockPool::save_staged(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces) {
  for (const SavePiece& piece : pieces) {
    for (std::uint32_t i = layers.begin; i < layers.end; ++i) {
      std::byte* staged = staged_reads_.take();
      const CopyPiece copy{staged, slice(group, piece.slot, i), slice_bytes_};
      const Ticket brought = ticket(group, piece.slot, i);
      const Ticket projected = projections_of(group, std::span(&piece, 1));
      const Ticket queued = reads_.copy({&copy, 1}, {{loads_.tickets(), brought}, {projections_, projected}});
      reads_.tickets().wait(queued);
      std::memcpy(piece.bytes.data() + (i - layers.begin) * slice_bytes_, staged, slice_bytes_);
      staged_reads_.give(staged, 0);
    }
  }
}

void BlockPool::fill_failed(std::uint32_t group, SlotId slot) {
  state(group, slot).fetch_or(kFailed, std::memory_order_release);
  wake_all(state(group, slot));
}

}  // namespace loci::cuda
