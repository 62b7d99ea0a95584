// SPDX-License-Identifier: Apache-2.0
// Bringing the state of a long context back, in all ways that HCache compares (figures 9 and 11): a model of
// Llama 2 7B's shape, a question of 32 tokens behind contexts whose state lies in pinned host memory as keys
// and values, or as hidden states (half the bytes), or is gone and computed again. A time is that of the pass
// that answers, from before its loads are queued to its end; the loads are queued layer by layer by another
// thread, as movers do for keys and values.
//
// Rows "as hidden states" copy the rows of all blocks of a layer at once, out of pinned memory: no mover has
// such rows yet. Those "from any memory" are what movers do (Backend::load_hidden()): a thread of the host
// copies each block's rows to a pinned buffer first. Limits are the bytes over the link, and the products
// over the matrix rate with the pass itself, whichever takes longer.
//
// And what it costs to capture hidden states while replies are written, beside steps that capture nothing
// (HCache §6.3.2: 4 % at most).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/compute/cuda/block_pool.h"
#include "loci/compute/cuda/check/bench.h"
#include "loci/compute/cuda/check/bench_model_testing.h"
#include "loci/compute/cuda/cuda_pass_runner.h"
#include "loci/compute/cuda/cuda_weights.h"
#include "loci/compute/layer_groups.h"

namespace loci::cuda {
namespace {

constexpr BenchModelShape kSmallLlama2{2, 64, 4, 4, 16, 96, 72, 512, 10000};
constexpr std::uint32_t kQuestion = 32;  // tokens

enum class Way : std::uint8_t { kResident, kKeysAndValues, kHidden, kHiddenStaged };

class Restore {
 public:
  // Errors: kResourceExhausted.
  static Result<std::unique_ptr<Restore>> make(Bench& bench, const BenchModel& model,
                                               std::uint32_t context_max) {
    std::unique_ptr<Restore> made(new Restore(bench, model));
    const ModelSpec& spec = model.spec;
    CudaPassRunnerOptions options;
    options.element = ElementType::kBFloat16;
    options.projects = true;
    options.rows_max = bench.small() ? 96 : 2048;
    options.spans_max = bench.small() ? 4 : 64;
    options.context_tokens = context_max + kQuestion;
    made->rows_max_ = options.rows_max;
    LOCI_ASSIGN_OR_RETURN(made->weights_,
                          CudaWeights::load(spec, bench.device(), options.element, options.context_tokens));
    LOCI_ASSIGN_OR_RETURN(made->blocks_,
                          BlockPool::make(bench.device(), layer_groups(spec), spec.kv_heads, spec.head_dim));
    LOCI_ASSIGN_OR_RETURN(
        made->runner_, CudaPassRunner::make(spec, made->weights_, bench.device(), *made->blocks_, options));
    const std::uint32_t blocks = context_max / kBlockTokens;
    // Twice as many slots, so that blocks lie apart; the last ones are the question's.
    LOCI_RETURN_IF_ERROR(made->blocks_->allocate(0, 2 * blocks + 1));
    for (std::uint32_t i = 0; i < blocks; ++i) made->slots_.emplace_back((i * 7 + 3) % blocks * 2);
    made->slots_.emplace_back(2 * blocks);
    LOCI_ASSIGN_OR_RETURN(made->host_, made->blocks_->allocate_host(made->group().block_bytes * blocks));
    const std::uint64_t piece = model.matrices.size();
    for (std::uint64_t at = 0; at < made->host_.size(); at += piece)
      std::memcpy(made->host_.data() + at, model.matrices.data(), std::min(piece, made->host_.size() - at));
    return made;
  }

