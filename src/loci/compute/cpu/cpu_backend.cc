// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "loci/base/check.h"
#include "loci/compute/check_model.h"
#include "loci/compute/cpu/block_storage.h"
#include "loci/compute/cpu/cpu_pass_runner.h"
#include "loci/compute/cpu/cpu_weights.h"
#include "loci/compute/cpu/hidden_projector.h"
#include "loci/compute/cpu/instruction_set.h"
#include "loci/compute/cpu/key_rotation.h"
#include "loci/compute/cpu/thread_pool.h"
#include "loci/compute/layer_groups.h"

namespace loci {

namespace {

using namespace cpu;

class CpuBackend final : public Backend {
 public:
  CpuBackend(const ModelSpec& spec, InstructionSet set, StateType state, std::unique_ptr<ThreadPool> pool,
             CpuWeights weights)
      : spec_(spec),
        pool_(std::move(pool)),
        weights_(std::move(weights)),
        blocks_(layer_groups(spec), StateLayout(state, spec.kv_heads, spec.head_dim)),
        projector_(spec_, weights_, kernels_of(set), blocks_.layout()),
        runner_(spec_, weights_, kernels_of(set), *pool_, blocks_, projector_),
        rotation_(spec_, kernels_of(set), blocks_.layout()) {
    info_.name = "cpu";
    // (A profile that was measured with f16 names no type.)
    info_.description =
        fmt::format("{}, {} thread{}{}", instruction_set_name(set), pool_->size(),
                    pool_->size() == 1 ? "" : "s", state == StateType::kQ8 ? ", state in q8" : "");
    info_.layout = blocks_.layout().name();
    info_.layers = spec.layer_count();
    info_.vocabulary = spec.vocabulary;
    info_.groups = blocks_.groups();
    for (const LayerGroup& group : info_.groups) info_.block_bytes += group.block_bytes;
    info_.hidden_row_bytes = runner_.hidden_row_bytes();
    info_.projects = true;
    info_.weight_bytes = weights_.size_bytes();
    info_.positions = positions_of(spec);
  }

  const BackendInfo& info() const override { return info_; }
  Status health() const override { return runner_.health(); }

  Status allocate_blocks(std::uint32_t group, std::uint32_t count) override {
    return blocks_.allocate(group, count);
  }
  void give_back(std::uint32_t group, SlotId slot) override { blocks_.give_back(group, slot); }
  Result<HostMemory> allocate_host(std::uint64_t bytes) override { return HostMemory::map(bytes); }

  // The pass is computed by whoever waits for its end.
  void begin(Pass pass) override {
    LOCI_CHECK(!begun_, "one pass at a time");
    begun_ = std::move(pass);
  }
  void finish(std::vector<SpanResult>& results) override {
    LOCI_CHECK(begun_.has_value(), "a pass that ends has begun");
    runner_.run(*begun_, results);
    begun_.reset();
  }
  Projected projected() const override { return runner_.projected(); }
  void run_tasks(std::uint32_t count, const std::function<void(std::uint32_t)>& task) override {
    pool_->run_each(count, task);
  }

  void begin_fill(std::uint32_t group, SlotId slot) override { blocks_.begin_fill(group, slot); }
  void load(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces,
            BytesHeld /*held*/) override {
    const std::uint64_t slice_bytes = blocks_.layout().slice_bytes();
    check_layers(group, layers);
    for (std::uint32_t i = layers.begin; i < layers.end; ++i) {
      const std::uint32_t layer = info_.groups[group].layers[i];
      for (const LoadPiece& piece : pieces) {
        LOCI_CHECK(piece.bytes.size() == (layers.end - layers.begin) * slice_bytes, "not layers of a block");
        blocks_.write_layer(piece.slot, layer,
                            piece.bytes.subspan((i - layers.begin) * slice_bytes, slice_bytes), piece.use);
        blocks_.layer_arrived(piece.slot, layer);
      }
    }
  }
  void load_hidden(std::uint32_t group, SlotId slot, std::uint32_t layer, std::uint32_t position,
                   std::span<const std::byte> rows) override {
    check_layers(group, {layer, layer + 1});
    LOCI_CHECK(rows.size() == kBlockTokens * info_.hidden_row_bytes, "a block's rows");
    blocks_.write_hidden(slot, info_.groups[group].layers[layer], position, rows);
  }
  void fill_failed(std::uint32_t group, SlotId slot) override { blocks_.fill_failed(group, slot); }
  void save(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces,
            BytesHeld /*held*/) const override {
    const std::uint64_t slice_bytes = blocks_.layout().slice_bytes();
    check_layers(group, layers);
    for (const SavePiece& piece : pieces) {
      LOCI_CHECK(piece.bytes.size() == (layers.end - layers.begin) * slice_bytes, "not layers of a block");
      for (std::uint32_t i = layers.begin; i < layers.end; ++i) {
        const std::uint32_t layer = info_.groups[group].layers[i];
        projector_.project_up_to(blocks_, piece.slot, layer);
        blocks_.read_layer(piece.slot, layer,
                           piece.bytes.subspan((i - layers.begin) * slice_bytes, slice_bytes));
      }
    }
  }
  std::span<const std::byte> view(std::uint32_t group, SlotId slot, LayerRange layers) const override {
    check_layers(group, layers);
    for (std::uint32_t i = layers.begin; i < layers.end; ++i)
      projector_.project_up_to(blocks_, slot, info_.groups[group].layers[i]);
    return blocks_.view(group, slot, layers);
  }
  void after_loads(Copied done) const override { done({}); }
  void after_saves(Copied done) const override { done({}); }

