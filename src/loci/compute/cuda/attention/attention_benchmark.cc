// SPDX-License-Identifier: Apache-2.0
// Attention of a Llama-8B-shaped layer (32 heads on 8, head size 128, bfloat16): decode steps are compared
// with copy bandwidth, scattered blocks with contiguous ones (Pensieve's figure 12), prompts with the dense
// matrix rate, mixed batches with each of their two parts.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "loci/compute/cuda/attention/attention.h"
#include "loci/compute/cuda/attention/attention_plan.h"
#include "loci/compute/cuda/check/bench.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kHeads = 32, kKvHeads = 8, kHeadDim = 128, kBlock = 32;
constexpr std::uint64_t kJudgedBytes = std::uint64_t{256} << 20;  // launches that read less are not judged

constexpr std::uint32_t kLayers = 32;
constexpr std::uint64_t kLayerBytes = std::uint64_t{2} * kKvHeads * kBlock * kHeadDim * 2;  // of a block

enum class Slots : std::uint8_t { kContiguous, kScattered };

// State as it lies when it serves: a slot holds a block's 32 layers, one launch reads one of them, and a
// batch's blocks are anywhere in the pool.
struct ServingPool {
  Memory memory;
  std::uint32_t slots = 0;
};

struct Request {
  std::uint32_t rows = 1;
  std::uint32_t context = 0;  // in all, the rows included
};

std::string short_number(std::uint32_t value) {
  return value >= 1024 ? std::to_string(value / 1024) + "K" : std::to_string(value);
}

// One launch's memory.
class Batch {
 public:
  Batch(Bench& bench, const std::vector<Request>& requests, Slots slots, bool deterministic = false,
        const ServingPool* pool = nullptr, std::uint32_t head_dim = kHeadDim)
      : bench_(bench), head_dim_(head_dim) {
    std::vector<AttentionRun> runs;
    std::uint32_t rows = 0, blocks = 0;
    for (const Request& request : requests) {
      runs.push_back({rows, request.rows, request.context - request.rows, blocks});
      rows += request.rows;
      blocks += (request.context + kBlock - 1) / kBlock;
      keys_ += request.context;
      for (std::uint32_t i = 0; i < request.rows; ++i) scores_ += request.context - i;
    }
    std::vector<std::uint32_t> tables(blocks);
    std::iota(tables.begin(), tables.end(), 0u);
    if (pool != nullptr) {
      for (std::uint32_t i = 0; i < blocks; ++i) {
        tables[i] = static_cast<std::uint32_t>(std::uint64_t{i} * pool->slots / blocks);
      }
    }
    if (slots == Slots::kScattered) std::shuffle(tables.begin(), tables.end(), std::mt19937(blocks));
    const std::uint64_t layer_bytes = kLayerBytes / kHeadDim * head_dim;
    const AttentionShape shape{
        .heads = kHeads,
        .kv_heads = kKvHeads,
        .head_dim = head_dim,
        .multiprocessors = bench.device().properties().multiprocessors,
        .deterministic = deterministic,
        .warpgroups = attention_has_warpgroups(bench.device().properties(), head_dim, deterministic)};
    const auto runs_max = static_cast<std::uint32_t>(runs.size());
    const AttentionLimits limits = attention_limits(shape, runs_max, rows);
    AttentionPlan plan;
    AttentionPlanner(shape, limits).plan(runs, plan);
    const AttentionCounts counts = plan.counts();
    row_values_ = std::uint64_t{rows} * kHeads * head_dim;
    a_.queries = keep(bench.random_values(row_values_, ElementType::kBFloat16, 1));
    a_.output = keep(bench.memory(MemoryKind::kDevice, row_values_ * 2));
    if (pool == nullptr) {
      a_.state.base = keep(bench.random_values(blocks * layer_bytes / 2, ElementType::kBFloat16, 2));
      a_.state.slot_stride = layer_bytes;
    } else {
      a_.state.base = pool->memory.data() + kLayers / 2 * kLayerBytes;
      a_.state.slot_stride = kLayers * kLayerBytes;
    }
    a_.state.kv_heads = kKvHeads;
    a_.state.head_dim = head_dim;
    a_.tables = upload(tables);
    a_.runs = upload(runs);
    a_.tasks = upload(plan.tasks);
    a_.warpgroup_tasks = upload(plan.warpgroup_tasks);
    a_.merges = upload(plan.merges);
    a_.counts = upload(std::vector{counts});
    a_.tasks_max = counts.tasks;
    a_.warpgroup_tasks_max = counts.warpgroup_tasks;
    a_.merges_max = counts.merges;
    a_.partial_values =
        reinterpret_cast<float*>(keep(bench.memory(MemoryKind::kDevice, limits.values_bytes)));
    a_.partial_statistics =
        reinterpret_cast<float*>(keep(bench.memory(MemoryKind::kDevice, limits.statistics_bytes)));
    a_.heads = kHeads;
    a_.split_keys = deterministic ? kAttentionSplitKeys : 0;
    a_.scale = 1 / std::sqrt(static_cast<float>(head_dim));
    a_.prompt_tiles = plan.prompt_tiles;
  }

