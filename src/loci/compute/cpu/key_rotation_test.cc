// SPDX-License-Identifier: Apache-2.0
// Compares keys that were rotated to another position with float64, for every kind of rotation that the
// families read from files, and with the keys that the backend itself computes at that position.
#include "loci/compute/cpu/key_rotation.h"
#include "loci/compute/backend_testing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/cpu/instruction_set.h"
#include "loci/compute/cpu/rope_table.h"
#include "loci/compute/cpu/values_testing.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "loci/model/random_model_testing.h"

namespace loci::cpu {
namespace {

using Slice = std::vector<std::uint8_t>;

std::span<std::byte> bytes_of(Slice& slice) { return std::as_writable_bytes(std::span(slice)); }

StateLayout layout_of(StateType type, const ModelSpec& spec) { return {type, spec.kv_heads, spec.head_dim}; }

// A token's keys of one head, or its values.
std::vector<float> read(decltype(stored_key) of, const StateLayout& layout, const ModelSpec& spec,
                        Slice& slice, std::uint32_t head, std::uint32_t token) {
  std::vector<float> x;
  for (std::uint32_t dim = 0; dim < spec.head_dim; ++dim)
    x.push_back(of(layout.type(), layout.head(slice.data(), head), spec.head_dim, token, dim));
  return x;
}

// A model of the family llama with what a file says of its rotation.
struct FileModel {
  std::vector<std::byte> bytes;
  std::optional<GgufFile> file;
  ModelSpec spec;

  FileModel(RandomModelOptions options, const std::vector<std::pair<std::string, GgufValue>>& metadata) {
    options.tokenizer = false;
    options.vocabulary = 72;
    Result<GgufWriter> writer = make_random_model(options);
    LOCI_CHECK(writer.ok(), "the options are valid");
    for (const auto& [key, value] : metadata) writer->add(key, value);
    bytes = writer->to_bytes();
    Result<GgufFile> parsed = GgufFile::parse(bytes);
    LOCI_CHECK(parsed.ok(), "the model is valid");
    file = std::move(*parsed);
    Result<ModelSpec> read = read_model_spec(*file);
    LOCI_CHECK(read.ok(), read.status().to_string().c_str());
    spec = std::move(*read);
  }
};

struct Variant {
  std::string name;
  std::unique_ptr<FileModel> model;
};

std::vector<Variant> variants() {
  using Metadata = std::vector<std::pair<std::string, GgufValue>>;
  std::vector<Variant> all;
  const auto add = [&](const char* name, const Metadata& metadata,
                       const std::function<void(RandomModelOptions&)>& change = {}) {
    RandomModelOptions options;
    options.head_dim = 32;
    if (change) change(options);
    all.push_back({name, std::make_unique<FileModel>(options, metadata)});
  };
  const auto scaling = [](const char* type, Metadata more) {
    more.emplace_back("llama.rope.scaling.type", std::string(type));
    more.emplace_back("llama.rope.scaling.factor", 4.0f);
    more.emplace_back("llama.rope.scaling.original_context_length", std::uint32_t{512});
    return more;
  };
  add("plain", {});
  add("partial", {}, [](RandomModelOptions& o) { o.rope_dimensions = 12; });
  add("linear", {}, [](RandomModelOptions& o) { o.rope_linear_factor = 4; });
  add("factors", {}, [](RandomModelOptions& o) { o.rope_factors = true; });
  add("large base", {}, [](RandomModelOptions& o) { o.rope_base = 1e6; });
  add("llama3", scaling("llama3", {{"llama.rope.scaling.low_freq_factor", 1.0f},
                                   {"llama.rope.scaling.high_freq_factor", 4.0f}}));
  add("yarn", scaling("yarn", {}));
  std::vector<float> divisors(16);
  for (std::size_t i = 0; i < divisors.size(); ++i) divisors[i] = 1 + 0.5f * static_cast<float>(i);
  add("longrope", scaling("longrope", {{"llama.rope.scaling.long_factors", GgufArray{divisors}},
                                       {"llama.rope.scaling.short_factors", GgufArray{divisors}}}));
  return all;
}

// One token's key of one head at a position, in float64.
std::vector<double> rotated(const std::vector<float>& key, const RopeSpec& rope, double position) {
  std::vector<double> out(key.begin(), key.end());
  const std::size_t pairs = rope.inverse_frequency.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    const bool adjacent = rope.layout == RopeLayout::kAdjacent;
    const std::size_t a = adjacent ? 2 * i : i, b = adjacent ? 2 * i + 1 : i + pairs;
    const double angle = position * rope.inverse_frequency[i];
    const double x = key[a], y = key[b];
    out[a] = rope.magnitude * (x * std::cos(angle) - y * std::sin(angle));
    out[b] = rope.magnitude * (x * std::sin(angle) + y * std::cos(angle));
  }
  return out;
}

// Of each value, half of the step between neighbouring numbers that can be stored, so its rounding error is
// at most that. In f16 the step follows from the value itself; in q8 the largest value of its group sets it.
std::vector<double> half_units(StateType type, const std::vector<double>& x) {
  std::vector<double> out;
  const std::uint32_t group = q8_group_size(static_cast<std::uint32_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (type == StateType::kF16) {
      out.push_back(std::abs(x[i]) / 2048 + 1.0 / (1 << 25));
      continue;
    }
    double largest = 0, unit = std::ldexp(1.0, -32);
    for (std::size_t j = i / group * group; j < std::min(x.size(), (i / group + 1) * group); ++j)
      largest = std::max(largest, std::abs(x[j]));
    while (largest * 1.01 >= 127.5 * unit) unit *= 2;  // what was rounded may be a little larger
    out.push_back(unit / 2);
  }
  return out;
}

std::size_t partner(const RopeSpec& rope, std::size_t i) {
  const std::size_t pairs = rope.inverse_frequency.size();
  if (i >= 2 * pairs) return i;
  if (rope.layout == RopeLayout::kAdjacent) return i ^ 1;
  return i < pairs ? i + pairs : i - pairs;
}

// By how much stored keys may be off: the roundings of the pair that was turned, and of the result; cosines
// and sums in float32 are far below.
std::vector<double> tolerances(StateType type, const RopeSpec* rope, const std::vector<double>& before,
                               const std::vector<double>& after) {
  const std::vector<double> of_before = half_units(type, before), of_after = half_units(type, after);
  std::vector<double> out;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double other = rope == nullptr ? 0 : of_before[partner(*rope, i)];
    out.push_back(1.01 * (of_before[i] + other + of_after[i]));
  }
  return out;
}

