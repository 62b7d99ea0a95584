// SPDX-License-Identifier: Apache-2.0
// Blocks that go to the disk as hidden states and come back: the bits of what was computed, at their own
// positions and at others.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/compute/backend_testing.h"
#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/hidden_form.h"
#include "loci/engine/mover/hidden_captures.h"
#include "loci/engine/testing/mover_testing.h"

namespace loci {
namespace {

using Bytes = std::vector<std::byte>;

class MoverHiddenTest : public testing::Test {
 protected:
  MoverHiddenTest()
      : model_(TestModel::make({.type = TensorType::kQ8_0, .vocabulary = kVocabulary})),
        backend_(std::move(make_cpu_backend(model_->spec, {.threads = 2})).value()) {
    EXPECT_TRUE(backend_->allocate_blocks(0, kSlots).ok());
    HiddenCapturesOptions captured{.places = 8, .share = {.percent = 100}};
    captured.before_copy = [this] { EXPECT_TRUE(eventually([this] { return !slow_; })); };
    captures_ = std::move(HiddenCaptures::make(*backend_, std::move(captured))).value();
    const LayerGroup& group = backend_->info().groups[0];
    const auto layers = static_cast<std::uint32_t>(group.layers.size());
    const std::vector<DiskGroup> disk = {
        {.layers = layers, .layer_slice_bytes = group.layer_slice_bytes, .slots = kSlots},
        {.layers = layers,
         .layer_slice_bytes = hidden_form(backend_->info())->slice_bytes(),
         .slots = kSlots,
         .form = StateForm::kHidden}};
    MoverOptions options;
    options.disk = std::make_unique<FakeDiskStore>(disk_, disk);
    options.captures = captures_.get();
    mover_ = std::move(Mover::make(std::move(options), *backend_, clock_, ends_.listener())).value();
    compute();
  }

  // The prompt's blocks, in slots 0, 1, 2.
  void compute() {
    Pass pass;
    Span& span = pass.spans.emplace_back();
    span.tokens = prompt_;
    span.layers = {0, model_->spec.layer_count()};
    span.tables = {BlockTable{{SlotId(0), SlotId(1), SlotId(2)}}};
    captures_->begin(pass);
    std::vector<SpanResult> results;
    run_pass(*backend_, pass, results);
    captures_->end(results);
  }
  Move move(Tier from, std::uint32_t from_slot, Tier to, std::uint32_t to_slot, std::uint32_t block,
            StateForm form) {
    Move move{.id = OperationId(++last_move_), .from = from, .to = to, .form = form};
    move.parts.push_back({.from = SlotId(from_slot), .to = SlotId(to_slot)});
    move.entry.key.bytes[0] = static_cast<std::uint8_t>(1 + block);
    move.entry.depth = block + 1;
    std::copy_n(prompt_.begin() + block * kBlockTokens, kBlockTokens, move.entry.tokens.begin());
    return move;
  }
  MoveResult carry_out(const Move& move) {
    mover_->start({move}, {});
    return ends_.wait(move.id);
  }
  std::vector<Bytes> state(std::uint32_t slot) const {
    std::vector<Bytes> all;
    for (std::uint32_t layer = 0; layer < model_->spec.layer_count(); ++layer) {
      all.emplace_back(backend_->info().groups[0].layer_slice_bytes);
      save_slice(*backend_, SlotId(slot), layer, all.back());
    }
    return all;
  }

  const Tokens prompt_ = text(1, kBlocks* kBlockTokens);
  std::unique_ptr<TestModel> model_;
  std::unique_ptr<Backend> backend_;
  std::atomic<bool> slow_{false};  // rows are not copied
  std::unique_ptr<HiddenCaptures> captures_;
  SystemClock clock_;
  FakeDisk disk_;
  Ends ends_;
  std::uint64_t last_move_ = 0;
  std::unique_ptr<Mover> mover_;  // last: it ends first
};

constexpr StateForm kKv = StateForm::kKeysAndValues, kHidden = StateForm::kHidden;

TEST_F(MoverHiddenTest, WhatComesBackIsWhatWasComputed) {
  for (std::uint32_t block = 0; block < kBlocks; ++block) {
    ASSERT_EQ(carry_out(move(Tier::kDevice, block, Tier::kDisk, block, block, kHidden)), MoveResult::kDone);
    ASSERT_EQ(carry_out(move(Tier::kDevice, block, Tier::kDisk, block, block, kKv)), MoveResult::kDone);
    EXPECT_LT((disk_.slots.at({1, SlotId(block)}).bytes.size()),
              (disk_.slots.at({0, SlotId(block)}).bytes.size()));
    ASSERT_EQ(carry_out(move(Tier::kDisk, block, Tier::kDevice, 10, block, kHidden)), MoveResult::kDone);
    EXPECT_EQ(state(10), state(block));
    // At other positions, in either form.
    std::vector<std::vector<Bytes>> rotated;
    for (const StateForm form : {kKv, kHidden}) {
      Move there = move(Tier::kDisk, block, Tier::kDevice, 11, block, form);
      there.rotate_by = -64;
      ASSERT_EQ(carry_out(there), MoveResult::kDone);
      rotated.push_back(state(11));
    }
    EXPECT_EQ(rotated[0], rotated[1]);
    EXPECT_NE(rotated[0], state(block));
  }
}

TEST_F(MoverHiddenTest, WhatWasNotCapturedIsNotWritten) {
  ASSERT_EQ(carry_out(move(Tier::kDevice, 0, Tier::kDisk, 0, 0, kHidden)), MoveResult::kDone);
  EXPECT_EQ(carry_out(move(Tier::kDevice, 0, Tier::kDisk, 5, 0, kHidden)), MoveResult::kNotCaptured)
      << "it was given away";
  // A load takes the slot's place.
  ASSERT_EQ(carry_out(move(Tier::kDisk, 0, Tier::kDevice, 1, 0, kHidden)), MoveResult::kDone);
  EXPECT_EQ(carry_out(move(Tier::kDevice, 1, Tier::kDisk, 6, 1, kHidden)), MoveResult::kNotCaptured);
  EXPECT_FALSE(disk_.slots.contains({1, SlotId(6)}));
  EXPECT_EQ(mover_->stats().disk_save.failures_total, 0u) << "nothing has failed";
}

// A save waits until the rows of its block are copied; what comes meanwhile does not.
TEST_F(MoverHiddenTest, LoadsGoOnWhileASaveWaitsForItsRows) {
  ASSERT_EQ(carry_out(move(Tier::kDevice, 0, Tier::kDisk, 0, 0, kHidden)), MoveResult::kDone);
  slow_ = true;
  compute();
  const Move save = move(Tier::kDevice, 1, Tier::kDisk, 1, 1, kHidden);
  mover_->start({save}, {});
  const Move load = move(Tier::kDisk, 0, Tier::kDevice, 10, 0, kHidden);
  mover_->start({load}, {});
  EXPECT_TRUE(eventually([&] { return ends_.count() == 2; })) << "the load has ended";
  slow_ = false;
  EXPECT_EQ(ends_.wait(load.id), MoveResult::kDone);
  EXPECT_EQ(ends_.wait(save.id), MoveResult::kDone);
}

}  // namespace
}  // namespace loci
