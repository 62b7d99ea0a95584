// SPDX-License-Identifier: Apache-2.0
// Compares the pools with a naive model: in whatever order loads, saves and passes are queued, a pass reads
// the bytes of the model, and learns exactly which blocks will not come. On the simulated device streams run
// in any order that events allow, and not before the host waits, so a missing event shows as old bytes.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/compute/cuda/block_pool.h"
#include "loci/compute/cuda/block_pool_testing.h"

namespace loci::cuda {
namespace {

// Slots and host blocks with what they ought to hold, under the core's rules: what is written is nobody
// else's, what is read was written by passes that have ended or is being loaded.
class World {
 public:
  World(BlockPool& pool, const Device& device, std::uint64_t seed)
      : pool_(pool), device_(device), random_(seed), compute_(device) {
    slice_ = pool.groups()[0].layer_slice_bytes;
    for (std::uint32_t g = 0; g < pool.groups().size(); ++g) {
      const std::uint64_t block = pool.groups()[g].block_bytes;
      host_.push_back(std::move(pool.allocate_host(block * kHostBlocks)).value());
      groups_.emplace_back();
      groups_[g].slots.resize(kSlots);
      groups_[g].blocks.resize(kHostBlocks);
      for (Slot& slot : groups_[g].slots) slot.bytes.resize(block);
      for (std::uint32_t b = 0; b < kHostBlocks; ++b) scribble(g, b);
    }
  }

  void step() {
    switch (random_.below(8)) {
      case 0: begin_load(); break;
      case 1:
      case 2:
      case 3: go_on_loading(); break;
      case 4: save(); break;
      case 5: begin_pass(); break;
      case 6: go_on_with_pass(); break;
      case 7: end_moves(); break;
    }
  }
  void finish() {
    while (!loads_.empty()) go_on_loading();
    while (pass_) go_on_with_pass();
    end_moves();
  }
  std::uint64_t compared() const { return compared_; }
  std::uint64_t poisoned() const { return poisoned_; }

 private:
  struct Slot {
    Bytes bytes;
    bool moving = false;        // the target of a load that has not ended
    std::uint32_t readers = 0;  // saves, and the pass
    std::uint32_t queued = 0;   // layers, of a load
    bool failed = false;
    bool written = false;  // by the pass
  };
  struct Block {
    Bytes bytes;
    bool busy = false;  // the source or target of a move that has not ended
  };
  struct Group {
    std::vector<Slot> slots;
    std::vector<Block> blocks;
  };
  struct Move {
    std::uint32_t group = 0, slot = 0, block = 0;
  };
  struct Read {
    std::uint32_t group = 0;
    std::vector<SlotId> slots;
    bool poisoned = false;
    std::vector<std::pair<Memory, Bytes>> outs;  // read, wanted
  };
  struct Pass {
    std::uint32_t layer = 0;
    std::vector<Read> spans;
    Move target;  // a slot that it writes
    Memory source;
  };

  std::byte* host(std::uint32_t group, std::uint32_t block, std::uint32_t index) {
    return host_[group].data() + block * pool_.groups()[group].block_bytes + index * slice_;
  }
  void scribble(std::uint32_t group, std::uint32_t block) {
    Block& target = groups_[group].blocks[block];
    target.bytes.resize(pool_.groups()[group].block_bytes);
    const auto value = static_cast<std::byte>(random_.below(256));
    for (std::byte& byte : target.bytes) byte = value ^ static_cast<std::byte>(random_.below(16));
    std::copy(target.bytes.begin(), target.bytes.end(), host(group, block, 0));
  }
  std::uint32_t layers(std::uint32_t group) const {
    return static_cast<std::uint32_t>(pool_.groups()[group].layers.size());
  }
  std::uint32_t any_group() { return static_cast<std::uint32_t>(random_.below(groups_.size())); }
  std::optional<std::uint32_t> free_block(std::uint32_t group) {
    const auto block = static_cast<std::uint32_t>(random_.below(kHostBlocks));
    return groups_[group].blocks[block].busy ? std::nullopt : std::optional(block);
  }
  std::optional<std::uint32_t> unused_slot(std::uint32_t group) {
    const auto slot = static_cast<std::uint32_t>(random_.below(kSlots));
    const Slot& found = groups_[group].slots[slot];
    return found.moving || found.readers > 0 || found.written ? std::nullopt : std::optional(slot);
  }

