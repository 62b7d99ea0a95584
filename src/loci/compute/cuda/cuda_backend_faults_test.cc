// SPDX-License-Identifier: Apache-2.0
// How the CUDA backend handles faults of a simulated device: memory that runs out, a device that is lost.
// Also tests whether decode steps are graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/compute/backend_testing.h"
#include "loci/compute/cuda/cuda_backend.h"
#include "loci/compute/cuda/cuda_backend_testing.h"
#include "loci/compute/cuda/cuda_graphs.h"
#include "loci/compute/cuda/devices.h"
#include "loci/compute/cuda/runtime.h"
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

// The library reports that kernels did not start for many reasons, lack of memory among them.
TEST_F(CudaBackendFaultsTest, AProductThatTheLibraryFailsCostsItsPassAlone) {
  const auto backend = make_backend(spec_, {});
  const std::vector<TokenId> tokens = random_tokens(3, 40, spec_.vocabulary);
  const auto run = [&] {
    run_pass(*backend,
             {{},
              {},
              {make_span(tokens, 0, 40, same_slots(*backend, slots(0, 2)), spec_.layer_count(),
                         LogitsWanted::kLast)}},
             results_);
    return results_[0].status;
  };
  ASSERT_TRUE(run().ok());
  const Bits expected = bits_of(results_[0].logits);
  simulated::set_options({.library_failures = 1});
  const Status status = run();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("library failed a product"), std::string::npos) << status.to_string();
  EXPECT_TRUE(backend->health().ok()) << backend->health().to_string();
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(bits_of(results_[0].logits), expected);
}

TEST_F(CudaBackendFaultsTest, WhatAFailedPassDidNotCopyIsNotReadAsState) {
  const auto backend = make_backend(spec_, {});
  const std::vector<TokenId> tokens = random_tokens(3, 40, spec_.vocabulary);
  const auto run = [&](std::uint32_t begin, std::uint32_t first_slot, std::vector<BlockCopy> copies) {
    const Tables tables = same_slots(*backend, slots(first_slot, 2));
    run_pass(*backend,
             {{},
              std::move(copies),
              {make_span(tokens, begin, 40, tables, spec_.layer_count(), LogitsWanted::kAll)}},
             results_);
    return results_[0].status;
  };
  const BlockCopy copy{SlotId(0), SlotId(2), 20, 0};
  ASSERT_TRUE(run(0, 0, {}).ok());
  ASSERT_TRUE(run(20, 0, {}).ok());
  const Bits expected = bits_of(results_[0].logits);
  struct Fault {
    simulated::Options options;
    StatusCode code;
    bool copied;
  };
  for (const Fault& fault :
       {Fault{{.refused_kernel = "copy_tokens"}, StatusCode::kInternal, false},
        Fault{{.refused_kernel = "copy_tokens", .refused_after = 1}, StatusCode::kInternal, false},
        Fault{{.refused_kernel = "activate"}, StatusCode::kInternal, true}}) {
    EXPECT_TRUE(run(0, 2, {}).ok()) << "other state is there";
    simulated::set_options(fault.options);
    EXPECT_EQ(run(20, 2, {copy}).code(), fault.code);
    simulated::set_options({});
    EXPECT_EQ(run(20, 2, {}).code(), fault.copied ? StatusCode::kOk : StatusCode::kDataLoss);
    ASSERT_TRUE(run(20, 2, {copy}).ok());
    EXPECT_EQ(bits_of(results_[0].logits), expected);
  }
  // The first pass that wants so many logits finds no memory.
  const auto other = make_backend(spec_, {});
  const Tables tables = same_slots(*other, slots(2, 2));
  simulated::set_options({.pinned_bytes = 1});
  Pass pass;
  pass.copies.push_back(copy);
  pass.spans.push_back(make_span(tokens, 20, 40, tables, spec_.layer_count(), LogitsWanted::kAll));
  run_pass(*other, pass, results_);
  EXPECT_EQ(results_[0].status.code(), StatusCode::kResourceExhausted);
  simulated::set_options({});
  pass.copies.clear();
  run_pass(*other, pass, results_);
  EXPECT_EQ(results_[0].status.code(), StatusCode::kDataLoss);
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
  EXPECT_GT(devices[0].memory_bytes, 0u);
  EXPECT_TRUE(reason.empty());
}

// A context stays on a GPU until the process ends, and other processes lack its memory.
TEST_F(CudaBackendFaultsTest, ListingDevicesOpensNone) {
  simulated::set_options({.devices = 3});
  std::string reason;
  EXPECT_EQ(cuda_devices(reason).size(), 3u);
  EXPECT_EQ(simulated::counters().opened, 0u);
  CudaBackendOptions second = small();
  second.ordinal = 1;
  const Result<std::unique_ptr<Backend>> backend = make_cuda_backend(spec_, second);
  ASSERT_TRUE(backend.ok()) << backend.status().to_string();
  EXPECT_EQ(simulated::counters().opened, 1u);
  EXPECT_EQ((*backend)->info().name, "cuda:1");
}

TEST_F(CudaBackendFaultsTest, ABackendTellsWhatItLeftFree) {
  simulated::set_options({.memory_bytes = 100u << 20});
  const Result<std::unique_ptr<Backend>> backend = make_cuda_backend(spec_, small());
  ASSERT_TRUE(backend.ok()) << backend.status().to_string();
  const std::uint64_t left = (*Device::open(0))->free_bytes();
  EXPECT_EQ((*backend)->info().free_bytes, left);
  EXPECT_LT(left, 100u << 20);
}

}  // namespace
}  // namespace loci::cuda
