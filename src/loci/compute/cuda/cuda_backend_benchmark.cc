// SPDX-License-Identifier: Apache-2.0
// Whole models on the GPU: a Llama-8B-shaped one with random weights, through Backend as the engine uses
// it. Decode steps beside the roofline (weights and state over copying's bandwidth, or products over the
// matrix rate, whichever takes longer), prompts beside the matrix rate; what passes ahead and graphs are
// worth.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "loci/compute/backend.h"
#include "loci/compute/backend_testing.h"
#include "loci/compute/cuda/check/bench.h"
#include "loci/compute/cuda/check/bench_model_testing.h"
#include "loci/compute/cuda/cuda_backend.h"

namespace loci::cuda {
namespace {

constexpr BenchModelShape kSmallLlama{2, 64, 4, 2, 16, 96, 72, 512, 500000};

class ModelBench {
 public:
  ModelBench(Bench& bench, const BenchModel& model, bool graphs) : bench_(bench), model_(model) {
    CudaBackendOptions options;
    options.ordinal = bench.device().properties().ordinal;
    options.max_batch_tokens = bench.small() ? 64 : 8192;
    options.max_spans = bench.small() ? 4 : 256;
    options.context_tokens = bench.small() ? 512 : 16384;
    options.graphs = graphs;
    Result<std::unique_ptr<Backend>> backend = make_cuda_backend(model.spec, options);
    if (!backend.ok()) {
      status_ = backend.status();
      return;
    }
    backend_ = std::move(*backend);
    const std::uint64_t block = backend_->info().block_bytes;
    constexpr std::uint64_t kMargin = std::uint64_t{2} << 30;
    const std::uint64_t free = bench.device().free_bytes();
    slots_ = bench.small() ? 64 : static_cast<std::uint32_t>((free - std::min(free, kMargin)) / block);
    status_ = backend_->allocate_blocks(0, slots_);
    if (status_.ok()) fill(block);
  }
  const Status& status() const { return status_; }
  bool fits(std::uint32_t batch, std::uint32_t context) const {
    return std::uint64_t{batch} * blocks_of(context) <= slots_;
  }

  // Seconds of one step, after some that are not counted.
  double decode_seconds(std::uint32_t batch, std::uint32_t context, bool ahead) {
    const std::uint32_t steps = bench_.small()   ? 3
                                : bench_.quick() ? 16
                                                 : 64,
                        before = bench_.small() ? 1 : 8;
    steps_ = 0;
    auto begin = std::chrono::steady_clock::now();
    backend_->begin(step(batch, context, false));
    for (std::uint32_t i = 1; i < before + steps; ++i) {
      if (i == before) begin = std::chrono::steady_clock::now();
      if (!ahead) backend_->finish(results_);
      backend_->begin(step(batch, context, ahead));
      if (ahead) backend_->finish(results_);
    }
    backend_->finish(results_);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    // With passes ahead the step before the first that is counted ends inside.
    return took.count() / (steps + (ahead ? 1 : 0));
  }

