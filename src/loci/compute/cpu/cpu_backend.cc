// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

#include "loci/base/check.h"
#include "loci/compute/check_model.h"
#include "loci/compute/cpu/block_storage.h"
#include "loci/compute/cpu/cpu_weights.h"
#include "loci/compute/cpu/hidden_projector.h"
#include "loci/compute/cpu/instruction_set.h"
#include "loci/compute/cpu/key_rotation.h"
#include "loci/compute/cpu/pass_runner.h"
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
  Status allocate_blocks(std::uint32_t group, std::uint32_t count) override {
    return blocks_.allocate(group, count);
  }
  void give_back(std::uint32_t group, SlotId slot) override { blocks_.give_back(group, slot); }
  void run(const Pass& pass, std::vector<SpanResult>& results) override { runner_.run(pass, results); }
  void run_tasks(std::uint32_t count, const std::function<void(std::uint32_t)>& task) override {
    if (count < 2) return Backend::run_tasks(count, task);  // less than waking a thread
    pool_->run([&](std::uint32_t thread) {
      WorkRange range;
      while (pool_->claim(thread, count, range)) {
        for (std::uint32_t i = range.begin; i < range.end; ++i) task(i);
      }
    });
  }
  void begin_fill(std::uint32_t group, SlotId slot) override { blocks_.begin_fill(group, slot); }
  void write_layer(SlotId slot, std::uint32_t layer, std::span<const std::byte> slice) override {
    blocks_.write_layer(slot, layer, slice);
  }
  void read_layer(SlotId slot, std::uint32_t layer, std::span<std::byte> slice) const override {
    projector_.project_up_to(blocks_, slot, layer);
    blocks_.read_layer(slot, layer, slice);
  }
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
  void layer_arrived(SlotId slot, std::uint32_t layer) override { blocks_.layer_arrived(slot, layer); }
  void fill_failed(std::uint32_t group, SlotId slot) override { blocks_.fill_failed(group, slot); }
  void write_hidden(SlotId slot, std::uint32_t layer, std::uint32_t position,
                    std::span<const std::byte> rows) override {
    LOCI_CHECK(rows.size() == kBlockTokens * info_.hidden_row_bytes, "a block's rows");
    blocks_.write_hidden(slot, layer, position, rows);
  }
  void project(std::uint32_t layer, std::uint32_t position, std::span<const std::byte> rows,
               std::span<std::byte> slice) const override {
    LOCI_CHECK(slice.size() == blocks_.layout().slice_bytes(), "not a layer's slice");
    projector_.project(layer, position, rows, reinterpret_cast<std::uint8_t*>(slice.data()));
  }

 private:
  const ModelSpec spec_;  // its tensors are views into the file
  std::unique_ptr<ThreadPool> pool_;
  CpuWeights weights_;
  mutable BlockStorage blocks_;  // what came as hidden states is projected when it is read
  HiddenProjector projector_;
  PassRunner runner_;
  KeyRotation rotation_;
  BackendInfo info_;
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
