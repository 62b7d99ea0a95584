// SPDX-License-Identifier: Apache-2.0
// Heads of new tokens and tokens of blocks against a plain float64 model of them.
#include <fmt/format.h>

#include <numeric>

#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/rows/rows_testing.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kTokens = 32;

struct PlaceShape {
  std::uint32_t rows = 1, heads = 4, kv_heads = 2, head_dim = 64;
  std::uint32_t rope_dimensions = 0;  // 0: no rotation
  RopeLayout layout = RopeLayout::kHalves;
  bool norms = false;
  ElementType type = ElementType::kBFloat16;
  std::uint32_t units() const { return heads + 2 * kv_heads; }
};

class PlaceRowsTest : public RowsTest {
 protected:
  static constexpr std::uint32_t kSlots = 5, kPositions = 40, kLayers = 2;

  struct Case {
    std::vector<std::uint16_t> qkv;
    std::vector<std::uint32_t> positions, places;
    std::vector<float> query_norm, key_norm, rope;
  };
  Case make_case(const PlaceShape& shape) {
    Case c;
    c.qkv = elements(shape.type, std::size_t{shape.rows} * shape.units() * shape.head_dim, -4, 4);
    std::vector<std::uint32_t> all(kSlots * kTokens);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random());
    for (std::uint32_t row = 0; row < shape.rows; ++row) {
      c.positions.push_back(below(kPositions));
      c.places.push_back(below(5) == 0 ? PlaceArguments::kNowhere : all[row]);
    }
    c.query_norm = floats(shape.head_dim, -2, 2);
    c.key_norm = floats(shape.head_dim, -2, 2);
    for (std::uint32_t i = 0; i < kPositions * shape.rope_dimensions / 2; ++i) {
      const float angle = uniform(-3, 3);
      c.rope.push_back(1.25f * std::cos(angle));
      c.rope.push_back(1.25f * std::sin(angle));
    }
    return c;
  }
  struct Results {
    std::vector<std::uint16_t> queries, pool;
  };
  // The pool's second layer is written; it is poisoned before.
  Results run(const PlaceShape& shape, const Case& c) {
    const std::size_t slice = std::size_t{2} * shape.kv_heads * shape.head_dim * kTokens;  // elements
    const Memory qkv = upload(c.qkv), positions = upload(c.positions), places = upload(c.places),
                 query_norm = upload(c.query_norm), key_norm = upload(c.key_norm), rope = upload(c.rope);
    const Output<std::uint16_t> queries(*this, std::size_t{shape.rows} * shape.heads * shape.head_dim);
    const Output<std::uint16_t> pool(*this, kSlots * kLayers * slice);
    PlaceArguments arguments{.qkv = qkv.data(), .queries = queries.data()};
    arguments.state = {.base = reinterpret_cast<std::byte*>(pool.data() + slice),
                       .slot_stride = kLayers * slice * sizeof(std::uint16_t),
                       .kv_heads = shape.kv_heads,
                       .head_dim = shape.head_dim};
    arguments.positions = positions.as<std::uint32_t>();
    arguments.places = places.as<std::uint32_t>();
    if (shape.norms) {
      arguments.query_norm = query_norm.as<float>();
      arguments.key_norm = key_norm.as<float>();
      arguments.norm_epsilon = 1e-5f;
    }
    if (shape.rope_dimensions > 0) arguments.rope = rope.as<float2>();
    arguments.rope_dimensions = shape.rope_dimensions;
    arguments.rope_layout = shape.layout;
    arguments.rows = shape.rows;
    arguments.heads = shape.heads;
    arguments.type = shape.type;
    place_rows(arguments, stream());
    return {queries.values(), pool.values()};
  }
  // One head of one row as it should be.
  std::vector<double> head(const PlaceShape& shape, const Case& c, std::uint32_t row, std::uint32_t unit) {
    const std::uint32_t n = shape.head_dim, pairs = shape.rope_dimensions / 2;
    std::vector<double> x(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      x[i] = element_value(shape.type, c.qkv[(std::size_t{row} * shape.units() + unit) * n + i]);
    }
    if (unit >= shape.heads + shape.kv_heads) return x;
    if (shape.norms) {
      const std::vector<float>& weight = unit < shape.heads ? c.query_norm : c.key_norm;
      const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
      const double scale = 1 / std::sqrt(squares / n + static_cast<double>(1e-5f));
      for (std::uint32_t i = 0; i < n; ++i) x[i] *= scale * weight[i];
    }
    for (std::uint32_t i = 0; i < pairs; ++i) {
      const bool halves = shape.layout == RopeLayout::kHalves;
      double &a = x[halves ? i : 2 * i], &b = x[halves ? i + pairs : 2 * i + 1];
      const std::size_t at = 2 * (std::size_t{c.positions[row]} * pairs + i);
      const double cosine = c.rope[at], sine = c.rope[at + 1], first = a;
      a = first * cosine - b * sine;
      b = b * cosine + first * sine;
    }
    return x;
  }
  void check(const PlaceShape& shape);
};

