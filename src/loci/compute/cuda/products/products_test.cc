// SPDX-License-Identifier: Apache-2.0
// Compares products with float64, and with each other: a row's bits do not depend on other rows.
#include "loci/compute/cuda/products/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "loci/compute/cuda/products/multiply_testing.h"
#include "loci/compute/cuda/products/packed_layout.h"
#include "loci/compute/cuda/products/product_kernels.h"
#include "loci/compute/cuda/rows/rows.h"

namespace loci::cuda {
namespace {

// Rows of the identity: the weights themselves come out, each rounded as fragments.h says.
TEST_F(MultiplyTest, WeightsAreDecodedWithOneRounding) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const std::uint32_t columns = 256, outputs = 24;
    const TestTensor tensor = random_tensor("w", c.stored, outputs, columns, 7);
    const DeviceMatrix matrix = load(c.type, {tensor.view});
    std::vector<std::uint16_t> identity(std::uint64_t{columns} * columns, 0);
    for (std::uint32_t i = 0; i < columns; ++i) identity[i * columns + i] = element_bits(c.type, 1.0f);
    const Outcome result =
        run(*products(c.type, true), matrix, identity, columns, columns, ProductOutput::kFloats, nullptr);
    const bool once =
        c.type == ElementType::kHalf && c.stored != TensorType::kQ4_K && c.stored != TensorType::kQ6_K;
    for (std::uint32_t o = 0; o < outputs; ++o) {
      const std::vector<float> weights = tensor.row(o);
      for (std::uint32_t i = 0; i < columns; ++i) {
        const float value = result.floats[i * result.stride + o];
        if (once) {
          ASSERT_EQ(value, element_value(c.type, element_bits(c.type, weights[i]))) << o << " " << i;
        } else {  // the scales of 32 or 16 weights were rounded before
          ASSERT_NEAR(value, weights[i], 1.1 * element_step(c.type) * std::abs(weights[i]) + 2 * 0x1p-11)
              << o << " " << i;
        }
      }
    }
  }
}

TEST_F(MultiplyTest, AgreesWithFloat64) {
  std::mt19937 random(11);
  std::vector<std::uint32_t> rows = {1, 3, 8, 9, 16, 17, 63, 64, 70};
  if (!simulated()) rows.insert(rows.end(), {65, 128, 129, 200, 511});
  std::uint32_t seed = 0;
  for (const Case& c : kCases) {
    for (const std::uint32_t count : rows) {
      const std::uint32_t block = std::max(8u, tensor_type_info(c.stored).block_elements);
      const std::uint32_t columns = block * (1 + random() % (block == 8 ? 60 : 512 / block));
      const std::uint32_t outputs = simulated() ? 1 + random() % 150 : 1 + random() % 5000;
      const auto mode = static_cast<ProductOutput>(seed % 3);
      SCOPED_TRACE(name_of(c) + " rows " + std::to_string(count) + " outputs " + std::to_string(outputs) +
                   " columns " + std::to_string(columns));
      const TestTensor tensor = random_tensor("w", c.stored, outputs, columns, ++seed);
      const DeviceMatrix matrix = load(c.type, {tensor.view});
      // Inputs are wider than the matrix, with NaNs in what is not of it.
      const std::uint32_t stride = columns + 8;
      std::vector<std::uint16_t> input = random_elements(c.type, std::uint64_t{count} * stride, seed);
      for (std::uint32_t row = 0; row < count; ++row) {
        for (std::uint32_t i = columns; i < stride; ++i) input[row * stride + i] = 0xffff;
      }
      std::vector<float> bias;
      if (seed % 2 == 0) {
        for (std::uint32_t o = 0; o < outputs; ++o)
          bias.push_back(static_cast<float>(random() % 100) / 50.0f);
      }
      const Memory device_bias = upload(bias);
      const Outcome result = run(*products(c.type, seed % 4 != 0), matrix, input, stride, count, mode,
                                 bias.empty() ? nullptr : device_bias.as<float>());
      expect_near(result, tensor, 0, c.type, input, stride, bias, 0, count);
      result.expect_margin();
    }
  }
}