  void begin_load() {
    const std::uint32_t g = any_group();
    const auto slot = unused_slot(g);
    const auto block = free_block(g);
    if (!slot || !block) return;
    Slot& target = groups_[g].slots[*slot];
    target = {.bytes = groups_[g].blocks[*block].bytes, .moving = true};
    groups_[g].blocks[*block].busy = true;
    pool_.begin_fill(g, SlotId(*slot));
    loads_.push_back({g, *slot, *block});
  }

  // The next layers of one load, or of several that are as far; from pinned memory or from any.
  void go_on_loading() {
    if (loads_.empty()) return;
    const Move first = loads_[random_.below(loads_.size())];
    const std::uint32_t g = first.group;
    const std::uint32_t queued = groups_[g].slots[first.slot].queued;
    if (random_.below(12) == 0) {
      groups_[g].slots[first.slot].failed = true;
      pool_.fill_failed(g, SlotId(first.slot));
      over(first);
      return;
    }
    const auto end = queued + 1 + static_cast<std::uint32_t>(random_.below(layers(g) - queued));
    if (random_.below(3) == 0) {
      Bytes slices(host(g, first.block, queued), host(g, first.block, end));
      const LoadPiece piece{SlotId(first.slot), slices};
      pool_.load(g, {queued, end}, {&piece, 1}, BytesHeld::kDuringCall);
      std::fill(slices.begin(), slices.end(), std::byte{0xee});
      advance(first, end);
      return;
    }
    std::vector<LoadPiece> pieces;
    std::vector<Move> brought;
    for (const Move& load : loads_) {
      if (load.group != g || groups_[g].slots[load.slot].queued != queued) continue;
      pieces.push_back({SlotId(load.slot), {host(g, load.block, queued), host(g, load.block, end)}});
      brought.push_back(load);
    }
    pool_.load(g, {queued, end}, pieces, BytesHeld::kUntilCopied);
    for (const Move& load : brought) advance(load, end);
  }
  void advance(const Move& load, std::uint32_t queued) {
    groups_[load.group].slots[load.slot].queued = queued;
    if (queued == layers(load.group)) over(load);
  }
  void over(const Move& load) {
    std::erase_if(loads_,
                  [&](const Move& each) { return each.group == load.group && each.slot == load.slot; });
    ended_loads_.push_back(load);
  }

  // Of a slot that is whole, also where its copies are still on their way.
  void save() {
    const std::uint32_t g = any_group();
    const auto slot = static_cast<std::uint32_t>(random_.below(kSlots));
    Slot& source = groups_[g].slots[slot];
    const auto block = free_block(g);
    if (!block || source.written || source.failed || (source.moving && source.queued < layers(g))) return;
    ++source.readers;
    groups_[g].blocks[*block] = {.bytes = source.bytes, .busy = true};
    const std::uint32_t middle = static_cast<std::uint32_t>(random_.below(layers(g)));
    for (const LayerRange range : {LayerRange{0, middle}, LayerRange{middle, layers(g)}}) {
      if (range.begin == range.end) continue;
      const SavePiece piece{SlotId(slot), {host(g, *block, range.begin), host(g, *block, range.end)}};
      pool_.save(g, range, {&piece, 1}, BytesHeld::kUntilCopied);
    }
    saves_.push_back({g, slot, *block});
  }

  // Waits for the moves that are over; then their ends are others', and host blocks hold other bytes.
  void end_moves() {
    std::latch left(2);
    pool_.after_loads([&](const Status&) { left.count_down(); });
    pool_.after_saves([&](const Status&) { left.count_down(); });
    left.wait();
    for (const Move& save : saves_) {
      Block& target = groups_[save.group].blocks[save.block];
      ASSERT_EQ(std::memcmp(host(save.group, save.block, 0), target.bytes.data(), target.bytes.size()), 0);
      ++compared_;
      target.busy = false;
      --groups_[save.group].slots[save.slot].readers;
    }
    for (const Move& load : ended_loads_) {
      groups_[load.group].blocks[load.block].busy = false;
      groups_[load.group].slots[load.slot].moving = false;
      scribble(load.group, load.block);
    }
    saves_.clear();
    ended_loads_.clear();
  }

