// SPDX-License-Identifier: Apache-2.0
// Attention's kernels for Half.
#include "loci/compute/cuda/attention/attention_kernels.cuh"

namespace loci::cuda {

AttentionKernel attention_kernel_half(std::uint32_t head_dim, bool prompt_tiles) {
  return attention_kernel_of<Half>(head_dim, prompt_tiles);
}

}  // namespace loci::cuda
