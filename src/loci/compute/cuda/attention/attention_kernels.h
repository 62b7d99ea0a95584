// SPDX-License-Identifier: Apache-2.0
// The kernels of one element type, for attend(). Each head size and kind of kernel is compiled in a file of
// its own, so that no file takes a minute.
#pragma once

#include "loci/compute/cuda/attention/attention_layout.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

struct AttentionParams;

struct AttentionKernel {
  void (*kernel)(AttentionParams) = nullptr;
  std::uint32_t fixed_bytes = 0;  // of shared memory; each stage takes stage_bytes more
  std::uint32_t stage_bytes = 0;
};

// The smallest kernel that has room for head_dim. `prompt_tiles` is as in AttentionArguments.
AttentionKernel attention_kernel_half(std::uint32_t head_dim, bool prompt_tiles);
AttentionKernel attention_kernel_bfloat16(std::uint32_t head_dim, bool prompt_tiles);

}  // namespace loci::cuda