  double kv_bytes(std::uint32_t context) const {
    return static_cast<double>(group().block_bytes) * context / kBlockTokens;
  }
  double hidden_bytes(std::uint32_t context) const {
    return static_cast<double>(CudaPassRunner::hidden_row_bytes(model_.spec)) * context *
           model_.spec.layer_count();
  }
  double projection_flops(std::uint32_t context) const {
    const ModelSpec& spec = model_.spec;
    return 2.0 * context * (2.0 * spec.kv_width()) * spec.hidden * spec.layer_count();
  }
  double recompute_flops(std::uint32_t context) const {
    const ModelSpec& spec = model_.spec;
    const double logits = static_cast<double>(spec.vocabulary) * spec.hidden;
    const double attention = 2.0 * context * context * spec.heads * spec.head_dim * spec.layer_count();
    return 2 * (model_.product_values - logits) * context + attention;
  }

  double milliseconds(Way way, std::uint32_t context) {
    return bench_.measure_wall_ms([&] { restore(way, context); }, repeats());
  }
  double recompute_ms(std::uint32_t context) {
    return bench_.measure_wall_ms(
        [&] {
          for (std::uint32_t at = 0; at < context; at += rows_max_)
            run(at, std::min(context, at + rows_max_), {});
          run(context, context + kQuestion, LogitsWanted::kLast);
        },
        repeats());
  }
  // The device's time for projecting what has all arrived.
  double projecting_ms(std::uint32_t context) {
    std::vector<double> times;
    for (std::uint32_t i = 0; i < (bench_.small() ? 1u : 4u); ++i) {
      begin_fills(context);
      load(Way::kHidden, context);
      std::latch loaded(1);
      blocks_->after_loads([&](const Status&) { loaded.count_down(); });
      loaded.wait();
      run(context, context + kQuestion, LogitsWanted::kLast);
      const Projected projected = runner_->projected();
      LOCI_CHECK(projected.slices == std::uint64_t{context} / kBlockTokens * model_.spec.layer_count(),
                 "all has come as hidden states");
      times.push_back(static_cast<double>(projected.took) / kNanosPerMilli);
    }
    return *std::min_element(times.begin(), times.end());
  }
  const Status& status() const { return status_; }

  // Of decode steps of so many requests behind 64 tokens, each begun while the one before runs.
  double step_ms(std::uint32_t batch, bool captures) {
    using Clock = std::chrono::steady_clock;
    constexpr std::uint32_t kSets = 3;  // two passes are in flight
    const std::uint32_t steps = kBlockTokens, uncounted = 8;
    const std::uint64_t layer_bytes = batch * CudaPassRunner::hidden_row_bytes(model_.spec);
    const std::uint64_t set_bytes = model_.spec.layer_count() * layer_bytes;
    Result<HostMemory> rows = blocks_->allocate_host(captures ? kSets * set_bytes : 1);
    if (!rows.ok()) {
      status_ = rows.status();
      return 0;
    }
    const auto begin = [&](std::uint32_t step) {
      Pass pass;
      for (std::uint32_t i = 0; i < batch; ++i) {
        Span& span = pass.spans.emplace_back();
        span.tokens = {TokenId(i % model_.spec.vocabulary)};
        span.position = kStepContext + step;
        span.layers = {0, model_.spec.layer_count()};
        std::vector<SlotId> slots;
        for (std::uint32_t k = 0; k < kStepBlocks; ++k) slots.emplace_back(i * kStepBlocks + k);
        span.tables = {BlockTable{slots}};
        span.logits = LogitsWanted::kLast;
        span.sampling = DeviceSampling{};
        for (std::uint32_t layer = 0; captures && layer < model_.spec.layer_count(); ++layer) {
          std::byte* at = rows->data() + step % kSets * set_bytes + layer * layer_bytes;
          span.capture.emplace_back(at + i * CudaPassRunner::hidden_row_bytes(model_.spec),
                                    CudaPassRunner::hidden_row_bytes(model_.spec));
        }
      }
      runner_->begin(std::move(pass));
    };
    Clock::time_point counted;
    begin(0);
    for (std::uint32_t step = 0; step < steps; ++step) {
      if (step == uncounted) counted = Clock::now();
      if (step + 1 < steps) begin(step + 1);
      runner_->finish(results_);
      if (status_.ok()) status_ = results_[0].status;
    }
    return std::chrono::duration<double, std::milli>(Clock::now() - counted).count() / (steps - uncounted);
  }

