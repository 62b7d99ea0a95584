// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/tile_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

namespace loci::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// Asked of the runtime, so that no program needs the driver's library to start.
Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result) !=
          cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  return reinterpret_cast<Encode>(found);
}

}  // namespace

bool make_tile_map(const TileMapShape& shape, TileMap& map) {
  static const Encode encode = find_encode();
  if (encode == nullptr) return false;
  CUtensorMap made;
  const cuuint64_t size[3] = {shape.size[0], shape.size[1], shape.size[2]};
  const cuuint64_t strides[2] = {shape.stride_bytes[0], shape.stride_bytes[1]};
  const cuuint32_t box[3] = {64, shape.box_rows, 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  // Bits are copied as they are: the type matters to nothing that is used here.
  const CUresult error =
      encode(&made, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void*>(shape.base), size, strides, box,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != CUDA_SUCCESS) return false;
  static_assert(sizeof(made) == sizeof(map));
  std::memcpy(&map, &made, sizeof(map));
  return true;
}

}  // namespace loci::cuda
