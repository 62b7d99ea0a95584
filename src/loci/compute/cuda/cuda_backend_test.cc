// Properties of the whole backend on random tiny models of every family. Without --deterministic its logits
// are close to the CPU backend's; with it the bits of a token's logits and state depend on the model and the
// tokens before it alone, whatever way they came about.
#include "loci/compute/cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/cuda/cuda_backend_testing.h"

namespace loci::cuda {
namespace {

std::vector<NamedShape> shapes() {
  std::vector<NamedShape> all = {{"f16", llama(TensorType::kF16)},
                                 {"bf16", llama(TensorType::kBF16, 64, 64)},
                                 {"q8_0", llama(TensorType::kQ8_0, 64, 32)},
                                 {"q4_0", llama(TensorType::kQ4_0)},
                                 {"q4_k", llama(TensorType::kQ4_K, 256, 64)},
                                 {"q6_k", llama(TensorType::kQ6_K, 256, 64)}};
  // Together they have every feature of random_spec.h that this backend serves: sinks, windows (several
  // groups), mixtures, parallel layers, norms of all kinds, learned positions, caps, biases, ...
  for (const std::uint64_t seed : {2163, 879, 165, 340, 74, 85, 146})
    all.push_back({"spec_" + std::to_string(seed), seed});
  return all;
}

CudaBackendOptions deterministic() {
  CudaBackendOptions options;
  options.deterministic = true;
  return options;
}

class CudaBackendTest : public testing::TestWithParam<NamedShape> {
 protected:
  const std::unique_ptr<TestModel> model_ = GetParam().make();
  const ModelSpec& spec_ = model_->spec;
  const std::uint32_t layers_ = spec_.layer_count();
  std::vector<SpanResult> results_;

