// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/simt_warpgroup_testing.h"

#include "loci/compute/cuda/simt_warpgroup.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kTileBytes = 64 * 128;  // of 64 rows

template <class T, WarpgroupForm kForm>
__global__ void __launch_bounds__(kWarpgroup)
    warpgroup_product(const __grid_constant__ WarpgroupTestParams p) {
  follow_previous();
#if LOCI_WARPGROUPS
  constexpr bool kByRows = kForm == WarpgroupForm::kByRows64 || kForm == WarpgroupForm::kByRows128;
  constexpr int kTiles = kForm == WarpgroupForm::kRegisters64 || kForm == WarpgroupForm::kByRows64 ? 8 : 16;
  constexpr std::uint32_t kRows =
      kForm == WarpgroupForm::kShared || kForm == WarpgroupForm::kByRows128 ? 128 : 64;  // of b
  constexpr std::uint32_t kParts = kForm == WarpgroupForm::kRegisters128 ? 2 : 1;        // of 64 columns
  auto* shared = shared_memory<std::byte>();
  std::byte* b = shared + (1024 - shared_address(shared) % 1024) % 1024;
  std::byte* a = b + 2 * kTileBytes;
  auto* here = reinterpret_cast<Arrivals*>(a + kTileBytes);
  if (threadIdx.x == 0) {
    begin_arrivals(here, 1);
    publish_arrivals();
  }
  __syncthreads();
  if (kByRows) {
    const auto* words = static_cast<const std::uint32_t*>(p.b);
    for (std::uint32_t i = threadIdx.x; i < kRows * 32; i += kWarpgroup) {
      const std::uint32_t row = i / 32, chunk = i % 32 / 4;
      store_for_products(b + row * 128 + (chunk ^ (row & 7)) * 16 + i % 4 * 4, words[i]);
    }
  } else if (threadIdx.x == 0) {
    arrive_expecting(here, 2 * kTileBytes - (kForm == WarpgroupForm::kRegisters64 ? kTileBytes : 0));
    for (std::uint32_t part = 0; part < kParts; ++part) {
      copy_tile_async(b + part * kTileBytes, p.map, static_cast<int>(64 * part), 0, 1, here);
    }
  }
  const auto* from = static_cast<const std::byte*>(p.a);
  for (std::uint32_t piece = threadIdx.x; piece < 64 * 8; piece += kWarpgroup) {
    const std::uint32_t row = piece / 8, chunk = piece % 8;
    copy_async_16(a + row * 128 + (chunk ^ (row & 7)) * 16, from + piece * 16);
  }
  copy_async_commit();
  copy_async_wait<0>();
  if (p.fault != WarpgroupFault::kNoPublish) publish_shared();
  __syncthreads();
  if (!kByRows && p.fault != WarpgroupFault::kEarlyTile) await_arrivals(here, 0);
  float d[kTiles][4] = {};
  if (p.fault != WarpgroupFault::kNoFence) begin_products();
  std::uint32_t fragments[4][4];
  if constexpr (kForm == WarpgroupForm::kShared) {
    static_assert(kRows == 128);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      multiply_shared<T>(d, tile_of_rows(shared_address(a) + 32 * k),
                         tile_of_rows(shared_address(b) + 32 * k), k > 0);
    }
  } else {
    const std::uint32_t row = warp_id() * 16 + lane_id() % 16;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      load_matrix_x4(fragments[k], a + row * 128 + ((2 * k + lane_id() / 16) ^ (row & 7)) * 16);
    }
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (kByRows) {
        multiply_registers_by_rows<T>(d, fragments[k], tile_of_rows(shared_address(b) + 32 * k));
      } else {
        multiply_registers<T>(d, fragments[k],
                              tile_of_columns(shared_address(b) + k * (16 * 128), kTileBytes));
      }
    }
  }
  commit_products();
  float early = 0;
  if (p.fault == WarpgroupFault::kNoWait) early = d[0][0];
  if (p.fault == WarpgroupFault::kEarlyReuse) {
    for (std::uint32_t i = threadIdx.x; i < kTileBytes / 16; i += kWarpgroup) {
      copy_async_16(a + i * 16, p.a, false);
      copy_async_16(b + i * 16, p.a, false);
    }
    copy_async_commit();
    copy_async_wait<0>();
    publish_shared();
  }
  wait_products<0>(d);
  if (p.fault == WarpgroupFault::kEarlyTile) await_arrivals(here, 0);
  if (p.fault == WarpgroupFault::kNoWait) d[0][0] = early;
  const std::uint32_t columns = 8 * kTiles;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t row = warp_id() * 16 + lane_id() / 4 + i / 2 * 8;
      p.c[row * columns + 8 * n + 2 * (lane_id() % 4) + i % 2] = d[n][i];
    }
  }
#endif
}

template <class T>
void launch_form(const WarpgroupTestParams& params, WarpgroupForm form, Stream& stream) {
  const auto kernel = [&] {
    switch (form) {
      case WarpgroupForm::kShared: return warpgroup_product<T, WarpgroupForm::kShared>;
      case WarpgroupForm::kRegisters64: return warpgroup_product<T, WarpgroupForm::kRegisters64>;
      case WarpgroupForm::kRegisters128: return warpgroup_product<T, WarpgroupForm::kRegisters128>;
      case WarpgroupForm::kByRows64: return warpgroup_product<T, WarpgroupForm::kByRows64>;
      case WarpgroupForm::kByRows128: break;
    }
    return warpgroup_product<T, WarpgroupForm::kByRows128>;
  }();
  launch("warpgroup_product", kernel,
         {.grid = {1}, .block = {kWarpgroup}, .shared_bytes = 1024 + 3 * kTileBytes + 64}, params, stream);
}

}  // namespace

void launch_warpgroup_product(const WarpgroupTestParams& params, WarpgroupForm form, ElementType type,
                              Stream& stream) {
  if (type == ElementType::kHalf) return launch_form<Half>(params, form, stream);
  launch_form<BFloat16>(params, form, stream);
}

}  // namespace loci::cuda
