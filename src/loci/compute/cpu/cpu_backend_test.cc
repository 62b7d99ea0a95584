// SPDX-License-Identifier: Apache-2.0
// Properties of the whole backend on random tiny models: the bits of a token's logits and state depend
// on the model and the tokens before it alone. The definition is one token a pass, alone, one thread,
// plain code.
#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/backend_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "loci/base/random.h"
#include "loci/compute/cpu/instruction_set.h"
#include "loci/compute/cpu/shapes_testing.h"
#include "loci/compute/cpu/state_layout.h"
#include "loci/compute/cpu/values_testing.h"
#include "loci/compute/layer_groups.h"
#include "loci/compute/model_testing.h"

namespace loci {
namespace {

using Bits = std::vector<std::uint32_t>;

std::vector<TokenId> random_tokens(Random& random, std::uint32_t count, std::uint32_t vocabulary) {
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < count; ++i)
    tokens.emplace_back(static_cast<std::uint32_t>(random.below(vocabulary)));
  return tokens;
}

std::vector<SlotId> slots(std::uint32_t first, std::uint32_t count) {
  std::vector<SlotId> all;
  for (std::uint32_t i = 0; i < count; ++i) all.emplace_back(first + i);
  return all;
}

std::unique_ptr<Backend> make_backend(const TestModel& model, StateType type, InstructionSet set,
                                      std::uint32_t threads, std::uint32_t blocks) {
  Result<std::unique_ptr<Backend>> backend = make_cpu_backend(model.spec, {threads, set, type});
  LOCI_CHECK(backend.ok(), "the model is served");
  for (std::uint32_t group = 0; group < (*backend)->info().groups.size(); ++group)
    LOCI_CHECK((*backend)->allocate_blocks(group, blocks).ok(), "there is memory");
  return std::move(*backend);
}

// Block tables, one a group.
using Tables = std::vector<BlockTable>;

Span make_span(const std::vector<TokenId>& tokens, std::uint32_t begin, std::uint32_t end, Tables tables,
               std::uint32_t layers, LogitsWanted logits) {
  Span span;
  span.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
  span.position = begin;
  span.layers = {0, layers};
  span.tables = std::move(tables);
  span.logits = logits;
  return span;
}

Bits bits_of(std::span<const float> values) {
  Bits bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size_bytes());
  return bits;
}

// The state of tokens [0, count) of a sequence, without what lies beyond.
Bits state_of(const Backend& backend, const TestModel& model, StateType type, const Tables& tables,
              std::uint32_t count) {
  const ModelSpec& spec = model.spec;
  const cpu::StateLayout layout(type, spec.kv_heads, spec.head_dim);
  std::vector<std::byte> slice(backend.info().groups[0].layer_slice_bytes);
  std::vector<float> all;
  for (std::uint32_t group = 0; group < tables.size(); ++group) {
    for (const std::uint32_t layer : backend.info().groups[group].layers) {
      for (std::uint32_t token = 0; token < count; ++token) {
        const std::uint32_t in_block = token % kBlockTokens;
        if (in_block == 0) save_slice(backend, tables[group].blocks[token / kBlockTokens], layer, slice);
        for (std::uint32_t i = 0; i < spec.kv_width(); ++i) {
          const cpu::HeadState head =
              layout.head(reinterpret_cast<std::uint8_t*>(slice.data()), i / spec.head_dim);
          const std::uint32_t dim = i % spec.head_dim;
          all.push_back(cpu::stored_key(type, head, spec.head_dim, in_block, dim));
          all.push_back(cpu::stored_value(type, head, spec.head_dim, in_block, dim));
        }
      }
    }
  }
  return bits_of(all);
}

// Slots of the same numbers in each group.
Tables same_slots(const TestModel& model, const std::vector<SlotId>& slots) {
  return Tables(layer_groups(model.spec).size(), BlockTable{slots});
}

// Logits of every token and the state, by the definition.
struct Expected {
  std::vector<TokenId> tokens;
  Bits logits;  // [token, vocabulary]
  Bits state;