  void begin_pass() {
    const std::uint32_t g = any_group();
    const auto target = unused_slot(g);
    if (pass_ || !target) return;
    pass_ = Pass{};
    for (int i = 0; i < 3; ++i) {
      Read& span = pass_->spans.emplace_back();
      span.group = any_group();
      for (std::uint32_t s = 0; s < kSlots; ++s) {
        Slot& slot = groups_[span.group].slots[s];
        if (random_.below(3) != 0 || (span.group == g && s == *target)) continue;
        span.slots.emplace_back(s);
        ++slot.readers;
      }
    }
    pass_->target = {g, *target, 0};
    pass_->source = pinned(pool_.groups()[g].block_bytes);
    Slot& slot = groups_[g].slots[*target];
    slot = {.bytes = Bytes(pass_->source.size(), static_cast<std::byte>(random_.below(256))),
            .written = true};
    std::copy(slot.bytes.begin(), slot.bytes.end(), pass_->source.data());
    pool_.set_whole(g, SlotId(*target));
  }

  // One layer of the pass, where nothing that it reads is yet to be queued.
  void go_on_with_pass() {
    if (!pass_) return;
    const std::uint32_t layer = pass_->layer;
    if (layer == 5) {
      end_pass();
      return;
    }
    const std::uint32_t g = pool_.group_of(layer);
    const auto& members = pool_.groups()[g].layers;
    const auto index =
        static_cast<std::uint32_t>(std::find(members.begin(), members.end(), layer) - members.begin());
    const auto waits = [&](const Read& span) {
      return span.group == g && std::any_of(span.slots.begin(), span.slots.end(), [&](SlotId id) {
               const Slot& slot = groups_[g].slots[id.value];
               return slot.moving && !slot.failed && slot.queued <= index;
             });
    };
    if (std::any_of(pass_->spans.begin(), pass_->spans.end(), waits)) return;
    ++pass_->layer;
    if (pass_->target.group == g)
      compute_.copy(at(pass_->target.slot, layer), pass_->source.data() + index * slice_, slice_);
    for (Read& span : pass_->spans) {
      if (span.group != g || span.poisoned) continue;
      const bool lacks = std::any_of(span.slots.begin(), span.slots.end(), [&](SlotId id) {
        const Slot& slot = groups_[g].slots[id.value];
        return slot.failed && slot.queued <= index;
      });
      ASSERT_EQ(pool_.wait_layer(layer, span.slots, compute_), !lacks);
      span.poisoned = lacks;
      if (lacks) ++poisoned_;
      for (const SlotId id : span.slots) {
        if (lacks) break;
        const auto begin =
            groups_[g].slots[id.value].bytes.begin() + static_cast<std::ptrdiff_t>(index * slice_);
        span.outs.emplace_back(pinned(slice_), Bytes(begin, begin + static_cast<std::ptrdiff_t>(slice_)));
        compute_.copy(span.outs.back().first.data(), at(id.value, layer), slice_);
      }
    }
  }
  void end_pass() {
    compute_.synchronize();
    for (const Read& span : pass_->spans) {
      for (const auto& [out, wanted] : span.outs) {
        ASSERT_EQ(std::memcmp(out.data(), wanted.data(), wanted.size()), 0);
        ++compared_;
      }
      for (const SlotId id : span.slots) --groups_[span.group].slots[id.value].readers;
    }
    groups_[pass_->target.group].slots[pass_->target.slot].written = false;
    pass_.reset();
  }

  std::byte* at(std::uint32_t slot, std::uint32_t layer) const { return pool_.layer(layer).keys(slot, 0); }
  Memory pinned(std::uint64_t bytes) const {
    return std::move(Memory::allocate(device_, MemoryKind::kPinned, bytes, "test")).value();
  }

  BlockPool& pool_;
  const Device& device_;
  Random random_;
  Stream compute_;
  std::uint64_t slice_ = 0;
  std::vector<HostMemory> host_;
  std::vector<Group> groups_;
  std::vector<Move> loads_, ended_loads_, saves_;
  std::optional<Pass> pass_;
  std::uint64_t compared_ = 0, poisoned_ = 0;
};

class BlockPoolWorldTest : public BlockPoolTest {};

TEST_F(BlockPoolWorldTest, ReadsWhatTheModelSays) {
  std::uint64_t compared = 0, poisoned = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    World world(*pool_, device(), seed);
    for (std::uint32_t g = 0; g < 2; ++g) {  // slots hold zeros, as the model's
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        pool_->set_whole(g, SlotId(slot));
        for (const std::uint32_t layer : pool_->groups()[g].layers)
          load(SlotId(slot), layer, Bytes(slice_bytes()));
      }
    }
    ASSERT_TRUE(after_loads().ok());
    for (int step = 0; step < 400 && !HasFatalFailure(); ++step) world.step();
    world.finish();
    compared += world.compared();
    poisoned += world.poisoned();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(compared, 1000u);
  EXPECT_GT(poisoned, 20u);
}

}  // namespace
}  // namespace loci::cuda
