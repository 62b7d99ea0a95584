// SPDX-License-Identifier: Apache-2.0
// Peers get exact copies of blocks from every tier, and blocks that cannot be read are reported as gone.
#include "loci/engine/mover/mover_serves.h"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/rounds_testing.h"
#include "loci/compute/backend_testing.h"
#include "loci/engine/mover/mover_desk.h"
#include "loci/engine/mover/peer_outlet.h"
#include "loci/engine/testing/mover_testing.h"

namespace loci {
namespace {

class Outlet final : public PeerOutlet {
 public:
  using Part = std::pair<std::uint32_t, std::uint32_t>;  // block, group
  void answered(PeerAnswer) override { ADD_FAILURE() << "movers answer no questions"; }
  void give(const PeerSlices& slices, std::unique_ptr<const PeerBytes> given) override {
    {
      const std::lock_guard lock(mutex_);
      const std::span<const std::byte> bytes = given->bytes();
      std::vector<std::byte>& part = given_[Part(slices.place.index, slices.group)];
      EXPECT_EQ(part.size(), slices.first * slice_bytes_.at(slices.group)) << "layers come in order";
      EXPECT_FALSE(bytes.empty());
      part.insert(part.end(), bytes.begin(), bytes.end());
      EXPECT_EQ(slices.is_last, part.size() == part_bytes_.at(slices.group));
      ++pieces_;
      if (keeps_) {
        kept_.push_back(std::move(given));
        return;
      }
    }
    given.reset();
  }
  void gone(PeerGone gone) override {
    const std::lock_guard lock(mutex_);
    gone_.emplace(gone.place.index, gone.groups);
  }
  std::map<Part, std::vector<std::byte>> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(given_, {});
  }
  std::set<std::pair<std::uint32_t, std::uint32_t>> gone() {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  void expect(const std::vector<LayerGroup>& groups) {
    for (const LayerGroup& group : groups) {
      slice_bytes_.push_back(group.layer_slice_bytes);
      part_bytes_.push_back(group.block_bytes);
    }
  }
  std::size_t pieces() {
    const std::lock_guard lock(mutex_);
    return std::exchange(pieces_, 0);
  }
  void keep() { keeps_ = true; }
  // All that it keeps, but for the last ones.
  void let_go(std::size_t but = 0) {
    while (kept_.size() > but) kept_.erase(kept_.begin());
  }
  std::size_t kept() {
    const std::lock_guard lock(mutex_);
    return kept_.size();
  }
  std::set<const std::byte*> places() {
    const std::lock_guard lock(mutex_);
    std::set<const std::byte*> places;
    for (const auto& given : kept_) places.insert(given->bytes().data());
    return places;
  }

 private:
  std::mutex mutex_;
  std::map<Part, std::vector<std::byte>> given_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> gone_;
  std::vector<std::uint64_t> slice_bytes_, part_bytes_;  // by group
  std::size_t pieces_ = 0;
  std::atomic<bool> keeps_{false};
  std::vector<std::unique_ptr<const PeerBytes>> kept_;
};

class MoverServesTest : public MoverTest {
 protected:
  void make_serving(MoverOptions options = {}, FakeDiskStore::Faults faults = {}) {
    options.peers = outlet_;
    make_mover(std::move(options), std::move(faults));
    outlet_->expect(backend_->info().groups);
  }
  std::vector<Move> serves(Tier from, std::uint32_t first) {
    std::vector<Move> all = moves(from, first, Tier::kShared, 0);
    for (std::uint32_t i = 0; i < all.size(); ++i) all[i].peer = PeerPlace{PeerReadId(1), i};
    return all;
  }
  bool is_lent() const { return !backend_->view(0, SlotId(0), {0, 1}).empty(); }
  // Of the blocks in the device's slots from `first` on.
  std::map<Outlet::Part, std::vector<std::byte>> on_device(std::uint32_t first) {
    std::map<Outlet::Part, std::vector<std::byte>> parts;
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      for (std::uint32_t g = 0; g < groups(); ++g) {
        const LayerGroup& group = backend_->info().groups[g];
        std::vector<std::byte>& part = parts[{block, g}];
        part.resize(group.block_bytes);
        const SavePiece piece{SlotId(first + block), part};
        backend_->save(g, {0, static_cast<std::uint32_t>(group.layers.size())}, {&piece, 1},
                       BytesHeld::kDuringCall);
      }
    }
    return parts;
  }

