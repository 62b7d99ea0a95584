// SPDX-License-Identifier: Apache-2.0
// attend_warpgroups: the shapes of its tiles, and the kernels themselves for attend(). Head sizes 64 and 128.
#pragma once

#include "loci/compute/cuda/attention/attention_layout.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

struct AttendWarpgroupsParams;

inline constexpr std::uint32_t kWarpgroupKeys = 128;  // positions of the context that a step reads
inline constexpr std::uint32_t kWarpgroupPairs = 64;  // of each of the two groups that multiply
inline constexpr std::uint32_t kAttendWarpgroupsThreads = 384;

template <int kHead>
struct AttendWarpgroupsShape {
  static_assert(kHead == 64 || kHead == 128);
  static constexpr std::uint32_t kQueryBytes = 2 * kWarpgroupPairs * kHead * 2;  // of one of two tasks
  static constexpr std::uint32_t kStepBytes = kWarpgroupKeys * kHead * 2;        // of keys, or of values
  // Values are used longer than keys, because their products come a step later.
  static constexpr std::uint32_t kKeyStages = kHead == 64 ? 4 : 2;
  static constexpr std::uint32_t kValueStages = kHead == 64 ? 4 : 3;
  // Behind them lie two tasks and the barriers.
  static constexpr std::uint32_t kTileBytes = 2 * kQueryBytes + (kKeyStages + kValueStages) * kStepBytes;
  static constexpr std::uint32_t kBytes = 1024 + kTileBytes + 320;
  static_assert(kBytes <= 227 * 1024);

  // Of a tile of `rows` rows, which lies as columns 0 to 63 of all rows and then columns 64 to 127: where a
  // chunk is, as simt_warpgroup.h wants it.
  LOCI_HOST_DEVICE static std::uint32_t offset(std::uint32_t rows, std::uint32_t row, std::uint32_t chunk) {
    return chunk / 8 * rows * 128 + row * 128 + ((chunk % 8) ^ (row & 7)) * 16;
  }
};

struct AttendWarpgroupsKernel {
  void (*kernel)(AttendWarpgroupsParams) = nullptr;
  std::uint32_t shared_bytes = 0;
};
AttendWarpgroupsKernel attend_warpgroups_kernel_half(std::uint32_t head_dim);
AttendWarpgroupsKernel attend_warpgroups_kernel_bfloat16(std::uint32_t head_dim);

}  // namespace loci::cuda
