// SPDX-License-Identifier: Apache-2.0
// Hidden states (HCache §3.2): captured while a prompt is computed, and projected to exactly the bits that
// computing gave, with any number of threads and any instruction set, for all tensor types and every family's
// layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "loci/base/random.h"
#include "loci/compute/backend_testing.h"
#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/cpu/instruction_set.h"
#include "loci/compute/cpu/shapes_testing.h"
#include "loci/compute/hidden_form.h"
#include "loci/compute/model_testing.h"

namespace loci {
namespace {

using Bits = std::vector<std::uint32_t>;
using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kBlocks = 3;  // that are hidden states
constexpr std::uint32_t kHidden = kBlocks * kBlockTokens;
constexpr std::uint32_t kBehind = 5, kTokens = kHidden + kBehind;

std::unique_ptr<Backend> make_backend(const TestModel& model, StateType type, InstructionSet set,
                                      std::uint32_t threads, std::uint32_t slots = 12) {
  Result<std::unique_ptr<Backend>> backend = make_cpu_backend(model.spec, {threads, set, type});
  LOCI_CHECK(backend.ok(), "the model is served");
  for (std::uint32_t group = 0; group < (*backend)->info().groups.size(); ++group)
    LOCI_CHECK((*backend)->allocate_blocks(group, slots).ok(), "there is memory");
  return std::move(*backend);
}

Span make_span(const Backend& backend, const std::vector<TokenId>& tokens, std::uint32_t begin,
               std::uint32_t end, std::uint32_t first_slot, LogitsWanted logits) {
  Span span;
  span.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
  span.position = begin;
  span.layers = {0, backend.info().layers};
  std::vector<SlotId> slots;
  for (std::uint32_t i = 0; i < (end + kBlockTokens - 1) / kBlockTokens; ++i)
    slots.emplace_back(first_slot + i);
  span.tables.assign(backend.info().groups.size(), BlockTable{slots});
  span.logits = logits;
  return span;
}

Bits bits_of(std::span<const float> values) {
  Bits bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size_bytes());
  return bits;
}

// What computing leaves of a random sequence, and what it consumed.
struct Computed {
  const std::uint32_t blocks, hidden = blocks * kBlockTokens;
  std::vector<TokenId> tokens;
  std::vector<Bytes> rows;                 // [layer]: hidden states of the first `hidden` tokens
  std::vector<std::vector<Bytes>> slices;  // [layer][block]
  Bits logits;                             // of the tokens behind them

  // In random chunks.
  Computed(const TestModel& model, StateType type, std::uint64_t seed, std::uint32_t block_count = kBlocks)
      : blocks(block_count) {
    Random random(seed);
    const std::uint32_t all = hidden + kBehind;
    for (std::uint32_t i = 0; i < all; ++i)
      tokens.emplace_back(static_cast<std::uint32_t>(random.below(model.spec.vocabulary)));
    const auto backend = make_backend(model, type, InstructionSet::kPlain, 1, blocks + 1);
    const std::uint32_t layers = backend->info().layers;
    const std::uint64_t row_bytes = backend->info().hidden_row_bytes;
    rows.assign(layers, Bytes(hidden * row_bytes));
    std::vector<SpanResult> results;
    for (std::uint32_t done = 0; done < hidden;) {
      const auto count = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(hidden - done, 1 + random.below(random.below(2) == 0 ? 3 : 60)));
      Pass pass;
      pass.spans.push_back(make_span(*backend, tokens, done, done + count, 0, LogitsWanted::kLast));
      for (Bytes& layer : rows)
        pass.spans[0].capture.push_back(std::span(layer).subspan(done * row_bytes, count * row_bytes));
      run_pass(*backend, pass, results);
      done += count;
    }
    run_pass(*backend, {{}, {}, {make_span(*backend, tokens, hidden, all, 0, LogitsWanted::kAll)}}, results);
    logits = bits_of(results[0].logits);
    slices.assign(layers, std::vector<Bytes>(blocks));
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      for (std::uint32_t block = 0; block < blocks; ++block) {
        slices[layer][block].resize(backend->info().groups[0].layer_slice_bytes);
        save_slice(*backend, SlotId(block), layer, slices[layer][block]);
      }
    }
  }
  std::span<const std::byte> block(std::uint32_t layer, std::uint32_t number) const {
    const std::size_t bytes = rows[layer].size() / blocks;
    return std::span(rows[layer]).subspan(number * bytes, bytes);
  }
};