  const std::shared_ptr<Outlet> outlet_ = std::make_shared<Outlet>();
};

TEST_P(MoverServesTest, PeersGetWhatIsThere) {
  make_serving();
  const auto expected = on_device(0);
  carry_out(serves(Tier::kDevice, 0));
  EXPECT_EQ(outlet_->take(), expected);
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  carry_out(moves(Tier::kHost, 4, Tier::kDisk, 9));
  overwrite(0);
  carry_out(serves(Tier::kHost, 4));
  EXPECT_EQ(outlet_->take(), expected);
  carry_out(serves(Tier::kDisk, 9));
  EXPECT_EQ(outlet_->take(), expected);
  EXPECT_TRUE(outlet_->gone().empty());
  const MoverStats stats = mover_->stats();
  EXPECT_EQ(stats.peer_serve.moves_total, 3 * kBlocks);
  EXPECT_EQ(stats.peer_serve.bytes_total, 3 * kBlocks * backend_->info().block_bytes);
}

// From every tier, and the last rounds from the disk.
TEST_P(MoverServesTest, LayersComeInRounds) {
  make_serving();
  const auto expected = on_device(0);
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  carry_out(moves(Tier::kHost, 4, Tier::kDisk, 9));
  const auto in_rounds = [&](Tier from, std::uint32_t first, PeerRounds rounds) {
    std::vector<Move> all = serves(from, first);
    for (Move& move : all) move.peer->rounds = rounds;
    carry_out(std::move(all));
  };
  const auto places =
      std::to_array<std::pair<Tier, std::uint32_t>>({{Tier::kDevice, 0}, {Tier::kHost, 4}, {Tier::kDisk, 9}});
  for (const std::uint8_t of : {2, 3, 8}) {  // of eight some have no layers
    for (std::uint8_t round = 0; round < of; ++round) {
      const auto& [tier, first] = places[round % places.size()];
      in_rounds(tier, first, {.begin = round, .end = static_cast<std::uint8_t>(round + 1), .of = of});
    }
    EXPECT_EQ(outlet_->take(), expected) << int{of};
    EXPECT_GT(outlet_->pieces(), kBlocks * groups());
    in_rounds(Tier::kDevice, 0, {.begin = 0, .end = 1, .of = of});
    in_rounds(Tier::kDisk, 9, {.begin = 1, .end = of, .of = of});
    EXPECT_EQ(outlet_->take(), expected) << int{of};
  }
  const std::uint64_t served = 6 * kBlocks * backend_->info().block_bytes;
  EXPECT_EQ(mover_->stats().peer_serve.bytes_total, served);
}

TEST_P(MoverServesTest, WhatCannotBeReadIsGone) {
  make_serving();
  std::vector<Move> nothing = serves(Tier::kDisk, 9);  // nothing was saved there
  const std::vector<OperationId> begun = ids(nothing);
  mover_->start(std::move(nothing), {});
  for (const OperationId id : begun) EXPECT_NE(ends_.wait(id), MoveResult::kDone);
  EXPECT_TRUE(outlet_->take().empty());
  EXPECT_EQ(outlet_->gone().size(), kBlocks * groups());
}

TEST_P(MoverServesTest, AMoveEndsWhenItsBytesAreTaken) {
  make_serving();
  outlet_->keep();
  std::vector<Move> all = serves(Tier::kDevice, 0);
  const std::vector<OperationId> begun = ids(all);
  mover_->start(std::move(all), {});
  while (outlet_->take().empty()) std::this_thread::yield();
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));  // saves go on beside
  while (mover_->stats().queued > kBlocks) std::this_thread::yield();
  EXPECT_EQ(mover_->stats().serves_queued, kBlocks);
  EXPECT_EQ(ends_.count(), kBlocks);
  outlet_->let_go();
  for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
  EXPECT_EQ(mover_->stats().serves_queued, 0u);
}