  Expected(const TestModel& model, StateType type, std::uint32_t count, std::uint64_t seed) {
    Random random(seed);
    tokens = random_tokens(random, count, model.spec.vocabulary);
    const Tables blocks = same_slots(model, slots(0, (count + 31) / 32));
    const auto backend = make_backend(model, type, InstructionSet::kPlain, 1, (count + 31) / 32);
    std::vector<SpanResult> results;
    for (std::uint32_t i = 0; i < count; ++i) {
      run_pass(*backend,
               {{}, {}, {make_span(tokens, i, i + 1, blocks, model.spec.layer_count(), LogitsWanted::kLast)}},
               results);
      LOCI_CHECK(results[0].status.ok(), "nothing fails here");
      const Bits row = bits_of(results[0].logits);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    state = state_of(*backend, model, type, blocks, count);
  }
  Bits rows(std::uint32_t begin, std::uint32_t end) const {
    const std::size_t vocabulary = logits.size() / tokens.size();
    return {logits.begin() + static_cast<std::ptrdiff_t>(begin * vocabulary),
            logits.begin() + static_cast<std::ptrdiff_t>(end * vocabulary)};
  }
};

class BackendTest : public testing::TestWithParam<std::tuple<StateType, NamedShape>> {
 protected:
  static constexpr std::uint32_t kTokens = 300;  // more than one partial, and not whole blocks
  static constexpr std::uint32_t kBlocks = (kTokens + 31) / 32;
  const StateType type_ = std::get<0>(GetParam());
  const std::unique_ptr<TestModel> model_ = std::get<1>(GetParam()).make();
  const std::uint32_t layers_ = model_->spec.layer_count();
  std::uint32_t groups_count() const { return static_cast<std::uint32_t>(layer_groups(model_->spec).size()); }
  Tables tables(std::uint32_t first, std::uint32_t count) const {
    return same_slots(*model_, slots(first, count));
  }
  // Slots of each sequence scattered over the groups' pools of 64, in random order.
  std::vector<Tables> scattered(const std::vector<Expected>& sequences, Random& random) const {
    std::vector<Tables> all(sequences.size());
    for (std::uint32_t group = 0; group < groups_count(); ++group) {
      std::vector<SlotId> pool = slots(0, 64);
      for (std::size_t i = pool.size() - 1; i > 0; --i) std::swap(pool[i], pool[random.below(i + 1)]);
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const auto count = static_cast<std::ptrdiff_t>((sequences[i].tokens.size() + 31) / 32);
        all[i].push_back({std::vector<SlotId>(pool.end() - count, pool.end())});
        pool.resize(pool.size() - static_cast<std::size_t>(count));
      }
    }
    return all;
  }
  // As far as a span from `position` on can see.
  static Tables without_unseen(const Backend& backend, Tables tables, std::uint32_t position) {
    for (std::size_t group = 0; group < tables.size(); ++group) {
      const std::uint32_t first = first_visible(backend.info().groups[group].window, position);
      drop_slots(tables[group], first / kBlockTokens);
    }
    return tables;
  }
  std::vector<SpanResult> results_;
};

void begin_fill(Backend& backend, SlotId slot) {
  for (std::uint32_t group = 0; group < backend.info().groups.size(); ++group)
    backend.begin_fill(group, slot);
}

TEST_P(BackendTest, AnyChunkingBatchThreadsAndInstructionSet) {
  const std::vector<Expected> expected = {
      {*model_, type_, kTokens, 1}, {*model_, type_, 70, 2}, {*model_, type_, 33, 3}};
  const std::vector<InstructionSet> sets = available_instruction_sets();
  std::uint64_t seed = 0;
  for (const InstructionSet set : sets) {
    for (std::uint32_t threads = 1; threads <= 4; ++threads) {
      Random random(++seed);
      // How work is shared out knows nothing of instructions: the other sets have two threads.
      if (set != sets.back() && threads != 2) continue;
      const auto backend = make_backend(*model_, type_, set, threads, 64);
      const std::vector<Tables> blocks = scattered(expected, random);
      std::vector<std::uint32_t> done(expected.size(), 0);
      while (true) {
        Pass pass;
        std::vector<std::size_t> who;
        for (std::size_t s = 0; s < expected.size(); ++s) {
          const auto left = static_cast<std::uint32_t>(expected[s].tokens.size()) - done[s];
          if (left == 0 || random.below(4) == 0) continue;
          const std::uint32_t most = random.below(2) == 0 ? 3 : 120;
          const std::uint32_t count =
              std::min<std::uint32_t>(left, 1 + static_cast<std::uint32_t>(random.below(most)));
          const auto wanted = static_cast<LogitsWanted>(random.below(3));
          pass.spans.push_back(make_span(expected[s].tokens, done[s], done[s] + count,
                                         without_unseen(*backend, blocks[s], done[s]), layers_, wanted));
          who.push_back(s);
        }
        if (pass.spans.empty() &&
            std::equal(done.begin(), done.end(), expected.begin(),
                       [](std::uint32_t n, const Expected& e) { return n == e.tokens.size(); }))
          break;
        run_pass(*backend, pass, results_);
        ASSERT_EQ(results_.size(), pass.spans.size());
        for (std::size_t i = 0; i < who.size(); ++i) {
          ASSERT_TRUE(results_[i].status.ok());
          const auto count = static_cast<std::uint32_t>(pass.spans[i].tokens.size());
          const std::uint32_t end = done[who[i]] + count;
          const LogitsWanted wanted = pass.spans[i].logits;
          const std::uint32_t begin = wanted == LogitsWanted::kAll    ? done[who[i]]
                                      : wanted == LogitsWanted::kLast ? end - 1
                                                                      : end;
          ASSERT_EQ(bits_of(results_[i].logits), expected[who[i]].rows(begin, end))
              << instruction_set_name(set) << ", " << threads << " threads, tokens to " << end;
          done[who[i]] = end;
        }
      }
      for (std::size_t s = 0; s < expected.size(); ++s) {
        ASSERT_EQ(state_of(*backend, *model_, type_, blocks[s], done[s]), expected[s].state);
      }
    }
  }
}

