// SPDX-License-Identifier: Apache-2.0
// Attention's kernels for BFloat16.
#include "loci/compute/cuda/attention/attention_kernels.cuh"

namespace loci::cuda {

AttentionKernel attention_kernel_bfloat16(std::uint32_t head_dim, bool prompt_tiles) {
  return attention_kernel_of<BFloat16>(head_dim, prompt_tiles);
}

}  // namespace loci::cuda