// While they are on their way twice nobody has copied them.
TEST_P(MoverServesTest, WhatTheHostCanReadIsLent) {
  if (!is_lent()) GTEST_SKIP() << "the host cannot read this device's memory";
  make_serving();
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  outlet_->keep();
  const std::size_t parts = kBlocks * groups();
  std::set<const std::byte*> places;
  for (std::uint32_t block = 0; block < kBlocks; ++block) {
    for (std::uint32_t g = 0; g < groups(); ++g)
      places.insert(backend_->view(g, SlotId(block), {0, 1}).data());
  }
  std::size_t kept = 0;
  for (const auto& [tier, slot] : {std::pair{Tier::kDevice, 0u}, {Tier::kHost, 4u}, {Tier::kHost, 4u}}) {
    mover_->start(serves(tier, slot), {});
    kept += parts;
    while (outlet_->kept() < kept) std::this_thread::yield();
    if (tier == Tier::kDevice) {
      EXPECT_EQ(outlet_->places(), places);
    }
    outlet_->take();
  }
  EXPECT_EQ(outlet_->places().size(), 2 * parts) << "of the device and of host memory";
  outlet_->let_go();
}

TEST_P(MoverServesTest, MemoryIsUsedAgainWhileSomeIsOnItsWay) {
  if (is_lent()) GTEST_SKIP() << "nothing is copied";
  make_serving();
  outlet_->keep();
  const auto expected = on_device(0);
  const std::size_t parts = kBlocks * groups();
  const auto serve = [&](std::size_t until) {
    std::vector<Move> all = serves(Tier::kDevice, 0);
    mover_->start(std::move(all), {});
    while (outlet_->kept() < until) std::this_thread::yield();
    EXPECT_EQ(outlet_->take(), expected);
    return outlet_->places();
  };
  const std::set<const std::byte*> first = serve(parts);
  EXPECT_EQ(first.size(), parts);
  outlet_->let_go(1);
  const std::set<const std::byte*> second = serve(parts + 1);
  EXPECT_EQ(second.size(), parts + 1) << "what is on its way is nobody else's";
  std::size_t again = 0;
  for (const std::byte* place : second) again += first.count(place);
  EXPECT_EQ(again, parts);
  outlet_->let_go();
}

// A layer of three does not hold the memory of all.
TEST_P(MoverServesTest, SmallPiecesTakeNoLargeMemory) {
  if (groups() > 1 || is_lent()) GTEST_SKIP() << "of copies that have three layers";
  make_serving();
  outlet_->keep();
  const auto serve = [&](PeerRounds rounds, std::size_t until) {
    std::vector<Move> all = serves(Tier::kDevice, 0);
    for (Move& move : all) move.peer->rounds = rounds;
    mover_->start(std::move(all), {});
    while (outlet_->kept() < until) std::this_thread::yield();
    return outlet_->places();
  };
  const std::set<const std::byte*> large = serve({}, kBlocks);
  EXPECT_EQ(large.size(), kBlocks);
  outlet_->let_go(1);
  outlet_->take();
  const std::set<const std::byte*> small = serve({.begin = 0, .end = 1, .of = 3}, 1 + kBlocks);
  EXPECT_EQ(small.size(), 1 + kBlocks);
  std::size_t again = 0;
  for (const std::byte* place : small) again += large.count(place);
  EXPECT_EQ(again, 1u) << "the one that was not let go";
  outlet_->let_go();
}

