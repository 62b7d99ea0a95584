// SPDX-License-Identifier: Apache-2.0
// The residual stream against a plain float64 one.
#include <fmt/format.h>

#include <numeric>

#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/rows/rows_testing.h"

namespace loci::cuda {
namespace {

using Row = std::vector<double>;

struct HostNorm {
  bool present = false;
  NormKind kind = NormKind::kRms;
  std::vector<float> weight, bias;
  float epsilon = 0;
};

Row normalised(const HostNorm& norm, const Row& x) {
  if (!norm.present) return x;
  const auto width = static_cast<double>(x.size());
  double mean = 0, squares = 0;
  if (norm.kind == NormKind::kLayer) mean = std::accumulate(x.begin(), x.end(), 0.0) / width;
  for (const double v : x) squares += (v - mean) * (v - mean);
  const double scale = 1 / std::sqrt(squares / width + static_cast<double>(norm.epsilon));
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = (x[i] - mean) * scale * norm.weight[i] + (norm.bias.empty() ? 0.0 : norm.bias[i]);
  }
  return y;
}

struct NormShape {
  std::uint32_t rows = 1;
  std::uint32_t width = 8;
  std::uint32_t changes = 1;
  bool some_rows = false;
  ElementType type = ElementType::kBFloat16;
  HostNorm post, post2, norm, norm2;
  bool output = true, output2 = false, floats = false;
};

struct Results {
  std::vector<float> residual, floats;
  std::vector<std::uint16_t> output, output2;
};

class AddNormTest : public RowsTest {
 protected:
  HostNorm make_norm(std::uint32_t width, NormKind kind, bool present = true) {
    HostNorm norm{.present = present, .kind = kind, .epsilon = 1e-5f};
    norm.weight = floats(width, -2, 2);
    if (kind == NormKind::kLayer && coin()) norm.bias = floats(width, -1, 1);
    return norm;
  }
  NormShape make_shape(std::uint32_t rows, std::uint32_t width) {
    NormShape shape{.rows = rows, .width = width, .changes = below(3), .some_rows = below(4) == 0};
    shape.type = coin() ? ElementType::kHalf : ElementType::kBFloat16;
    const auto kind = [&] { return coin() ? NormKind::kRms : NormKind::kLayer; };
    shape.post = make_norm(width, kind(), coin());
    shape.post2 = make_norm(width, kind(), coin());
    const NormKind both = kind();
    shape.norm = make_norm(width, both, below(4) != 0);
    shape.norm2 = make_norm(width, both, coin());
    shape.output = below(8) != 0;
    shape.output2 = coin();
    shape.floats = coin();
    return shape;
  }
  // Memory of a norm stays in `kept_`.
  RowNorm on_device(const HostNorm& norm) {
    if (!norm.present) return {};
    RowNorm row{.kind = norm.kind, .epsilon = norm.epsilon};
    kept_.push_back(upload(norm.weight));
    row.weight = kept_.back().as<float>();
    if (!norm.bias.empty()) {
      kept_.push_back(upload(norm.bias));
      row.bias = kept_.back().as<float>();
    }
    return row;
  }
  Results run(const NormShape& shape, const std::vector<float>& residual, const std::vector<float>& change,
              const std::vector<float>& change2, const std::vector<std::uint32_t>& rows_from) {
    kept_.clear();
    const std::size_t count = std::size_t{shape.rows} * shape.width;
    const Memory x = upload(residual), c = upload(change), c2 = upload(change2), from = upload(rows_from);
    const Output<std::uint16_t> output(*this, count), output2(*this, count);
    const Output<float> values(*this, count);
    AddNormArguments arguments{.residual = x.as<float>(), .rows = shape.rows, .width = shape.width};
    arguments.type = shape.type;
    if (shape.changes > 0) arguments.change = c.as<float>();
    if (shape.changes > 1) arguments.change2 = c2.as<float>();
    arguments.post = on_device(shape.post);
    arguments.post2 = on_device(shape.post2);
    arguments.norm = on_device(shape.norm);
    arguments.norm2 = on_device(shape.norm2);
    if (shape.output) arguments.output = output.data();
    if (shape.output2) arguments.output2 = output2.data();
    if (shape.floats) arguments.output_floats = values.data();
    if (shape.some_rows) arguments.rows_from = from.as<std::uint32_t>();
    add_norm(arguments, stream());
    return {download<float>(x), values.values(), output.values(), output2.values()};
  }
  void check(const NormShape& shape);

