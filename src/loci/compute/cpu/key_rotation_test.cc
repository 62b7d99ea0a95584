// SPDX-License-Identifier: Apache-2.0
// Keys that were rotated to another position against float64, for every kind of rotation that the families
// read from files, and against what the backend itself computes there.
#include "loci/compute/cpu/key_rotation.h"

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
#include "loci/compute/cpu/test_values.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "loci/model/random_model.h"

namespace loci::cpu {
namespace {

using Slice = std::vector<std::uint16_t>;  // [K: kv head, dim, token | V: kv head, token, dim]

std::span<std::byte> bytes_of(Slice& slice) { return std::as_writable_bytes(std::span(slice)); }

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

// By how much a stored key may be off: the roundings of the pair that was turned, and of the result (half a
// unit in the last place of f16, or of its smallest number); cosines and sums in float32 are far below.
double tolerance(double first, double second, double result) {
  constexpr double kHalfUnit = 1.0 / 2048, kSmallest = 1.0 / (1 << 25);
  return (std::abs(first) + std::abs(second) + std::abs(result)) * kHalfUnit * 1.01 + 3 * kSmallest;
}

// Random keys of 32 tokens, rotated to the positions from `position` on and stored by the kernels that a
// pass uses, and what they should be after `delta` more, within what.
struct Keys {
  Slice stored;
  std::vector<double> expected, within;  // as `stored`; keys only

  Keys(const ModelSpec& spec, std::uint32_t layer, std::uint32_t position, std::int32_t delta,
       std::uint64_t seed)
      : stored(2 * spec.kv_width() * kTokensPerBlock),
        expected(spec.kv_width() * kTokensPerBlock),
        within(expected.size()) {
    Random random(seed);
    const KernelTable& kernels = plain_kernels();
    const bool rotates = spec.layers[layer].rope.has_value();
    const RopeSpec& rope = spec.ropes[spec.layers[layer].rope.value_or(0)];
    RopeTable table(rope);
    table.extend(position + kTokensPerBlock);
    for (std::uint32_t head = 0; head < spec.kv_heads; ++head) {
      for (std::uint32_t token = 0; token < kTokensPerBlock; ++token) {
        const std::vector<float> key = normal_values(random, spec.head_dim, 3);
        std::vector<float> made = key;
        made.resize(spec.head_dim + kLanes);
        if (rotates) kernels.rope(made.data(), table.at(position + token));
        const std::size_t first = std::size_t{head} * spec.head_dim * kTokensPerBlock + token;
        kernels.store_key(made.data(), spec.head_dim, stored.data() + first);
        const std::vector<double> whole(key.begin(), key.end());
        const std::vector<double> before = rotates ? rotated(key, rope, position + token) : whole;
        const std::vector<double> after = rotates ? rotated(key, rope, position + token + delta) : whole;
        for (std::uint32_t i = 0; i < spec.head_dim; ++i) {
          const std::size_t at = first + std::size_t{i} * kTokensPerBlock;
          expected[at] = after[i];
          within[at] = tolerance(before[i], rotates ? before[partner(rope, i)] : 0, after[i]);
        }
      }
    }
    for (std::size_t i = expected.size(); i < stored.size(); ++i) {
      stored[i] = f32_to_f16(normal_value(random));
    }
  }

  static std::size_t partner(const RopeSpec& rope, std::size_t i) {
    const std::size_t pairs = rope.inverse_frequency.size();
    if (i >= 2 * pairs) return i;
    if (rope.layout == RopeLayout::kAdjacent) return i ^ 1;
    return i < pairs ? i + pairs : i - pairs;
  }
};

void expect_rotated(const ModelSpec& spec, std::uint32_t layer, std::uint32_t position, std::int32_t delta) {
  const Keys keys(spec, layer, position, delta, position + 7);
  Slice definition = keys.stored;
  KeyRotation(spec, plain_kernels()).rotate(layer, delta, bytes_of(definition));
  for (std::size_t i = 0; i < keys.expected.size(); ++i) {
    ASSERT_NEAR(f16_to_f32(definition[i]), keys.expected[i], keys.within[i]) << i << " by " << delta;
  }
  for (std::size_t i = keys.expected.size(); i < definition.size(); ++i) {
    ASSERT_EQ(definition[i], keys.stored[i]) << "values have no position";
  }
  for (const InstructionSet set : available_instruction_sets()) {
    Slice found = keys.stored;
    KeyRotation(spec, kernels_of(set)).rotate(layer, delta, bytes_of(found));
    ASSERT_TRUE(same_bits(found, definition)) << instruction_set_name(set);
  }
}

TEST(KeyRotationTest, TakesKeysToOtherPositionsWithinTheirRounding) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    ModelSpec spec = variant.model->spec;
    if (variant.name == "yarn" || variant.name == "longrope") {
      ASSERT_NE(spec.ropes[0].magnitude, 1) << "the variant has a magnitude";
    }
    for (const RopeLayout layout : {RopeLayout::kAdjacent, RopeLayout::kHalves}) {
      spec.ropes[0].layout = layout;
      for (const std::int32_t delta : {-32, -992, -1920, 64, 31 * 32}) expect_rotated(spec, 1, 1920, delta);
    }
  }
}

