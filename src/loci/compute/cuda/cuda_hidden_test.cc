// SPDX-License-Identifier: Apache-2.0
// Hidden states on the device (HCache §3.2): captured while a prompt is computed, loaded in the place of keys
// and values, and projected by the pass that reads them, or by whoever saves them first. With --deterministic
// the bits are those of computing, in models of many kinds; without it they are close.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/compute/backend_testing.h"
#include "loci/compute/cuda/cuda_backend.h"
#include "loci/compute/cuda/cuda_backend_testing.h"
#include "loci/compute/hidden_form.h"
#include "loci/model/quantize.h"

namespace loci::cuda {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kBlocks = 6;  // that are hidden states; a product takes the rows of five
constexpr std::uint32_t kHidden = kBlocks * kBlockTokens;
constexpr std::uint32_t kTokens = kHidden + 5;
constexpr std::uint32_t kSlots = 32;
constexpr std::uint32_t kThere = 10;  // first slot of a sequence that comes as hidden states

// What computing leaves of a random sequence, and what it consumed.
struct Computed {
  std::vector<TokenId> tokens;
  std::vector<Bytes> rows;                 // [layer]: hidden states of the first kHidden tokens
  std::vector<std::vector<Bytes>> slices;  // [layer][block]
  Bits logits;                             // of the tokens behind them

  // In random chunks.
  Computed(const ModelSpec& spec, const CudaBackendOptions& options) {
    tokens = random_tokens(7, kTokens, spec.vocabulary);
    Random random(7);
    const auto backend = make_backend(spec, options, kSlots);
    const Tables tables = same_slots(*backend, slots(0, kBlocks + 1));
    const CaptureBuffers captured(*backend, kHidden);
    std::vector<SpanResult> results;
    for (std::uint32_t done = 0; done < kHidden;) {
      const auto count = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(kHidden - done, 1 + random.below(random.below(3) == 0 ? 3 : 100)));
      Pass pass;
      pass.spans.push_back(
          make_span(tokens, done, done + count, tables, spec.layer_count(), LogitsWanted::kLast));
      pass.spans[0].capture = captured.tokens(done, count);
      run_pass(*backend, pass, results);
      LOCI_CHECK(results[0].status.ok(), "nothing fails here");
      done += count;
    }
    run_pass(*backend,
             {{}, {}, {make_span(tokens, kHidden, kTokens, tables, spec.layer_count(), LogitsWanted::kAll)}},
             results);
    logits = bits_of(results[0].logits);
    for (std::uint32_t layer = 0; layer < spec.layer_count(); ++layer)
      rows.emplace_back(captured.layer(layer).begin(), captured.layer(layer).end());
    slices.assign(spec.layer_count(), std::vector<Bytes>(kBlocks));
    for (std::uint32_t layer = 0; layer < spec.layer_count(); ++layer) {
      for (std::uint32_t block = 0; block < kBlocks; ++block) {
        slices[layer][block].resize(backend->info().groups[0].layer_slice_bytes);
        save_slice(*backend, SlotId(block), layer, slices[layer][block]);
      }
    }
  }
  std::span<const std::byte> block(std::uint32_t layer, std::uint32_t number) const {
    const std::size_t bytes = rows[layer].size() / kBlocks;
    return std::span(rows[layer]).subspan(number * bytes, bytes);
  }
};

class CudaHiddenTest : public testing::TestWithParam<NamedShape> {
 protected:
  const std::unique_ptr<TestModel> model_ = GetParam().make();
  const ModelSpec& spec_ = model_->spec;
  const std::uint32_t layers_ = spec_.layer_count();
  std::vector<SpanResult> results_;

  // Once for all tests of a model.
  const Computed& computed() const {
    static std::map<std::string, std::unique_ptr<Computed>> all;
    std::unique_ptr<Computed>& made = all[GetParam().name];
    if (made == nullptr) made = std::make_unique<Computed>(spec_, deterministic());
    return *made;
  }
  std::unique_ptr<Backend> backend() const { return make_backend(spec_, deterministic(), kSlots); }

