// SPDX-License-Identifier: Apache-2.0
// attend_warpgroups for BFloat16.
#include "loci/compute/cuda/attention/attention_warpgroups.cuh"

namespace loci::cuda {

AttendWarpgroupsKernel attend_warpgroups_kernel_bfloat16(std::uint32_t head_dim) {
  if (head_dim == 64) return {attend_warpgroups<BFloat16, 64>, AttendWarpgroupsShape<64>::kBytes};
  return {attend_warpgroups<BFloat16, 128>, AttendWarpgroupsShape<128>::kBytes};
}

}  // namespace loci::cuda