 private:
  static constexpr std::uint32_t kStepContext = 64, kStepBlocks = kStepContext / kBlockTokens + 1;

  Restore(Bench& bench, const BenchModel& model) : bench_(bench), model_(model) {}

  const LayerGroup& group() const { return blocks_->groups()[0]; }
  std::uint32_t repeats() const { return bench_.small() ? 1 : bench_.quick() ? 5 : 9; }
  std::span<std::byte> at(std::uint32_t block, std::uint32_t layer, std::uint64_t bytes) const {
    const std::uint64_t blocks = slots_.size() - 1;  // layer by layer, as a store that is read so has them
    return {host_.data() + (layer * blocks + block) * group().layer_slice_bytes, bytes};
  }

  void begin_fills(std::uint32_t context) const {
    for (std::uint32_t block = 0; block < context / kBlockTokens; ++block)
      blocks_->begin_fill(0, slots_[block]);
  }
  void load(Way way, std::uint32_t context) const {
    const std::uint64_t rows = kBlockTokens * CudaPassRunner::hidden_row_bytes(model_.spec);
    for (std::uint32_t layer = 0; layer < model_.spec.layer_count(); ++layer) {
      std::vector<LoadPiece> slices;
      std::vector<HiddenPiece> hidden;
      for (std::uint32_t block = 0; block < context / kBlockTokens; ++block) {
        slices.push_back({slots_[block], at(block, layer, group().layer_slice_bytes)});
        hidden.push_back({slots_[block], block * kBlockTokens, at(block, layer, rows)});
      }
      if (way == Way::kKeysAndValues) {
        blocks_->load(0, {layer, layer + 1}, slices, BytesHeld::kUntilCopied);
      } else {
        blocks_->load_hidden(0, layer, hidden,
                             way == Way::kHidden ? BytesHeld::kUntilCopied : BytesHeld::kDuringCall);
      }
    }
  }
  void restore(Way way, std::uint32_t context) {
    if (way == Way::kResident) return run(context, context + kQuestion, LogitsWanted::kLast);
    begin_fills(context);
    const std::jthread mover([&] { load(way, context); });
    run(context, context + kQuestion, LogitsWanted::kLast);
  }
  void run(std::uint32_t begin, std::uint32_t end, LogitsWanted logits) {
    Pass pass;
    Span& span = pass.spans.emplace_back();
    for (std::uint32_t i = begin; i < end; ++i) span.tokens.emplace_back(i * 7919 % model_.spec.vocabulary);
    span.position = begin;
    span.layers = {0, model_.spec.layer_count()};
    std::vector<SlotId> slots(slots_.begin(), slots_.begin() + (end + kBlockTokens - 1) / kBlockTokens);
    if (begin % kBlockTokens == 0 && end - begin == kQuestion)
      slots.back() = slots_.back();  // also behind a part of the longest context
    span.tables = {BlockTable{slots}};
    span.logits = logits;
    runner_->begin(std::move(pass));
    runner_->finish(results_);
    if (status_.ok()) status_ = results_[0].status;
  }