  // The tokens behind the hidden blocks, whose slots begin at `first_slot`.
  Span span_behind(const Backend& backend, std::uint32_t first_slot) const {
    return make_span(computed().tokens, kHidden, kTokens, same_slots(backend, slots(first_slot, kBlocks + 1)),
                     layers_, LogitsWanted::kAll);
  }
  void bring(Backend& backend, std::uint32_t layer, std::uint32_t block, std::uint32_t first_slot) const {
    backend.load_hidden(0, SlotId(first_slot + block), layer, block * kBlockTokens,
                        computed().block(layer, block));
  }
  static void begin_fills(Backend& backend, std::uint32_t first_slot) {
    for (std::uint32_t block = 0; block < kBlocks; ++block) backend.begin_fill(0, SlotId(first_slot + block));
  }
  void fill(Backend& backend, std::uint32_t first_slot) const {
    begin_fills(backend, first_slot);
    for (std::uint32_t layer = 0; layer < layers_; ++layer)
      for (std::uint32_t block = 0; block < kBlocks; ++block) bring(backend, layer, block, first_slot);
  }
  // Returns when it is known that all has been copied, so that a pass need wait for nothing.
  static void await_loads(const Backend& backend) {
    std::latch done(1);
    backend.after_loads([&](const Status&) { done.count_down(); });
    done.wait();
  }
  void expect_slices(const Backend& backend, std::uint32_t first_slot) const {
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      for (std::uint32_t block = 0; block < kBlocks; ++block) {
        Bytes slice(computed().slices[layer][block].size());
        save_slice(backend, SlotId(first_slot + block), layer, slice);
        ASSERT_EQ(slice, computed().slices[layer][block]) << "layer " << layer << ", block " << block;
      }
    }
  }
};

TEST_P(CudaHiddenTest, WhatIsProjectedInHostMemoryIsWhatWasComputed) {
  const auto to = backend();
  ASSERT_TRUE(to->info().projects);
  ASSERT_TRUE(hidden_form(to->info()).ok());
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      Bytes slice(computed().slices[layer][block].size());
      to->project(layer, block * kBlockTokens, computed().block(layer, block), slice);
      ASSERT_EQ(slice, computed().slices[layer][block]) << "layer " << layer << ", block " << block;
    }
  }
}

TEST_P(CudaHiddenTest, APassProjectsWhatArrives) {
  for (std::uint32_t seed = 1; seed <= 2; ++seed) {
    Random random(seed);
    const auto to = backend();
    begin_fills(*to, kThere);
    // Some layers have come, the others come while the pass waits.
    const auto early = static_cast<std::uint32_t>(random.below(layers_ + 1));
    for (std::uint32_t layer = 0; layer < early; ++layer)
      for (std::uint32_t block = 0; block < kBlocks; ++block) bring(*to, layer, block, kThere);
    std::thread mover([&] {
      for (std::uint32_t layer = early; layer < layers_; ++layer)
        for (std::uint32_t block = kBlocks; block-- > 0;) bring(*to, layer, block, kThere);
    });
    // Beside others: a sequence of its own, and a second reader of the same blocks.
    Pass pass;
    pass.spans.push_back(span_behind(*to, kThere));
    pass.spans.push_back(
        make_span(computed().tokens, 0, 20, same_slots(*to, slots(0, 1)), layers_, LogitsWanted::kLast));
    pass.spans.push_back(span_behind(*to, kThere));
    put_slot(pass.spans[2].tables[0], kBlocks, SlotId(kThere + kBlocks + 1));
    run_pass(*to, pass, results_);
    mover.join();
    for (const std::size_t reader : {0, 2}) {
      ASSERT_TRUE(results_[reader].status.ok()) << results_[reader].status.to_string();
      ASSERT_EQ(bits_of(results_[reader].logits), computed().logits) << seed;
    }
    EXPECT_EQ(to->projected().slices, std::uint64_t{kBlocks} * layers_) << "each once";
    EXPECT_GT(to->projected().took, 0);
    expect_slices(*to, kThere);
    run_pass(*to, {{}, {}, {span_behind(*to, kThere)}}, results_);  // once more, of slices
    EXPECT_EQ(to->projected(), Projected{});
    ASSERT_EQ(bits_of(results_[0].logits), computed().logits);
  }
}

// Of blocks of which a pass computes the tokens behind, and of some that are there already.
TEST_P(CudaHiddenTest, BlocksComeInEitherForm) {
  Random random(5);
  const auto to = backend();
  begin_fills(*to, kThere);
  std::uint64_t hidden = 0;
  std::vector<bool> as_hidden(kBlocks);
  for (std::uint32_t block = 0; block < kBlocks; ++block) as_hidden[block] = random.below(2) == 0;
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      if (as_hidden[block]) {
        bring(*to, layer, block, kThere);
        ++hidden;
      } else {
        load_slice(*to, SlotId(kThere + block), layer, computed().slices[layer][block]);
      }
    }
  }
  run_pass(*to, {{}, {}, {span_behind(*to, kThere)}}, results_);
  ASSERT_EQ(bits_of(results_[0].logits), computed().logits);
  EXPECT_EQ(to->projected().slices, hidden);
  expect_slices(*to, kThere);
}

