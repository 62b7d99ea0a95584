// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/attention/attention_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace loci::cuda::attention_testing {
namespace {

constexpr std::uint32_t kBlock = 32;
constexpr std::uint16_t kNaN = 0x7fff;  // in both types
constexpr std::uint32_t kLayers = 2;    // of the pool's group; the second is used

std::uint32_t blocks_of(std::uint32_t tokens) { return (tokens + kBlock - 1) / kBlock; }

}  // namespace

float World::value_of(std::uint16_t bits) const {
  if (type_ == ElementType::kHalf) {
    _Float16 half;
    std::memcpy(&half, &bits, 2);
    return static_cast<float>(half);
  }
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

std::uint16_t World::bits_of(float value) const {
  std::uint16_t bits;
  if (type_ == ElementType::kHalf) {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(&bits, &half, 2);
    return bits;
  }
  std::uint32_t wide;
  std::memcpy(&wide, &value, 4);
  return static_cast<std::uint16_t>((wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
}

World::World(AttentionTest& test, const Case& c, std::uint64_t seed)
    : test_(test), heads_(c.heads), kv_heads_(c.kv_heads), head_dim_(c.head_dim), type_(c.type) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::uint32_t positions = 0;
  for (const SpanOf& span : c.spans) {
    first_.push_back(positions);
    positions += span.length;
  }
  const auto draw = [&](std::vector<std::uint16_t>& values, std::size_t count, float scale) {
    values.resize(count);
    for (std::uint16_t& value : values) value = bits_of(scale * normal(random));
  };
  draw(keys_, std::size_t{positions} * kv_heads_ * head_dim_, 1);
  draw(values_, keys_.size(), 1);
  draw(queries_, std::size_t{positions} * heads_ * head_dim_, c.query_scale);
  for (std::uint32_t head = 0; head < heads_; ++head) sink_values_.push_back(normal(random));
  sinks_ = test_.put(sink_values_);
  fill_slots(c, random);
}

std::size_t World::state_at(std::uint32_t span, std::uint32_t position, std::uint32_t kv_head) const {
  return ((std::size_t{first_[span]} + position) * kv_heads_ + kv_head) * head_dim_;
}

std::size_t World::query_at(std::uint32_t span, std::uint32_t position, std::uint32_t head) const {
  return ((std::size_t{first_[span]} + position) * heads_ + head) * head_dim_;
}

// Slots are permuted; half of the pool is nobody's. What holds no token's state is NaN.
void World::fill_slots(const Case& c, std::mt19937_64& random) {
  std::uint32_t blocks = 0;
  for (const SpanOf& span : c.spans) blocks += blocks_of(span.length);
  const std::uint32_t slots = 2 * blocks;
  std::vector<std::uint32_t> order(slots);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  const std::size_t half_slice = std::size_t{kv_heads_} * kBlock * head_dim_, slice = 2 * half_slice;
  std::vector<std::uint16_t> pool(slots * kLayers * slice, kNaN);
  std::uint32_t next = 0;
  for (std::uint32_t s = 0; s < c.spans.size(); ++s) {
    table_first_.push_back(static_cast<std::uint32_t>(table_.size()));
    // Blocks that no row of the span sees have no slot.
    std::uint32_t seen = UINT32_MAX;
    for (const Run& run : c.runs) {
      if (run.span != s) continue;
      const bool all = c.window == 0 || run.position < c.window;
      seen = std::min(seen, all ? 0 : run.position - c.window + 1);
    }
    if (seen == UINT32_MAX) seen = 0;
    for (std::uint32_t block = 0; block < blocks_of(c.spans[s].length); ++block) {
      const std::uint32_t slot = order[next++];
      table_.push_back((block + 1) * kBlock <= seen ? UINT32_MAX : slot);
      std::uint16_t* part = pool.data() + (std::size_t{slot} * kLayers + 1) * slice;
      for (std::uint32_t token = 0; token < kBlock; ++token) {
        const std::uint32_t position = block * kBlock + token;
        if (position >= c.spans[s].length) break;
        for (std::uint32_t head = 0; head < kv_heads_; ++head) {
          const std::size_t to = (std::size_t{head} * kBlock + token) * head_dim_;
          std::copy_n(keys_.data() + state_at(s, position, head), head_dim_, part + to);
          std::copy_n(values_.data() + state_at(s, position, head), head_dim_, part + half_slice + to);
        }
      }
    }
  }
  pool_ = test_.put(pool);
  state_.base = pool_.data() + slice * 2;
  state_.slot_stride = kLayers * slice * 2;
  state_.kv_heads = kv_heads_;
  state_.head_dim = head_dim_;
}

AttentionShape World::shape_of(const Case& c) const {
  const DeviceProperties& device = test_.device().properties();
  return {.heads = heads_,
          .kv_heads = kv_heads_,
          .head_dim = head_dim_,
          .window = c.window,
          .multiprocessors = c.plan_multiprocessors,
          .deterministic = c.deterministic,
          .warpgroups = c.warpgroups && attention_has_warpgroups(device, head_dim_, c.deterministic)};
}

Prepared World::prepare(const Case& c, std::uint32_t runs_max) {
  runs_max = std::max(runs_max, static_cast<std::uint32_t>(c.runs.size()));
  std::uint32_t rows = 0;
  for (const Run& run : c.runs) rows += run.rows;
  const AttentionShape shape = shape_of(c);
  const AttentionLimits limits = attention_limits(shape, runs_max, 2 * rows);
  Prepared pass;
  const std::uint64_t row_bytes = std::uint64_t{heads_} * head_dim_ * 2;
  pass.queries = test_.filled(2 * rows * row_bytes);
  pass.output = test_.filled(2 * rows * row_bytes);
  pass.tables = test_.put(table_);
  pass.runs = test_.filled(runs_max * sizeof(AttentionRun));
  pass.tasks = test_.filled(std::max(1u, limits.others.tasks) * sizeof(AttentionTask));
  pass.warpgroup_tasks = test_.filled(std::max(1u, limits.warpgroups.tasks) * sizeof(AttentionTask));
  pass.merges = test_.filled(std::max(1u, limits.merges()) * sizeof(AttentionMerge));
  pass.counts = test_.filled(sizeof(AttentionCounts));
  pass.values = test_.filled(std::max<std::uint64_t>(16, limits.values_bytes));
  pass.statistics = test_.filled(std::max<std::uint64_t>(16, limits.statistics_bytes));
  AttentionArguments& a = pass.arguments;
  a.queries = pass.queries.data();
  a.output = pass.output.data();
  a.state = state_;
  a.tables = pass.tables.as<std::uint32_t>();
  a.runs = pass.runs.as<AttentionRun>();
  a.tasks = pass.tasks.as<AttentionTask>();
  a.warpgroup_tasks = pass.warpgroup_tasks.as<AttentionTask>();
  a.merges = pass.merges.as<AttentionMerge>();
  a.counts = pass.counts.as<AttentionCounts>();
  a.tasks_max = limits.others.tasks;
  a.warpgroup_tasks_max = limits.warpgroups.tasks;
  a.merges_max = limits.merges();
  a.partial_values = pass.values.as<float>();
  a.partial_statistics = pass.statistics.as<float>();
  a.sinks = c.sinks ? sinks_.as<float>() : nullptr;
  a.heads = heads_;
  a.window = c.window;
  a.split_keys = c.deterministic ? kAttentionSplitKeys : 0;
  a.scale = 1 / std::sqrt(static_cast<float>(head_dim_));
  a.softcap = c.softcap;
  a.stages_max = c.stages_max;
  a.type = type_;
  replace(pass, c);
  return pass;
}

void World::replace(Prepared& pass, const Case& c) {
  std::vector<AttentionRun> runs;
  std::vector<std::uint16_t> queries;
  for (const Run& run : c.runs) {
    runs.push_back({static_cast<std::uint32_t>(queries.size() / (std::size_t{heads_} * head_dim_)), run.rows,
                    run.position, table_first_[run.span]});
    const auto from = queries_.begin() + static_cast<std::ptrdiff_t>(query_at(run.span, run.position, 0));
    queries.insert(queries.end(), from,
                   from + static_cast<std::ptrdiff_t>(std::size_t{run.rows} * heads_ * head_dim_));
  }
  pass.rows = static_cast<std::uint32_t>(queries.size() / (std::size_t{heads_} * head_dim_));
  const AttentionShape shape = shape_of(c);
  AttentionLimits limits = attention_limits(shape, static_cast<std::uint32_t>(runs.size()), pass.rows);
  AttentionPlan plan;
  AttentionPlanner(shape, limits).plan(runs, plan);
  pass.arguments.prompt_tiles = plan.prompt_tiles;
  pass.counted = plan.counts();
  const auto send = [&](const Memory& to, const auto& values) {
    ASSERT_LE(values.size() * sizeof(values[0]), to.size());
    if (values.empty()) return;
    const Memory from = test_.put(values);
    test_.stream().copy(to.data(), from.data(), from.size());
    test_.stream().synchronize();
  };
  send(pass.queries, queries);
  send(pass.runs, runs);
  send(pass.tasks, plan.tasks);
  send(pass.warpgroup_tasks, plan.warpgroup_tasks);
  send(pass.merges, plan.merges);
  send(pass.counts, std::vector{pass.counted});
  test_.stream().fill(pass.output.data(), 0xff, pass.output.size());
}

Outcome World::result(const Prepared& pass) {
  Outcome outcome{test_.get<std::uint16_t>(pass.output), pass.counted};
  outcome.bits.resize(std::size_t{pass.rows} * heads_ * head_dim_);
  return outcome;
}

Outcome World::attend(const Case& c) {
  const Prepared pass = prepare(c);
  cuda::attend(pass.arguments, test_.stream());
  return result(pass);
}

std::vector<std::uint16_t> World::row(const Outcome& outcome, std::uint32_t row) const {
  const std::size_t size = std::size_t{heads_} * head_dim_;
  const auto begin = outcome.bits.begin() + static_cast<std::ptrdiff_t>(row * size);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

void World::expect_near(const Case& c, const Outcome& outcome) const {
  std::size_t at = 0;
  for (const Run& run : c.runs) {
    for (std::uint32_t i = 0; i < run.rows; ++i) {
      for (std::uint32_t head = 0; head < heads_; ++head, at += head_dim_) {
        expect_row(c, run, run.position + i, head, outcome.bits.data() + at);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  ASSERT_EQ(at, outcome.bits.size());
}

// Plain float64, from the same rounded inputs. The tolerance is what roundings may make: of probabilities and
// of the output to the type, and of scores, whose float32 errors change probabilities.
void World::expect_row(const Case& c, const Run& run, std::uint32_t position, std::uint32_t head,
                       const std::uint16_t* got) const {
  const double unit = type_ == ElementType::kHalf ? 0x1p-11 : 0x1p-8;
  const double smallest = type_ == ElementType::kHalf ? 0x1p-25 : 0;  // of probabilities below its range
  const std::uint32_t kv_head = head / (heads_ / kv_heads_);
  const std::uint32_t first = c.window == 0 || position < c.window ? 0 : position - c.window + 1;
  const std::uint16_t* query = queries_.data() + query_at(run.span, position, head);
  std::vector<double> scores;
  double largest = -INFINITY, size_max = 0;
  for (std::uint32_t key = first; key <= position; ++key) {
    const std::uint16_t* other = keys_.data() + state_at(run.span, key, kv_head);
    double score = 0, size = 0;
    for (std::uint32_t d = 0; d < head_dim_; ++d) {
      const double product = static_cast<double>(value_of(query[d])) * value_of(other[d]);
      score += product;
      size += std::abs(product);
    }
    score /= std::sqrt(static_cast<double>(head_dim_));
    size_max = std::max(size_max, size / std::sqrt(static_cast<double>(head_dim_)));
    if (c.softcap != 0) score = c.softcap * std::tanh(score / c.softcap);
    scores.push_back(score);
    largest = std::max(largest, score);
  }
  if (c.sinks) largest = std::max<double>(largest, sink_values_[head]);
  double sum = c.sinks ? std::exp(sink_values_[head] - largest) : 0;
  std::vector<double> out(head_dim_), sizes(head_dim_), all(head_dim_);
  for (std::uint32_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - largest);
    sum += weight;
    const std::uint16_t* values = values_.data() + state_at(run.span, first + i, kv_head);
    for (std::uint32_t d = 0; d < head_dim_; ++d) {
      const double value = value_of(values[d]);
      out[d] += weight * value;
      sizes[d] += weight * std::abs(value);
      all[d] += std::abs(value);
    }
  }
  // Of a score: products and sums of head_dim values, the softcap's 1 - 2 / (e + 1), and base 2.
  const double score_error = 0x1p-22 * (size_max + 2 * c.softcap + std::abs(largest) + 4);
  for (std::uint32_t d = 0; d < head_dim_; ++d) {
    const double expected = out[d] / sum, found = value_of(got[d]);
    const double tolerance = (unit + 4 * score_error + 0x1p-20) * sizes[d] / sum + smallest * all[d] / sum +
                             unit * std::abs(expected) + 1e-6;
    ASSERT_NEAR(found, expected, tolerance)
        << "position " << position << " head " << head << " dimension " << d << " of " << head_dim_;
  }
}

std::uint32_t AttentionTest::check(const Case& c, std::uint64_t seed) {
  World world(*this, c, seed);
  const Outcome outcome = world.attend(c);
  world.expect_near(c, outcome);
  return outcome.counts.merges;
}

}  // namespace loci::cuda::attention_testing
