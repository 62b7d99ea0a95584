// SPDX-License-Identifier: Apache-2.0
// Hidden states where the simulated device fails: kernels that it refuses, memory that it lacks, a device
// that is lost; and in which order it may do things.
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/compute/backend_testing.h"
#include "loci/compute/cuda/cuda_backend.h"
#include "loci/compute/cuda/cuda_backend_testing.h"
#include "loci/compute/cuda/simulated/faults.h"

namespace loci::cuda {
namespace {

// Hidden states of a model in which they are smaller, in a block of zeros.
class CudaHiddenFaultsTest : public testing::Test {
 protected:
  void TearDown() override { simulated::set_options({}); }

  static RandomModelOptions wide() {
    RandomModelOptions options = llama(TensorType::kF16);
    options.kv_heads = options.heads;
    return options;
  }
  void bring(Backend& backend) const {
    const std::vector<std::byte> rows(kBlockTokens * backend.info().hidden_row_bytes);
    backend.begin_fill(0, SlotId(0));
    for (std::uint32_t layer = 0; layer < spec_.layer_count(); ++layer)
      backend.load_hidden(0, SlotId(0), layer, 0, rows);
  }
  Status read(Backend& backend) {
    run_pass(backend,
             {{},
              {},
              {make_span(random_tokens(3, 40, spec_.vocabulary), 32, 40, same_slots(backend, slots(0, 2)),
                         spec_.layer_count(), LogitsWanted::kLast)}},
             results_);
    return results_[0].status;
  }
  const std::unique_ptr<TestModel> wide_ = TestModel::make(wide());
  const ModelSpec& spec_ = wide_->spec;
  std::vector<SpanResult> results_;
};

// A sequence of six blocks, of which a product takes the rows of five; what computing leaves of it, and the
// hidden states of the blocks.
class CudaRefusedProjectionTest : public CudaHiddenFaultsTest {
 protected:
  static constexpr std::uint32_t kBlocks = 6, kHidden = kBlocks * kBlockTokens, kTokens = kHidden + 8;
  static constexpr std::uint32_t kThere = 8;  // first slot of the blocks that are loaded as hidden states

  CudaRefusedProjectionTest() {
    for (std::uint32_t at = 0; at < kHidden; at += kHidden / 2) {
      Pass pass;
      pass.spans.push_back(span(0, at, at + kHidden / 2));
      pass.spans[0].capture = rows_.tokens(at, kHidden / 2);
      run_pass(*backend_, pass, results_);
    }
    EXPECT_TRUE(run(0).ok());
    expected_ = bits_of(results_[0].logits);
    for (std::uint32_t layer = 0; layer < layers_; ++layer)
      for (std::uint32_t block = 0; block < kBlocks; ++block) slices_.push_back(saved(layer, block));
  }

  Span span(std::uint32_t first_slot, std::uint32_t begin, std::uint32_t end) const {
    return make_span(tokens_, begin, end, same_slots(*backend_, slots(first_slot, kBlocks + 1)), layers_,
                     LogitsWanted::kAll);
  }
  // Computes the tokens behind the blocks.
  Status run(std::uint32_t first_slot, std::vector<BlockCopy> copies = {}) {
    Pass pass{{}, std::move(copies), {span(first_slot, kHidden, kTokens)}};
    run_pass(*backend_, std::move(pass), results_);
    return results_[0].status;
  }
  std::vector<std::byte> saved(std::uint32_t layer, std::uint32_t slot) const {
    std::vector<std::byte> slice(backend_->info().groups[0].layer_slice_bytes);
    save_slice(*backend_, SlotId(slot), layer, slice);
    return slice;
  }
  void bring() {
    const std::uint64_t bytes = kBlockTokens * backend_->info().hidden_row_bytes;
    for (std::uint32_t block = 0; block < kBlocks; ++block) backend_->begin_fill(0, SlotId(kThere + block));
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      for (std::uint32_t block = 0; block < kBlocks; ++block)
        backend_->load_hidden(0, SlotId(kThere + block), layer, block * kBlockTokens,
                              rows_.layer(layer).subspan(block * bytes, bytes));
    }
  }
  void expect_state() {
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      for (std::uint32_t block = 0; block < kBlocks; ++block)
        ASSERT_EQ(saved(layer, kThere + block), slices_[layer * kBlocks + block]) << layer << " " << block;
    }
  }
  void expect_reply() {
    const Status status = run(kThere);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(bits_of(results_[0].logits), expected_);
  }