TEST_P(CudaHiddenTest, WhatNoPassHasReadYetIsSavedAndCopiedAsItWasComputed) {
  const auto to = backend();
  fill(*to, 0);
  expect_slices(*to, 0);
  // A pass in flight, which waits for nobody, and a mover; then both at once.
  fill(*to, kThere);
  to->begin({{}, {}, {span_behind(*to, kThere)}});
  expect_slices(*to, kThere);
  to->finish(results_);
  ASSERT_EQ(bits_of(results_[0].logits), computed().logits);
  fill(*to, kThere);
  std::thread mover([&] { expect_slices(*to, kThere); });
  run_pass(*to, {{}, {}, {span_behind(*to, kThere)}}, results_);
  mover.join();
  ASSERT_EQ(bits_of(results_[0].logits), computed().logits);
  // A sequence parts inside the last block, which nobody has read.
  fill(*to, kThere);
  await_loads(*to);
  Pass pass;
  pass.copies.push_back({SlotId(kThere + kBlocks - 1), SlotId(3), 20, 0});
  const std::uint32_t parted = kHidden - kBlockTokens + 20;
  pass.spans.push_back(make_span(computed().tokens, parted, kTokens,
                                 same_slots(*to, slots(kThere, kBlocks + 1)), layers_, LogitsWanted::kAll));
  put_slot(pass.spans[0].tables[0], kBlocks - 1, SlotId(3));
  run_pass(*to, pass, results_);
  ASSERT_TRUE(results_[0].status.ok());
  const Bits all = bits_of(results_[0].logits);
  EXPECT_EQ(Bits(all.end() - static_cast<std::ptrdiff_t>(computed().logits.size()), all.end()),
            computed().logits);
  EXPECT_EQ(to->projected().slices, std::uint64_t{kBlocks} * layers_);
}

TEST_P(CudaHiddenTest, WhatDoesNotArriveFailsItsReadersAlone) {
  const auto to = backend();
  begin_fills(*to, kThere);
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t block = 0; block < kBlocks; ++block)
      if (layer + 1 < layers_ || block != 1) bring(*to, layer, block, kThere);
  }
  std::thread mover([&] { to->fill_failed(0, SlotId(kThere + 1)); });
  Pass pass;
  pass.spans.push_back(span_behind(*to, kThere));
  pass.spans.push_back(make_span(computed().tokens, 0, 64, same_slots(*to, slots(0, 2)), layers_, {}));
  run_pass(*to, pass, results_);
  mover.join();
  EXPECT_EQ(results_[0].status.code(), StatusCode::kDataLoss);
  ASSERT_TRUE(results_[1].status.ok());
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    Bytes slice(computed().slices[layer][1].size());
    save_slice(*to, SlotId(1), layer, slice);
    EXPECT_EQ(slice, computed().slices[layer][1]);
  }
  // Another fill of the slots begins anew, in either form.
  begin_fills(*to, kThere);
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    load_slice(*to, SlotId(kThere), layer, computed().slices[layer][0]);
    for (std::uint32_t block = 1; block < kBlocks; ++block) bring(*to, layer, block, kThere);
  }
  run_pass(*to, {{}, {}, {span_behind(*to, kThere)}}, results_);
  ASSERT_TRUE(results_[0].status.ok());
  EXPECT_EQ(bits_of(results_[0].logits), computed().logits);
}

// Layers that have come are right, whatever becomes of those above: for spans that end below.
TEST_P(CudaHiddenTest, LowLayersOfABlockThatFailsAreRight) {
  const auto to = backend();
  const auto low_layers = [&](std::uint32_t first_slot) {
    Span span = span_behind(*to, first_slot);
    span.layers.end = layers_ - 1;
    span.logits = LogitsWanted::kNone;
    run_pass(*to, {{}, {}, {std::move(span)}}, results_);
    EXPECT_TRUE(results_[0].status.ok()) << results_[0].status.to_string();
    std::vector<Bytes> written(layers_ - 1, Bytes(to->info().groups[0].layer_slice_bytes));
    for (std::uint32_t layer = 0; layer + 1 < layers_; ++layer) {
      save_slice(*to, SlotId(first_slot + kBlocks), layer, written[layer]);
      to->clear_tokens(layer, kTokens - kHidden, written[layer]);
    }
    return written;
  };
  for (std::uint32_t layer = 0; layer < layers_; ++layer)
    for (std::uint32_t block = 0; block < kBlocks; ++block)
      load_slice(*to, SlotId(block), layer, computed().slices[layer][block]);
  const std::vector<Bytes> expected = low_layers(0);
  begin_fills(*to, kThere);
  for (std::uint32_t layer = 0; layer + 1 < layers_; ++layer)
    for (std::uint32_t block = 0; block < kBlocks; ++block) bring(*to, layer, block, kThere);
  for (std::uint32_t block = 0; block < kBlocks; ++block) to->fill_failed(0, SlotId(kThere + block));
  EXPECT_EQ(low_layers(kThere), expected);
}

