// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of attention: spans whose state lies in permuted slots among garbage, passes over them,
// and a plain float64 attention to compare with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "loci/compute/cuda/attention/attention.h"
#include "loci/compute/cuda/attention/attention_plan.h"
#include "loci/compute/cuda/check/device_testing.h"

namespace loci::cuda::attention_testing {

struct SpanOf {
  std::uint32_t length = 0;  // tokens that have state
};
struct Run {
  std::uint32_t span = 0;
  std::uint32_t rows = 0;
  std::uint32_t position = 0;
};
struct Case {
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0;
  std::uint32_t window = 0;
  float softcap = 0;
  bool sinks = false;
  ElementType type = ElementType::kBFloat16;
  bool deterministic = false;
  bool warpgroups = true;  // where they can be had
  std::uint32_t plan_multiprocessors = 2;
  std::uint32_t stages_max = 3;
  float query_scale = 1;
  std::vector<SpanOf> spans;
  std::vector<Run> runs;
};

class AttentionTest : public DeviceTest {
 public:
  using DeviceTest::device;
  using DeviceTest::filled;
  using DeviceTest::pinned;
  using DeviceTest::simulated;
  using DeviceTest::stream;
  template <class T>
  Memory put(const std::vector<T>& values) {
    return upload(values);
  }
  template <class T>
  std::vector<T> get(const Memory& memory) {
    return download<T>(memory);
  }

 protected:
  // Computes the case once and compares. Returns how many merges its plan has.
  std::uint32_t check(const Case& c, std::uint64_t seed);
};

struct Outcome {
  std::vector<std::uint16_t> bits;  // [row][head][head_dim]
  AttentionCounts counts;           // of the plan
};

// One pass's memory, and the arguments that name it.
struct Prepared {
  AttentionArguments arguments;
  Memory queries, output, tables, runs, tasks, warpgroup_tasks, merges, counts, values, statistics;
  std::uint32_t rows = 0;
  AttentionCounts counted;
};

// The state of a case's spans. A query depends only on its span and position, so that the same row can be
// computed in many ways.
class World {
 public:
  World(AttentionTest& test, const Case& c, std::uint64_t seed);

  Outcome attend(const Case& c);
  // Memory for at most `runs_max` runs (0: the case's) and twice the case's rows.
  Prepared prepare(const Case& c, std::uint32_t runs_max = 0);
  // Puts another case's plan and queries into the same memory.
  void replace(Prepared& pass, const Case& c);
  Outcome result(const Prepared& pass);
  void expect_near(const Case& c, const Outcome& outcome) const;
  std::vector<std::uint16_t> row(const Outcome& outcome, std::uint32_t row) const;

 private:
  AttentionShape shape_of(const Case& c) const;
  float value_of(std::uint16_t bits) const;
  std::uint16_t bits_of(float value) const;
  std::size_t state_at(std::uint32_t span, std::uint32_t position, std::uint32_t kv_head) const;
  std::size_t query_at(std::uint32_t span, std::uint32_t position, std::uint32_t head) const;
  void fill_slots(const Case& c, std::mt19937_64& random);
  void expect_row(const Case& c, const Run& run, std::uint32_t position, std::uint32_t head,
                  const std::uint16_t* got) const;

  AttentionTest& test_;
  const std::uint32_t heads_, kv_heads_, head_dim_;
  const ElementType type_;
  std::vector<std::uint32_t> first_;          // of each span, in positions of all spans together
  std::vector<std::uint16_t> keys_, values_;  // [position of all][kv head][head_dim]
  std::vector<std::uint16_t> queries_;        // [position of all][head][head_dim]
  std::vector<float> sink_values_;
  std::vector<std::uint32_t> table_;        // of all spans
  std::vector<std::uint32_t> table_first_;  // of each
  Memory pool_, sinks_;
  LayerState state_;
};

}  // namespace loci::cuda::attention_testing