  double measure_ms() {
    return bench_.measure_ms([&](Stream& stream) { attend(a_, stream); });
  }
  // That it must move: keys and values once, queries, output.
  double bytes() const {
    return static_cast<double>(keys_) * 2 * kKvHeads * head_dim_ * 2 + static_cast<double>(row_values_) * 4;
  }
  double operations() const { return static_cast<double>(scores_) * kHeads * head_dim_ * 4; }

 private:
  std::byte* keep(Memory memory) {
    kept_.push_back(std::move(memory));
    return kept_.back().data();
  }
  template <class T>
  T* upload(const std::vector<T>& values) {
    if (values.empty()) return nullptr;
    const std::uint64_t bytes = values.size() * sizeof(T);
    const Memory from = bench_.memory(MemoryKind::kPinned, bytes);
    std::memcpy(from.data(), values.data(), bytes);
    std::byte* to = keep(bench_.memory(MemoryKind::kDevice, bytes));
    bench_.stream().copy(to, from.data(), bytes);
    bench_.stream().synchronize();
    return reinterpret_cast<T*>(to);
  }

  Bench& bench_;
  const std::uint32_t head_dim_;
  AttentionArguments a_;
  std::vector<Memory> kept_;
  std::uint64_t keys_ = 0, scores_ = 0, row_values_ = 0;
};

std::vector<Request> equal(std::uint32_t count, Request request) {
  return std::vector<Request>(count, request);
}

void bench_decode(Bench& bench) {
  std::vector<Request> shapes;  // rows: the batch
  for (const std::uint32_t context : {1024u, 8192u, 32768u, 131072u}) {
    for (const std::uint32_t batch : {1u, 4u, 16u, 40u, 64u, 256u}) {
      if (std::uint64_t{batch} * context <= std::uint64_t{1} << 21) shapes.push_back({batch, context});
    }
  }
  if (bench.quick()) shapes = {{1, 131072}, {16, 8192}, {64, 8192}, {256, 1024}};
  if (bench.small()) shapes = {{2, 100}};
  for (const bool deterministic : {false, true}) {
    for (const Request& shape : shapes) {
      const std::string name = std::string("attention/decode ") + (deterministic ? "deterministic " : "") +
                               short_number(shape.context) + " batch " + std::to_string(shape.rows);
      if (!bench.wanted(name)) continue;
      bench.attempt(name, [&] {
        Batch batch(bench, equal(shape.rows, {1, shape.context}), Slots::kScattered, deterministic);
        const bool judged = !deterministic && batch.bytes() >= static_cast<double>(kJudgedBytes);
        bench.table().add({.name = name,
                           .measured = batch.bytes() / batch.measure_ms() / 1e6,
                           .unit = "GB/s",
                           .limit = bench.limits().copy_gbps,
                           .bar = judged ? 0.85 : 0,
                           .note = "of copy bandwidth"});
      });
    }
  }
  const std::string name = "attention/decode contexts of 256 to 32K batch 64";
  if (bench.small() || !bench.wanted(name)) return;
  std::vector<Request> uneven;
  for (std::uint32_t i = 0; i < 64; ++i) uneven.push_back({1, 256u << (i % 8)});
  bench.attempt(name, [&] {
    Batch batch(bench, uneven, Slots::kScattered);
    bench.table().add({.name = name,
                       .measured = batch.bytes() / batch.measure_ms() / 1e6,
                       .unit = "GB/s",
                       .limit = bench.limits().copy_gbps,
                       .bar = 0.85,
                       .note = "of copy bandwidth"});
  });
}

// The reach of the device's address translation: the larger the pool, the more pages a launch touches.
void bench_pools(Bench& bench) {
  if (bench.small()) return;
  for (const std::uint64_t gb : {30u, 60u, 110u}) {
    const std::string name = "attention/decode 8K batch 16, a pool of " + std::to_string(gb) + " GB";
    const std::uint64_t bytes = gb * 1'000'000'000;
    if (!bench.wanted(name) || bench.device().free_bytes() < bytes + (std::uint64_t{2} << 30)) continue;
    bench.attempt(name, [&] {
      ServingPool pool;
      pool.slots = static_cast<std::uint32_t>(bytes / (kLayers * kLayerBytes));
      pool.memory = bench.random_values(pool.slots * kLayers * kLayerBytes / 2, ElementType::kBFloat16, 2);
      Batch batch(bench, equal(16, {1, 8192}), Slots::kScattered, false, &pool);
      bench.table().add({.name = name,
                         .measured = batch.bytes() / batch.measure_ms() / 1e6,
                         .unit = "GB/s",
                         .limit = bench.limits().copy_gbps,
                         .bar = 0.85,
                         .note = "of copy bandwidth; one of 32 layers of each slot"});
    });
  }
}