struct Bounded {
  std::vector<double> expected, within;
};

// Random keys of 32 tokens, rotated to the positions from `position` on and stored by the kernels that a
// pass uses, and what they should be after `delta` more, within what.
struct Keys {
  StateLayout layout;
  Slice stored;
  std::vector<Bounded> tokens;  // [kv head][token]

  Keys(StateType type, const ModelSpec& spec, std::uint32_t layer, std::uint32_t position, std::int32_t delta,
       std::uint64_t seed)
      : layout(layout_of(type, spec)), stored(layout.slice_bytes()) {
    Random random(seed);
    const KernelTable& kernels = plain_kernels();
    const bool rotates = spec.layers[layer].rope.has_value();
    const RopeSpec& rope = spec.ropes[spec.layers[layer].rope.value_or(0)];
    RopeTable table(rope);
    table.extend(position + kTokensPerBlock);
    for (std::uint32_t head = 0; head < spec.kv_heads; ++head) {
      const HeadState state = layout.head(stored.data(), head);
      for (std::uint32_t token = 0; token < kTokensPerBlock; ++token) {
        const std::vector<float> key = normal_values(random, spec.head_dim, 3);
        std::vector<float> made = key, value = normal_values(random, spec.head_dim);
        made.resize(spec.head_dim + kLanes);
        value.resize(spec.head_dim + kLanes);
        if (rotates) kernels.rope(made.data(), table.at(position + token));
        layout.kernels(kernels).store_key(made.data(), spec.head_dim, state, token);
        layout.kernels(kernels).store_value(value.data(), spec.head_dim, state, token);
        const std::vector<double> whole(key.begin(), key.end());
        const std::vector<double> before = rotates ? rotated(key, rope, position + token) : whole;
        const std::vector<double> after = rotates ? rotated(key, rope, position + token + delta) : whole;
        tokens.push_back({after, tolerances(type, rotates ? &rope : nullptr, before, after)});
      }
    }
  }
};