// The pass has ended for the host alone when its slots get other blocks: what they bring is not projected
// over.
TEST_P(CudaHiddenTest, WhatASlotGetsNextIsNotProjectedOver) {
  const auto to = backend();
  fill(*to, kThere);
  await_loads(*to);
  to->begin({{}, {}, {span_behind(*to, kThere)}});
  begin_fills(*to, kThere);
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t block = 0; block < kBlocks; ++block)
      load_slice(*to, SlotId(kThere + block), layer, computed().slices[layer][kBlocks - 1 - block]);
  }
  to->finish(results_);
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      Bytes slice(computed().slices[layer][block].size());
      save_slice(*to, SlotId(kThere + block), layer, slice);
      ASSERT_EQ(slice, computed().slices[layer][kBlocks - 1 - block]);
    }
  }
}

// Decode steps behind them: the first projects and is no graph, those ahead of it read what it projects.
TEST_P(CudaHiddenTest, PassesAheadReadWhatThePassBeforeProjects) {
  constexpr std::uint32_t kSteps = 6;
  const auto decode = [&](Backend& backend, std::uint32_t first_slot) {
    std::vector<std::uint32_t> sampled;
    const auto begin = [&](std::uint32_t step) {
      Pass pass;
      pass.spans.push_back(make_span(computed().tokens, kHidden, kHidden + 1,
                                     same_slots(backend, slots(first_slot, kBlocks + 1)), layers_,
                                     LogitsWanted::kLast));
      pass.spans[0].position += step;
      if (step > 0) pass.spans[0].token_of = 0;
      pass.spans[0].sampling = DeviceSampling{};
      backend.begin(std::move(pass));
    };
    begin(0);
    for (std::uint32_t step = 1; step <= kSteps; ++step) {
      if (step < kSteps) begin(step);
      backend.finish(results_);
      EXPECT_TRUE(results_[0].status.ok()) << results_[0].status.to_string();
      sampled.push_back(results_[0].sample->value);
      EXPECT_EQ(backend.projected().slices, step == 1 && first_slot != 0 ? kBlocks * layers_ : 0u);
    }
    return sampled;
  };
  const auto to = backend();
  run_pass(
      *to,
      {{}, {}, {make_span(computed().tokens, 0, 128, same_slots(*to, slots(0, kBlocks + 1)), layers_, {})}},
      results_);
  run_pass(
      *to,
      {{},
       {},
       {make_span(computed().tokens, 128, kHidden, same_slots(*to, slots(0, kBlocks + 1)), layers_, {})}},
      results_);
  const std::vector<std::uint32_t> expected = decode(*to, 0);
  fill(*to, kThere);
  EXPECT_EQ(decode(*to, kThere), expected);
}

// Decode steps that capture are graphs, one begun behind another; some requests want no rows, and which do
// changes. The rows of two requests lie together on the host, but not in the pass.
TEST_P(CudaHiddenTest, StepsCaptureWhatPromptsDo) {
  constexpr std::uint32_t kPrompt = 40, kSteps = 16, kPlain = 3;
  const auto to = backend();
  const std::vector<TokenId> between = random_tokens(9, kTokens, spec_.vocabulary);
  const auto span_of = [&](std::uint32_t i, std::uint32_t begin, std::uint32_t end, LogitsWanted logits) {
    return make_span(i == 1 ? between : computed().tokens, begin, end, same_slots(*to, slots(2 * i, 2)),
                     layers_, logits);
  };
  Pass prompt;
  for (std::uint32_t i = 0; i < 3; ++i) prompt.spans.push_back(span_of(i, 0, kPrompt, {}));
  run_pass(*to, prompt, results_);
  const CaptureBuffers rows(*to, 2 * kSteps);
  const auto wants = [](std::uint32_t step, std::uint32_t which) {
    return step >= kPlain && step % (which == 0 ? 5 : 3) != 0;
  };
  const auto begin = [&](std::uint32_t step) {
    Pass pass;
    for (std::uint32_t i = 0; i < 3; ++i)
      pass.spans.push_back(span_of(i, kPrompt + step, kPrompt + step + 1, LogitsWanted::kLast));
    pass.spans[step % 2].sampling = DeviceSampling{};  // so rows are not in the spans' order
    for (std::uint32_t which = 0; which < 2; ++which) {
      if (wants(step, which)) pass.spans[2 * which].capture = rows.tokens(2 * step + which, 1);
    }
    to->begin(std::move(pass));
  };
  begin(0);
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    if (step + 1 < kSteps) begin(step + 1);
    to->finish(results_);
    for (const SpanResult& result : results_) ASSERT_TRUE(result.status.ok()) << result.status.to_string();
    const std::uint64_t row_bytes = to->info().hidden_row_bytes;
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      const auto wanted = std::span(computed().rows[layer]).subspan((kPrompt + step) * row_bytes, row_bytes);
      for (std::uint32_t which = 0; which < 2; ++which) {
        const auto found = rows.layer(layer).subspan((2 * step + which) * row_bytes, row_bytes);
        if (!wants(step, which)) continue;
        ASSERT_TRUE(std::equal(found.begin(), found.end(), wanted.begin())) << step << " " << which;
      }
    }
  }
}

