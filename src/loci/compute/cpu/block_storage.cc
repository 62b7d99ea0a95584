// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/block_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/copy_bytes.h"
#include "loci/compute/wake.h"

namespace loci::cpu {

namespace {

// A slot's word: how many layers are slices, how many came as hidden states (those that were projected since
// are in both), whether somebody projects one, whether the rest will not come.
constexpr std::uint32_t kHiddenShift = 15;
constexpr std::uint32_t kLayersMask = (1u << kHiddenShift) - 1;
constexpr std::uint32_t kOneHidden = 1u << kHiddenShift;
constexpr std::uint32_t kProjecting = 1u << 30;
constexpr std::uint32_t kFailed = 1u << 31;

std::uint32_t slices(std::uint32_t word) { return word & kLayersMask; }
std::uint32_t hidden(std::uint32_t word) { return word >> kHiddenShift & kLayersMask; }

}  // namespace

BlockStorage::BlockStorage(std::vector<LayerGroup> groups, const StateLayout& layout)
    : layout_(layout), groups_(std::move(groups)), pools_(groups_.size()), joiner_([this] {
        for (const Pool& pool : pools_) {
          if (pool.pages != nullptr) pool.pages->join_split();
        }
      }) {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    LayerGroup& group = groups_[g];
    group.layer_slice_bytes = layout_.slice_bytes();
    group.block_bytes = layout_.slice_bytes() * group.layers.size();
    for (std::uint32_t i = 0; i < group.layers.size(); ++i) {
      const std::uint32_t layer = group.layers[i];
      layers_.resize(std::max<std::size_t>(layers_.size(), layer + 1));
      layers_[layer] = {g, i};
    }
  }
}

Status BlockStorage::allocate(std::uint32_t group, std::uint32_t count) {
  Pool& pool = pools_[group];
  LOCI_CHECK(pool.count == 0, "blocks are allocated once");
  LOCI_ASSIGN_OR_RETURN(pool.blocks, Buffer::allocate(groups_[group].block_bytes * count,
                                                      fmt::format("a pool of {} blocks", count)));
  pool.pages = std::make_unique<HugePages>(pool.blocks.data(), pool.blocks.size());
  pool.states = std::make_unique<std::atomic<std::uint32_t>[]>(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    pool.states[i].store(layers_of(group), std::memory_order_relaxed);
  }
  pool.positions = std::make_unique<std::uint32_t[]>(count);
  pool.count = count;
  return {};
}

void BlockStorage::give_back(std::uint32_t group, SlotId slot) {
  LOCI_CHECK(slot.value < pools_[group].count, "a slot outside the pool");
  const std::uint64_t bytes = groups_[group].block_bytes;
  pools_[group].blocks.give_back(slot.value * bytes, bytes);
  pools_[group].pages->given_back(slot.value * bytes, bytes);
  joiner_.start();
}

std::uint8_t* BlockStorage::slice(SlotId slot, std::uint32_t layer) const {
  const Layer place = layers_[layer];
  return reinterpret_cast<std::uint8_t*>(pools_[place.group].blocks.data() +
                                         slot.value * groups_[place.group].block_bytes +
                                         place.index * layout_.slice_bytes());
}

void BlockStorage::copy_tokens(SlotId from, SlotId to, std::uint32_t layer, std::uint32_t tokens) const {
  layout_.copy_tokens(slice(from, layer), slice(to, layer), tokens);
}

std::atomic<std::uint32_t>& BlockStorage::state(std::uint32_t group, SlotId slot) const {
  LOCI_CHECK(slot.value < pools_[group].count, "a slot outside the pool");
  return pools_[group].states[slot.value];
}

void BlockStorage::begin_fill(std::uint32_t group, SlotId slot) {
  state(group, slot).store(0, std::memory_order_release);
}

void BlockStorage::check_slice(SlotId slot, std::uint32_t layer, std::size_t bytes) const {
  LOCI_CHECK(layer < layers_.size() && slot.value < pools_[layers_[layer].group].count &&
                 bytes == layout_.slice_bytes(),
             "not a layer's slice");
}

void BlockStorage::write_layer(SlotId slot, std::uint32_t layer, std::span<const std::byte> bytes,
                               CacheUse use) {
  check_slice(slot, layer, bytes.size());
  copy_bytes({reinterpret_cast<std::byte*>(slice(slot, layer)), bytes.size()}, bytes, use);
}

void BlockStorage::read_layer(SlotId slot, std::uint32_t layer, std::span<std::byte> bytes) const {
  check_slice(slot, layer, bytes.size());
  std::memcpy(bytes.data(), slice(slot, layer), bytes.size());
}