// Deterministic: any number of rows, any place among them, each kernel, spread over blocks or not.
TEST_F(MultiplyTest, BitsOfARowAreItsOwn) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const std::uint32_t columns = simulated() ? 512 : 1024, outputs = simulated() ? 140 : 4096;
    const std::uint32_t all = simulated() ? 140 : 600;
    ASSERT_GT(segments_of(columns), 1u);
    const TestTensor tensor = random_tensor("w", c.stored, outputs, columns, 5);
    const DeviceMatrix matrix = load(c.type, {tensor.view});
    const auto with = products(c.type, true);
    const std::vector<std::uint16_t> input = random_elements(c.type, std::uint64_t{all} * columns, 9);
    const Outcome whole = run(*with, matrix, input, columns, all, ProductOutput::kFloats, nullptr);
    expect_near(whole, tensor, 0, c.type, input, columns, {}, 0, 3);
    for (const std::uint32_t rows : {1u, 5u, 8u, 13u, 30u, 65u}) {
      const std::uint32_t first = all - rows - rows % 3;
      const std::vector<std::uint16_t> part(input.begin() + std::uint64_t{first} * columns,
                                            input.begin() + std::uint64_t{first + rows} * columns);
      const Outcome result = run(*with, matrix, part, columns, rows, ProductOutput::kFloats, nullptr);
      for (std::uint32_t row = 0; row < rows; ++row) {
        for (std::uint32_t o = 0; o < outputs; ++o) {
          ASSERT_EQ(result.bits(row, o), whole.bits(first + row, o))
              << "of " << rows << " rows: " << row << ", " << o;
        }
      }
    }
  }
}

TEST_F(MultiplyTest, LaunchersAgree) {
  // All kernels, called as they are: which one a product gets is another matter.
  // More groups of outputs than blocks that run at a time.
  const std::uint32_t columns = 512, outputs = simulated() ? 406 : 20006, rows = 20;
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const TestTensor tensor = random_tensor("w", c.stored, outputs, columns, 5);
    const DeviceMatrix matrix = load(c.type, {tensor.view});
    const Memory input = upload(random_elements(c.type, std::uint64_t{rows} * columns, 9));
    const MatrixPart& part = matrix.parts[0];
    ProductParams p = floats_of(matrix, columns, outputs, rows);
    p.segments = segments_of(columns);
    p.input = input.data();
    const ProductLaunchers& launchers = product_launchers(part.format, c.type);
    std::vector<std::vector<float>> results;
    for (const auto launcher :
         {launchers.few, launchers.many16, launchers.many32, launchers.many64, launchers.many128}) {
      const Memory output = filled(std::uint64_t{rows} * outputs * 4);
      p.output = output.data();
      launcher(p, stream());
      results.push_back(download<float>(output));
      ASSERT_EQ(std::memcmp(results[0].data(), results.back().data(), results[0].size() * 4), 0);
    }
    if (device().properties().capability != 90) continue;
    // With another order of sums.
    const Memory arranged = filled(arranged_bytes(columns, 128));
    p.arranged = arranged.data();
    p.tiles = 1;
    for (const auto launcher : {launchers.warpgroup64, launchers.warpgroup128}) {
      if (launcher == nullptr) continue;
      const Memory output = filled(std::uint64_t{rows} * outputs * 4);
      p.output = output.data();
      launcher(p, stream());
      const std::vector<float> result = download<float>(output);
      for (std::size_t i = 0; i < result.size(); ++i) ASSERT_NEAR(result[i], results[0][i], 1e-3) << i;
    }
  }
}

TEST_F(MultiplyTest, StackedTensorsAreOneMatrix) {
  const TestTensor query = random_tensor("query", TensorType::kQ4_K, 40, 512, 1);
  const TestTensor key = random_tensor("key", TensorType::kQ4_K, 20, 512, 2);
  const TestTensor value = random_tensor("value", TensorType::kQ6_K, 20, 512, 3);
  const ElementType type = ElementType::kHalf;
  const DeviceMatrix stacked = load(type, {query.view, key.view, value.view});
  EXPECT_EQ(stacked.parts.size(), 2u);
  EXPECT_EQ(stacked.rows, 80u);
  const auto with = products(type, true);
  std::vector<float> bias;
  for (int o = 0; o < 80; ++o) bias.push_back(static_cast<float>(o));
  const Memory device_bias = upload(bias);
  const std::vector<std::uint16_t> input = random_elements(type, 3 * 512, 4);
  const Outcome all = run(*with, stacked, input, 512, 3, ProductOutput::kElements, device_bias.as<float>());
  std::uint32_t first = 0;
  for (const TestTensor* each : {&query, &key, &value}) {
    const DeviceMatrix alone = load(type, {each->view});
    const Outcome one =
        run(*with, alone, input, 512, 3, ProductOutput::kElements, device_bias.as<float>() + first);
    for (std::uint32_t row = 0; row < 3; ++row) {
      for (std::uint32_t o = 0; o < alone.rows; ++o) EXPECT_EQ(one.bits(row, o), all.bits(row, first + o));
    }
    first += alone.rows;
  }
}