void expect_rotated(StateType type, const ModelSpec& spec, std::uint32_t layer, std::uint32_t position,
                    std::int32_t delta) {
  Keys keys(type, spec, layer, position, delta, position + 7);
  Slice definition = keys.stored;
  KeyRotation(spec, plain_kernels(), keys.layout).rotate(layer, delta, bytes_of(definition));
  for (std::uint32_t head = 0; head < spec.kv_heads; ++head) {
    for (std::uint32_t token = 0; token < kTokensPerBlock; ++token) {
      const Bounded& bounded = keys.tokens[head * kTokensPerBlock + token];
      const std::vector<float> found = read(stored_key, keys.layout, spec, definition, head, token);
      for (std::uint32_t i = 0; i < spec.head_dim; ++i)
        ASSERT_NEAR(found[i], bounded.expected[i], bounded.within[i]) << i << " by " << delta;
      ASSERT_EQ(read(stored_value, keys.layout, spec, definition, head, token),
                read(stored_value, keys.layout, spec, keys.stored, head, token))
          << "values have no position";
    }
  }
  for (const InstructionSet set : available_instruction_sets()) {
    Slice found = keys.stored;
    KeyRotation(spec, kernels_of(set), keys.layout).rotate(layer, delta, bytes_of(found));
    ASSERT_TRUE(same_bits(found, definition)) << instruction_set_name(set);
  }
}

class KeyRotationTest : public testing::TestWithParam<StateType> {};

TEST_P(KeyRotationTest, TakesKeysToOtherPositionsWithinTheirRounding) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    ModelSpec spec = variant.model->spec;
    if (variant.name == "yarn" || variant.name == "longrope") {
      ASSERT_NE(spec.ropes[0].magnitude, 1) << "the variant has a magnitude";
    }
    for (const RopeLayout layout : {RopeLayout::kAdjacent, RopeLayout::kHalves}) {
      spec.ropes[0].layout = layout;
      for (const std::int32_t delta : {-32, -992, -1920, 64, 31 * 32})
        expect_rotated(GetParam(), spec, 1, 1920, delta);
    }
  }
}

TEST_P(KeyRotationTest, EachLayerTurnsByItsOwnTable) {
  RandomModelOptions options;
  options.layers = 3;
  options.head_dim = 40;  // not whole vectors
  ModelSpec spec = FileModel(options, {}).spec;
  RopeSpec local = spec.ropes[0];
  for (double& frequency : local.inverse_frequency) frequency = std::sqrt(frequency);
  local.layout = RopeLayout::kHalves;
  spec.ropes.push_back(local);
  spec.layers[1].rope = 1;
  spec.layers[2].rope.reset();
  for (const std::uint32_t layer : {0u, 1u, 2u}) expect_rotated(GetParam(), spec, layer, 512, -480);

  const Keys without(GetParam(), spec, 2, 512, -480, 1);
  Slice kept = without.stored;
  KeyRotation(spec, plain_kernels(), without.layout).rotate(2, -480, bytes_of(kept));
  EXPECT_EQ(kept, without.stored) << "a layer without rotation";
}

TEST_P(KeyRotationTest, NoDifferenceChangesNothing) {
  const ModelSpec spec = FileModel({}, {}).spec;
  const StateLayout layout = layout_of(GetParam(), spec);
  Slice every(layout.slice_bytes());
  for (std::size_t i = 0; i < every.size(); ++i) every[i] = static_cast<std::uint8_t>(i * 13);  // NaN too
  Slice kept = every;
  KeyRotation(spec, plain_kernels(), layout).rotate(0, 0, bytes_of(kept));
  EXPECT_EQ(kept, every);
}