  const std::uint32_t layers_ = spec_.layer_count();
  const std::unique_ptr<Backend> backend_ = make_backend(spec_, deterministic());
  const std::vector<TokenId> tokens_ = random_tokens(3, kTokens, spec_.vocabulary);
  const CaptureBuffers rows_{*backend_, kHidden};
  std::vector<std::vector<std::byte>> slices_;  // [layer][block]
  Bits expected_;
};

TEST_F(CudaRefusedProjectionTest, ItCostsThePassAndNoState) {
  std::uint32_t refusals = 0, partly = 0;
  for (const std::string kernel :
       {"stage_hidden", "place_rows", "few_rows", "many_rows", "add_norm", "embed_rows"}) {
    for (const std::uint64_t after : {0, 1, 3, 6}) {
      for (const std::uint64_t times : {std::uint64_t{1}, UINT64_MAX}) {
        bring();
        simulated::set_options({.refused_kernel = kernel, .refused_after = after, .refused_times = times});
        const Status refused = run(kThere);
        simulated::set_options({});
        if (refused.ok()) continue;  // so many were not launched
        EXPECT_EQ(refused.code(), StatusCode::kInternal) << refused.to_string();
        EXPECT_NE(refused.message().find(kernel), std::string::npos) << refused.to_string();
        EXPECT_TRUE(backend_->health().ok());
        EXPECT_EQ(backend_->projected(), Projected{});
        // Whoever comes next makes the state: a pass, or a mover.
        if (++refusals % 2 == 0) {
          expect_reply();
          const std::uint64_t slices = backend_->projected().slices;
          partly += slices % (kBlocks * layers_) == 0 ? 0 : 1;
          if (kernel == "add_norm" || kernel == "embed_rows") {
            EXPECT_EQ(slices, 0u) << "no kernel that projects was refused";
          }
        }
        expect_state();
        expect_reply();
      }
    }
  }
  EXPECT_GT(refusals, 20u);
  EXPECT_GT(partly, 0u) << "refused behind the rows of some blocks";
}

// A block copied of one that could not be projected has no state.
TEST_F(CudaRefusedProjectionTest, WhatIsCopiedOfItIsNotReadAsState) {
  const BlockCopy copy{SlotId(kThere + 2), SlotId(15), 20, 0};
  const auto read_copy = [&] {
    Span reader = span(kThere, 2 * kBlockTokens + 20, 3 * kBlockTokens);
    put_slot(reader.tables[0], 2, SlotId(15));
    run_pass(*backend_, {{}, {}, {std::move(reader)}}, results_);
    return results_[0].status;
  };
  for (const char* kernel : {"stage_hidden", "place_rows"}) {
    bring();
    simulated::set_options({.refused_kernel = kernel});
    EXPECT_EQ(run(kThere, {copy}).code(), StatusCode::kInternal);
    simulated::set_options({});
    EXPECT_EQ(read_copy().code(), StatusCode::kDataLoss);
    ASSERT_TRUE(run(kThere, {copy}).ok());
    EXPECT_TRUE(read_copy().ok());
  }
}

TEST_F(CudaHiddenFaultsTest, ALostDeviceEndsProjectionsToo) {
  for (const std::uint64_t after : {0, 3, 9, 20, 31, 43}) {
    simulated::set_options({});
    const auto backend = make_backend(spec_, {});
    std::vector<std::byte> slice(backend->info().groups[0].layer_slice_bytes);
    const std::vector<std::byte> rows(kBlockTokens * backend->info().hidden_row_bytes);
    simulated::set_options({.lost_after = after});
    bring(*backend);
    std::thread mover([&] {
      for (std::uint32_t layer = 0; layer < spec_.layer_count(); ++layer)
        save_slice(*backend, SlotId(0), layer, slice);
      backend->project(0, 0, rows, slice);
    });
    const Status status = read(*backend);
    mover.join();
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    }
    EXPECT_FALSE(read(*backend).ok() && read(*backend).ok() && read(*backend).ok()) << after;
    EXPECT_EQ(backend->projected(), Projected{});
  }
}