// Of outputs in the middle of a matrix, across its parts, however many rows there are.
TEST_F(MultiplyTest, OutputsInTheMiddleAreThoseOfTheWhole) {
  const std::uint32_t columns = 512;
  const TestTensor query = random_tensor("query", TensorType::kQ4_K, 48, columns, 1);
  const TestTensor key = random_tensor("key", TensorType::kQ4_K, 32, columns, 2);
  const TestTensor value = random_tensor("value", TensorType::kQ6_K, 32, columns, 3);
  const TestTensor plain = random_tensor("plain", TensorType::kF16, 112, columns, 5);
  const ElementType type = ElementType::kHalf;
  const auto with = products(type, true);
  std::vector<float> bias;
  for (int o = 0; o < 112; ++o) bias.push_back(static_cast<float>(o));
  const Memory device_bias = upload(bias);
  for (const DeviceMatrix& matrix :
       {load(type, {query.view, key.view, value.view}), load(type, {plain.view})}) {
    for (const std::uint32_t rows : {3u, 40u, 150u}) {
      const std::vector<std::uint16_t> input = random_elements(type, rows * columns, 4);
      const Outcome all =
          run(*with, matrix, input, columns, rows, ProductOutput::kElements, device_bias.as<float>());
      const Memory from = upload(input);
      for (const auto& [first, count] : {std::pair(48u, 64u), {80u, 32u}, {64u, 0u}}) {
        const std::uint32_t outputs = count == 0 ? 112 - first : count;
        const Memory to = filled(rows * outputs * std::uint64_t{2});
        ProductArguments some{&matrix,
                              from.data(),
                              columns,
                              rows,
                              to.data(),
                              outputs,
                              ProductOutput::kElements,
                              device_bias.as<float>()};
        some.first_output = first;
        some.outputs = count;
        with->multiply(some, stream());
        const std::vector<std::uint16_t> found = download<std::uint16_t>(to);
        for (std::uint32_t row = 0; row < rows; ++row) {
          for (std::uint32_t o = 0; o < outputs; ++o)
            ASSERT_EQ(found[row * outputs + o], all.bits(row, first + o)) << rows << " " << first << " " << o;
        }
      }
    }
  }
}

// Experts without rows, with one, with many; their tensors stacked expert by expert.
TEST_F(MultiplyTest, ExpertsMultiplyTheirOwnRows) {
  for (const Case& c : {kCases[1], kCases[3], kCases[5]}) {
    SCOPED_TRACE(name_of(c));
    const std::uint32_t columns = 256, each = 32;
    for (const std::vector<std::uint32_t>& counts :
         {std::vector<std::uint32_t>{0, 1, 0, 2, 0}, {0, 20, 3, 0, 41}, {90, 0, 0, 0, 70}, {1, 1, 1, 1, 1}}) {
      const auto experts = static_cast<std::uint32_t>(counts.size());
      const TestTensor gate = random_tensor("gate", c.stored, experts * each, columns, 1);
      const TestTensor up = random_tensor("up", c.stored, experts * each, columns, 2);
      const DeviceMatrix matrix = load(c.type, {gate.view, up.view}, experts);
      EXPECT_EQ(matrix.outputs(), 2 * each);
      const std::vector<std::uint32_t> offsets = offsets_of(counts);
      const std::uint32_t rows = offsets.back();
      const std::vector<float> bias = bias_of(matrix);
      const Memory device_bias = upload(bias), device_offsets = upload(offsets);
      const std::vector<std::uint16_t> input = random_elements(c.type, std::uint64_t{rows} * columns, 3);
      const auto with = products(c.type, false);
      const Outcome all = run(*with, matrix, input, columns, rows, ProductOutput::kFloats,
                              device_bias.as<float>(), device_offsets.as<std::uint32_t>());
      all.expect_margin();
      const auto alone = products(c.type, true);
      for (std::uint32_t e = 0; e < experts; ++e) {
        TensorView gate_rows = gate.view, up_rows = up.view;
        gate_rows.rows = up_rows.rows = each;
        gate_rows.data += e * each * gate.view.row_bytes();
        up_rows.data += e * each * up.view.row_bytes();
        const DeviceMatrix expert = load(c.type, {gate_rows, up_rows});
        const std::vector<std::uint16_t> part(input.begin() + std::uint64_t{offsets[e]} * columns,
                                              input.begin() + std::uint64_t{offsets[e + 1]} * columns);
        const Outcome one = run(*alone, expert, part, columns, counts[e], ProductOutput::kFloats,
                                device_bias.as<float>() + std::uint64_t{e} * matrix.outputs());
        for (std::uint32_t row = 0; row < counts[e]; ++row) {
          for (std::uint32_t o = 0; o < 2 * each; ++o) {
            ASSERT_EQ(one.bits(row, o), all.bits(offsets[e] + row, o)) << "expert " << e << " row " << row;
          }
        }
      }
    }
  }
}