  Bench& bench_;
  const BenchModel& model_;
  std::uint32_t rows_max_ = 0;
  CudaWeights weights_;
  std::unique_ptr<BlockPool> blocks_;
  std::unique_ptr<CudaPassRunner> runner_;
  HostMemory host_;
  std::vector<SlotId> slots_;  // by block
  std::vector<SpanResult> results_;
  Status status_;
};

void bench_context(Bench& bench, Restore& restore, std::uint32_t context) {
  const double link = bench.limits().to_device_gbps * 1e6, matrix = bench.limits().matrix_tflops * 1e9;
  const double resident = restore.milliseconds(Way::kResident, context);
  const double kv = restore.kv_bytes(context), hidden = restore.hidden_bytes(context);
  const double project = restore.projection_flops(context);
  const auto add = [&](const char* what, double limit, const std::string& of,
                       const std::function<double()>& measure) {
    const std::string name = fmt::format("restore/llama-2-7b {} {}", context, what);
    if (!bench.wanted(name)) return;
    const double ms = measure();
    bench.table().add({.name = name,
                       .measured = ms,
                       .unit = "ms",
                       .limit = limit,
                       .better = BenchRow::Better::kLower,
                       .note = fmt::format("{:.0f} tokens/s; limit: {}; the pass alone {:.2f} ms",
                                           context / ms * 1e3, of, resident)});
  };
  const double hidden_ms = std::max(hidden / link, project / matrix + resident);
  const std::string hidden_limit = fmt::format("{:.0f} MB over the link {:.2f} ms, or products {:.2f} ms",
                                               hidden / 1e6, hidden / link, project / matrix);
  const std::string pinned_limit = hidden_limit + "; rows in pinned memory, which no mover has yet";
  add("as keys and values", std::max(kv / link, resident), fmt::format("{:.0f} MB over the link", kv / 1e6),
      [&] { return restore.milliseconds(Way::kKeysAndValues, context); });
  add("as hidden states", hidden_ms, pinned_limit,
      [&] { return restore.milliseconds(Way::kHidden, context); });
  add("as hidden states from any memory", hidden_ms, hidden_limit,
      [&] { return restore.milliseconds(Way::kHiddenStaged, context); });
  add("by computing", restore.recompute_flops(context) / matrix,
      "products and attention over the matrix rate", [&] { return restore.recompute_ms(context); });
  const std::string projecting = fmt::format("restore/llama-2-7b {} projecting alone", context);
  if (!bench.wanted(projecting)) return;
  const double ms = restore.projecting_ms(context);
  bench.table().add(
      {.name = projecting,
       .measured = project / ms / 1e9,
       .unit = "TFLOP/s",
       .limit = bench.limits().matrix_tflops,
       .note = fmt::format("of the matrix rate; {:.2f} ms, {:.2f} us a token", ms, ms / context * 1e3)});
}

// In turn, so that what disturbs one disturbs both; the best of each.
void bench_steps(Bench& bench, Restore& restore) {
  for (const std::uint32_t batch : bench.small() ? std::vector{2u} : std::vector{1u, 16u, 64u}) {
    const std::string name = fmt::format("restore/llama-2-7b step of {} captured", batch);
    if (!bench.wanted(name)) continue;
    double plain = 1e30, captured = 1e30;
    for (std::uint32_t i = 0; i < (bench.small() ? 1u : 4u); ++i) {
      plain = std::min(plain, restore.step_ms(batch, false));
      captured = std::min(captured, restore.step_ms(batch, true));
    }
    bench.table().add({.name = name,
                       .measured = captured,
                       .unit = "ms",
                       .limit = plain,
                       .better = BenchRow::Better::kLower,
                       .note = fmt::format("beside steps that capture nothing; {:.1f} MB a step to the host",
                                           restore.hidden_bytes(batch) / 1e6)});
  }
}

}  // namespace

void bench_restore(Bench& bench) {
  bench.attempt("restore/", [&] {
    std::vector<std::uint32_t> contexts{1024, 4096};
    if (bench.quick()) contexts = {4096};
    if (bench.small()) contexts = {64, 128};
    const std::unique_ptr<BenchModel> model = make_bench_model(bench.small() ? kSmallLlama2 : kLlama2With7b);
    const Result<std::unique_ptr<Restore>> restore = Restore::make(bench, *model, contexts.back());
    if (!restore.ok()) return bench.table().fail("restore/", restore.status());
    for (const std::uint32_t context : contexts) bench_context(bench, **restore, context);
    bench_steps(bench, **restore);
    if (!(*restore)->status().ok()) bench.table().fail("restore/", (*restore)->status());
  });
}

}  // namespace loci::cuda