  double prompt_seconds(std::uint32_t tokens) {
    std::vector<double> seconds;
    for (std::uint32_t i = 0; i < (bench_.small() ? 2u : 5u); ++i) {
      Pass pass;
      Span& span = pass.spans.emplace_back();
      for (std::uint32_t t = 0; t < tokens; ++t)
        span.tokens.emplace_back((t * 7919 + i) % model_.spec.vocabulary);
      span.layers = {0, model_.spec.layer_count()};
      span.tables = {table(0, tokens)};
      span.logits = LogitsWanted::kLast;
      span.sampling = DeviceSampling{};
      const auto begin = std::chrono::steady_clock::now();
      run_pass(*backend_, pass, results_);
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[(seconds.size() - 1) / 2];
  }

  double state_bytes_per_token() const {
    return static_cast<double>(backend_->info().block_bytes) / kBlockTokens;
  }
  double weight_bytes() const { return model_.product_bytes(); }
  double operations_per_token() const { return 2 * model_.product_values; }

 private:
  static std::uint32_t blocks_of(std::uint32_t context) { return context / kBlockTokens + 4; }

  // Random state, the same in all slots.
  void fill(std::uint64_t block_bytes) {
    Result<HostMemory> memory = backend_->allocate_host(block_bytes);
    if (!memory.ok()) {
      status_ = memory.status();
      return;
    }
    const std::vector<std::byte> values = random_weights(TensorType::kBF16, block_bytes / 2);
    std::copy(values.begin(), values.end(), memory->data());
    std::vector<LoadPiece> pieces;
    for (std::uint32_t slot = 0; slot < slots_; ++slot) {
      backend_->begin_fill(0, SlotId(slot));
      pieces.push_back({SlotId(slot), {memory->data(), block_bytes}});
    }
    backend_->load(0, {0, model_.spec.layer_count()}, pieces, BytesHeld::kUntilCopied);
    // Waits for the copies: `memory` goes.
    std::vector<std::byte> slice(backend_->info().groups[0].layer_slice_bytes);
    save_slice(*backend_, SlotId(slots_ - 1), model_.spec.layer_count() - 1, slice);
    status_ = backend_->health();
  }
  // Scattered: neighbouring blocks of a sequence are far apart.
  BlockTable table(std::uint32_t first, std::uint32_t context) const {
    std::vector<SlotId> slots;
    std::uint64_t stride = slots_ * 5ull / 8;
    while (std::gcd(stride, std::uint64_t{slots_}) != 1) ++stride;
    for (std::uint32_t i = 0; i < blocks_of(context); ++i)
      slots.emplace_back(static_cast<std::uint32_t>((first + i) * stride % slots_));
    return {slots};
  }
  Pass step(std::uint32_t batch, std::uint32_t context, bool fed) {
    Pass pass;
    for (std::uint32_t i = 0; i < batch; ++i) {
      Span& span = pass.spans.emplace_back();
      span.tokens = {TokenId(i % model_.spec.vocabulary)};
      if (fed && steps_ > 0) span.token_of = i;
      span.position = context + std::min(steps_, 2 * kBlockTokens);
      span.layers = {0, model_.spec.layer_count()};
      span.tables = {table(i * blocks_of(context), context)};
      span.logits = LogitsWanted::kLast;
      span.sampling = DeviceSampling{};
    }
    ++steps_;
    return pass;
  }

  Bench& bench_;
  const BenchModel& model_;
  std::unique_ptr<Backend> backend_;
  Status status_;
  std::uint32_t slots_ = 0;
  std::uint32_t steps_ = 0;
  std::vector<SpanResult> results_;
};

// Tokens a second that memory or tensor cores allow.
double roofline(const Bench& bench, const ModelBench& model, std::uint32_t batch, std::uint32_t context) {
  const double bytes = model.weight_bytes() + model.state_bytes_per_token() * batch * context;
  const double memory = bytes / (bench.limits().copy_gbps * 1e9);
  const double matrix = model.operations_per_token() * batch / (bench.limits().matrix_tflops * 1e12);
  return batch / std::max(memory, matrix);
}

// `weights`: how the model's are stored, if not as bf16.
void bench_decode(Bench& bench, ModelBench& model, const std::string& weights, const std::string& kind,
                  bool ahead) {
  std::vector<std::uint32_t> batches{1, 8, 64, 256}, contexts{1024, 8192};
  if (bench.quick()) batches = {1, 64}, contexts = {1024};
  if (bench.small()) batches = {1, 2}, contexts = {64};
  for (const std::uint32_t context : contexts) {
    for (const std::uint32_t batch : batches) {
      const std::string name =
          fmt::format("models/llama-8b{} decode{} {} batch {}", weights, kind, context, batch);
      if (!bench.wanted(name) || !model.fits(batch, context)) continue;
      const bool judged = weights.empty() && kind.empty() && context == 1024;
      bench.table().add({.name = name,
                         .measured = batch / model.decode_seconds(batch, context, ahead),
                         .unit = "tokens/s",
                         .limit = roofline(bench, model, batch, context),
                         .bar = !judged       ? 0
                                : batch == 1  ? 0.85
                                : batch == 64 ? 0.7
                                              : 0,
                         .note = "of the roofline: weights and state over copying, or the matrix rate"});
    }
  }
}

void bench_prompts(Bench& bench, ModelBench& model, const std::string& weights, const ModelSpec& spec) {
  std::vector<std::uint32_t> sizes{512, 1024, 2048, 4096, 8192};
  if (bench.quick()) sizes = {512, 4096};
  if (bench.small()) sizes = {40};
  for (const std::uint32_t tokens : sizes) {
    const std::string name = fmt::format("models/llama-8b{} prompt {}", weights, tokens);
    if (!bench.wanted(name)) continue;
    // The last layer's feed-forward part and the logits are the last token's alone: counted as if not.
    const double logits = static_cast<double>(spec.vocabulary) * spec.hidden;
    const double products = (model.operations_per_token() - 2 * logits) * tokens;
    const double attention = 2.0 * tokens * tokens * spec.heads * spec.head_dim * spec.layer_count();
    bench.table().add({.name = name,
                       .measured = (products + attention) / model.prompt_seconds(tokens) / 1e12,
                       .unit = "TFLOP/s",
                       .limit = bench.limits().matrix_tflops,
                       .bar = weights.empty() && tokens >= 2048 ? 0.6 : 0,
                       .note = "of the matrix rate"});
  }
}

}  // namespace

void bench_models(Bench& bench) {
  const BenchModelShape& shape = bench.small() ? kSmallLlama : kLlama8b;
  for (const TensorType type : {TensorType::kBF16, TensorType::kQ8_0, TensorType::kQ4_0}) {
    const bool plain = type == TensorType::kBF16;
    if (!plain && bench.small() && shape.hidden % tensor_type_info(type).block_elements != 0) continue;
    const std::string weights = plain ? "" : fmt::format(" {}", tensor_type_info(type).name);
    if (!bench.wanted("models/llama-8b" + weights + " ")) continue;
    const std::unique_ptr<BenchModel> model = make_bench_model(shape, type);
    for (const bool graphs : {true, false}) {
      if (!graphs && !plain) continue;
      ModelBench with(bench, *model, graphs);
      if (!with.status().ok()) return bench.table().fail("models/llama-8b" + weights, with.status());
      bench_decode(bench, with, weights, graphs ? "" : " without graphs", true);
      if (!graphs) continue;
      if (plain) bench_decode(bench, with, weights, " without passes ahead", false);
      bench_prompts(bench, with, weights, model->spec);
    }
  }
}

}  // namespace loci::cuda
