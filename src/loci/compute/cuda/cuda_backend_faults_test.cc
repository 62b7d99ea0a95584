// SPDX-License-Identifier: Apache-2.0
// How the CUDA backend handles faults of a simulated device: memory that runs out, a device that is lost.
// Also tests whether decode steps are graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/compute/backend_testing.h"
#include "loci/compute/cuda/cuda_backend.h"
#include "loci/compute/cuda/cuda_backend_testing.h"
#include "loci/compute/cuda/cuda_graphs.h"
#include "loci/compute/cuda/devices.h"
#include "loci/compute/cuda/simulated/faults.h"

namespace loci::cuda {
namespace {

class CudaBackendFaultsTest : public testing::Test {
 protected:
  void TearDown() override { simulated::set_options({}); }

  static CudaBackendOptions small() {
    CudaBackendOptions options;
    options.context_tokens = 128;
    options.max_batch_tokens = 64;
    options.max_spans = 4;
    return options;
  }

  const std::unique_ptr<TestModel> model_ = TestModel::make(llama(TensorType::kF16));
  const ModelSpec& spec_ = model_->spec;
  std::vector<SpanResult> results_;
};

TEST_F(CudaBackendFaultsTest, MemoryThatEndsIsNamed) {
  bool made = false;
  std::uint32_t refused = 0;
  // Each allocation in turn is the one that fails.
  for (std::uint64_t bytes = 1u << 12; !made; bytes += bytes / 8) {
    simulated::set_options({.memory_bytes = bytes});
    const Result<std::unique_ptr<Backend>> backend = make_cuda_backend(spec_, small());
    made = backend.ok();
    if (made) break;
    ++refused;
    ASSERT_EQ(backend.status().code(), StatusCode::kResourceExhausted) << backend.status().to_string();
    EXPECT_NE(backend.status().message().find(" bytes "), std::string::npos) << backend.status().to_string();
    EXPECT_FALSE(backend.status().field().empty());
  }
  EXPECT_GT(refused, 10u);
  simulated::set_options({.pinned_bytes = 1u << 12});
  EXPECT_EQ(make_cuda_backend(spec_, small()).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(CudaBackendFaultsTest, APoolThatDoesNotFitIsNamedAndASmallerOneServes) {
  simulated::set_options({.memory_bytes = 64u << 20});
  Result<std::unique_ptr<Backend>> backend = make_cuda_backend(spec_, small());
  ASSERT_TRUE(backend.ok()) << backend.status().to_string();
  const Status status = (*backend)->allocate_blocks(0, 1u << 20);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.to_string().find("device_memory"), std::string::npos) << status.to_string();
  EXPECT_TRUE((*backend)->health().ok()) << "the device is well";
  ASSERT_TRUE((*backend)->allocate_blocks(0, 4).ok());
  const std::vector<TokenId> tokens = random_tokens(1, 5, spec_.vocabulary);
  run_pass(**backend,
           {{}, {}, {make_span(tokens, 0, 5, {{slots(0, 1)}}, spec_.layer_count(), LogitsWanted::kLast)}},
           results_);
  EXPECT_TRUE(results_[0].status.ok());
}

TEST_F(CudaBackendFaultsTest, APassThatFindsNoPinnedMemoryFailsAloneAndNamesIt) {
  const auto backend = make_backend(spec_, {});
  const std::vector<TokenId> tokens = random_tokens(1, 40, spec_.vocabulary);
  const Tables tables = same_slots(*backend, slots(0, 2));
  simulated::set_options({.pinned_bytes = 1});
  run_pass(*backend, {{}, {}, {make_span(tokens, 0, 40, tables, spec_.layer_count(), LogitsWanted::kAll)}},
           results_);
  EXPECT_EQ(results_[0].status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(backend->health().ok());
  simulated::set_options({});
  run_pass(*backend, {{}, {}, {make_span(tokens, 0, 40, tables, spec_.layer_count(), LogitsWanted::kAll)}},
           results_);
  EXPECT_TRUE(results_[0].status.ok());
}

// Whenever the device is lost: spans end with that, passes ahead too, and movers' calls return.
TEST_F(CudaBackendFaultsTest, ALostDeviceEndsEverythingClearly) {
  const std::vector<TokenId> tokens = random_tokens(2, 40, spec_.vocabulary);
  const std::uint32_t layers = spec_.layer_count();
  std::uint32_t lost_runs = 0;
  for (const std::uint64_t after : {0, 1, 2, 5, 11, 17, 29, 40, 53}) {
    simulated::set_options({});
    const auto backend = make_backend(spec_, {});
    const Tables tables = same_slots(*backend, slots(0, 2));
    simulated::set_options({.lost_after = after});
    const auto decode = [&](std::uint32_t position, std::uint32_t sampled_by) {
      Pass pass;
      pass.spans.push_back(make_span({TokenId(0)}, 0, 1, tables, layers, LogitsWanted::kLast));
      pass.spans[0].position = position;
      pass.spans[0].token_of = sampled_by;
      pass.spans[0].sampling = DeviceSampling{};
      return pass;
    };
    Pass prompt;
    prompt.spans.push_back(make_span(tokens, 0, 40, tables, layers, LogitsWanted::kLast));
    prompt.spans[0].sampling = DeviceSampling{};
    backend->begin(std::move(prompt));
    std::thread mover([&] {
      std::vector<std::byte> slice(backend->info().groups[0].layer_slice_bytes);
      backend->begin_fill(0, SlotId(7));
      for (std::uint32_t layer = 0; layer < layers; ++layer) {
        load_slice(*backend, SlotId(7), layer, slice);
        save_slice(*backend, SlotId(7), layer, slice);
      }
    });
    bool lost = false;
    for (std::uint32_t step = 0; step < 3; ++step) {
      backend->begin(decode(40 + step, 0));
      backend->finish(results_);
      if (results_[0].status.ok()) {
        EXPECT_FALSE(lost) << "a lost device stays lost";
      } else {
        lost = true;
        EXPECT_EQ(results_[0].status.code(), StatusCode::kUnavailable);
        EXPECT_NE(results_[0].status.message().find("lost"), std::string::npos);
        EXPECT_FALSE(results_[0].sample.has_value());
      }
    }
    mover.join();
    backend->finish(results_);
    EXPECT_EQ(backend->health().ok(), results_[0].status.ok());
    lost_runs += backend->health().ok() ? 0 : 1;
  }
  EXPECT_GE(lost_runs, 5u);
}

TEST_F(CudaBackendFaultsTest, DecodeStepsAreGraphs) {
  const auto backend = make_backend(spec_, {});
  const Tables tables = same_slots(*backend, slots(0, 2));
  const std::vector<TokenId> tokens = random_tokens(3, 40, spec_.vocabulary);
  const auto run = [&](std::uint32_t begin, std::uint32_t end) {
    const std::uint64_t graphs = simulated::counters().graphs;
    run_pass(*backend,
             {{}, {}, {make_span(tokens, begin, end, tables, spec_.layer_count(), LogitsWanted::kLast)}},
             results_);
    EXPECT_TRUE(results_[0].status.ok());
    return simulated::counters().graphs - graphs;
  };
  EXPECT_EQ(run(0, 20), 0u) << "a prompt";
  EXPECT_EQ(run(20, 21), 0u) << "the first of its bucket";
  EXPECT_EQ(run(21, 22), 1u) << "captured and launched";
  EXPECT_EQ(run(22, 23), 1u);
  // The block of the next token arrives: what is there of it may be read a layer at a time.
  backend->begin_fill(0, SlotId(0));
  std::vector<std::byte> slice(backend->info().groups[0].layer_slice_bytes);
  for (std::uint32_t layer = 0; layer < spec_.layer_count(); ++layer) {
    save_slice(*backend, SlotId(0), layer, slice);
    load_slice(*backend, SlotId(0), layer, slice);
  }
  EXPECT_EQ(run(23, 24), 0u) << "it waits for layers";
}

// What the device refuses, and goes on: a bucket's capture costs the graph, a kernel costs the pass.
struct RefusedCapture {
  const char* name;
  simulated::Options options;
};
class CudaRefusedCaptureTest : public CudaBackendFaultsTest,
                               public testing::WithParamInterface<RefusedCapture> {};
INSTANTIATE_TEST_SUITE_P(At, CudaRefusedCaptureTest,
                         testing::Values(RefusedCapture{"begin", {.capture_begins_fail = true}},
                                         RefusedCapture{"end", {.captures_fail = true}}),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(CudaRefusedCaptureTest, IsSaidOnceAndStepsRunPlainly) {
  std::vector<std::string> said;
  CudaBackendOptions options;
  options.warn = [&](const std::string& what) { said.push_back(what); };
  const auto backend = make_backend(spec_, options), expected = make_backend(spec_, {});
  const std::vector<TokenId> tokens = random_tokens(3, 40, spec_.vocabulary);
  const auto run = [&](Backend& with, std::uint32_t begin, std::uint32_t end) {
    const Tables tables = same_slots(with, slots(0, 2));
    run_pass(with,
             {{}, {}, {make_span(tokens, begin, end, tables, spec_.layer_count(), LogitsWanted::kLast)}},
             results_);
    EXPECT_TRUE(results_[0].status.ok()) << results_[0].status.to_string();
    return std::vector<float>(results_[0].logits.begin(), results_[0].logits.end());
  };
  simulated::set_options(GetParam().options);
  for (std::uint32_t at = 0; at < 24; at += at == 0 ? 20 : 1) {
    const std::uint32_t end = at == 0 ? 20 : at + 1;
    EXPECT_EQ(run(*backend, at, end), run(*expected, at, end)) << "token " << at;
  }
  EXPECT_EQ(simulated::counters().graphs, 0u);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("without a graph: cuda:0 refused "), std::string::npos) << said[0];
  EXPECT_TRUE(backend->health().ok());
}

TEST_F(CudaBackendFaultsTest, ARefusedKernelFailsItsPassAlone) {
  const auto backend = make_backend(spec_, {});
  const std::vector<TokenId> tokens = random_tokens(3, 40, spec_.vocabulary);
  const auto run = [&](std::uint32_t begin, std::uint32_t end) {
    const Tables tables = same_slots(*backend, slots(0, 2));
    run_pass(*backend,
             {{}, {}, {make_span(tokens, begin, end, tables, spec_.layer_count(), LogitsWanted::kLast)}},
             results_);
    return results_[0].status;
  };
  EXPECT_TRUE(run(0, 20).ok());
  EXPECT_TRUE(run(20, 21).ok());
  for (const std::uint32_t end :
       {40u, 22u}) {  // a prompt; a decode step, whose graph fails and whose kernels do
    simulated::set_options({.refused_kernel = "activate"});
    const Status status = run(21, end);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("refused activate"), std::string::npos) << status.to_string();
    EXPECT_TRUE(backend->health().ok());
    simulated::set_options({});
    EXPECT_TRUE(run(21, end).ok());
  }
}

// Hidden states of a model in which they are smaller, in a block of zeros.
class CudaHiddenFaultsTest : public CudaBackendFaultsTest {
 protected:
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
};

// A sequence of six blocks, of which a product takes the rows of five; what computing leaves of it, and the
// hidden states of the blocks.
class CudaRefusedProjectionTest : public CudaHiddenFaultsTest {
 protected:
  static constexpr std::uint32_t kBlocks = 6, kHidden = kBlocks * kBlockTokens, kTokens = kHidden + 8;
  static constexpr std::uint32_t kThere = 8;  // first slot of what comes as hidden states

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
    reader.tables[0].blocks[2] = SlotId(15);
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
  // Where the device has no room for what a graph keeps, steps run plainly.
  const auto without = make_backend(spec_, {});
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

// Memory that is taken or freed while serving waits for the device: what passes need is there from the start.
TEST_F(CudaBackendFaultsTest, PassesOfTheExpectedSizeTakeNoMemory) {
  const auto backend = make_backend(spec_, {}, 200);
  const std::uint32_t layers = spec_.layer_count();
  const std::vector<TokenId> tokens = random_tokens(3, 600, spec_.vocabulary);
  simulated::set_options({});
  const auto run = [&](std::uint32_t spans, std::uint32_t begin, std::uint32_t end) {
    Pass pass;
    for (std::uint32_t i = 0; i < spans; ++i) {
      pass.spans.push_back(make_span(tokens, begin, end, same_slots(*backend, slots(20 * i, 19)), layers,
                                     LogitsWanted::kLast));
      pass.spans.back().sampling = DeviceSampling{.temperature = 1, .top_p = 0.9f};
    }
    run_pass(*backend, pass, results_);
    for (const SpanResult& result : results_) EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  };
  for (const std::uint32_t spans : {1u, 8u, 3u}) {
    run(spans, 0, 20);
    run(spans, 20, 21);
    run(spans, 580, 600);  // blocks that nobody wrote hold zeros
    for (std::uint32_t at = 596; at < 599; ++at) run(spans, at, at + 1);
  }
  run(1, 0, 160);
  EXPECT_EQ(simulated::counters().allocations, 0u);
}

TEST_F(CudaBackendFaultsTest, ADeviceWithoutCodeIsRefusedByName) {
  simulated::set_options({.capability = 100});
  const Status status = make_cuda_backend(spec_, small()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("cuda:0 (simulated device) has compute capability 10.0, for which"),
            std::string::npos)
      << status.to_string();
}

TEST(CudaDevicesTest, CodeRunsOnLaterDevicesOfItsOwnGeneration) {
  for (const std::uint32_t capability : {80u, 86u, 89u, 90u})
    EXPECT_TRUE(has_code_for("80,89,90a", capability));
  for (const std::uint32_t capability : {70u, 75u, 87u, 100u, 103u, 120u})
    EXPECT_FALSE(has_code_for("80,89,90a", capability));
  EXPECT_FALSE(has_code_for("89,90a", 86));
  EXPECT_FALSE(has_code_for("90a", 80));
}

TEST(CudaGraphsTest, BucketsHaveRoomAndLittlePadding) {
  for (std::uint32_t rows_max = 1; rows_max <= 300; ++rows_max) {
    const DecodeGraphs graphs(rows_max);
    const std::vector<std::uint32_t> buckets = graph_buckets(rows_max);
    EXPECT_TRUE(std::is_sorted(buckets.begin(), buckets.end()));
    EXPECT_EQ(buckets.back(), rows_max);
    for (std::uint32_t rows = 1; rows <= rows_max; ++rows) {
      const std::uint32_t bucket = graphs.bucket_for(rows);
      EXPECT_GE(bucket, rows);
      EXPECT_LT(bucket, 2 * rows);
      EXPECT_NE(std::find(buckets.begin(), buckets.end(), bucket), buckets.end());
    }
    EXPECT_EQ(graphs.bucket_for(rows_max + 1), 0u);
  }
  EXPECT_EQ(DecodeGraphs(0).bucket_for(1), 0u);
}

TEST(CudaDevicesTest, TellsOfTheMachinesDevices) {
  std::string reason;
  const std::vector<CudaDeviceInfo> devices = cuda_devices(reason);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "simulated device");
  EXPECT_EQ(devices[0].capability, 90u);
  EXPECT_GT(devices[0].free_bytes, 0u);
  EXPECT_TRUE(reason.empty());
}

}  // namespace
}  // namespace loci::cuda