  void rotate_keys(std::uint32_t layer, std::int32_t delta, std::span<std::byte> slice) const override {
    LOCI_CHECK(info_.positions != Positions::kAbsolute, "this state cannot be moved to other positions");
    rotation_.rotate(layer, delta, slice);
  }
  void clear_tokens(std::uint32_t layer, std::uint32_t first, std::span<std::byte> slice) const override {
    LOCI_CHECK(
        layer < info_.layers && slice.size() == blocks_.layout().slice_bytes() && first <= kBlockTokens,
        "a layer's slice");
    blocks_.layout().clear_tokens(reinterpret_cast<std::uint8_t*>(slice.data()), first);
  }
  void project(std::uint32_t layer, std::uint32_t position, std::span<const std::byte> rows,
               std::span<std::byte> slice) const override {
    LOCI_CHECK(slice.size() == blocks_.layout().slice_bytes(), "not a layer's slice");
    projector_.project(layer, position, rows, reinterpret_cast<std::uint8_t*>(slice.data()));
  }

 private:
  void check_layers(std::uint32_t group, LayerRange layers) const {
    LOCI_CHECK(group < info_.groups.size() && layers.begin < layers.end &&
                   layers.end <= info_.groups[group].layers.size(),
               "not layers of a group");
  }

  const ModelSpec spec_;  // its tensors are views into the file
  std::unique_ptr<ThreadPool> pool_;
  CpuWeights weights_;
  mutable BlockStorage blocks_;  // what came as hidden states is projected when it is read
  HiddenProjector projector_;
  CpuPassRunner runner_;
  KeyRotation rotation_;
  BackendInfo info_;
  std::optional<Pass> begun_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelSpec& spec, const CpuBackendOptions& options) {
  const std::vector<InstructionSet> sets = available_instruction_sets();
  const InstructionSet set = options.instruction_set.value_or(sets.back());
  if (!machine_has(set)) {
    std::string names;
    for (const InstructionSet available : sets) {
      names.append(names.empty() ? "" : ", ").append(instruction_set_name(available));
    }
    return invalid_argument(fmt::format("this machine lacks {}; it has {}", instruction_set_name(set), names),
                            "cpu");
  }
  if (options.state_type == StateType::kBF16) {
    return invalid_argument("the CPU backend has f16 and q8; it lacks bf16", "state_type");
  }
  if (spec.head_dim % 8 != 0 || spec.head_dim > kMaxHeadDim) {
    return invalid_argument(
        fmt::format("expected a multiple of 8 up to {}, found {}", kMaxHeadDim, spec.head_dim), "head_dim");
  }
  LOCI_RETURN_IF_ERROR(check_model(spec));
  try {
    auto pool = std::make_unique<ThreadPool>(options.threads == 0 ? physical_core_count() : options.threads);
    LOCI_ASSIGN_OR_RETURN(CpuWeights weights, CpuWeights::pack(spec, *pool));
    return std::unique_ptr<Backend>(
        std::make_unique<CpuBackend>(spec, set, options.state_type, std::move(pool), std::move(weights)));
  } catch (const std::exception& error) {  // no memory, no more threads
    return resource_exhausted(fmt::format("the CPU backend could not be made: {}", error.what()));
  }
}

}  // namespace loci