// What is spread over blocks leaves nothing behind, and takes nothing of an earlier launch;
// from a graph, as are the library's products.
struct GraphCase {
  TensorType stored;
  std::uint32_t rows;
};
class GraphsOfProductsTest : public MultiplyTest, public testing::WithParamInterface<GraphCase> {};
INSTANTIATE_TEST_SUITE_P(Kernels, GraphsOfProductsTest,
                         testing::Values(GraphCase{TensorType::kQ8_0, 12}, GraphCase{TensorType::kF16, 64}));

TEST_P(GraphsOfProductsTest, RepeatThem) {
  const std::uint32_t columns = 1024, outputs = 100, rows = GetParam().rows;
  const TestTensor tensor = random_tensor("w", GetParam().stored, outputs, columns, 5);
  const DeviceMatrix matrix = load(ElementType::kHalf, {tensor.view});
  const auto with = products(ElementType::kHalf, false);
  const Memory inputs[2] = {upload(random_elements(ElementType::kHalf, std::uint64_t{rows} * columns, 9)),
                            upload(random_elements(ElementType::kHalf, std::uint64_t{rows} * columns, 10))};
  const Memory input = filled(inputs[0].size()), output = filled(std::uint64_t{rows} * outputs * 4);
  const ProductArguments arguments{&matrix, input.data(),           columns, rows, output.data(),
                                   outputs, ProductOutput::kFloats, nullptr};
  with->multiply(arguments, stream());  // as the backend: what a first call loads has no place in a capture
  ASSERT_TRUE(stream().begin_capture());
  with->multiply(arguments, stream());
  const Graph graph = stream().end_capture();
  ASSERT_TRUE(graph.present()) << stream().take_failure().to_string();
  for (int i = 0; i < 4; ++i) {
    stream().copy(input.data(), inputs[i % 2].data(), input.size());
    stream().fill(output.data(), 0xff, output.size());
    stream().launch(graph);
    const std::vector<float> again = download<float>(output);
    stream().fill(output.data(), 0xff, output.size());
    products(ElementType::kHalf, false)->multiply(arguments, stream());
    const std::vector<float> fresh = download<float>(output);
    EXPECT_EQ(std::memcmp(fresh.data(), again.data(), output.size()), 0) << "launch " << i;
  }
}

TEST_F(MultiplyTest, LargeHalvesStayFinite) {
  TestTensor tensor = random_tensor("w", TensorType::kF16, 8, 16, 5);
  const std::uint16_t big = f32_to_f16(30000.0f);
  for (std::size_t at = 0; at < tensor.bytes.size(); at += 2) std::memcpy(&tensor.bytes[at], &big, 2);
  const DeviceMatrix matrix = load(ElementType::kHalf, {tensor.view});
  const std::vector<std::uint16_t> input(16, f32_to_f16(-2.0f));
  const Outcome result =
      run(*products(ElementType::kHalf, true), matrix, input, 16, 1, ProductOutput::kElements, nullptr);
  for (std::uint32_t o = 0; o < 8; ++o) EXPECT_EQ(result.value(ElementType::kHalf, 0, o), -65504.0);
}

// The library stores them as infinite. Activations, queries and state are the same as after own kernels.
class LargeHalvesTest : public MultiplyTest {
 protected:
  static constexpr std::uint32_t kRows = 64, kColumns = 32, kHeadDim = 16, kOutputs = 3 * kHeadDim;

