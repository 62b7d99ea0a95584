// SPDX-License-Identifier: Apache-2.0
// Properties of the whole backend on random tiny models of every family. Without --deterministic its logits
// are close to the CPU backend's; with it the bits of a token's logits and state depend only on the model and
// the tokens before it, in whatever way they were computed or loaded.
#include "loci/compute/cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/cuda/cuda_backend_testing.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {
namespace {

// Together the seeds have every feature of random_spec_testing.h that this backend serves: sinks, windows
// (several groups), mixtures, parallel layers, norms of all kinds, learned positions, caps, biases, ...
std::vector<NamedShape> families() {
  std::vector<NamedShape> all = {{"f16", llama(TensorType::kF16)},
                                 {"bf16", llama(TensorType::kBF16, 64, 64)}};
  for (const std::uint64_t seed : {2163, 879, 165, 340, 74, 85, 146})
    all.push_back({"spec_" + std::to_string(seed), seed});
  return all;
}

// And every format of matrices.
std::vector<NamedShape> shapes() {
  std::vector<NamedShape> all = families();
  all.push_back({"q8_0", llama(TensorType::kQ8_0, 64, 32)});
  all.push_back({"q4_0", llama(TensorType::kQ4_0)});
  all.push_back({"q4_k", llama(TensorType::kQ4_K, 256, 64)});
  all.push_back({"q6_k", llama(TensorType::kQ6_K, 256, 64)});
  return all;
}

class CudaBackendFormatsTest : public CudaBackendTest {};

// Logits of all tokens of a sequence, as a prompt and then token by token.
std::vector<float> logits_of(Backend& backend, const ModelSpec& spec, const std::vector<TokenId>& tokens,
                             std::uint32_t prompt) {
  std::vector<SpanResult> results;
  std::vector<float> logits;
  const Tables tables = same_slots(backend, slots(0, 4));
  const auto count = static_cast<std::uint32_t>(tokens.size());
  for (std::uint32_t begin = 0, end = prompt; begin < count; begin = end, end = begin + 1) {
    run_pass(backend,
             {{}, {}, {make_span(tokens, begin, end, tables, spec.layer_count(), LogitsWanted::kAll)}},
             results);
    EXPECT_TRUE(results[0].status.ok()) << results[0].status.to_string();
    logits.insert(logits.end(), results[0].logits.begin(), results[0].logits.end());
  }
  return logits;
}

// How far logits may be from the CPU backend's, relative to their norm. Activations are rounded to 16 bits
// some ten times a layer, each by at most 2^-9 (bf16) or 2^-12 (f16) of itself on average; independent errors
// of that size, added up over two or three layers and amplified by norms and caps, give 0.01 and 0.001. The
// CPU backend rounds inputs of quantised matrices to int8, by about 2^-8 of their block's greatest: 0.02. A
// wrong kernel is off by as much as the norm.
double closeness(const ModelSpec& spec, const Backend& backend) {
  const TensorType type = spec.layers[0].query.type;
  const bool floats = type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16;
  if (!floats) return 0.05;
  return backend.info().layout.ends_with(",bf16") ? 0.03 : 0.005;
}

// `backend`: its blocks allocated. How many tokens have a clear winner, the same in both.
std::uint32_t expect_close_to_cpu(Backend& backend, const ModelSpec& spec) {
  constexpr std::uint32_t kTokens = 36, kPrompt = 31;
  const std::vector<TokenId> tokens = random_tokens(1, kTokens, spec.vocabulary);
  Result<std::unique_ptr<Backend>> cpu = make_cpu_backend(spec, {.threads = 1});
  LOCI_CHECK(cpu.ok(), "the CPU backend serves all");
  for (std::uint32_t g = 0; g < (*cpu)->info().groups.size(); ++g)
    LOCI_CHECK((*cpu)->allocate_blocks(g, 4).ok(), "there is memory");
  const std::vector<float> expected = logits_of(**cpu, spec, tokens, kPrompt);
  const std::vector<float> found = logits_of(backend, spec, tokens, kPrompt);
  LOCI_CHECK(found.size() == expected.size(), "as many logits");
  std::uint32_t clear = 0;
  std::vector<double> errors;
  for (std::uint32_t token = 0; token < kTokens; ++token) {
    const std::span a = std::span(expected).subspan(std::size_t{token} * spec.vocabulary, spec.vocabulary);
    const std::span b = std::span(found).subspan(std::size_t{token} * spec.vocabulary, spec.vocabulary);
    double norm = 0, error = 0, most = 0;
    for (std::uint32_t i = 0; i < spec.vocabulary; ++i) {
      const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
      norm += static_cast<double>(a[i]) * static_cast<double>(a[i]);
      error += difference * difference;
      most = std::max(most, std::abs(difference));
    }
    errors.push_back(std::sqrt(error / norm));
    const std::uint32_t best = greatest(a);
    float second = -INFINITY;
    for (std::uint32_t i = 0; i < spec.vocabulary; ++i) {
      if (i != best) second = std::max(second, a[i]);
    }
    if (static_cast<double>(a[best] - second) <= 2 * most) continue;
    ++clear;
    EXPECT_EQ(greatest(b), best) << "token " << token;
  }
  std::sort(errors.begin(), errors.end());
  // A router's near ties may fall to another expert: such rows differ, but they are few.
  const std::size_t strays = spec.experts > 0 ? kTokens / 4 : 0;
  EXPECT_LT(errors[kTokens - 1 - strays], closeness(spec, backend));
  EXPECT_LT(errors[kTokens / 2], closeness(spec, backend) / 2);
  return clear;
}

TEST_P(CudaBackendFormatsTest, LogitsAreCloseToTheCpuBackends) {
  const auto backend = make_backend(spec_, {});
  EXPECT_GT(expect_close_to_cpu(*backend, spec_), 9u) << "many tokens have a clear winner";
}

// Layers of any family, as many as there is time for; those that this backend refuses are told apart.
TEST(CudaBackendSpecsTest, RandomLayersAreCloseToTheCpuBackends) {
  const bool simulated = (*Device::open(0))->properties().simulated;
  const std::uint64_t count = simulated ? 6 : 200;
  std::uint64_t served = 0;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    SCOPED_TRACE(seed);
    const auto model = TestModel::make(seed);
    Result<std::unique_ptr<Backend>> backend = make_cuda_backend(model->spec, small_options({}));
    if (!backend.ok()) {
      EXPECT_EQ(backend.status().code(), StatusCode::kInvalidArgument) << backend.status().to_string();
      continue;
    }
    ++served;
    for (std::uint32_t group = 0; group < (*backend)->info().groups.size(); ++group)
      ASSERT_TRUE((*backend)->allocate_blocks(group, 16).ok());
    static_cast<void>(expect_close_to_cpu(**backend, model->spec));
  }
  EXPECT_GT(served, count / 4);
}