std::span<const std::byte> BlockStorage::view(std::uint32_t group, SlotId slot, LayerRange layers) const {
  const std::size_t slice_bytes = layout_.slice_bytes();
  LOCI_CHECK(slot.value < pools_[group].count && layers.end * slice_bytes <= groups_[group].block_bytes,
             "not layers of a slot");
  const std::span part(pools_[group].blocks.data() + slot.value * groups_[group].block_bytes,
                       groups_[group].block_bytes);
  return std::as_bytes(part.subspan(layers.begin * slice_bytes, (layers.end - layers.begin) * slice_bytes));
}

void BlockStorage::layer_arrived(SlotId slot, std::uint32_t layer) {
  LOCI_CHECK(layer < layers_.size(), "no such layer");
  std::atomic<std::uint32_t>& word = state(layers_[layer].group, slot);
  word.store(layers_[layer].index + 1, std::memory_order_release);
  wake_all(word);
}

void BlockStorage::fill_failed(std::uint32_t group, SlotId slot) {
  state(group, slot).fetch_or(kFailed, std::memory_order_release);
  wake_all(state(group, slot));
}

bool BlockStorage::comes_hidden(SlotId slot, std::uint32_t layer) const {
  return hidden(state(layers_[layer].group, slot).load(std::memory_order_acquire)) > 0;
}

bool BlockStorage::is_hidden(SlotId slot, std::uint32_t layer) const {
  const std::uint32_t now = state(layers_[layer].group, slot).load(std::memory_order_acquire);
  return slices(now) <= layers_[layer].index && hidden(now) > layers_[layer].index;
}

bool BlockStorage::is_awaited(SlotId slot, std::uint32_t layer) const {
  const std::uint32_t now = state(layers_[layer].group, slot).load(std::memory_order_acquire);
  return std::max(slices(now), hidden(now)) <= layers_[layer].index && (now & kFailed) == 0;
}

bool BlockStorage::await_layer(SlotId slot, std::uint32_t layer, Patience& patience) const {
  const std::atomic<std::uint32_t>& word = state(layers_[layer].group, slot);
  while (true) {
    const std::uint32_t now = word.load(std::memory_order_acquire);
    if (std::max(slices(now), hidden(now)) > layers_[layer].index) return true;
    if ((now & kFailed) != 0) return false;
    if (!patience.wait(word, now)) return false;
  }
}

bool BlockStorage::is_whole(std::uint32_t group, SlotId slot) const {
  return (state(group, slot).load(std::memory_order_acquire) & (kFailed | kLayersMask)) == layers_of(group);
}

void BlockStorage::write_hidden(SlotId slot, std::uint32_t layer, std::uint32_t position,
                                std::span<const std::byte> rows) {
  LOCI_CHECK(layer < layers_.size() && rows.size() < layout_.slice_bytes(), "not a layer's hidden states");
  const Layer place = layers_[layer];
  std::atomic<std::uint32_t>& word = state(place.group, slot);
  LOCI_CHECK(hidden(word.load(std::memory_order_relaxed)) == place.index, "hidden states come in order");
  // Said once, with the first layer: a pass may read it while later ones arrive.
  std::uint32_t& said = pools_[place.group].positions[slot.value];
  if (place.index == 0) said = position;
  LOCI_CHECK(said == position, "a block's layers are of one position");
  std::memcpy(slice(slot, layer), rows.data(), rows.size());
  word.fetch_add(kOneHidden, std::memory_order_release);
  wake_all(word);
}

std::uint32_t BlockStorage::position(SlotId slot, std::uint32_t layer) const {
  return pools_[layers_[layer].group].positions[slot.value];
}

std::optional<std::uint32_t> BlockStorage::claim_hidden(SlotId slot, std::uint32_t layer) {
  const Layer place = layers_[layer];
  std::atomic<std::uint32_t>& word = state(place.group, slot);
  std::uint32_t now = word.load(std::memory_order_acquire);
  while (slices(now) <= place.index && hidden(now) > slices(now)) {
    if ((now & kProjecting) != 0) {
      word.wait(now, std::memory_order_acquire);
      now = word.load(std::memory_order_acquire);
    } else if (word.compare_exchange_weak(now, now | kProjecting, std::memory_order_acq_rel)) {
      return groups_[place.group].layers[slices(now)];
    }
  }
  return std::nullopt;
}

void BlockStorage::projected(SlotId slot, std::uint32_t layer) {
  std::atomic<std::uint32_t>& word = state(layers_[layer].group, slot);
  word.fetch_sub(kProjecting - 1, std::memory_order_release);  // one slice more, and the claim ends
  wake_all(word);
}

void BlockStorage::set_whole(std::uint32_t group, SlotId slot) {
  state(group, slot).store(layers_of(group), std::memory_order_release);
}

}  // namespace loci::cpu
