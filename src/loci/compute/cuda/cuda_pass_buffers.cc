// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/cuda_pass_buffers.h"

#include <algorithm>
#include <utility>

#include "loci/compute/cuda/rows/rows.h"

namespace loci::cuda {

namespace {
constexpr std::uint64_t kElement = 2, kFloat = 4, kIndex = 4;
}

PassBuffers::PassBuffers(const ModelSpec& spec, const CudaWeights& weights, const Device& device)
    : spec_(spec), weights_(weights), device_(device) {}

Status PassBuffers::grow(const Wish& wish, const char* what) {
  if (wish.bytes <= wish.memory->size()) return {};
  device_.synchronize();
  ++generation_;
  *wish.memory = Memory();  // before the larger one: both might not fit
  LOCI_ASSIGN_OR_RETURN(*wish.memory, Memory::allocate(device_, MemoryKind::kDevice, wish.bytes, what));
  return {};
}

// The pass that is begun next may read what the last one left.
Status PassBuffers::grow_samples(std::uint64_t bytes) {
  if (bytes <= samples.size()) return {};
  LOCI_ASSIGN_OR_RETURN(Memory larger,
                        Memory::allocate(device_, MemoryKind::kDevice, bytes, "samples (option max_batch)"));
  device_.synchronize();
  Stream stream(device_);
  stream.copy(larger.data(), samples.data(), samples.size());
  stream.synchronize();
  ++generation_;
  samples = std::move(larger);
  return {};
}

Status PassBuffers::reserve(const PassNeeds& needs) {
  const std::uint64_t rows = needs.rows, hidden = spec_.hidden;
  const std::uint64_t heads = std::uint64_t{spec_.heads} * spec_.head_dim;
  const std::uint64_t uses = spec_.expert_uses, used_rows = rows * uses;
  const std::uint64_t ffn = std::max(rows * weights_.ffn_width, used_rows * weights_.expert_width);
  for (const Wish& wish : {Wish{&residual, rows * hidden * kFloat},
                           {&normed, rows * hidden * kElement},
                           {&normed_beside, spec_.parallel ? rows * hidden * kElement : 0},
                           {&qkv, rows * (heads + 2 * spec_.kv_width()) * kElement},
                           {&queries, rows * heads * kElement},
                           {&attended, rows * heads * kElement},
                           {&attention_change, rows * hidden * kFloat},
                           {&ffn_change, rows * hidden * kFloat},
                           {&gate_up, 2 * ffn * kElement},
                           {&activated, ffn * kElement}}) {
    LOCI_RETURN_IF_ERROR(grow(wish, "what a pass works in (option max_batch_tokens)"));
  }
  if (spec_.experts > 0) {
    for (const Wish& wish : {Wish{&scores, rows * spec_.experts * kFloat},
                             {&chosen, used_rows * kIndex},
                             {&expert_weights, used_rows * kFloat},
                             {&expert_offsets, (spec_.experts + 1) * kIndex},
                             {&expert_sources, used_rows * kIndex},
                             {&expert_places, used_rows * kIndex},
                             {&expert_inputs, used_rows * hidden * kElement},
                             {&expert_products, used_rows * hidden * kFloat}}) {
      LOCI_RETURN_IF_ERROR(grow(wish, "what a mixture of experts works in (option max_batch_tokens)"));
    }
  }
  for (const Wish& wish : {Wish{&partial_values, needs.partial_values_bytes},
                           {&partial_statistics, needs.partial_statistics_bytes},
                           {&descriptors, needs.descriptor_bytes}}) {
    LOCI_RETURN_IF_ERROR(grow(wish, "what attention works in (option max_batch_tokens)"));
  }
  for (const Wish& wish :
       {Wish{&logits, std::uint64_t{needs.logits_rows} * spec_.vocabulary * kFloat},
        {&sample_workspace,
         needs.sampled_rows > 0 ? sample_workspace_bytes(needs.sampled_rows, spec_.vocabulary) : 0}}) {
    LOCI_RETURN_IF_ERROR(grow(wish, "logits and samples (option max_batch)"));
  }
  return grow_samples(needs.spans * kIndex);
}

Status PassBuffers::reserve_inputs(std::uint32_t rows) {
  const std::uint64_t bytes = std::uint64_t{spec_.layer_count()} * rows * spec_.hidden * kElement;
  constexpr const char* kWhat = "hidden states that decode steps keep (option hidden)";
  LOCI_RETURN_IF_ERROR(grow({&inputs[0], bytes}, kWhat));
  return grow({&inputs[1], bytes}, kWhat);
}

std::uint64_t PassBuffers::size_bytes() const {
  std::uint64_t bytes = 0;
  for (const Memory* memory : {&descriptors,
                               &residual,
                               &normed,
                               &normed_beside,
                               &qkv,
                               &queries,
                               &attended,
                               &attention_change,
                               &ffn_change,
                               &gate_up,
                               &activated,
                               &partial_values,
                               &partial_statistics,
                               &inputs[0],
                               &inputs[1],
                               &logits,
                               &samples,
                               &sample_workspace,
                               &scores,
                               &chosen,
                               &expert_weights,
                               &expert_offsets,
                               &expert_sources,
                               &expert_places,
                               &expert_inputs,
                               &expert_products}) {
    bytes += memory->size();
  }
  return bytes;
}

}  // namespace loci::cuda