class HiddenTest : public testing::TestWithParam<std::tuple<StateType, NamedShape>> {
 protected:
  const StateType type_ = std::get<0>(GetParam());
  const std::unique_ptr<TestModel> model_ = std::get<1>(GetParam()).make();
  const Computed computed_{*model_, type_, 7};
  const std::uint32_t layers_ = model_->spec.layer_count();
  std::vector<SpanResult> results_;

  std::unique_ptr<Backend> backend(InstructionSet set, std::uint32_t threads) const {
    return make_backend(*model_, type_, set, threads);
  }
  Pass pass_behind(const Backend& backend, std::uint32_t first_slot) const {
    return {{}, {}, {make_span(backend, computed_.tokens, kHidden, kTokens, first_slot, LogitsWanted::kAll)}};
  }
  void bring(Backend& backend, std::uint32_t layer, std::uint32_t block, std::uint32_t first_slot) const {
    backend.load_hidden(0, SlotId(first_slot + block), layer, block * kBlockTokens,
                        computed_.block(layer, block));
  }
  void expect_slices(const Backend& backend, std::uint32_t first_slot) const {
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      for (std::uint32_t block = 0; block < kBlocks; ++block) {
        const SlotId slot(first_slot + block);
        const auto [group, index] = place_of(backend.info().groups, layer);
        // (Whichever is first projects what nobody has read.)
        const auto expect_view = [&, group = group, index = index] {
          EXPECT_TRUE(std::ranges::equal(backend.view(group, slot, {index, index + 1}),
                                         computed_.slices[layer][block]));
        };
        if (block % 2 == 0) expect_view();
        Bytes slice(computed_.slices[layer][block].size());
        save_slice(backend, slot, layer, slice);
        expect_view();
        ASSERT_EQ(slice, computed_.slices[layer][block]) << "layer " << layer << ", block " << block;
      }
    }
  }
};

TEST_P(HiddenTest, WhatIsProjectedIsWhatWasComputed) {
  for (const InstructionSet set : available_instruction_sets()) {
    const auto other = backend(set, 1);
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      for (std::uint32_t block = 0; block < kBlocks; ++block) {
        Bytes slice(computed_.slices[layer][block].size());
        other->project(layer, block * kBlockTokens, computed_.block(layer, block), slice);
        ASSERT_EQ(slice, computed_.slices[layer][block]) << instruction_set_name(set) << " " << layer;
      }
    }
  }
}

// Of models whose rows are less than what they stand for.
class HiddenInSlotsTest : public HiddenTest {};

TEST_P(HiddenInSlotsTest, APassProjectsWhatArrives) {
  std::uint64_t seed = 0;
  for (const InstructionSet set : available_instruction_sets()) {
    const bool best = set == available_instruction_sets().back();
    for (const std::uint32_t threads : best ? std::vector<std::uint32_t>{1, 2, 3} : std::vector{1u}) {
      Random random(++seed);
      const auto to = backend(set, threads);
      for (std::uint32_t block = 0; block < kBlocks; ++block) to->begin_fill(0, SlotId(4 + block));
      // Some layers have come, the others come while the pass waits.
      const auto early = static_cast<std::uint32_t>(random.below(layers_ + 1));
      for (std::uint32_t layer = 0; layer < early; ++layer)
        for (std::uint32_t block = 0; block < kBlocks; ++block) bring(*to, layer, block, 4);
      std::thread mover([&] {
        for (std::uint32_t layer = early; layer < layers_; ++layer)
          for (std::uint32_t block = kBlocks; block-- > 0;) bring(*to, layer, block, 4);
      });
      // Beside others: a sequence of its own, and a second reader of the same blocks.
      Pass pass = pass_behind(*to, 4);
      pass.spans.push_back(make_span(*to, computed_.tokens, 0, 20, 0, LogitsWanted::kLast));
      pass.spans.push_back(make_span(*to, computed_.tokens, kHidden, kHidden + 1, 4, LogitsWanted::kLast));
      put_slot(pass.spans[2].tables[0], kBlocks, SlotId(9));
      run_pass(*to, pass, results_);
      mover.join();
      ASSERT_TRUE(results_[0].status.ok());
      ASSERT_EQ(bits_of(results_[0].logits), computed_.logits) << instruction_set_name(set) << " " << threads;
      ASSERT_EQ(bits_of(results_[2].logits),
                Bits(computed_.logits.begin(), computed_.logits.begin() + model_->spec.vocabulary));
      EXPECT_EQ(to->projected().slices, std::uint64_t{kBlocks} * layers_) << "each once";
      EXPECT_GT(to->projected().took, 0);
      expect_slices(*to, 4);
      run_pass(*to, pass_behind(*to, 4), results_);  // once more, of slices
      EXPECT_EQ(to->projected(), Projected{});
      ASSERT_EQ(bits_of(results_[0].logits), computed_.logits);
    }
  }
}