  // As far as a span from `position` on can see.
  static Tables without_unseen(const Backend& backend, Tables tables, std::uint32_t position) {
    for (std::size_t group = 0; group < tables.size(); ++group) {
      const std::uint32_t first = first_visible(backend.info().groups[group].window, position);
      std::fill_n(tables[group].blocks.begin(), first / kBlockTokens, kNoSlot);
    }
    return tables;
  }
  // A mover's work: layers [first, end) of blocks from..from + count to the slots from `to` on.
  void move_layers(Backend& backend, std::uint32_t from, std::uint32_t to, std::uint32_t count,
                   std::uint32_t first) const {
    std::vector<std::byte> slice(backend.info().groups[0].layer_slice_bytes);
    for (std::uint32_t layer = first; layer < layers_; ++layer) {
      for (std::uint32_t block = 0; block < count; ++block) {
        backend.read_layer(SlotId(from + block), layer, slice);
        backend.write_layer(SlotId(to + block), layer, slice);
        backend.layer_arrived(SlotId(to + block), layer);
      }
    }
  }
  static void begin_fill(Backend& backend, SlotId slot) {
    for (std::uint32_t group = 0; group < backend.info().groups.size(); ++group)
      backend.begin_fill(group, slot);
  }
};

// Logits of all tokens of a sequence, as a prompt and then token by token.
std::vector<float> logits_of(Backend& backend, const ModelSpec& spec, const std::vector<TokenId>& tokens,
                             std::uint32_t prompt) {
  std::vector<SpanResult> results;
  std::vector<float> logits;
  const Tables tables = same_slots(backend, slots(0, 4));
  const auto count = static_cast<std::uint32_t>(tokens.size());
  for (std::uint32_t begin = 0, end = prompt; begin < count; begin = end, end = begin + 1) {
    backend.run({{}, {}, {make_span(tokens, begin, end, tables, spec.layer_count(), LogitsWanted::kAll)}},
                results);
    EXPECT_TRUE(results[0].status.ok()) << results[0].status.to_string();
    logits.insert(logits.end(), results[0].logits.begin(), results[0].logits.end());
  }
  return logits;
}

// Activations are rounded to 16 bits some ten times a layer, each by at most 2^-9 (bf16) or 2^-12 (f16) of
// itself on average; the CPU backend rounds those that meet quantised weights to int8, by about 2^-8 of their
// block's greatest. Independent errors of that size, added up over three layers and amplified by norms and
// caps, stay below a few hundredths of the logits' norm; a wrong kernel is off by as much as the norm.
TEST_P(CudaBackendTest, LogitsAreCloseToTheCpuBackends) {
  constexpr std::uint32_t kTokens = 44, kPrompt = 38;
  const std::vector<TokenId> tokens = random_tokens(1, kTokens, spec_.vocabulary);
  Result<std::unique_ptr<Backend>> cpu = make_cpu_backend(spec_, {.threads = 1});
  ASSERT_TRUE(cpu.ok());
  for (std::uint32_t g = 0; g < (*cpu)->info().groups.size(); ++g)
    ASSERT_TRUE((*cpu)->allocate_blocks(g, 4).ok());
  const auto backend = make_backend(spec_, {});
  const std::vector<float> expected = logits_of(**cpu, spec_, tokens, kPrompt);
  const std::vector<float> found = logits_of(*backend, spec_, tokens, kPrompt);
  ASSERT_EQ(found.size(), expected.size());
  std::uint32_t clear = 0;
  std::vector<double> errors;
  for (std::uint32_t token = 0; token < kTokens; ++token) {
    const std::span a = std::span(expected).subspan(std::size_t{token} * spec_.vocabulary, spec_.vocabulary);
    const std::span b = std::span(found).subspan(std::size_t{token} * spec_.vocabulary, spec_.vocabulary);
    double norm = 0, error = 0, most = 0;
    for (std::uint32_t i = 0; i < spec_.vocabulary; ++i) {
      const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
      norm += static_cast<double>(a[i]) * static_cast<double>(a[i]);
      error += difference * difference;
      most = std::max(most, std::abs(difference));
    }
    errors.push_back(std::sqrt(error / norm));
    const std::uint32_t best = greatest(a);
    float second = -INFINITY;
    for (std::uint32_t i = 0; i < spec_.vocabulary; ++i) {
      if (i != best) second = std::max(second, a[i]);
    }
    if (static_cast<double>(a[best] - second) <= 2 * most) continue;
    ++clear;
    EXPECT_EQ(greatest(b), best) << "token " << token;
  }
  std::sort(errors.begin(), errors.end());
  // A router's near ties may fall to another expert: such rows differ, but they are few.
  const std::size_t strays = spec_.experts > 0 ? kTokens / 4 : 0;
  EXPECT_LT(errors[kTokens - 1 - strays], 0.05);
  EXPECT_LT(errors[kTokens / 2], 0.03);
  EXPECT_GT(clear, kTokens / 4) << "most tokens have a clear winner";
}

TEST_P(CudaBackendTest, AnyChunkingAndBatchGivesTheSameBits) {
  const std::vector<Expected> expected = {{spec_, 70, 1}, {spec_, 37, 2}, {spec_, 33, 3}};
  Random random(7);
  const auto backend = make_backend(spec_, deterministic());
  const std::vector<Tables> tables = {same_slots(*backend, {SlotId(9), SlotId(2), SlotId(5)}),
                                      same_slots(*backend, {SlotId(0), SlotId(7)}),
                                      same_slots(*backend, {SlotId(3), SlotId(11)})};
  std::vector<std::uint32_t> done(expected.size(), 0);
  const auto left = [&](std::size_t s) {
    return static_cast<std::uint32_t>(expected[s].tokens.size()) - done[s];
  };
  while (left(0) + left(1) + left(2) > 0) {
    Pass pass;
    std::vector<std::size_t> who;
    for (std::size_t s = 0; s < expected.size(); ++s) {
      if (left(s) == 0 || random.below(4) == 0) continue;
      const std::uint32_t most = random.below(3) == 0 ? 1 : 30;
      const auto count = std::min<std::uint32_t>(left(s), 1 + static_cast<std::uint32_t>(random.below(most)));
      pass.spans.push_back(make_span(expected[s].tokens, done[s], done[s] + count,
                                     without_unseen(*backend, tables[s], done[s]), layers_,
                                     static_cast<LogitsWanted>(random.below(3))));
      who.push_back(s);
    }
    backend->run(pass, results_);
    ASSERT_EQ(results_.size(), pass.spans.size());
    for (std::size_t i = 0; i < who.size(); ++i) {
      ASSERT_TRUE(results_[i].status.ok()) << results_[i].status.to_string();
      const auto count = static_cast<std::uint32_t>(pass.spans[i].tokens.size());
      const std::uint32_t end = done[who[i]] + count;
      const LogitsWanted wanted = pass.spans[i].logits;
      const std::uint32_t begin = wanted == LogitsWanted::kAll    ? done[who[i]]
                                  : wanted == LogitsWanted::kLast ? end - 1
                                                                  : end;
      ASSERT_EQ(bits_of(results_[i].logits), expected[who[i]].rows(begin, end)) << "tokens to " << end;
      done[who[i]] = end;
    }
  }
  for (std::size_t s = 0; s < expected.size(); ++s)
    EXPECT_EQ(state_of(*backend, spec_, tables[s], done[s]), expected[s].state);
}

TEST_P(CudaBackendTest, ACopiedPrefixContinuesAsTheOriginal) {
  const Expected expected(spec_, 64, 5);
  const auto backend = make_backend(spec_, deterministic());
  // Slot 5 holds another part of the state; it becomes tokens 32..48.
  backend->run({{}, {}, {make_span(expected.tokens, 0, 64, same_slots(*backend, slots(0, 2)), layers_, {})}},
               results_);
  backend->run({{}, {}, {make_span(expected.tokens, 0, 32, same_slots(*backend, slots(5, 1)), layers_, {})}},
               results_);
  Pass pass;
  for (std::uint32_t group = 0; group < backend->info().groups.size(); ++group)
    pass.copies.push_back({SlotId(1), SlotId(5), 17, group});
  pass.spans.push_back(make_span(expected.tokens, 49, 64, same_slots(*backend, {SlotId(0), SlotId(5)}),
                                 layers_, LogitsWanted::kAll));
  backend->run(pass, results_);
  EXPECT_EQ(bits_of(results_[0].logits), expected.rows(49, 64));
}

TEST_P(CudaBackendTest, LayersThatArriveWhileTheirReadersRunAreTheSame) {
  const Expected expected(spec_, 69, 6);
  // All layers arrive, or the first ones are recomputed in the same pass.
  for (std::uint32_t split = 0; split < layers_; ++split) {
    const auto backend = make_backend(spec_, deterministic());
    backend->run(
        {{}, {}, {make_span(expected.tokens, 0, 64, same_slots(*backend, slots(0, 2)), layers_, {})}},
        results_);
    for (std::uint32_t block = 0; block < 2; ++block) begin_fill(*backend, SlotId(5 + block));
    std::thread mover([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      move_layers(*backend, 0, 5, 2, split);
    });
    const Tables tables = same_slots(*backend, slots(5, 3));
    Pass pass;
    if (split > 0)
      pass.spans.push_back(make_span(expected.tokens, 0, 64, tables, split, LogitsWanted::kNone));
    pass.spans.push_back(make_span(expected.tokens, 64, 69, tables, layers_, LogitsWanted::kAll));
    backend->run(pass, results_);
    mover.join();
    ASSERT_TRUE(results_.back().status.ok());
    EXPECT_EQ(bits_of(results_.back().logits), expected.rows(64, 69)) << split;
    EXPECT_EQ(state_of(*backend, spec_, tables, 69), expected.state) << split;
  }
}

TEST_P(CudaBackendTest, AFailedFillPoisonsOnlyItsReaders) {
  const Expected expected(spec_, 40, 8), other(spec_, 20, 9);
  const auto backend = make_backend(spec_, deterministic());
  begin_fill(*backend, SlotId(3));
  std::thread mover([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (std::uint32_t group = 0; group < backend->info().groups.size(); ++group)
      backend->fill_failed(group, SlotId(3));
  });
  Pass pass;
  pass.spans.push_back(
      make_span(expected.tokens, 32, 40, same_slots(*backend, slots(3, 2)), layers_, LogitsWanted::kLast));
  pass.spans.push_back(
      make_span(other.tokens, 0, 20, same_slots(*backend, slots(6, 1)), layers_, LogitsWanted::kAll));
  backend->run(pass, results_);
  mover.join();
  EXPECT_EQ(results_[0].status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(results_[0].logits.empty());
  ASSERT_TRUE(results_[1].status.ok());
  EXPECT_EQ(bits_of(results_[1].logits), other.rows(0, 20));
  // The slot is used anew: written from its first token, it is whole again.
  backend->run(
      {{},
       {},
       {make_span(expected.tokens, 0, 40, same_slots(*backend, slots(3, 2)), layers_, LogitsWanted::kAll)}},
      results_);
  ASSERT_TRUE(results_[0].status.ok());
  EXPECT_EQ(bits_of(results_[0].logits), expected.rows(0, 40));
}

TEST_P(CudaBackendTest, WhatIsThereIsNotWrittenAgain) {
  const Expected expected(spec_, 40, 10);
  const auto backend = make_backend(spec_, deterministic());
  Tables tables = same_slots(*backend, slots(0, 2));
  backend->run({{}, {}, {make_span(expected.tokens, 0, 40, tables, layers_, LogitsWanted::kNone)}}, results_);
  // Other tokens below write_from: were they written, the state would be theirs.
  for (BlockTable& table : tables) table.write_from = 30;
  std::vector<TokenId> tokens = expected.tokens;
  for (std::uint32_t i = 0; i < 30; ++i) tokens[i] = TokenId((tokens[i].value + 1) % spec_.vocabulary);
  backend->run({{}, {}, {make_span(tokens, 0, 40, tables, layers_, LogitsWanted::kAll)}}, results_);
  const Bits found = bits_of(results_[0].logits);
  const std::size_t rows = 10 * std::size_t{spec_.vocabulary};
  EXPECT_EQ(Bits(found.end() - static_cast<std::ptrdiff_t>(rows), found.end()), expected.rows(30, 40));
  EXPECT_EQ(state_of(*backend, spec_, tables, 40), expected.state);
}

TEST_P(CudaBackendTest, CapturedHiddenStatesProjectToTheStateThatWasThere) {
  const Expected expected(spec_, 40, 11);
  const auto backend = make_backend(spec_, deterministic());
  const Tables tables = same_slots(*backend, slots(0, 2));
  const std::uint64_t row_bytes = backend->info().hidden_row_bytes;
  ASSERT_EQ(row_bytes, spec_.hidden * 2u);
  backend->run({{}, {}, {make_span(expected.tokens, 0, 5, tables, layers_, LogitsWanted::kNone)}}, results_);
  std::vector<std::vector<std::byte>> captured(layers_, std::vector<std::byte>(35 * row_bytes));
  Pass pass;
  pass.spans.push_back(make_span(expected.tokens, 5, 40, tables, layers_, LogitsWanted::kLast));
  for (auto& buffer : captured) pass.spans[0].capture.emplace_back(buffer);
  backend->run(pass, results_);
  const bool half = backend->info().layout.ends_with(",f16");
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
    const auto* hidden = reinterpret_cast<const std::uint16_t*>(captured[layer].data());
    backend->read_layer(SlotId(0), layer, slice);
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
    backend.run({{}, {}, {make_span(tokens, begin, end, tables, spec.layer_count(), LogitsWanted::kLast)}},
                results);
    sampled.push_back(greatest(results[0].logits));
    tokens.emplace_back(sampled.back());
    begin = end;
  }
  return sampled;
}

TEST_P(CudaBackendTest, PassesAheadFeedTheirSamplesOnTheDevice) {
  constexpr std::uint32_t kSteps = 7;
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

TEST_P(CudaBackendTest, GraphsGiveTheBitsOfPlainIssue) {
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
      for (std::uint32_t step = 0; step < 3; ++step) {
        Pass pass;
        for (std::uint32_t who = 0; who < batch; ++who) {
          const std::vector<TokenId> tokens = random_tokens(30 + who, 6 + who + step, spec_.vocabulary);
          const auto end = static_cast<std::uint32_t>(tokens.size());
          pass.spans.push_back(make_span(tokens, step == 0 ? 0 : end - 1, end,
                                         same_slots(*backend, slots(who, 1)), layers_, LogitsWanted::kLast));
        }
        backend->run(pass, results_);
        for (const SpanResult& result : results_) {
          ASSERT_TRUE(result.status.ok());
          logits[graphs ? 1 : 0].push_back(bits_of(result.logits));
        }
      }
    }
    EXPECT_EQ(logits[0], logits[1]) << fixed;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaBackendTest, testing::ValuesIn(shapes()),
                         [](const auto& tested) { return tested.param.name; });

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