TEST_P(BackendTest, LogitsAreFiniteAndDiffer) {
  const Expected expected(*model_, type_, 40, 4);
  std::vector<float> logits(expected.logits.size());
  std::memcpy(logits.data(), expected.logits.data(), logits.size() * 4);
  for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  EXPECT_GT(*high - *low, 0.01f);
  EXPECT_NE(expected.rows(38, 39), expected.rows(39, 40));
}

TEST_P(BackendTest, ACopiedPrefixContinuesAsTheOriginal) {
  const Expected expected(*model_, type_, 64, 5);
  const auto backend = make_backend(*model_, type_, available_instruction_sets().back(), 2, 8);
  run_pass(*backend,
           {{}, {}, {make_span(expected.tokens, 0, 64, tables(0, 2), layers_, LogitsWanted::kNone)}},
           results_);
  // Slot 5 held another sequence's state; it becomes tokens 32..48 of this one.
  run_pass(*backend,
           {{}, {}, {make_span(expected.tokens, 0, 32, tables(5, 1), layers_, LogitsWanted::kNone)}},
           results_);
  Pass pass;
  for (std::uint32_t group = 0; group < groups_count(); ++group)
    pass.copies.push_back({SlotId(1), SlotId(5), 17, group});
  pass.spans.push_back(make_span(expected.tokens, 49, 64, same_slots(*model_, {SlotId(0), SlotId(5)}),
                                 layers_, LogitsWanted::kAll));
  run_pass(*backend, pass, results_);
  EXPECT_EQ(bits_of(results_[0].logits), expected.rows(49, 64));
}

TEST_P(BackendTest, StateThatLeftAndCameBackIsTheSame) {
  const Expected expected(*model_, type_, 100, 6);
  const auto backend = make_backend(*model_, type_, available_instruction_sets().back(), 2, 8);
  run_pass(*backend,
           {{}, {}, {make_span(expected.tokens, 0, 96, tables(0, 3), layers_, LogitsWanted::kNone)}},
           results_);
  std::vector<std::byte> slice(backend->info().groups[0].layer_slice_bytes);
  // A mover brings the blocks to slots 5..7, layer by layer, while the pass that reads them waits.
  for (std::uint32_t block = 0; block < 3; ++block) begin_fill(*backend, SlotId(5 + block));
  std::thread mover([&] {
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      for (std::uint32_t block = 0; block < 3; ++block) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        save_slice(*backend, SlotId(block), layer, slice);
        load_slice(*backend, SlotId(5 + block), layer, slice);
      }
    }
  });
  const Tables blocks = same_slots(*model_, {SlotId(5), SlotId(6), SlotId(7), SlotId(4)});
  run_pass(*backend, {{}, {}, {make_span(expected.tokens, 96, 100, blocks, layers_, LogitsWanted::kAll)}},
           results_);
  mover.join();
  EXPECT_TRUE(results_[0].status.ok());
  EXPECT_EQ(bits_of(results_[0].logits), expected.rows(96, 100));
}