TEST_P(HiddenInSlotsTest, WhatNoPassHasReadYetIsReadAndCopiedAsItWasComputed) {
  const auto to = backend(available_instruction_sets().back(), 2);
  const auto fill = [&](std::uint32_t first_slot) {
    for (std::uint32_t block = 0; block < kBlocks; ++block) to->begin_fill(0, SlotId(first_slot + block));
    for (std::uint32_t layer = 0; layer < layers_; ++layer)
      for (std::uint32_t block = 0; block < kBlocks; ++block) bring(*to, layer, block, first_slot);
  };
  fill(0);
  expect_slices(*to, 0);
  // A pass and a mover at once.
  fill(4);
  std::thread mover([&] { expect_slices(*to, 4); });
  run_pass(*to, pass_behind(*to, 4), results_);
  mover.join();
  ASSERT_EQ(bits_of(results_[0].logits), computed_.logits);
  // A sequence parts inside the last one.
  fill(8);
  Pass pass;
  pass.copies.push_back({SlotId(10), SlotId(3), 20, 0});
  const std::uint32_t parted = kHidden - kBlockTokens + 20;
  pass.spans.push_back(make_span(*to, computed_.tokens, parted, kTokens, 0, LogitsWanted::kAll));
  pass.spans[0].tables[0].blocks = {SlotId(8), SlotId(9), SlotId(3), SlotId(11)};
  run_pass(*to, pass, results_);
  ASSERT_EQ(Bits(results_[0].logits.size()).size(), (kTokens - parted) * model_->spec.vocabulary);
  const Bits all = bits_of(results_[0].logits);
  EXPECT_EQ(Bits(all.end() - static_cast<std::ptrdiff_t>(computed_.logits.size()), all.end()),
            computed_.logits);
}

TEST_P(HiddenInSlotsTest, WhatDoesNotArriveFailsItsReadersAlone) {
  const auto to = backend(available_instruction_sets().back(), 2);
  for (std::uint32_t block = 0; block < kBlocks; ++block) to->begin_fill(0, SlotId(4 + block));
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      if (layer + 1 < layers_ || block != 1) bring(*to, layer, block, 4);
    }
  }
  to->fill_failed(0, SlotId(5));
  Pass pass = pass_behind(*to, 4);
  pass.spans.push_back(make_span(*to, computed_.tokens, 0, kHidden, 0, LogitsWanted::kNone));
  run_pass(*to, pass, results_);
  EXPECT_EQ(results_[0].status.code(), StatusCode::kDataLoss);
  ASSERT_TRUE(results_[1].status.ok());
  expect_slices(*to, 0);
  // Another fill of the slots begins anew, as slices or as hidden states.
  for (std::uint32_t block = 0; block < kBlocks; ++block) to->begin_fill(0, SlotId(4 + block));
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    load_slice(*to, SlotId(4), layer, computed_.slices[layer][0]);
    for (std::uint32_t block = 1; block < kBlocks; ++block) bring(*to, layer, block, 4);
  }
  run_pass(*to, pass_behind(*to, 4), results_);
  EXPECT_EQ(bits_of(results_[0].logits), computed_.logits);
}

