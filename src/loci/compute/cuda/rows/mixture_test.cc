// SPDX-License-Identifier: Apache-2.0
// Routing against a plain model of it: choices and orders exactly, weights within rounding.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/rows/rows_testing.h"

namespace loci::cuda {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct MixtureShape {
  std::uint32_t rows = 1, experts = 8, uses = 2;
  bool normalised = true;
};
struct Routes {
  std::vector<std::uint32_t> chosen, offsets, sources, places;
  std::vector<float> weights;
};

class MixtureTest : public RowsTest {
 protected:
  Routes run(const MixtureShape& shape, const std::vector<float>& scores) {
    const std::size_t uses = std::size_t{shape.rows} * shape.uses;
    const Memory given = upload(scores);
    const Output<std::uint32_t> chosen(*this, uses), offsets(*this, shape.experts + 1), sources(*this, uses),
        places(*this, uses);
    const Output<float> weights(*this, uses);
    route({.scores = given.as<float>(),
           .rows = shape.rows,
           .experts = shape.experts,
           .uses = shape.uses,
           .normalised = shape.normalised,
           .chosen = chosen.data(),
           .weights = weights.data(),
           .offsets = offsets.data(),
           .sources = sources.data(),
           .places = places.data()},
          stream());
    return {chosen.values(), offsets.values(), sources.values(), places.values(), weights.values()};
  }
  std::vector<float> make_scores(const MixtureShape& shape) {
    std::vector<float> scores = floats(std::size_t{shape.rows} * shape.experts, -6, 6);
    for (float& score : scores) {
      if (coin()) score = std::round(score);  // equal ones
      if (below(20) == 0) score = below(2) == 0 ? kMinusInfinity : NAN;
      if (below(20) == 0) score = coin() ? 0.0f : -0.0f;
    }
    return scores;
  }
  static void check_weights(const MixtureShape& shape, std::vector<float> scores, const Routes& got);
  static void check_orders(const MixtureShape& shape, const Routes& got);
};

void MixtureTest::check_weights(const MixtureShape& shape, std::vector<float> scores, const Routes& got) {
  for (float& score : scores) score = std::isnan(score) ? kMinusInfinity : score;
  for (std::uint32_t row = 0; row < shape.rows; ++row) {
    const float* of_row = scores.data() + std::size_t{row} * shape.experts;
    std::vector<std::uint32_t> best(shape.experts);
    std::iota(best.begin(), best.end(), 0);
    std::stable_sort(best.begin(), best.end(), [&](auto a, auto b) { return of_row[a] > of_row[b]; });
    const double greatest = of_row[best[0]];
    std::sort(best.begin(), best.begin() + shape.uses);
    double sum = 0;
    for (std::uint32_t i = 0; i < (shape.normalised ? shape.uses : shape.experts); ++i) {
      sum += std::exp(of_row[best[i]] - greatest);
    }
    for (std::uint32_t i = 0; i < shape.uses; ++i) {
      const std::size_t at = std::size_t{row} * shape.uses + i;
      ASSERT_EQ(got.chosen[at], best[i]) << "row " << row << ", use " << i << " of " << shape.experts;
      expect_near(got.weights[at], std::exp(of_row[best[i]] - greatest) / sum, 1e-6, "weight");
    }
  }
}

void MixtureTest::check_orders(const MixtureShape& shape, const Routes& got) {
  std::uint32_t at = 0;
  for (std::uint32_t expert = 0; expert < shape.experts; ++expert) {
    ASSERT_EQ(got.offsets[expert], at) << "expert " << expert;
    for (std::uint32_t i = 0; i < shape.rows * shape.uses; ++i) {
      if (got.chosen[i] != expert) continue;
      ASSERT_EQ(got.sources[at], i / shape.uses);
      ASSERT_EQ(got.places[i], at++);
    }
  }
  EXPECT_EQ(got.offsets[shape.experts], at);
}

TEST_F(MixtureTest, Routes) {
  const std::vector<std::uint32_t> rows =
      simulated() ? std::vector<std::uint32_t>{1, 5, 70} : std::vector<std::uint32_t>{1, 5, 70, 500, 4096};
  for (const std::uint32_t experts : {1u, 4u, 8u, 32u, 33u, 128u, 256u}) {
    for (const std::uint32_t uses : {1u, 2u, 8u, 40u}) {
      if (uses > experts) continue;
      MixtureShape shape{.rows = rows[below(static_cast<std::uint32_t>(rows.size()))], .experts = experts};
      shape.uses = uses;
      shape.normalised = coin();
      std::vector<float> scores = make_scores(shape);
      scores[below(experts)] = 3;  // the first row has a finite score
      for (std::uint32_t row = 0; row < shape.rows; ++row) scores[std::size_t{row} * experts] = 1;
      const Routes got = run(shape, scores);
      check_weights(shape, scores, got);
      check_orders(shape, got);
    }
  }
}

TEST_F(MixtureTest, WithoutAFiniteScoreTheFirstExpertsShareEqually) {
  for (const float score : {kMinusInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const Routes got = run({.rows = 1, .experts = 8, .uses = 4}, std::vector<float>(8, score));
    EXPECT_EQ(got.chosen, (std::vector<std::uint32_t>{0, 1, 2, 3}));
    EXPECT_EQ(got.weights, std::vector<float>(4, 0.25f));
  }
}

TEST_F(MixtureTest, ARowsBitsAreItsOwn) {
  MixtureShape shape{.rows = 9, .experts = 40, .uses = 6};
  for (const bool normalised : {true, false}) {
    shape.normalised = normalised;
    const std::vector<float> scores = make_scores(shape);
    const Routes all = run(shape, scores);
    for (std::uint32_t row = 0; row < shape.rows; ++row) {
      const auto at = scores.begin() + row * shape.experts;
      MixtureShape one = shape;
      one.rows = 1;
      const Routes alone = run(one, {at, at + shape.experts});
      for (std::uint32_t i = 0; i < shape.uses; ++i) {
        EXPECT_EQ(alone.chosen[i], all.chosen[row * shape.uses + i]);
        EXPECT_EQ(alone.weights[i], all.weights[row * shape.uses + i]);
      }
    }
  }
}

TEST_F(MixtureTest, GathersRows) {
  for (const std::uint32_t width : {1u, 8u, 33u, 264u}) {
    const std::uint32_t rows = 6, count = 17;
    const std::vector<std::uint16_t> input = elements(ElementType::kHalf, std::size_t{rows} * width, -9, 9);
    std::vector<std::uint32_t> sources(count);
    std::vector<std::uint16_t> want;
    for (std::uint32_t& source : sources) {
      source = below(rows);
      const auto at = input.begin() + source * width;
      want.insert(want.end(), at, at + width);
    }
    const Memory from = upload(input), list = upload(sources);
    const Output<std::uint16_t> output(*this, want.size());
    gather_rows(from.data(), list.as<std::uint32_t>(), count, width, output.data(), stream());
    EXPECT_EQ(output.values(), want);
  }
}

TEST_F(MixtureTest, CombinesInOrder) {
  for (const std::uint32_t width : {1u, 4u, 30u, 260u}) {
    const std::uint32_t rows = 5, uses = 3;
    const std::vector<float> products = floats(std::size_t{rows} * uses * width, -5, 5);
    const std::vector<float> weights = floats(std::size_t{rows} * uses, 0, 1);
    std::vector<std::uint32_t> places(std::size_t{rows} * uses);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random());
    const Memory p = upload(products), w = upload(weights), at = upload(places);
    const Output<float> output(*this, std::size_t{rows} * width);
    combine({.products = p.as<float>(),
             .weights = w.as<float>(),
             .places = at.as<std::uint32_t>(),
             .output = output.data(),
             .rows = rows,
             .uses = uses,
             .width = width},
            stream());
    const std::vector<float> got = output.values();
    for (std::size_t i = 0; i < got.size(); ++i) {
      float sum = 0;
      for (std::uint32_t use = 0; use < uses; ++use) {
        const std::size_t which = i / width * uses + use;
        sum = std::fma(weights[which], products[std::size_t{places[which]} * width + i % width], sum);
      }
      EXPECT_EQ(got[i], sum);
    }
  }
}

}  // namespace
}  // namespace loci::cuda