// The first layer's keys depend on a token and its position alone, so a pass at the other position makes
// them.
TEST_P(KeyRotationTest, GivesWhatTheBackendComputesThere) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const ModelSpec& spec = variant.model->spec;
    std::vector<TokenId> tokens;
    for (std::uint32_t i = 0; i < kBlockTokens; ++i) tokens.emplace_back((i * 37 + 5) % spec.vocabulary);
    const std::uint32_t old_block = 40, new_block = 3, blocks = old_block + 1;
    const std::int32_t delta = (static_cast<std::int32_t>(new_block) - static_cast<std::int32_t>(old_block)) *
                               static_cast<std::int32_t>(kBlockTokens);
    std::optional<Slice> definition;
    for (const std::uint32_t threads : {1u, 3u}) {
      Result<std::unique_ptr<Backend>> backend = make_cpu_backend(spec, {threads, std::nullopt, GetParam()});
      ASSERT_TRUE(backend.ok());
      ASSERT_EQ((*backend)->info().positions, Positions::kRotary);
      ASSERT_TRUE((*backend)->allocate_blocks(0, blocks).ok());
      const auto computed = [&](std::uint32_t block) {
        std::vector<SlotId> slots;
        for (std::uint32_t i = 0; i <= block; ++i) slots.emplace_back(i);
        Span span{tokens, block * kBlockTokens, {0, spec.layer_count()}, {BlockTable{slots}}};
        std::vector<SpanResult> results;
        run_pass(**backend, {{}, {}, {span}}, results);
        Slice slice((*backend)->info().groups[0].layer_slice_bytes);
        save_slice(**backend, SlotId(block), 0, bytes_of(slice));
        return slice;
      };
      Slice there = computed(new_block), old = computed(old_block), moved = old;
      (*backend)->rotate_keys(0, delta, bytes_of(moved));
      const StateLayout layout = layout_of(GetParam(), spec);
      const auto doubles = [&](Slice& from, std::uint32_t head, std::uint32_t token) {
        const std::vector<float> x = read(stored_key, layout, spec, from, head, token);
        return std::vector<double>(x.begin(), x.end());
      };
      for (std::uint32_t head = 0; head < spec.kv_heads; ++head) {
        for (std::uint32_t token = 0; token < kBlockTokens; ++token) {
          const std::vector<double> result = doubles(there, head, token);
          // Both the result and what was computed there are rounded.
          const std::vector<double> within =
              tolerances(GetParam(), &spec.ropes[0], doubles(old, head, token), result);
          const std::vector<double> again = half_units(GetParam(), result);
          const std::vector<double> found = doubles(moved, head, token);
          for (std::uint32_t i = 0; i < spec.head_dim; ++i)
            ASSERT_NEAR(found[i], result[i], within[i] + 1.01 * again[i]) << i;
          ASSERT_EQ(read(stored_value, layout, spec, moved, head, token),
                    read(stored_value, layout, spec, there, head, token));
        }
      }
      if (!definition) definition = moved;
      ASSERT_EQ(moved, *definition) << threads << " threads";
    }
  }
}

TEST_P(KeyRotationTest, ThreadsRotateBesideEachOther) {
  const ModelSpec spec = FileModel({}, {}).spec;
  const Keys keys(GetParam(), spec, 0, 640, -320, 3);
  const KeyRotation rotation(spec, kernels_of(available_instruction_sets().back()), keys.layout);
  Slice definition = keys.stored;
  rotation.rotate(0, -320, bytes_of(definition));
  std::vector<Slice> found(4, keys.stored);
  std::vector<std::thread> threads;
  for (Slice& slice : found) threads.emplace_back([&] { rotation.rotate(0, -320, bytes_of(slice)); });
  for (std::thread& thread : threads) thread.join();
  for (const Slice& slice : found) EXPECT_EQ(slice, definition);
}

TEST_P(KeyRotationTest, ABackendSaysWhatItsStateKnowsOfPositions) {
  const FileModel model({}, {});
  ModelSpec without = model.spec;
  for (LayerSpec& layer : without.layers) layer.rope.reset();
  ModelSpec absolute = without;
  std::vector<float> rows(std::size_t{absolute.context_length} * absolute.hidden);
  absolute.position_embedding = {"positions", TensorType::kF32, absolute.context_length, absolute.hidden,
                                 reinterpret_cast<const std::byte*>(rows.data())};
  for (const auto& [spec, positions] :
       {std::pair(&model.spec, Positions::kRotary), std::pair(&std::as_const(without), Positions::kNone),
        std::pair(&std::as_const(absolute), Positions::kAbsolute)}) {
    Result<std::unique_ptr<Backend>> backend = make_cpu_backend(*spec, {1, std::nullopt, GetParam()});
    ASSERT_TRUE(backend.ok()) << backend.status().to_string();
    EXPECT_EQ((*backend)->info().positions, positions);
    Slice slice((*backend)->info().groups[0].layer_slice_bytes, 0x3c);
    const Slice before = slice;
    if (positions == Positions::kAbsolute) {
      EXPECT_DEATH((*backend)->rotate_keys(0, 32, bytes_of(slice)), "positions");
    } else {
      (*backend)->rotate_keys(0, 32, bytes_of(slice));
      EXPECT_EQ(slice == before, positions == Positions::kNone);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KeyRotationTest, testing::Values(StateType::kF16, StateType::kQ8),
                         [](const auto& tested) { return std::string(state_type_name(tested.param)); });

}  // namespace
}  // namespace loci::cpu