std::vector<NamedShape> many_headed() {
  std::vector<NamedShape> all;
  for (const auto& [name, type, head_dim, biases] : {std::tuple{"wide_q8_0", TensorType::kQ8_0, 16u, true},
                                                     {"wide_q4_1", TensorType::kQ4_1, 32u, false},
                                                     {"wide_q6_k", TensorType::kQ6_K, 32u, true},
                                                     {"wide_q8_0_odd", TensorType::kQ8_0, 24u, true},
                                                     {"wide_f32", TensorType::kF32, 48u, false}}) {
    RandomModelOptions options;
    options.type = type;
    options.heads = options.kv_heads = 8;
    options.head_dim = head_dim;
    options.hidden = type == TensorType::kQ6_K ? 256 : 64;
    options.ffn = 256;
    options.layers = 3;
    options.biases = biases;
    all.push_back({name, options});
  }
  return all;
}

std::vector<NamedShape> all_shapes() {
  std::vector<NamedShape> all = shapes();
  for (NamedShape& shape : many_headed()) all.push_back(std::move(shape));
  return all;
}
std::vector<NamedShape> all_q8_shapes() {
  std::vector<NamedShape> all = q8_shapes();
  for (NamedShape& shape : many_headed()) all.push_back(std::move(shape));
  return all;
}

std::vector<NamedShape> smaller(std::vector<NamedShape> all, StateType type) {
  std::erase_if(all, [type](const NamedShape& shape) {
    return !hidden_form(make_backend(*shape.make(), type, InstructionSet::kPlain, 1)->info()).ok();
  });
  return all;
}

std::string test_name(const testing::TestParamInfo<std::tuple<StateType, NamedShape>>& tested) {
  return std::get<1>(tested.param).name + "_in_" + std::string(state_type_name(std::get<0>(tested.param)));
}

const auto kF16 = testing::Values(StateType::kF16), kQ8 = testing::Values(StateType::kQ8);
INSTANTIATE_TEST_SUITE_P(Models, HiddenTest, testing::Combine(kF16, testing::ValuesIn(all_shapes())),
                         test_name);
INSTANTIATE_TEST_SUITE_P(ModelsOfQ8, HiddenTest, testing::Combine(kQ8, testing::ValuesIn(all_q8_shapes())),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Models, HiddenInSlotsTest,
                         testing::Combine(kF16, testing::ValuesIn(smaller(all_shapes(), StateType::kF16))),
                         test_name);
INSTANTIATE_TEST_SUITE_P(ModelsOfQ8, HiddenInSlotsTest,
                         testing::Combine(kQ8, testing::ValuesIn(smaller(all_q8_shapes(), StateType::kQ8))),
                         test_name);