// Without --deterministic the product of many blocks may sum in another order than those of the passes that
// computed them.
TEST_P(CudaHiddenTest, WithoutAnOrderOfSumsItIsClose) {
  const Computed fast(spec_, {});
  const auto to = make_backend(spec_, {}, kSlots);
  const bool half = to->info().layout.ends_with(",f16");
  begin_fills(*to, kThere);
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t block = 0; block < kBlocks; ++block)
      to->load_hidden(0, SlotId(kThere + block), layer, block * kBlockTokens, fast.block(layer, block));
  }
  run_pass(*to, {{}, {}, {span_behind(*to, kThere)}}, results_);
  ASSERT_TRUE(results_[0].status.ok());
  const auto value = [&](const Bytes& bytes, std::size_t i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    return static_cast<double>(half ? f16_to_f32(bits) : bf16_to_f32(bits));
  };
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      const Bytes& wanted = fast.slices[layer][block];
      Bytes slice(wanted.size());
      save_slice(*to, SlotId(kThere + block), layer, slice);
      double size = 0, error = 0;
      for (std::size_t i = 0; i < slice.size() / 2; ++i) {
        size += std::pow(value(wanted, i), 2);
        error += std::pow(value(slice, i) - value(wanted, i), 2);
      }
      // Each product is rounded, and each rotated key once more.
      EXPECT_LE(std::sqrt(error / size), half ? 0x1p-10 : 0x1p-7) << "layer " << layer << ", block " << block;
    }
  }
}

RandomModelOptions wide(TensorType type, std::uint32_t head_dim, bool biases) {
  RandomModelOptions options = llama(type, tensor_type_info(type).block_elements > 64 ? 256 : 64, head_dim);
  options.heads = options.kv_heads = options.hidden > 64 ? 4 : 8;
  options.layers = options.hidden > 64 ? 2 : 3;
  options.biases = biases;
  return options;
}

// As many heads of keys as of queries, and fewer of them that are wide; biases, norms of heads, rotated in
// all ways or not, mixtures, parallel layers, learned positions, sinks.
std::vector<NamedShape> models() {
  RandomModelOptions grouped = llama(TensorType::kBF16, 64, 64);
  grouped.kv_heads = 1;
  std::vector<NamedShape> all = {{"wide_f16", wide(TensorType::kF16, 16, true)},
                                 {"wide_q4_k", wide(TensorType::kQ4_K, 64, false)},
                                 {"grouped_bf16", grouped}};
  for (const std::uint64_t seed : {54, 485, 944, 1126}) all.push_back({"spec_" + std::to_string(seed), seed});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, CudaHiddenTest, testing::ValuesIn(models()),
                         [](const auto& tested) { return tested.param.name; });

TEST(CudaHiddenFormTest, WhatIsNotSmallerOrHasWindowsIsRefused) {
  const auto narrow = TestModel::make(llama(TensorType::kF16));
  const auto backend = make_backend(narrow->spec, {});
  const std::string message = hidden_form(backend->info()).status().message();
  EXPECT_NE(message.find("128 bytes a token"), std::string::npos) << message;
  EXPECT_NE(message.find("values 128"), std::string::npos) << message;
  EXPECT_FALSE(backend->info().projects) << "and nothing is there for it";
  RandomModelOptions options = wide(TensorType::kF16, 16, false);
  const auto windowed = TestModel::make(options, {0, 40});
  const BackendInfo info = make_backend(windowed->spec, {})->info();
  EXPECT_NE(hidden_form(info).status().message().find("windows"), std::string::npos);
  EXPECT_FALSE(info.projects);
}

}  // namespace
}  // namespace loci::cuda