TEST_P(BackendTest, LowLayersAreRecomputedWhileTheOthersArrive) {
  const Expected expected(*model_, type_, 80, 7);
  for (std::uint32_t split = 1; split < layers_; ++split) {
    const auto backend = make_backend(*model_, type_, available_instruction_sets().back(), 2, 8);
    run_pass(*backend,
             {{}, {}, {make_span(expected.tokens, 0, 64, tables(0, 2), layers_, LogitsWanted::kNone)}},
             results_);
    std::vector<std::byte> slice(backend->info().groups[0].layer_slice_bytes);
    for (std::uint32_t block = 0; block < 2; ++block) begin_fill(*backend, SlotId(4 + block));
    std::thread mover([&] {
      for (std::uint32_t layer = split; layer < layers_; ++layer) {
        for (std::uint32_t block = 0; block < 2; ++block) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          save_slice(*backend, SlotId(block), layer, slice);
          load_slice(*backend, SlotId(4 + block), layer, slice);
        }
      }
    });
    Pass pass;
    pass.spans.push_back(make_span(expected.tokens, 0, 64, tables(4, 2), split, LogitsWanted::kNone));
    pass.spans.push_back(make_span(expected.tokens, 64, 80, tables(4, 3), layers_, LogitsWanted::kAll));
    run_pass(*backend, pass, results_);
    mover.join();
    EXPECT_EQ(bits_of(results_[1].logits), expected.rows(64, 80)) << split;
    EXPECT_EQ(state_of(*backend, *model_, type_, tables(4, 3), 80), expected.state) << split;
  }
}