TEST_P(MoverServesTest, WhatTheDiskDoesNotBringIsGivenUp) {
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  make_serving({.load_limit = 20 * kNanosPerMilli}, {.read = [open](const BlockRead&, std::uint32_t) {
                 open.wait();
                 return Status();
               }});
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 4));
  std::vector<Move> all = serves(Tier::kDisk, 4);
  const std::vector<OperationId> begun = ids(all);
  mover_->start(std::move(all), {});
  for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kTooSlow);
  EXPECT_EQ(outlet_->gone().size(), kBlocks * groups());
  gate.set_value();
  mover_.reset();  // waits for the store
  EXPECT_TRUE(outlet_->take().empty()) << "what comes late is dropped";
}

// A device whose memory the host can read, with a block of five layers that came as hidden states. Two of
// them have as many bytes as a step of a serve may take.
class HiddenBackend final : public EmptyBackend {
 public:
  static constexpr std::uint64_t kSliceBytes = 128u << 10, kBlockBytes = 5 * kSliceBytes;

  HiddenBackend() : EmptyBackend(make_info()) {}
  std::span<const std::byte> view(std::uint32_t, SlotId, LayerRange layers) const override {
    projected_ = std::max(projected_, layers.end);
    return std::span(block_).subspan(layers.begin * kSliceBytes, (layers.end - layers.begin) * kSliceBytes);
  }
  std::uint32_t layers_projected() const { return projected_; }
  const std::vector<std::byte>& block() const { return block_; }

 private:
  static BackendInfo make_info() {
    BackendInfo info;
    info.layers = 5;
    info.groups.push_back(
        {.layers = {0, 1, 2, 3, 4}, .layer_slice_bytes = kSliceBytes, .block_bytes = kBlockBytes});
    return info;
  }
  const std::vector<std::byte> block_ = std::vector<std::byte>(kBlockBytes, std::byte{7});
  mutable std::uint32_t projected_ = 0;
};

// Loads go on between two steps, so no step may project them all.
TEST(MoverServes, HiddenStatesAreProjectedInSteps) {
  HiddenBackend backend;
  const HostTier host = std::move(HostTier::make(backend, {})).value();
  const SystemClock clock;
  MoverDesk desk(backend.info(), clock);
  const MoverOptions options;
  Outlet outlet;
  outlet.expect(backend.info().groups);
  outlet.keep();
  MoverServes serves({backend, host, desk, options}, nullptr, &outlet);
  Move move{.id = OperationId(1), .to = Tier::kShared, .peer = PeerPlace{}};
  move.parts.push_back({.group = 0, .from = SlotId(0)});
  desk.taken({move});
  serves.add({move});
  for (const std::uint32_t projected : {2, 4, 5}) {
    EXPECT_EQ(outlet.kept(), 0u) << "it is lent whole";
    EXPECT_TRUE(serves.step());
    EXPECT_EQ(backend.layers_projected(), projected);
  }
  EXPECT_EQ(outlet.places(), std::set{backend.block().data()});
  EXPECT_EQ(outlet.take().at({0, 0}), backend.block());
  EXPECT_FALSE(serves.step());
  EXPECT_TRUE(desk.take_ended().empty());
  outlet.let_go();
  EXPECT_EQ(desk.take_ended().size(), 1u);
}

// A peer's thread reports the last end, and the engine, which hears of it, ends the mover. What reports may
// then touch nothing of it: builds with sanitizers see whether it does.
TEST(MoverDesk, MayGoWhenTheLastEndIsHeardOf) {
  const BackendInfo info;
  const SystemClock clock;
  const Move served{.id = OperationId(1), .peer = PeerPlace{}};
  for (std::uint64_t round = 0; round < test_rounds(2000); ++round) {
    auto desk = std::make_unique<MoverDesk>(info, clock);
    desk->taken({served});
    std::thread peer([&desk = *desk, &served] { desk.end(served, MoveResult::kDone, 0); });
    while (desk->take_ended().empty()) std::this_thread::yield();
    desk.reset();
    peer.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, MoverServesTest,
                         testing::Values(Case{"one", {0, 0, 0}}, Case{"two", {0, 40, 0, 40}},
                                         Case{"copied", {0, 0, 0}, 2}, Case{"two_copied", {0, 40, 0, 40}, 2}),
                         case_name);

}  // namespace
}  // namespace loci