  // Rows [kRows][kOutputs] of sums that are all beyond the range, of both signs.
  std::vector<std::uint16_t> multiplied(bool deterministic) {
    TestTensor tensor = random_tensor("w", TensorType::kF16, kOutputs, kColumns, 5);
    for (std::uint32_t at = 0; at < kOutputs * kColumns; ++at) {
      const std::uint16_t big = f32_to_f16(at / kColumns % 3 == 0 ? -30000.0f : 30000.0f);
      std::memcpy(&tensor.bytes[2 * at], &big, 2);
    }
    const DeviceMatrix matrix = load(ElementType::kHalf, {tensor.view});
    std::vector<std::uint16_t> values(kRows * kColumns);
    for (std::uint32_t at = 0; at < values.size(); ++at)
      values[at] = f32_to_f16(at / kColumns % 2 == 0 ? -2.0f : 2.0f);
    const Memory input = upload(values), output = filled(kRows * kOutputs * 2);
    products(ElementType::kHalf, deterministic)
        ->multiply({&matrix, input.data(), kColumns, kRows, output.data(), kOutputs}, stream());
    return download<std::uint16_t>(output);
  }
  std::vector<std::uint16_t> activated(const std::vector<std::uint16_t>& product, Activation activation) {
    const Memory input = upload(product), output = filled(product.size());
    activate({.input = input.data(),
              .output = output.data(),
              .activation = activation,
              .rows = kRows,
              .width = kOutputs / 2,
              .type = ElementType::kHalf},
             stream());
    return download<std::uint16_t>(output);
  }
  // Queries, then state.
  std::vector<std::uint16_t> placed(const std::vector<std::uint16_t>& product) {
    std::vector<std::uint32_t> numbers(kRows);
    std::iota(numbers.begin(), numbers.end(), 0u);
    const Memory input = upload(product), places = upload(numbers),
                 norm = upload(std::vector<float>(kHeadDim, 1.5f)), queries = filled(kRows * kHeadDim * 2),
                 state = filled(kRows * 2 * kHeadDim * 2);
    PlaceArguments arguments{.qkv = input.data(), .queries = queries.data()};
    arguments.state = {
        .base = state.data(), .slot_stride = state.size() / 2, .kv_heads = 1, .head_dim = kHeadDim};
    arguments.positions = arguments.places = places.as<std::uint32_t>();
    arguments.query_norm = arguments.key_norm = norm.as<float>();
    arguments.norm_epsilon = 1e-5f;
    arguments.rows = kRows;
    arguments.heads = 1;
    arguments.type = ElementType::kHalf;
    place_rows(arguments, stream());
    std::vector<std::uint16_t> all = download<std::uint16_t>(queries);
    const std::vector<std::uint16_t> kept = download<std::uint16_t>(state);
    all.insert(all.end(), kept.begin(), kept.end());
    return all;
  }
  static void expect_finite(const std::vector<std::uint16_t>& values) {
    for (const std::uint16_t bits : values) ASSERT_TRUE(std::isfinite(f16_to_f32(bits)));
  }
};

TEST_F(LargeHalvesTest, OfTheLibraryAreReadAsThoseOfOwnKernels) {
  const std::vector<std::uint16_t> own = multiplied(true), library = multiplied(false);
  for (const std::uint16_t bits : own) ASSERT_EQ(std::abs(f16_to_f32(bits)), 65504.0f);
  if (simulated()) {
    for (const std::uint16_t bits : library) ASSERT_TRUE(std::isinf(f16_to_f32(bits)));
  }
  for (const auto activation :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    const std::vector<std::uint16_t> got = activated(library, activation);
    expect_finite(got);
    EXPECT_EQ(got, activated(own, activation)) << static_cast<int>(activation);
  }
  const std::vector<std::uint16_t> got = placed(library);
  expect_finite(got);
  EXPECT_EQ(got, placed(own));
}

