// SPDX-License-Identifier: Apache-2.0
// The kernels themselves, for the files that instantiate them: one thread block a task.
#pragma once

#include "loci/compute/cuda/attention/attention_decode.cuh"
#include "loci/compute/cuda/attention/attention_kernels.h"
#include "loci/compute/cuda/attention/attention_prompt.cuh"

namespace loci::cuda {

// Thread blocks of a multiprocessor that registers leave room for.
template <int kHead>
inline constexpr int kDecodeBlocks = kHead <= 64   ? 4
                                     : kHead <= 96 ? 3
                                                   : 2;
template <int kHead>
inline constexpr int kPromptBlocks = kHead <= 128 ? 2 : 1;

template <class T, int kHead>
__global__ void __launch_bounds__(kAttentionThreads, kDecodeBlocks<kHead>) attend_decode(AttentionParams p) {
  release_next();
  // Descriptors are there before the pass's first kernel.
  if (blockIdx.x >= p.a.counts->tasks) return await_previous();
  const TaskView view(p, p.a.tasks[blockIdx.x]);
  await_previous();
  DecodeTile<T, kHead>(p, view).run(shared_memory<std::byte>());
}

template <class T, int kHead>
__global__ void __launch_bounds__(kAttentionThreads, kPromptBlocks<kHead>) attend_mixed(AttentionParams p) {
  release_next();
  // Descriptors are there before the pass's first kernel.
  if (blockIdx.x >= p.a.counts->tasks) return await_previous();
  const TaskView view(p, p.a.tasks[blockIdx.x]);
  await_previous();
  if ((view.task.flags & AttentionTask::kPromptTile) != 0) {
    PromptTile<T, kHead>(p, view).run();
  } else {
    DecodeTile<T, kHead>(p, view).run(shared_memory<std::byte>());
  }
}

template <class T, int kHead>
AttentionKernel attention_kernel(bool prompt_tiles) {
  using Shape = TileShape<kHead>;
  if (!prompt_tiles) return {attend_decode<T, kHead>, Shape::kDecodeBytes, Shape::kStageBytes};
  const std::uint32_t fixed =
      Shape::kDecodeBytes > Shape::kPromptBytes ? Shape::kDecodeBytes : Shape::kPromptBytes;
  return {attend_mixed<T, kHead>, fixed, Shape::kStageBytes};
}

template <class T>
AttentionKernel attention_kernel_of(std::uint32_t head_dim, bool prompt_tiles) {
  if (head_dim <= 64) return attention_kernel<T, 64>(prompt_tiles);
  if (head_dim <= 80) return attention_kernel<T, 80>(prompt_tiles);
  if (head_dim <= 96) return attention_kernel<T, 96>(prompt_tiles);
  if (head_dim <= 128) return attention_kernel<T, 128>(prompt_tiles);
  return attention_kernel<T, 256>(prompt_tiles);
}

}  // namespace loci::cuda