TEST_P(CudaBackendFormatsTest, AnyChunkingAndBatchGivesTheSameBits) {
  const Expected* const sequences[] = {&expected(45), &expected(33), &expected(12)};
  Random random(7);
  const auto backend = make_backend(spec_, deterministic());
  const std::vector<Tables> tables = {same_slots(*backend, {SlotId(9), SlotId(2), SlotId(5)}),
                                      same_slots(*backend, {SlotId(0), SlotId(7)}),
                                      same_slots(*backend, {SlotId(3), SlotId(11)})};
  std::vector<std::uint32_t> done(std::size(sequences), 0);
  const auto left = [&](std::size_t s) {
    return static_cast<std::uint32_t>(sequences[s]->tokens.size()) - done[s];
  };
  while (left(0) + left(1) + left(2) > 0) {
    Pass pass;
    std::vector<std::size_t> who;
    for (std::size_t s = 0; s < std::size(sequences); ++s) {
      if (left(s) == 0 || random.below(4) == 0) continue;
      const std::uint32_t most = random.below(3) == 0 ? 1 : 30;
      const auto count = std::min<std::uint32_t>(left(s), 1 + static_cast<std::uint32_t>(random.below(most)));
      pass.spans.push_back(make_span(sequences[s]->tokens, done[s], done[s] + count,
                                     without_unseen(*backend, tables[s], done[s]), layers_,
                                     static_cast<LogitsWanted>(random.below(3))));
      who.push_back(s);
    }
    run_pass(*backend, pass, results_);
    ASSERT_EQ(results_.size(), pass.spans.size());
    for (std::size_t i = 0; i < who.size(); ++i) {
      ASSERT_TRUE(results_[i].status.ok()) << results_[i].status.to_string();
      const auto count = static_cast<std::uint32_t>(pass.spans[i].tokens.size());
      const std::uint32_t end = done[who[i]] + count;
      const LogitsWanted wanted = pass.spans[i].logits;
      const std::uint32_t begin = wanted == LogitsWanted::kAll    ? done[who[i]]
                                  : wanted == LogitsWanted::kLast ? end - 1
                                                                  : end;
      ASSERT_EQ(bits_of(results_[i].logits), sequences[who[i]]->rows(begin, end)) << "tokens to " << end;
      done[who[i]] = end;
    }
  }
  for (std::size_t s = 0; s < std::size(sequences); ++s)
    EXPECT_EQ(state_of(*backend, spec_, tables[s], done[s]), sequences[s]->state);
}