TEST_F(CudaHiddenFaultsTest, DecodeStepsThatCaptureAreGraphs) {
  const auto backend = make_backend(spec_, {});
  const std::vector<TokenId> tokens = random_tokens(3, 40, spec_.vocabulary);
  const CaptureBuffers buffers(*backend, 40);
  const auto run = [&](std::uint32_t at, bool capture) {
    const std::uint64_t graphs = simulated::counters().graphs;
    Pass pass;
    pass.spans.push_back(make_span(tokens, at, at + 1, same_slots(*backend, slots(0, 2)), spec_.layer_count(),
                                   LogitsWanted::kLast));
    if (capture) pass.spans[0].capture = buffers.tokens(at, 1);
    run_pass(*backend, pass, results_);
    EXPECT_TRUE(results_[0].status.ok());
    return simulated::counters().graphs - graphs;
  };
  for (std::uint32_t at = 0; at < 2; ++at) EXPECT_EQ(run(at, true), 0u) << "the first of its bucket";
  for (std::uint32_t at = 2; at < 4; ++at) EXPECT_EQ(run(at, true), 1u) << "one of two that take turns";
  EXPECT_EQ(run(4, false), 0u) << "another graph";
  EXPECT_EQ(run(5, false), 1u);
  EXPECT_EQ(run(6, true), 1u);
  // Where the device has no room for what a graph keeps, steps run plainly, and the log says so once.
  std::vector<std::string> said;
  CudaBackendOptions options;
  options.warn = [&](const std::string& what) { said.push_back(what); };
  const auto without = make_backend(spec_, options);
  simulated::set_options({.memory_bytes = 1});
  for (std::uint32_t at = 0; at < 3; ++at) {
    Pass pass;
    pass.spans.push_back(make_span(tokens, at, at + 1, same_slots(*without, slots(0, 2)), spec_.layer_count(),
                                   LogitsWanted::kLast));
    pass.spans[0].capture = buffers.tokens(at, 1);
    run_pass(*without, pass, results_);
    EXPECT_TRUE(results_[0].status.ok()) << results_[0].status.to_string();
  }
  EXPECT_EQ(simulated::counters().graphs, 0u);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("for 1 requests and more run without a graph: "), std::string::npos) << said[0];
  EXPECT_NE(said[0].find(" bytes "), std::string::npos) << said[0];
}

// In many orders of the device's operations: the next step may begin before the rows of this one are on the
// host.
TEST_F(CudaHiddenFaultsTest, StepsDoNotOverwriteWhatTheOneBeforeKeeps) {
  constexpr std::uint32_t kSteps = 8;
  const std::vector<TokenId> tokens = random_tokens(3, 40, spec_.vocabulary);
  const auto backend = make_backend(spec_, {});
  const CaptureBuffers plain(*backend, kSteps), ahead(*backend, kSteps);
  const auto begin = [&](const CaptureBuffers& to, std::uint32_t at) {
    Pass pass;
    pass.spans.push_back(make_span(tokens, at, at + 1, same_slots(*backend, slots(0, 1)), spec_.layer_count(),
                                   LogitsWanted::kLast));
    pass.spans[0].sampling = DeviceSampling{};
    pass.spans[0].capture = to.tokens(at, 1);
    backend->begin(std::move(pass));
  };
  for (std::uint32_t at = 0; at < kSteps; ++at) {
    begin(plain, at);
    backend->finish(results_);
  }
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    simulated::set_options({.seed = seed});
    begin(ahead, 0);
    for (std::uint32_t at = 0; at < kSteps; ++at) {
      if (at + 1 < kSteps) begin(ahead, at + 1);
      backend->finish(results_);
    }
    for (std::uint32_t layer = 0; layer < spec_.layer_count(); ++layer) {
      ASSERT_TRUE(
          std::equal(ahead.layer(layer).begin(), ahead.layer(layer).end(), plain.layer(layer).begin()))
          << "seed " << seed;
    }
  }
}

TEST_F(CudaHiddenFaultsTest, APassThatProjectsTakesNoMemoryAndIsNoGraph) {
  const auto backend = make_backend(spec_, {});
  simulated::set_options({});
  const auto decode = [&] {
    const std::uint64_t graphs = simulated::counters().graphs;
    Pass pass;
    pass.spans.push_back(make_span(random_tokens(3, 40, spec_.vocabulary), 32, 33,
                                   same_slots(*backend, slots(0, 2)), spec_.layer_count(),
                                   LogitsWanted::kLast));
    pass.spans[0].sampling = DeviceSampling{};
    run_pass(*backend, pass, results_);
    EXPECT_TRUE(results_[0].status.ok());
    return simulated::counters().graphs - graphs;
  };
  EXPECT_EQ(decode(), 0u);
  EXPECT_EQ(decode(), 1u);
  bring(*backend);
  EXPECT_EQ(decode(), 0u);
  EXPECT_EQ(backend->projected().slices, spec_.layer_count());
  std::vector<std::byte> slice(backend->info().groups[0].layer_slice_bytes);
  save_slice(*backend, SlotId(0), 0, slice);  // now it is known that all has come
  std::latch done(1);
  backend->after_loads([&](const Status&) { done.count_down(); });
  done.wait();
  EXPECT_EQ(decode(), 1u);
  EXPECT_EQ(simulated::counters().allocations, 0u);
}

}  // namespace
}  // namespace loci::cuda
