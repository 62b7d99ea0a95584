// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "loci/base/check.h"
#include "loci/compute/check_model.h"
#include "loci/compute/cpu/thread_pool.h"
#include "loci/compute/cuda/block_pool.h"
#include "loci/compute/cuda/cuda_hidden_projector.h"
#include "loci/compute/cuda/cuda_key_rotation.h"
#include "loci/compute/cuda/cuda_pass_runner.h"
#include "loci/compute/cuda/cuda_weights.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/compute/hidden_form.h"
#include "loci/compute/layer_groups.h"

namespace loci {

namespace {

using namespace cuda;

// What it is made of; each outlives those after it.
struct Parts {
  ModelSpec spec;  // its tensors are views into the file; weights are copies
  std::unique_ptr<Device> device;
  CudaWeights weights;
  std::unique_ptr<BlockPool> blocks;
  std::unique_ptr<MoverProjector> projector;  // null: no block comes as hidden states
  std::unique_ptr<CudaPassRunner> runner;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Parts> parts, const CudaPassRunnerOptions& options, std::uint64_t free_bytes)
      : parts_(std::move(parts)), element_(options.element), context_tokens_(options.context_tokens) {
    const ModelSpec& spec = parts_->spec;
    const DeviceProperties& device = parts_->device->properties();
    const char* element = element_ == ElementType::kHalf ? "f16" : "bf16";
    info_.name = fmt::format("cuda:{}", device.ordinal);
    info_.description = fmt::format("{}, compute capability {}.{}, {}, {}", device.name,
                                    device.capability / 10, device.capability % 10, element,
                                    options.deterministic ? "deterministic" : parts_->runner->library());
    // State of unlike orders of sums is not taken for each other's (the tiers' fingerprint has the layout).
    info_.layout = fmt::format("layer,k[head,token,dim]v[head,token,dim],{}{}", element,
                               options.deterministic ? ",deterministic" : "");
    info_.layers = spec.layer_count();
    info_.vocabulary = spec.vocabulary;
    info_.groups = parts_->blocks->groups();
    for (const LayerGroup& group : info_.groups) info_.block_bytes += group.block_bytes;
    info_.hidden_row_bytes = CudaPassRunner::hidden_row_bytes(spec);
    info_.projects = options.projects;
    info_.weight_bytes = parts_->weights.size_bytes();
    info_.free_bytes = free_bytes;
    info_.positions = positions_of(spec);
    info_.samples = true;
    info_.passes_ahead = CudaPassRunner::kInFlight - 1;
    info_.copy_bytes = BlockPool::kCopyBytes;
  }
  ~CudaBackend() override {
    while (begun_ > 0) {  // whoever began passes has gone
      std::vector<SpanResult> results;
      finish(results);
    }
    parts_->device->synchronize();
  }

  const BackendInfo& info() const override { return info_; }
  Status health() const override { return parts_->device->status(); }

  Status allocate_blocks(std::uint32_t group, std::uint32_t count) override {
    return parts_->blocks->allocate(group, count);
  }
  void give_back(std::uint32_t /*group*/, SlotId /*slot*/) override {}  // nobody else could use the memory
  Result<HostMemory> allocate_host(std::uint64_t bytes) override {
    return parts_->blocks->allocate_host(bytes);
  }

  void begin(Pass pass) override {
    ++begun_;
    parts_->runner->begin(std::move(pass));
  }
  void finish(std::vector<SpanResult>& results) override {
    --begun_;
    parts_->runner->finish(results);
  }
  Projected projected() const override { return parts_->runner->projected(); }
  // Logits that the host samples: there are few threads, for few rows.
  void run_tasks(std::uint32_t count, const std::function<void(std::uint32_t)>& task) override {
    host_threads_.run_each(count, task);
  }

  void begin_fill(std::uint32_t group, SlotId slot) override { parts_->blocks->begin_fill(group, slot); }
  void load(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces,
            BytesHeld held) override {
    parts_->blocks->load(group, layers, pieces, held);
  }
  void load_hidden(std::uint32_t group, SlotId slot, std::uint32_t layer, std::uint32_t position,
                   std::span<const std::byte> rows) override {
    check_rows(position, rows);
    const HiddenPiece piece{slot, position, rows};
    parts_->blocks->load_hidden(group, layer, {&piece, 1}, BytesHeld::kDuringCall);
  }
  void fill_failed(std::uint32_t group, SlotId slot) override { parts_->blocks->fill_failed(group, slot); }
  void save(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces,
            BytesHeld held) const override {
    if (info_.projects) {
      const std::uint32_t last = info_.groups[group].layers[layers.end - 1];
      for (const SavePiece& piece : pieces) parts_->projector->project_up_to(piece.slot, last);
    }
    parts_->blocks->save(group, layers, pieces, held);
  }
  void after_loads(Copied done) const override { parts_->blocks->after_loads(std::move(done)); }
  void after_saves(Copied done) const override { parts_->blocks->after_saves(std::move(done)); }