// Large 16-bit products are the library's, quantised ones and deterministic mode's are not.
TEST_F(MultiplyTest, TheLibraryTakesWhatIsIts) {
  const auto plain = products(ElementType::kBFloat16, false), strict = products(ElementType::kBFloat16, true);
  EXPECT_NE(plain->library(), strict->library());
  const std::uint32_t columns = 264, rows = 50;
  const std::vector<std::uint16_t> input =
      random_elements(ElementType::kBFloat16, std::uint64_t{rows} * columns, 9);
  for (const std::uint32_t outputs : {72u, 73u}) {
    const TestTensor tensor = random_tensor("w", TensorType::kBF16, outputs, columns, 5);
    const DeviceMatrix matrix = load(ElementType::kBFloat16, {tensor.view});
    std::vector<float> bias;
    for (std::uint32_t o = 0; o < outputs; ++o) bias.push_back(static_cast<float>(o) * 0.25f);
    const Memory device_bias = upload(bias);
    for (const auto mode : {ProductOutput::kElements, ProductOutput::kFloats, ProductOutput::kAdded}) {
      const Outcome by_library = run(*plain, matrix, input, columns, rows, mode, device_bias.as<float>());
      expect_near(by_library, tensor, 0, ElementType::kBFloat16, input, columns, bias, 0, rows);
      by_library.expect_margin();
      const Outcome alone = run(*plain, matrix, input, columns, rows, mode, nullptr);
      expect_near(alone, tensor, 0, ElementType::kBFloat16, input, columns, {}, 0, rows);
    }
  }
}

// Packed matrices are decoded for the library where rows are very many, slice by slice.
TEST_F(MultiplyTest, TheLibraryTakesDecodedSlices) {
  const std::uint32_t columns = 256, rows = 1030;
  for (const Case& c : {kCases[5], kCases[8]}) {
    SCOPED_TRACE(name_of(c));
    const auto with = products(c.type, false, rows);
    const std::vector<std::uint16_t> input = random_elements(c.type, std::uint64_t{rows} * columns, 9);
    for (const std::uint32_t outputs :
         {136u, 141u}) {  // two slices; of the second one the last is not the library's
      const TestTensor tensor = random_tensor("w", c.stored, outputs, columns, 5);
      const DeviceMatrix matrix = load(c.type, {tensor.view});
      std::vector<float> bias;
      for (std::uint32_t o = 0; o < outputs; ++o) bias.push_back(static_cast<float>(o) * 0.25f);
      const Memory device_bias = upload(bias);
      const Outcome result =
          run(*with, matrix, input, columns, rows, ProductOutput::kElements, device_bias.as<float>());
      expect_near(result, tensor, 0, c.type, input, columns, bias, 0, 20);
      expect_near(result, tensor, 0, c.type, input, columns, bias, rows - 20, rows);
      result.expect_margin();
    }
  }
}

TEST_F(MultiplyTest, SegmentsAreOfTheMatrixAlone) {
  EXPECT_EQ(segments_of(4096), 8u);
  EXPECT_EQ(segments_of(576), 4u);
  EXPECT_EQ(segments_of(128), 1u);
  for (const std::uint32_t columns : {8u, 128u, 136u, 576u, 1536u, 4096u, 14336u}) {
    ProductParams p;
    p.columns = columns;
    p.segments = segments_of(columns);
    EXPECT_EQ(segment_begin(p, 0), 0u);
    for (std::uint32_t s = 0; s < p.segments; ++s) EXPECT_LT(segment_begin(p, s), segment_begin(p, s + 1));
    EXPECT_EQ(segment_begin(p, p.segments), (columns + 127) / 128 * 128);
  }
}

TEST_F(MultiplyTest, EmbedsFromAnyFormat) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const std::uint32_t columns = 512, vocabulary = 50;
    const TestTensor words = random_tensor("words", c.stored, vocabulary, columns, 1);
    const TestTensor places = random_tensor("places", TensorType::kF16, 20, columns, 2);
    const DeviceMatrix embedding = load(c.type, {words.view}), positions = load(c.type, {places.view});
    const std::vector<std::uint32_t> tokens = {0, 49, 17, 17}, at = {2, 0, 19, 5};
    const Memory device_tokens = upload(tokens), device_at = upload(at);
    for (const bool learned : {false, true}) {
      const Memory output = filled(tokens.size() * columns * 4);
      const EmbedArguments arguments{&embedding,
                                     learned ? &positions : nullptr,
                                     device_tokens.as<std::uint32_t>(),
                                     device_at.as<std::uint32_t>(),
                                     4,
                                     3.5f,
                                     output.as<float>()};
      embed(arguments, stream());
      const std::vector<float> values = download<float>(output);
      for (std::size_t row = 0; row < tokens.size(); ++row) {
        const std::vector<float> word = words.row(tokens[row]), place = places.row(at[row]);
        for (std::uint32_t i = 0; i < columns; ++i) {
          float wanted = word[i] * 3.5f;
          if (learned) wanted += element_value(c.type, element_bits(c.type, place[i]));
          ASSERT_EQ(values[row * columns + i], wanted) << row << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace loci::cuda