void PlaceRowsTest::check(const PlaceShape& shape) {
  const Case c = make_case(shape);
  const Results got = run(shape, c);
  const std::uint32_t n = shape.head_dim;
  const std::size_t slice = std::size_t{2} * shape.kv_heads * n * kTokens;
  std::vector<bool> written(got.pool.size(), false);
  for (std::uint32_t row = 0; row < shape.rows; ++row) {
    for (std::uint32_t unit = 0; unit < shape.units(); ++unit) {
      const std::vector<double> want = head(shape, c, row, unit);
      const std::uint16_t* values = got.queries.data() + (std::size_t{row} * shape.heads + unit) * n;
      if (unit >= shape.heads) {
        if (c.places[row] == PlaceArguments::kNowhere) continue;
        const std::uint32_t slot = c.places[row] / kTokens, token = c.places[row] % kTokens;
        const std::size_t at =
            (slot * kLayers + 1) * slice + (std::size_t{unit - shape.heads} * kTokens + token) * n;
        std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(at), n, true);
        values = got.pool.data() + at;
      }
      for (std::uint32_t i = 0; i < n; ++i) {
        expect_element(shape.type, values[i], want[i], 1e-5,
                       fmt::format("head {} of {}, row {}, unit {}, rotates {}", i, n, row, unit,
                                   shape.rope_dimensions));
      }
      if (testing::Test::HasFailure()) return;
    }
  }
  for (std::size_t i = 0; i < got.pool.size(); ++i) {
    if (written[i]) continue;
    ASSERT_EQ(got.pool[i], 0xffff) << "not a place that was named: " << i;
  }
}

TEST_F(PlaceRowsTest, PlacesHeads) {
  for (const std::uint32_t head_dim : {8u, 64u, 72u, 80u, 96u, 128u, 136u, 256u}) {
    // None, all, a part of runs and of no runs.
    for (const std::uint32_t rotated : {0u, head_dim, head_dim / 2, head_dim / 4 / 2 * 2, 6u}) {
      for (const RopeLayout layout : {RopeLayout::kHalves, RopeLayout::kAdjacent}) {
        PlaceShape shape{.rows = 1 + below(5), .heads = 1 + below(6), .kv_heads = 1 + below(3)};
        shape.head_dim = head_dim;
        shape.rope_dimensions = rotated;
        shape.layout = layout;
        shape.norms = coin();
        shape.type = coin() ? ElementType::kHalf : ElementType::kBFloat16;
        check(shape);
      }
    }
  }
  PlaceShape many{.rows = simulated() ? 40u : 150u, .heads = simulated() ? 3u : 32u, .kv_heads = 1};
  many.head_dim = many.rope_dimensions = 128;
  check(many);
}

TEST_F(PlaceRowsTest, ARowsBitsAreItsOwn) {
  PlaceShape shape{.rows = 7, .heads = 3, .kv_heads = 1, .head_dim = 80, .rope_dimensions = 80};
  shape.norms = true;
  const Case c = make_case(shape);
  const Results all = run(shape, c);
  PlaceShape one = shape;
  one.rows = 1;
  for (std::uint32_t row = 0; row < shape.rows; ++row) {
    Case alone = c;
    const std::size_t of_row = std::size_t{shape.units()} * shape.head_dim;
    alone.qkv.assign(c.qkv.begin() + static_cast<std::ptrdiff_t>(row * of_row),
                     c.qkv.begin() + static_cast<std::ptrdiff_t>((row + 1) * of_row));
    alone.positions = {c.positions[row]};
    alone.places = {c.places[row]};
    const Results got = run(one, alone);
    const std::size_t queries = std::size_t{shape.heads} * shape.head_dim;
    EXPECT_TRUE(std::equal(got.queries.begin(), got.queries.end(),
                           all.queries.begin() + static_cast<std::ptrdiff_t>(row * queries)));
    for (std::size_t i = 0; i < got.pool.size(); ++i) {
      if (got.pool[i] == 0xffff) continue;
      ASSERT_EQ(got.pool[i], all.pool[i]);
    }
  }
}

