// SPDX-License-Identifier: Apache-2.0
// However a sequence's state came to be where it is, with --deterministic the bits are the same: copied,
// brought by movers while its readers run, partly recomputed, partly there; captured inputs project to it;
// passes ahead feed their own samples. On random tiny models of several families.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/compute/backend_testing.h"
#include "loci/compute/cuda/cuda_backend.h"
#include "loci/compute/cuda/cuda_backend_testing.h"

namespace loci::cuda {
namespace {

// Mixtures, parallel layers, several groups, learned positions.
std::vector<NamedShape> families() {
  std::vector<NamedShape> all = {{"f16", llama(TensorType::kF16)},
                                 {"bf16", llama(TensorType::kBF16, 64, 64)}};
  for (const std::uint64_t seed : {2163, 879, 85}) all.push_back({"spec_" + std::to_string(seed), seed});
  return all;
}

TEST_P(CudaBackendTest, ACopiedPrefixContinuesAsTheOriginal) {
  const Expected& whole = expected(69);
  const auto backend = make_backend(spec_, deterministic());
  // Slot 5 holds another part of the state; it becomes tokens 32..48.
  run_pass(*backend,
           {{}, {}, {make_span(whole.tokens, 0, 64, same_slots(*backend, slots(0, 2)), layers_, {})}},
           results_);
  run_pass(*backend,
           {{}, {}, {make_span(whole.tokens, 0, 32, same_slots(*backend, slots(5, 1)), layers_, {})}},
           results_);
  Pass pass;
  for (std::uint32_t group = 0; group < backend->info().groups.size(); ++group)
    pass.copies.push_back({SlotId(1), SlotId(5), 17, group});
  pass.spans.push_back(make_span(whole.tokens, 49, 64, same_slots(*backend, {SlotId(0), SlotId(5)}), layers_,
                                 LogitsWanted::kAll));
  run_pass(*backend, pass, results_);
  EXPECT_EQ(bits_of(results_[0].logits), whole.rows(49, 64));
}

TEST_P(CudaBackendTest, LayersThatArriveWhileTheirReadersRunAreTheSame) {
  const Expected& whole = expected(69);
  // All layers arrive, or the first ones are recomputed in the same pass.
  for (std::uint32_t split = 0; split < 2; ++split) {
    const auto backend = make_backend(spec_, deterministic());
    run_pass(*backend,
             {{}, {}, {make_span(whole.tokens, 0, 64, same_slots(*backend, slots(0, 2)), layers_, {})}},
             results_);
    for (std::uint32_t block = 0; block < 2; ++block) begin_fill(*backend, SlotId(5 + block));
    std::thread mover([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      move_layers(*backend, 0, 5, 2, split);
    });
    const Tables tables = same_slots(*backend, slots(5, 3));
    Pass pass;
    if (split > 0) pass.spans.push_back(make_span(whole.tokens, 0, 64, tables, split, LogitsWanted::kNone));
    pass.spans.push_back(make_span(whole.tokens, 64, 69, tables, layers_, LogitsWanted::kAll));
    run_pass(*backend, pass, results_);
    mover.join();
    ASSERT_TRUE(results_.back().status.ok());
    EXPECT_EQ(bits_of(results_.back().logits), whole.rows(64, 69)) << split;
    EXPECT_EQ(state_of(*backend, spec_, tables, 69), whole.state) << split;
  }
}

TEST_P(CudaBackendTest, AFailedFillPoisonsOnlyItsReaders) {
  const Expected &whole = expected(69), &other = expected(33);
  const auto backend = make_backend(spec_, deterministic());
  begin_fill(*backend, SlotId(3));
  std::thread mover([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (std::uint32_t group = 0; group < backend->info().groups.size(); ++group)
      backend->fill_failed(group, SlotId(3));
  });
  Pass pass;
  pass.spans.push_back(
      make_span(whole.tokens, 32, 40, same_slots(*backend, slots(3, 2)), layers_, LogitsWanted::kLast));
  pass.spans.push_back(
      make_span(other.tokens, 0, 20, same_slots(*backend, slots(6, 1)), layers_, LogitsWanted::kAll));
  run_pass(*backend, pass, results_);
  mover.join();
  EXPECT_EQ(results_[0].status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(results_[0].logits.empty());
  ASSERT_TRUE(results_[1].status.ok());
  EXPECT_EQ(bits_of(results_[1].logits), other.rows(0, 20));
  // The slot is used anew: written from its first token, it is whole again.
  run_pass(*backend,
           {{},
            {},
            {make_span(whole.tokens, 0, 40, same_slots(*backend, slots(3, 2)), layers_, LogitsWanted::kAll)}},
           results_);
  ASSERT_TRUE(results_[0].status.ok());
  EXPECT_EQ(bits_of(results_[0].logits), whole.rows(0, 40));
}

TEST_P(CudaBackendTest, APassThatRunsOutOfPatiencePoisonsOnlyWhoWaits) {
  const Expected &whole = expected(69), &other = expected(33);
  const auto backend = make_backend(spec_, deterministic());
  run_pass(*backend,
           {{}, {}, {make_span(whole.tokens, 0, 32, same_slots(*backend, slots(0, 1)), layers_, {})}},
           results_);
  begin_fill(*backend, SlotId(5));
  Pass pass;
  pass.patience = 20 * kNanosPerMilli;
  pass.spans.push_back(
      make_span(whole.tokens, 32, 40, same_slots(*backend, slots(5, 2)), layers_, LogitsWanted::kAll));
  pass.spans.push_back(
      make_span(other.tokens, 0, 20, same_slots(*backend, slots(8, 1)), layers_, LogitsWanted::kAll));
  run_pass(*backend, pass, results_);
  EXPECT_EQ(results_[0].status.code(), StatusCode::kDataLoss);
  ASSERT_TRUE(results_[1].status.ok());
  EXPECT_EQ(bits_of(results_[1].logits), other.rows(0, 20));
  move_layers(*backend, 0, 5, 1, 0);
  run_pass(*backend, pass, results_);
  ASSERT_TRUE(results_[0].status.ok());
  EXPECT_EQ(bits_of(results_[0].logits), whole.rows(32, 40));
}

TEST_P(CudaBackendTest, WhatIsThereIsNotWrittenAgain) {
  const Expected& whole = expected(37);
  const auto backend = make_backend(spec_, deterministic());
  Tables tables = same_slots(*backend, slots(0, 2));
  run_pass(*backend, {{}, {}, {make_span(whole.tokens, 0, 37, tables, layers_, LogitsWanted::kNone)}},
           results_);
  // Other tokens below write_from: were they written, the state would be theirs.
  for (BlockTable& table : tables) table.write_from = 30;
  std::vector<TokenId> tokens = whole.tokens;
  for (std::uint32_t i = 0; i < 30; ++i) tokens[i] = TokenId((tokens[i].value + 1) % spec_.vocabulary);
  run_pass(*backend, {{}, {}, {make_span(tokens, 0, 37, tables, layers_, LogitsWanted::kAll)}}, results_);
  const Bits found = bits_of(results_[0].logits);
  const std::size_t rows = 7 * std::size_t{spec_.vocabulary};
  EXPECT_EQ(Bits(found.end() - static_cast<std::ptrdiff_t>(rows), found.end()), whole.rows(30, 37));
  EXPECT_EQ(state_of(*backend, spec_, tables, 37), whole.state);
}

TEST_P(CudaBackendTest, CapturedHiddenStatesProjectToTheStateThatWasThere) {
  const Expected& whole = expected(37);
  const auto backend = make_backend(spec_, deterministic());
  const Tables tables = same_slots(*backend, slots(0, 2));
  const std::uint64_t row_bytes = backend->info().hidden_row_bytes;
  ASSERT_EQ(row_bytes, spec_.hidden * 2u);
  run_pass(*backend, {{}, {}, {make_span(whole.tokens, 0, 5, tables, layers_, LogitsWanted::kNone)}},
           results_);
  const CaptureBuffers captured(*backend, 32);
  Pass pass;
  pass.spans.push_back(make_span(whole.tokens, 5, 37, tables, layers_, LogitsWanted::kLast));
  pass.spans[0].capture = captured.tokens(0, 32);
  run_pass(*backend, pass, results_);
  const bool half = backend->info().layout.ends_with(",f16,deterministic");
  const auto value_of = [&](std::uint16_t bits) {
    return static_cast<double>(half ? f16_to_f32(bits) : bf16_to_f32(bits));
  };
  // Values: neither norms nor rotation come between them and the product.
  const double rounding = half ? 0x1p-10 : 0x1p-7;
  std::vector<std::byte> slice(backend->info().groups[0].layer_slice_bytes);
  std::vector<float> row(spec_.hidden), bias(spec_.kv_width(), 0.0f);
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    const LayerSpec& weights = spec_.layers[layer];
    if (weights.value_bias.present()) decode_row(weights.value_bias, 0, bias);
    const auto* hidden = reinterpret_cast<const std::uint16_t*>(captured.layer(layer).data());
    save_slice(*backend, SlotId(0), layer, slice);
    const auto* state = reinterpret_cast<const std::uint16_t*>(slice.data());
    for (std::uint32_t i = 0; i < spec_.kv_width(); i += 5) {
      decode_row(weights.value, i, row);
      for (std::uint32_t token = 5; token < 32; ++token) {
        double sum = static_cast<double>(bias[i]), size = std::abs(sum);
        for (std::uint32_t k = 0; k < spec_.hidden; ++k) {
          const double product =
              static_cast<double>(row[k]) * value_of(hidden[(token - 5) * spec_.hidden + k]);
          sum += product;
          size += std::abs(product);
        }
        const std::uint32_t head = spec_.kv_heads + i / spec_.head_dim;
        const double found =
            value_of(state[(head * kBlockTokens + token) * std::size_t{spec_.head_dim} + i % spec_.head_dim]);
        // Weights that are held in a smaller type than the file's are rounded once, sums once.
        ASSERT_NEAR(found, sum, rounding * size) << "layer " << layer << " token " << token << " value " << i;
      }
    }
  }
}

// Greedy tokens, fed back by the host.
std::vector<std::uint32_t> continue_greedily(Backend& backend, const ModelSpec& spec,
                                             std::vector<TokenId> tokens, const Tables& tables,
                                             std::uint32_t count) {
  std::vector<std::uint32_t> sampled;
  std::vector<SpanResult> results;
  for (std::uint32_t begin = 0; sampled.size() < count;) {
    const auto end = static_cast<std::uint32_t>(tokens.size());
    run_pass(backend,
             {{}, {}, {make_span(tokens, begin, end, tables, spec.layer_count(), LogitsWanted::kLast)}},
             results);
    sampled.push_back(greatest(results[0].logits));
    tokens.emplace_back(sampled.back());
    begin = end;
  }
  return sampled;
}

TEST_P(CudaBackendTest, PassesAheadFeedTheirSamplesOnTheDevice) {
  constexpr std::uint32_t kSteps = 5;
  const std::vector<TokenId> a = random_tokens(20, 9, spec_.vocabulary);
  const std::vector<TokenId> b = random_tokens(21, 30, spec_.vocabulary);
  const auto alone = make_backend(spec_, deterministic());
  const auto expected_a = continue_greedily(*alone, spec_, a, same_slots(*alone, slots(0, 2)), kSteps);
  const auto expected_b = continue_greedily(*alone, spec_, b, same_slots(*alone, slots(2, 2)), kSteps);

  const auto backend = make_backend(spec_, deterministic());
  ASSERT_TRUE(backend->info().samples);
  ASSERT_EQ(backend->info().passes_ahead, 1u);
  const std::vector<Tables> tables = {same_slots(*backend, {SlotId(8), SlotId(4)}),
                                      same_slots(*backend, {SlotId(1), SlotId(6)})};
  std::vector<std::vector<std::uint32_t>> sampled(2);
  // The two sequences change places in every pass.
  const auto index_of = [](std::uint32_t step, std::uint32_t who) { return (step + who) % 2; };
  const auto begin = [&](std::uint32_t step) {
    Pass pass;
    pass.spans.resize(2);
    for (std::uint32_t who = 0; who < 2; ++who) {
      const std::vector<TokenId>& prompt = who == 0 ? a : b;
      const auto size = static_cast<std::uint32_t>(prompt.size());
      Span& span = pass.spans[index_of(step, who)];
      if (step == 0) {
        span = make_span(prompt, 0, size, tables[who], layers_, LogitsWanted::kLast);
      } else {
        span = make_span({TokenId(UINT32_MAX)}, 0, 1, tables[who], layers_, LogitsWanted::kLast);
        span.position = size + step - 1;
        span.token_of = index_of(step - 1, who);
      }
      span.sampling = DeviceSampling{};
    }
    backend->begin(std::move(pass));
  };
  const auto finish = [&](std::uint32_t step) {
    backend->finish(results_);
    for (std::uint32_t who = 0; who < 2; ++who) {
      const SpanResult& result = results_[index_of(step, who)];
      ASSERT_TRUE(result.status.ok()) << result.status.to_string();
      ASSERT_TRUE(result.sample.has_value());
      EXPECT_TRUE(result.logits.empty());
      sampled[who].push_back(result.sample->value);
    }
  };
  begin(0);
  for (std::uint32_t step = 1; step < kSteps; ++step) {
    begin(step);
    finish(step - 1);
  }
  finish(kSteps - 1);
  EXPECT_EQ(sampled[0], expected_a);
  EXPECT_EQ(sampled[1], expected_b);
}

// More spans than the backend was told of: what they need grows between two passes on their way.
TEST(CudaBackendGrowthTest, ALargerPassKeepsTheSamplesThatItIsFed) {
  const auto model = TestModel::make(llama(TensorType::kF16));
  const ModelSpec& spec = model->spec;
  const std::uint32_t layers = spec.layer_count();
  const std::vector<TokenId> tokens = random_tokens(50, 9, spec.vocabulary);
  std::vector<SpanResult> results;
  const auto alone = make_backend(spec, deterministic());
  const auto expected = continue_greedily(*alone, spec, tokens, same_slots(*alone, slots(0, 1)), 2);
  const auto backend = make_backend(spec, deterministic());
  Pass prompt, next;
  prompt.spans.push_back(
      make_span(tokens, 0, 9, same_slots(*backend, slots(0, 1)), layers, LogitsWanted::kLast));
  prompt.spans[0].sampling = DeviceSampling{};
  for (std::uint32_t i = 0; i < 11; ++i) {
    Span span = make_span(tokens, 0, 1, same_slots(*backend, slots(i, 1)), layers, LogitsWanted::kLast);
    if (i == 0) {
      span.position = 9;
      span.token_of = 0;
    }
    span.sampling = DeviceSampling{};
    next.spans.push_back(std::move(span));
  }
  backend->begin(std::move(prompt));
  backend->begin(std::move(next));
  backend->finish(results);
  EXPECT_EQ(results[0].sample->value, expected[0]);
  backend->finish(results);
  ASSERT_EQ(results.size(), 11u);
  EXPECT_EQ(results[0].sample->value, expected[1]);
  for (std::uint32_t i = 2; i < 11; ++i) EXPECT_EQ(results[i].sample, results[1].sample);
}

TEST(CudaBackendTasksTest, RunsEachTaskOnce) {
  const auto model = TestModel::make(llama(TensorType::kF16));
  const auto backend = make_backend(model->spec, {});
  for (const std::uint32_t count : {0u, 1u, 2u, 97u}) {
    std::vector<std::atomic<std::uint32_t>> runs(count);
    backend->run_tasks(count, [&](std::uint32_t i) { ++runs[i]; });
    for (const auto& each : runs) EXPECT_EQ(each, 1u);
  }
}

TEST(CudaBackendCopiesTest, APassOfCopiesAloneCopies) {
  const auto model = TestModel::make(llama(TensorType::kF16));
  const ModelSpec& spec = model->spec;
  const Expected whole(spec, 32, 51);
  const auto backend = make_backend(spec, deterministic());
  std::vector<SpanResult> results;
  run_pass(
      *backend,
      {{}, {}, {make_span(whole.tokens, 0, 32, same_slots(*backend, slots(2, 1)), spec.layer_count(), {})}},
      results);
  Pass copies;
  copies.copies.push_back({SlotId(2), SlotId(9), 32, 0});
  run_pass(*backend, copies, results);
  EXPECT_TRUE(results.empty());
  EXPECT_EQ(state_of(*backend, spec, same_slots(*backend, slots(9, 1)), 32), whole.state);
}

INSTANTIATE_TEST_SUITE_P(Families, CudaBackendTest, testing::ValuesIn(families()),
                         [](const auto& tested) { return tested.param.name; });
}  // namespace
}  // namespace loci::cuda