 private:
  std::vector<Memory> kept_;
};

void AddNormTest::check(const NormShape& shape) {
  const std::uint32_t width = shape.width, stored = shape.rows + (shape.some_rows ? 3 : 0);
  const std::vector<float> residual = floats(std::size_t{stored} * width, -3, 3);
  const std::vector<float> change = floats(residual.size(), -2, 2), change2 = floats(residual.size(), -2, 2);
  std::vector<std::uint32_t> rows_from(stored);
  std::iota(rows_from.begin(), rows_from.end(), 0);
  if (shape.some_rows) std::shuffle(rows_from.begin(), rows_from.end(), random());
  const Results got = run(shape, residual, change, change2, rows_from);
  const auto row_of = [&](const std::vector<float>& all, std::size_t row) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(row * width);
    return Row(at, at + width);
  };
  std::vector<bool> touched(stored, false);
  for (std::uint32_t i = 0; i < shape.rows; ++i) {
    const std::uint32_t row = rows_from[i];
    touched[row] = true;
    Row x = row_of(residual, row);
    const Row first = normalised(shape.post, row_of(change, row));
    const Row second = normalised(shape.post2, row_of(change2, row));
    for (std::uint32_t k = 0; k < width; ++k) {
      if (shape.changes > 0) x[k] += first[k];
      if (shape.changes > 1) x[k] += second[k];
    }
    const Row y = normalised(shape.norm, x);
    const Row y2 = shape.norm2.present ? normalised(shape.norm2, x) : y;
    for (std::uint32_t k = 0; k < width; ++k) {
      const std::size_t at = std::size_t{i} * width + k;
      const std::string where = fmt::format("width {}, row {} of {}, value {}", width, i, shape.rows, k);
      expect_near(got.residual[std::size_t{row} * width + k], x[k], 2e-5, where + ", residual");
      if (shape.output) expect_element(shape.type, got.output[at], y[k], 5e-5, where);
      if (shape.output2) expect_element(shape.type, got.output2[at], y2[k], 5e-5, where + ", second");
      if (shape.floats) expect_near(got.floats[at], y[k], 5e-5, where + ", floats");
    }
    if (testing::Test::HasFailure()) return;
  }
  for (std::uint32_t row = 0; row < stored; ++row) {
    if (touched[row]) continue;
    EXPECT_EQ(row_of(got.residual, row), row_of(residual, row)) << "not a named row";
  }
}

TEST_F(AddNormTest, AddsAndNormalises) {
  // Runs of one warp and of many, wide rows, and rows that are not made of runs.
  for (const std::uint32_t width : {8u, 16u, 248u, 256u, 264u, 1000u, 2048u, 1u, 3u, 33u, 100u, 1001u}) {
    for (const std::uint32_t rows : {1u, 2u, 5u}) check(make_shape(rows, width));
  }
  for (const std::uint32_t width : {4096u, 8200u, 16384u, 16392u}) check(make_shape(2, width));
  if (simulated()) return check(make_shape(50, 64));
  for (const std::uint32_t rows : {77u, 500u}) check(make_shape(rows, 4096));
}

TEST_F(AddNormTest, EveryCombination) {
  for (int i = 0; i < 60; ++i) check(make_shape(1 + below(3), coin() ? 8 * (1 + below(20)) : 1 + below(90)));
}

TEST_F(AddNormTest, ARowsBitsAreItsOwn) {
  for (const std::uint32_t width : {520u, 101u, 8200u}) {
    NormShape shape = make_shape(5, width);
    shape.changes = 2;
    shape.some_rows = false;
    shape.output = shape.floats = true;
    const std::size_t count = std::size_t{shape.rows} * width;
    const std::vector<float> residual = floats(count, -3, 3), change = floats(count, -2, 2),
                             change2 = floats(count, -2, 2);
    const Results all = run(shape, residual, change, change2, {0});
    for (std::uint32_t row = 0; row < shape.rows; ++row) {
      const auto cut = [&](const auto& values) {
        const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::size_t{row} * width);
        return std::decay_t<decltype(values)>(at, at + width);
      };
      NormShape one = shape;
      one.rows = 1;
      const Results alone = run(one, cut(residual), cut(change), cut(change2), {0});
      EXPECT_EQ(alone.residual, cut(all.residual));
      EXPECT_EQ(alone.output, cut(all.output));
      EXPECT_EQ(alone.floats, cut(all.floats));
    }
  }
}

TEST_F(AddNormTest, WhatElementsCannotHoldIsTheirLargest) {
  NormShape shape{.rows = 1, .width = 16, .changes = 0};
  shape.type = ElementType::kHalf;
  std::vector<float> residual(16, 1.0f);
  residual[3] = 1e9f;
  residual[5] = -INFINITY;
  residual[6] = NAN;
  const Results got = run(shape, residual, {}, {}, {0});
  EXPECT_EQ(f16_to_f32(got.output[3]), 65504.0f);
  EXPECT_EQ(f16_to_f32(got.output[5]), -65504.0f);
  EXPECT_TRUE(std::isnan(f16_to_f32(got.output[6])));
}

}  // namespace
}  // namespace loci::cuda