// More blocks than are projected together, one by one and in any order, so that a pass projects some while
// others are on their way.
TEST(HiddenArrivalsTest, OfALongContextAreProjectedAsTheyCome) {
  constexpr std::uint32_t kMany = 37;
  const std::unique_ptr<TestModel> model = many_headed().front().make();
  const Computed computed(*model, StateType::kF16, 11, kMany);
  Random random(12);
  for (const std::uint32_t threads : {1, 2, 3}) {
    const auto to = make_backend(*model, StateType::kF16, available_instruction_sets().back(), threads, 40);
    const std::uint32_t layers = to->info().layers;
    std::vector<std::uint32_t> order(kMany);
    for (std::uint32_t block = 0; block < kMany; ++block) {
      to->begin_fill(0, SlotId(block));
      order[block] = block;
      std::swap(order[block], order[random.below(block + 1)]);
    }
    std::thread mover([&] {
      for (std::uint32_t layer = 0; layer < layers; ++layer) {
        for (const std::uint32_t block : order) {
          to->load_hidden(0, SlotId(block), layer, block * kBlockTokens, computed.block(layer, block));
          if (block % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
    });
    const std::uint32_t all = computed.hidden + kBehind;
    Pass pass{{}, {}, {make_span(*to, computed.tokens, computed.hidden, all, 0, LogitsWanted::kAll)}};
    std::vector<SpanResult> results;
    run_pass(*to, pass, results);
    mover.join();
    ASSERT_TRUE(results[0].status.ok());
    EXPECT_EQ(bits_of(results[0].logits), computed.logits) << threads;
    EXPECT_EQ(to->projected().slices, std::uint64_t{kMany} * layers) << "each once";
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      for (std::uint32_t block = 0; block < kMany; ++block) {
        Bytes slice(computed.slices[layer][block].size());
        save_slice(*to, SlotId(block), layer, slice);
        ASSERT_EQ(slice, computed.slices[layer][block]) << "layer " << layer << ", block " << block;
      }
    }
  }
}

// Beside a reader of the first ones alone, and a mover that saves them while the pass waits for others.
TEST(HiddenArrivalsTest, AFailureAmongManyFailsItsReadersAlone) {
  constexpr std::uint32_t kMany = 21, kBad = 12, kFew = 6;
  const std::unique_ptr<TestModel> model = many_headed().front().make();
  const Computed computed(*model, StateType::kF16, 13, kMany), few(*model, StateType::kF16, 13, kFew);
  const auto to = make_backend(*model, StateType::kF16, available_instruction_sets().back(), 2, 40);
  const std::uint32_t layers = to->info().layers;
  for (std::uint32_t block = 0; block < kMany; ++block) to->begin_fill(0, SlotId(block));
  std::thread mover([&] {
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      for (std::uint32_t block = kMany; block-- > 0;) {
        if (block == kBad && layer == 1) to->fill_failed(0, SlotId(block));
        if (block != kBad || layer == 0)
          to->load_hidden(0, SlotId(block), layer, block * kBlockTokens, computed.block(layer, block));
        Bytes slice(computed.slices[layer][block].size());
        if (block % 5 == 0) save_slice(*to, SlotId(block), layer, slice);
      }
    }
  });
  const auto behind = [&](const Computed& of) {
    return make_span(*to, of.tokens, of.hidden, of.hidden + kBehind, 0, LogitsWanted::kAll);
  };
  Pass pass{{}, {}, {behind(computed), behind(few)}};
  for (const std::uint32_t i : {0u, 1u}) {
    BlockTable& table = pass.spans[i].tables[0];
    put_slot(table, table.blocks.size() - 1, SlotId(30 + i));
  }
  std::vector<SpanResult> results;
  run_pass(*to, pass, results);
  mover.join();
  EXPECT_EQ(results[0].status.code(), StatusCode::kDataLoss);
  ASSERT_TRUE(results[1].status.ok());
  EXPECT_EQ(bits_of(results[1].logits), few.logits);
}

TEST(HiddenFormTest, SaysItsSizesAndRefusesWhatIsNotSmaller) {
  BackendInfo info;
  info.name = "some";
  info.groups = {{.layers = {0, 1}, .layer_slice_bytes = 4096, .block_bytes = 8192}};
  info.hidden_row_bytes = 72;
  EXPECT_NE(hidden_form(info).status().message().find("some backend"), std::string::npos);
  info.projects = true;
  ASSERT_TRUE(hidden_form(info).ok());
  EXPECT_EQ(hidden_form(info)->hidden_bytes, 72u);
  EXPECT_EQ(hidden_form(info)->kv_bytes, 128u);
  EXPECT_EQ(hidden_form(info)->slice_bytes(), 72u * 32);
  info.hidden_row_bytes = 128;
  info.projects = false;  // the reason why it does not is said
  const std::string message = hidden_form(info).status().message();
  EXPECT_NE(message.find("128 bytes a token"), std::string::npos) << message;
  EXPECT_NE(message.find("values 128"), std::string::npos) << message;
  info.hidden_row_bytes = 72;
  info.groups.push_back(info.groups.front());
  info.groups.back().window = 64;
  EXPECT_NE(hidden_form(info).status().message().find("windows"), std::string::npos);
}

}  // namespace
}  // namespace loci