// Pensieve's figure 12: 32 requests, 8 queries each.
void bench_scattered(Bench& bench) {
  std::vector<std::uint32_t> contexts{1024, 4096, 16384};
  if (bench.small()) contexts = {64};
  for (const std::uint32_t context : contexts) {
    for (const std::uint32_t rows : {1u, 8u}) {
      const std::string name =
          "attention/scattered " + short_number(context) + " batch 32 queries " + std::to_string(rows);
      if (!bench.wanted(name)) continue;
      const std::vector<Request> requests = equal(bench.small() ? 2 : 32, {rows, context});
      bench.attempt(name, [&] {
        double ms[2] = {};
        for (const Slots slots : {Slots::kContiguous, Slots::kScattered}) {
          ms[slots == Slots::kScattered] = Batch(bench, requests, slots).measure_ms();
        }
        bench.table().add({.name = name,
                           .measured = ms[1],
                           .unit = "ms",
                           .limit = ms[0],
                           .bar = bench.small() ? 0 : 1.01,
                           .better = BenchRow::Better::kLower,
                           .note = "of contiguous blocks, and one in a hundred for noise"});
      });
    }
  }
}

struct PromptBench {
  Request request;
  std::uint32_t head_dim = kHeadDim;
  bool deterministic = false;
};

void bench_prompt(Bench& bench) {
  std::vector<PromptBench> shapes{
      {{1024, 1024}},   {{2048, 2048}}, {{4096, 4096}},     {{8192, 8192}},
      {{16384, 16384}}, {{512, 32768}}, {{8192, 8192}, 64}, {{8192, 8192}, kHeadDim, true}};
  if (!bench.quick()) shapes.push_back({{32768, 32768}});
  if (bench.small()) shapes = {{{40, 70}}};
  for (const PromptBench& shape : shapes) {
    const std::string name =
        std::string("attention/prompt ") + (shape.deterministic ? "deterministic " : "") +
        short_number(shape.request.rows) + " of " + short_number(shape.request.context) +
        (shape.head_dim != kHeadDim ? " head size " + std::to_string(shape.head_dim) : "");
    if (!bench.wanted(name)) continue;
    bench.attempt(name, [&] {
      Batch batch(bench, {shape.request}, Slots::kScattered, shape.deterministic, nullptr, shape.head_dim);
      const bool judged = !shape.deterministic && shape.head_dim == kHeadDim && shape.request.rows >= 8192;
      bench.table().add({.name = name,
                         .measured = batch.operations() / batch.measure_ms() / 1e9,
                         .unit = "TFLOP/s",
                         .limit = bench.limits().matrix_tflops,
                         .bar = judged ? 0.45 : 0,
                         .note = "of dense products; causal"});
    });
  }
}

void bench_mixed(Bench& bench, std::uint32_t prompt_rows) {
  const std::string name =
      "attention/mixed 48 decodes at 8K and " + short_number(prompt_rows) + " prompt rows at 8K";
  if (!bench.wanted(name)) return;
  std::vector<Request> decodes = equal(48, {1, 8192});
  std::vector<Request> prompts = equal(1, {prompt_rows, 8192});
  if (bench.small()) {
    decodes = equal(2, {1, 90});
    prompts = {{20, 60}};
  }
  bench.attempt(name, [&] {
    const double alone = Batch(bench, decodes, Slots::kScattered).measure_ms() +
                         Batch(bench, prompts, Slots::kScattered).measure_ms();
    decodes.insert(decodes.end(), prompts.begin(), prompts.end());
    bench.table().add({.name = name,
                       .measured = Batch(bench, decodes, Slots::kScattered).measure_ms(),
                       .unit = "ms",
                       .limit = alone,
                       .bar = bench.small() ? 0 : 1.0,
                       .better = BenchRow::Better::kLower,
                       .note = "of both in launches of their own"});
  });
}

}  // namespace

void bench_attention(Bench& bench) {
  bench_decode(bench);
  bench_pools(bench);
  bench_scattered(bench);
  bench_prompt(bench);
  for (const std::uint32_t rows : {64u, 1024u}) bench_mixed(bench, rows);
}

}  // namespace loci::cuda