TEST_F(PlaceRowsTest, StateIsFinite) {
  PlaceShape shape{.rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 64};
  shape.type = ElementType::kHalf;
  Case c = make_case(shape);
  c.places = {0};
  c.qkv[128] = 0x7c00;  // of the values
  c.qkv[129] = 0xfc00;
  c.qkv[130] = 0x7e00;
  const Results got = run(shape, c);
  const std::uint16_t* values = got.pool.data() + std::size_t{3} * 64 * kTokens;
  EXPECT_EQ(f16_to_f32(values[0]), 65504.0f);
  EXPECT_EQ(f16_to_f32(values[1]), -65504.0f);
  EXPECT_EQ(f16_to_f32(values[2]), -65504.0f);
}

// An infinite value, as a library's product leaves it, is the largest one to norms and rotations.
TEST_F(PlaceRowsTest, InfinityIsTheLargestValue) {
  for (const ElementType type : kElementTypes) {
    PlaceShape shape{.rows = 3, .heads = 2, .kv_heads = 1, .head_dim = 64, .rope_dimensions = 64};
    shape.norms = true;
    shape.type = type;
    Case c = make_case(shape);
    c.places = {0, 1, 33};
    Case finite = c;
    const auto infinity = static_cast<std::uint16_t>(type == ElementType::kHalf ? 0x7c00 : 0x7f80);
    for (std::size_t i = 0; i < c.qkv.size(); i += 37) {  // of queries, keys and values
      const auto minus = static_cast<std::uint16_t>(coin() ? 0x8000 : 0);
      c.qkv[i] = infinity | minus;
      finite.qkv[i] = static_cast<std::uint16_t>(infinity - 1) | minus;
    }
    const Results got = run(shape, c), want = run(shape, finite);
    EXPECT_EQ(got.queries, want.queries) << name_of(type);
    EXPECT_EQ(got.pool, want.pool) << name_of(type);
    for (const std::uint16_t bits : got.queries) ASSERT_TRUE(std::isfinite(element_value(type, bits)));
  }
}

TEST_F(PlaceRowsTest, CopiesTokens) {
  for (const std::uint32_t head_dim : {8u, 80u, 128u}) {
    const std::uint32_t kv_heads = 3;
    const std::size_t slice = std::size_t{2} * kv_heads * head_dim * kTokens;
    std::vector<std::uint16_t> pool(kSlots * kLayers * slice);
    for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::uint16_t>(i * 7 + i / 65536);
    const std::vector<TokenCopy> copies{{0, 3, 1}, {1, 2, 31}, {0, 4, 32}};
    std::vector<std::uint16_t> want = pool;
    for (const TokenCopy& copy : copies) {
      for (std::uint32_t head = 0; head < 2 * kv_heads; ++head) {
        const std::size_t at = slice + std::size_t{head} * kTokens * head_dim;
        std::copy_n(pool.begin() + static_cast<std::ptrdiff_t>(copy.from * kLayers * slice + at),
                    copy.tokens * head_dim,
                    want.begin() + static_cast<std::ptrdiff_t>(copy.to * kLayers * slice + at));
      }
    }
    const Memory memory = upload(pool), list = upload(copies);
    const LayerState state{.base = memory.data() + slice * 2,
                           .slot_stride = kLayers * slice * 2,
                           .kv_heads = kv_heads,
                           .head_dim = head_dim};
    copy_tokens(state, list.as<TokenCopy>(), static_cast<std::uint32_t>(copies.size()), stream());
    EXPECT_EQ(download<std::uint16_t>(memory), want);
  }
}

}  // namespace
}  // namespace loci::cuda