class CudaBackendGraphsTest : public CudaBackendTest {};

TEST_P(CudaBackendGraphsTest, GraphsGiveTheBitsOfPlainIssue) {
  // In default mode, too, where the batch fills its bucket; three rows in a bucket of four in the
  // deterministic one.
  for (const bool fixed : {false, true}) {
    const std::uint32_t batch = fixed ? 3 : 2;
    std::vector<Bits> logits[2];
    for (const bool graphs : {false, true}) {
      CudaBackendOptions options;
      options.deterministic = fixed;
      options.graphs = graphs;
      const auto backend = make_backend(spec_, options);
      for (std::uint32_t step = 0; step < 4; ++step) {
        Pass pass;
        for (std::uint32_t who = 0; who < batch; ++who) {
          const std::vector<TokenId> tokens = random_tokens(30 + who, 6 + who + step, spec_.vocabulary);
          const auto end = static_cast<std::uint32_t>(tokens.size());
          pass.spans.push_back(make_span(tokens, step == 0 ? 0 : end - 1, end,
                                         same_slots(*backend, slots(who, 1)), layers_, LogitsWanted::kLast));
        }
        run_pass(*backend, pass, results_);
        for (const SpanResult& result : results_) {
          ASSERT_TRUE(result.status.ok());
          logits[graphs ? 1 : 0].push_back(bits_of(result.logits));
        }
      }
    }
    EXPECT_EQ(logits[0], logits[1]) << fixed;
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, CudaBackendGraphsTest,
                         testing::Values(NamedShape{"f16", llama(TensorType::kF16)},
                                         NamedShape{"q8_0", llama(TensorType::kQ8_0, 64, 32)},
                                         NamedShape{"spec_2163", std::uint64_t{2163}},
                                         NamedShape{"spec_85", std::uint64_t{85}}),
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(Formats, CudaBackendFormatsTest, testing::ValuesIn(shapes()),
                         [](const auto& tested) { return tested.param.name; });

TEST(CudaBackendContextTest, ContextsBeyondOneSplitOfAttentionGiveTheSameBits) {
  const auto model = TestModel::make(llama(TensorType::kF16));
  const std::uint32_t layers = model->spec.layer_count();
  constexpr std::uint32_t kTokens = 560;  // attention's partials end at multiples of 512
  const std::vector<TokenId> tokens = random_tokens(40, kTokens, model->spec.vocabulary);
  std::vector<Bits> logits;
  std::vector<SpanResult> results;
  for (const std::uint32_t chunk : {160u, 99u}) {
    const auto backend = make_backend(model->spec, deterministic(), 20);
    const Tables tables = same_slots(*backend, slots(0, 18));
    Bits last;
    for (std::uint32_t begin = 0; begin < kTokens;) {
      // The last ones are decode steps.
      const std::uint32_t end = begin < kTokens - 3 ? std::min(kTokens - 3, begin + chunk) : begin + 1;
      run_pass(*backend, {{}, {}, {make_span(tokens, begin, end, tables, layers, LogitsWanted::kLast)}},
               results);
      ASSERT_TRUE(results[0].status.ok());
      if (end >= kTokens - 3) {
        const Bits bits = bits_of(results[0].logits);
        last.insert(last.end(), bits.begin(), bits.end());
      }
      begin = end;
    }
    logits.push_back(last);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST(MakeCudaBackendTest, RefusesWhatItCannotServe) {
  const auto model = TestModel::make(llama(TensorType::kF16));
  ModelSpec odd = model->spec;
  odd.head_dim = 24;
  EXPECT_EQ(make_cuda_backend(odd, {}).status().code(), StatusCode::kInvalidArgument);
  const auto narrow = TestModel::make(RandomModelOptions{.hidden = 60, .ffn = 64});
  EXPECT_EQ(make_cuda_backend(narrow->spec, {}).status().field(), "hidden");
  const auto thin = TestModel::make(RandomModelOptions{.hidden = 64, .head_dim = 8});
  EXPECT_EQ(make_cuda_backend(thin->spec, {}).status().field(), "head_dim");
  const auto feed = TestModel::make(RandomModelOptions{.hidden = 64, .ffn = 90});
  EXPECT_EQ(make_cuda_backend(feed->spec, {}).status().field(), feed->spec.layers[0].ffn.up.name);
  CudaBackendOptions nowhere;
  nowhere.ordinal = 1000;
  EXPECT_EQ(make_cuda_backend(model->spec, nowhere).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace loci::cuda