  void rotate_keys(std::uint32_t layer, std::int32_t delta, std::span<std::byte> slice) const override {
    LOCI_CHECK(info_.positions != Positions::kAbsolute, "learned positions are in all of the state");
    rotate_block_keys(parts_->spec, element_, layer, delta, slice);
  }
  void clear_tokens(std::uint32_t layer, std::uint32_t first, std::span<std::byte> slice) const override {
    clear_block_tokens(parts_->spec, layer, first, slice);
  }
  void project(std::uint32_t layer, std::uint32_t position, std::span<const std::byte> rows,
               std::span<std::byte> slice) const override {
    check_rows(position, rows);
    LOCI_CHECK(layer < info_.layers && slice.size() == info_.groups[0].layer_slice_bytes,
               "not a layer's slice");
    parts_->projector->project(layer, position, rows, slice);
  }

 private:
  void check_rows(std::uint32_t position, std::span<const std::byte> rows) const {
    LOCI_CHECK(info_.projects, "this model's blocks come as hidden states");
    LOCI_CHECK(rows.size() == kBlockTokens * info_.hidden_row_bytes, "a block's rows");
    LOCI_CHECK(std::uint64_t{position} + kBlockTokens <= context_tokens_,
               "a position within the context that the backend was made for");
  }

  const std::unique_ptr<Parts> parts_;
  const ElementType element_;
  const std::uint32_t context_tokens_;
  BackendInfo info_;
  std::uint32_t begun_ = 0;  // and not ended
  cpu::ThreadPool host_threads_{std::clamp(cpu::physical_core_count() / 2, 1u, 8u)};
};

// What no kernel serves, beyond what no backend does.
Status check_shapes(const ModelSpec& spec) {
  constexpr std::uint32_t kHeadDimMax = 256, kHeadDimStep = 16, kWidthStep = 8;
  const auto refuse = [](std::uint64_t found, const char* expected, const char* field) {
    return invalid_argument(fmt::format("the CUDA backend serves {}, found {}", expected, found), field);
  };
  if (spec.head_dim % kHeadDimStep != 0 || spec.head_dim > kHeadDimMax) {
    return refuse(spec.head_dim, "multiples of 16 up to 256", "head_dim");
  }
  if (spec.hidden % kWidthStep != 0) return refuse(spec.hidden, "multiples of 8", "hidden");
  if (spec.vocabulary > kSampleVocabularyMax) {
    return refuse(spec.vocabulary, "vocabularies of at most 1048576 tokens", "vocabulary");
  }
  if (!(spec.attention_scale > 0)) {
    return invalid_argument("the CUDA backend serves scales above 0", "attention_scale");
  }
  return {};
}

// State is rounded to what the model's products compute in.
Status check_state_type(const ModelSpec& spec, std::optional<StateType> wanted) {
  const StateType own = best_element_type(spec) == ElementType::kHalf ? StateType::kF16 : StateType::kBF16;
  if (!wanted || *wanted == own) return {};
  return invalid_argument(fmt::format("the CUDA backend keeps this model's state in {}; it lacks {}",
                                      state_type_name(own), state_type_name(*wanted)),
                          "state_type");
}

Result<std::unique_ptr<Backend>> make(const ModelSpec& spec, const CudaBackendOptions& options) {
  auto parts = std::make_unique<Parts>();
  parts->spec = spec;
  LOCI_ASSIGN_OR_RETURN(parts->device, Device::open(options.ordinal));
  const Device& device = *parts->device;
  CudaPassRunnerOptions runner;
  runner.element = best_element_type(spec);
  runner.deterministic = options.deterministic;
  runner.graphs = options.graphs;
  runner.warn = options.warn;
  runner.rows_max = std::max(options.max_batch_tokens, options.max_spans);
  runner.spans_max = options.max_spans;
  runner.context_tokens = options.context_tokens != 0 ? options.context_tokens : spec.context_length;
  LOCI_ASSIGN_OR_RETURN(parts->weights,
                        CudaWeights::load(spec, device, runner.element, runner.context_tokens));
  LOCI_ASSIGN_OR_RETURN(parts->blocks,
                        BlockPool::make(device, layer_groups(spec), spec.kv_heads, spec.head_dim));
  runner.projects = hidden_form(parts->blocks->groups(), CudaPassRunner::hidden_row_bytes(spec)).ok();
  if (runner.projects) {
    LOCI_ASSIGN_OR_RETURN(parts->projector, MoverProjector::make(parts->spec, parts->weights, device,
                                                                 *parts->blocks, runner.element));
  }
  LOCI_ASSIGN_OR_RETURN(parts->runner,
                        CudaPassRunner::make(parts->spec, parts->weights, device, *parts->blocks, runner));
  const std::uint64_t free_bytes = device.free_bytes();
  LOCI_RETURN_IF_ERROR(device.status());
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(std::move(parts), runner, free_bytes));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const ModelSpec& spec, const CudaBackendOptions& options) {
  LOCI_RETURN_IF_ERROR(check_model(spec));
  LOCI_RETURN_IF_ERROR(check_shapes(spec));
  LOCI_RETURN_IF_ERROR(check_state_type(spec, options.state_type));
  if (options.max_batch_tokens == 0 || options.max_spans == 0) {
    return invalid_argument("expected room for one token at least, found 0", "max_batch_tokens");
  }
  try {
    return make(spec, options);
  } catch (const std::exception& error) {  // no memory on the host, no more threads
    return resource_exhausted(fmt::format("the CUDA backend could not be made: {}", error.what()));
  }
}

}  // namespace loci
