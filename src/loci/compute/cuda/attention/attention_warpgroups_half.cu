// SPDX-License-Identifier: Apache-2.0
// attend_warpgroups for Half.
#include "loci/compute/cuda/attention/attention_warpgroups.cuh"

namespace loci::cuda {

AttendWarpgroupsKernel attend_warpgroups_kernel_half(std::uint32_t head_dim) {
  if (head_dim == 64) return {attend_warpgroups<Half, 64>, AttendWarpgroupsShape<64>::kBytes};
  return {attend_warpgroups<Half, 128>, AttendWarpgroupsShape<128>::kBytes};
}

}  // namespace loci::cuda