TEST(KeyRotationTest, EachLayerTurnsByItsOwnTable) {
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
  for (const std::uint32_t layer : {0u, 1u, 2u}) expect_rotated(spec, layer, 512, -480);

  Keys without(spec, 2, 512, -480, 1);
  Slice kept = without.stored;
  KeyRotation(spec, plain_kernels()).rotate(2, -480, bytes_of(kept));
  EXPECT_EQ(kept, without.stored) << "a layer without rotation";
}

TEST(KeyRotationTest, NoDifferenceChangesNothing) {
  const ModelSpec spec = FileModel({}, {}).spec;
  Slice every(2 * spec.kv_width() * kTokensPerBlock);
  for (std::size_t i = 0; i < every.size(); ++i) every[i] = static_cast<std::uint16_t>(i * 13);  // NaN too
  Slice kept = every;
  KeyRotation(spec, plain_kernels()).rotate(0, 0, bytes_of(kept));
  EXPECT_EQ(kept, every);
}

// The first layer's keys depend on a token and its position alone, so a pass at the other position makes
// them.
TEST(KeyRotationTest, GivesWhatTheBackendComputesThere) {
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
      Result<std::unique_ptr<Backend>> backend = make_cpu_backend(spec, {threads, std::nullopt});
      ASSERT_TRUE(backend.ok());
      ASSERT_EQ((*backend)->info().positions, Positions::kRotary);
      ASSERT_TRUE((*backend)->allocate_blocks(0, blocks).ok());
      const auto computed = [&](std::uint32_t block) {
        Span span{tokens, block * kBlockTokens, {0, spec.layer_count()}, {BlockTable{}}};
        for (std::uint32_t i = 0; i <= block; ++i) span.tables[0].blocks.emplace_back(i);
        std::vector<SpanResult> results;
        (*backend)->run({{}, {}, {span}}, results);
        Slice slice((*backend)->info().groups[0].layer_slice_bytes / sizeof(std::uint16_t));
        (*backend)->read_layer(SlotId(block), 0, bytes_of(slice));
        return slice;
      };
      const Slice there = computed(new_block), old = computed(old_block);
      Slice moved = old;
      (*backend)->rotate_keys(0, delta, bytes_of(moved));
      const RopeSpec& rope = spec.ropes[0];
      for (std::size_t i = 0; i < moved.size(); ++i) {
        const std::size_t dim = i / kBlockTokens % spec.head_dim, head = i / kBlockTokens - dim;
        const bool is_key = i < moved.size() / 2;
        const std::size_t other = (head + Keys::partner(rope, dim)) * kBlockTokens + i % kBlockTokens;
        const double result = f16_to_f32(there[i]);
        const double within =
            is_key ? tolerance(f16_to_f32(old[i]), f16_to_f32(old[other]), 2 * result) : 0.0;
        ASSERT_NEAR(f16_to_f32(moved[i]), result, within) << i;
      }
      if (!definition) definition = moved;
      ASSERT_EQ(moved, *definition) << threads << " threads";
    }
  }
}

TEST(KeyRotationTest, ThreadsRotateBesideEachOther) {
  const ModelSpec spec = FileModel({}, {}).spec;
  const KeyRotation rotation(spec, kernels_of(available_instruction_sets().back()));
  const Keys keys(spec, 0, 640, -320, 3);
  Slice definition = keys.stored;
  rotation.rotate(0, -320, bytes_of(definition));
  std::vector<Slice> found(4, keys.stored);
  std::vector<std::thread> threads;
  for (Slice& slice : found) threads.emplace_back([&] { rotation.rotate(0, -320, bytes_of(slice)); });
  for (std::thread& thread : threads) thread.join();
  for (const Slice& slice : found) EXPECT_EQ(slice, definition);
}

TEST(KeyRotationTest, ABackendSaysWhatItsStateKnowsOfPositions) {
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
    Result<std::unique_ptr<Backend>> backend = make_cpu_backend(*spec, {1, std::nullopt});
    ASSERT_TRUE(backend.ok()) << backend.status().to_string();
    EXPECT_EQ((*backend)->info().positions, positions);
    Slice slice((*backend)->info().groups[0].layer_slice_bytes / sizeof(std::uint16_t), 0x3c00);
    const Slice before = slice;
    if (positions == Positions::kAbsolute) {
      EXPECT_DEATH((*backend)->rotate_keys(0, 32, bytes_of(slice)), "positions");
    } else {
      (*backend)->rotate_keys(0, 32, bytes_of(slice));
      EXPECT_EQ(slice == before, positions == Positions::kNone);
    }
  }
}

}  // namespace
}  // namespace loci::cpu