TEST_P(BackendTest, AFailedFillPoisonsOnlyItsReaders) {
  const Expected expected(*model_, type_, 64, 8), other(*model_, type_, 20, 9);
  const auto backend = make_backend(*model_, type_, available_instruction_sets().back(), 2, 8);
  run_pass(*backend,
           {{}, {}, {make_span(expected.tokens, 0, 32, tables(0, 1), layers_, LogitsWanted::kNone)}},
           results_);
  std::vector<std::byte> slice(backend->info().groups[0].layer_slice_bytes);
  begin_fill(*backend, SlotId(3));
  std::thread mover([&] {
    // The first layer arrives, where another one is read by the same spans.
    if (groups_count() == 1) {
      save_slice(*backend, SlotId(0), 0, slice);
      load_slice(*backend, SlotId(3), 0, slice);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    for (std::uint32_t group = 0; group < groups_count(); ++group) backend->fill_failed(group, SlotId(3));
  });
  Pass pass;
  pass.spans.push_back(make_span(expected.tokens, 32, 64, tables(3, 2), layers_, LogitsWanted::kLast));
  pass.spans.push_back(make_span(other.tokens, 0, 20, tables(6, 1), layers_, LogitsWanted::kAll));
  run_pass(*backend, pass, results_);
  mover.join();
  EXPECT_EQ(results_[0].status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(results_[0].logits.empty());
  ASSERT_TRUE(results_[1].status.ok());
  EXPECT_EQ(bits_of(results_[1].logits), other.rows(0, 20));
  // The slot is used anew: written from its first token, it is whole again.
  run_pass(*backend, {{}, {}, {make_span(expected.tokens, 0, 64, tables(3, 2), layers_, LogitsWanted::kAll)}},
           results_);
  ASSERT_TRUE(results_[0].status.ok());
  EXPECT_EQ(bits_of(results_[0].logits), expected.rows(0, 64));
}

// A disk that hangs: who else is in the pass goes on, and the block serves when it has come after all.
TEST_P(BackendTest, APassThatRunsOutOfPatiencePoisonsOnlyWhoWaits) {
  const Expected expected(*model_, type_, 64, 8), other(*model_, type_, 20, 9);
  const auto backend = make_backend(*model_, type_, available_instruction_sets().back(), 2, 8);
  run_pass(*backend,
           {{}, {}, {make_span(expected.tokens, 0, 32, tables(0, 1), layers_, LogitsWanted::kNone)}},
           results_);
  begin_fill(*backend, SlotId(3));
  Pass pass;
  pass.patience = 20 * kNanosPerMilli;
  pass.spans.push_back(make_span(expected.tokens, 32, 64, tables(3, 2), layers_, LogitsWanted::kLast));
  pass.spans.push_back(make_span(other.tokens, 0, 20, tables(6, 1), layers_, LogitsWanted::kAll));
  run_pass(*backend, pass, results_);
  EXPECT_EQ(results_[0].status.code(), StatusCode::kDataLoss);
  ASSERT_TRUE(results_[1].status.ok());
  EXPECT_EQ(bits_of(results_[1].logits), other.rows(0, 20));
  std::vector<std::byte> slice(backend->info().groups[0].layer_slice_bytes);
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    save_slice(*backend, SlotId(0), layer, slice);
    load_slice(*backend, SlotId(3), layer, slice);
  }
  run_pass(*backend, pass, results_);
  ASSERT_TRUE(results_[0].status.ok());
  EXPECT_EQ(bits_of(results_[0].logits), expected.rows(63, 64));
}

std::string test_name(const testing::TestParamInfo<std::tuple<StateType, NamedShape>>& tested) {
  return std::get<1>(tested.param).name + "_in_" + std::string(state_type_name(std::get<0>(tested.param)));
}

INSTANTIATE_TEST_SUITE_P(Models, BackendTest,
                         testing::Combine(testing::Values(StateType::kF16), testing::ValuesIn(shapes())),
                         test_name);
// What differs is attention and how state is stored: fewer shapes, of every kind of head.
INSTANTIATE_TEST_SUITE_P(ModelsOfQ8, BackendTest,
                         testing::Combine(testing::Values(StateType::kQ8), testing::ValuesIn(q8_shapes())),
                         test_name);

// State that is computed from it would be kept under the model's name.
TEST(MakeBackendTest, FailsForGoodOnceItReadsWhatWasWrittenIntoItsFile) {
  const auto model = TestModel::make(RandomModelOptions{});
  const auto backend = make_backend(*model, StateType::kF16, InstructionSet::kPlain, 2, 1);
  const auto compute = [&](std::uint32_t token) {
    std::vector<SpanResult> results;
    const Tables blocks = same_slots(*model, slots(0, 1));
    run_pass(
        *backend,
        {{}, {}, {make_span({TokenId(token)}, 0, 1, blocks, model->spec.layer_count(), LogitsWanted::kLast)}},
        results);
    return results[0].status.code();
  };
  const std::span<const std::byte> row = model->spec.embedding.row(5);
  model->bytes[static_cast<std::size_t>(row.data() - model->bytes.data()) + row.size() - 1] ^= std::byte{1};
  EXPECT_EQ(compute(4), StatusCode::kOk) << "it reads no row that has changed";
  EXPECT_TRUE(backend->health().ok());
  EXPECT_EQ(compute(5), StatusCode::kUnavailable);
  EXPECT_EQ(backend->health().code(), StatusCode::kUnavailable);
  EXPECT_EQ(compute(4), StatusCode::kUnavailable);
}

TEST(MakeBackendTest, RefusesWhatItCannotServe) {
  const auto model = TestModel::make(RandomModelOptions{});
  ModelSpec odd = model->spec;
  odd.head_dim = 12;
  EXPECT_EQ(make_cpu_backend(odd, {}).status().field(), "head_dim");
  ModelSpec wrong = model->spec;
  wrong.layers[1].ffn.up.rows -= 1;
  const Status status = make_cpu_backend(wrong, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("expected a tensor"), std::string::npos) << status.message();
  EXPECT_EQ(status.field(), wrong.layers[1].ffn.up.name);
  ModelSpec rotation = model->spec;
  rotation.layers[1].rope = 1;
  EXPECT_EQ(make_cpu_backend(rotation, {}).status().field(), "rope");
  ModelSpec router = model->spec;  // without experts
  router.layers[0].ffn.router = router.layers[0].ffn.up;
  EXPECT_EQ(make_cpu_backend(router, {}).status().field(), router.layers[0].ffn.router.name);
  ModelSpec ungated = model->spec;
  ungated.activation = Activation::kClampedSwiglu;
  ungated.layers[0].ffn.gate = {};
  EXPECT_EQ(make_cpu_backend(ungated, {}).status().field(), ungated.layers[0].ffn.up.name);
  ModelSpec biased = model->spec;
  biased.output_norm.bias = biased.output_norm.weight;
  EXPECT_EQ(make_cpu_backend(biased, {}).status().code(), StatusCode::kInvalidArgument);
  ModelSpec groups = model->spec;
  groups.heads = 5;
  EXPECT_EQ(make_cpu_backend(groups, {}).status().field(), "heads");
  Result<std::unique_ptr<Backend>> backend = make_cpu_backend(model->spec, {});
  ASSERT_TRUE(backend.ok());
  const Status memory = (*backend)->allocate_blocks(0, std::numeric_limits<std::uint32_t>::max());
  EXPECT_EQ(memory.code(), StatusCode::kResourceExhausted) << memory.to_string();
  const Status state = make_cpu_backend(model->spec, {.state_type = StateType::kBF16}).status();
  EXPECT_EQ(state.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(state.field(), "state_type");
  EXPECT_NE(state.message().find("bf16"), std::string::npos) << state.message();
}

}  // namespace
}  // namespace loci
