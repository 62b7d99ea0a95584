// SPDX-License-Identifier: Apache-2.0
// More of the language of kernels (simt.h), for Hopper (sm_90a) alone: products of a *warpgroup* (four
// neighbouring warps whose first is a multiple of four), copies of tiles by the device's copy engine, and the
// barriers that order them. On other GPUs these functions do nothing; kernels that use them are launched on
// Hopper alone.
//
// Products and copies of tiles are *asynchronous*: they read and write shared memory through a path of their
// own. What threads wrote there (copy_async_16() included) they see only after publish_shared() by each
// thread that wrote, and a barrier behind it.
#pragma once

#include <type_traits>

#include "loci/compute/cuda/simt.h"
#include "loci/compute/cuda/tile_map.h"

#ifdef __CUDACC__
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LOCI_WARPGROUPS 1
#else
#define LOCI_WARPGROUPS 0
#endif
#else
#include "loci/compute/cuda/simulated/warpgroup.h"
#define LOCI_WARPGROUPS 1
#endif

namespace loci::cuda {

inline constexpr std::uint32_t kWarpgroup = 128;  // threads

// Threads, and bytes of tiles, that arrive in shared memory. It goes through phases: a phase ends when as
// many threads as were named at its begin have arrived, and all bytes that they expect. `parity`: of the
// phase's number, whose first is 0.
struct alignas(8) Arrivals {
  std::uint64_t bits;
};

#ifdef __CUDACC__

LOCI_DEVICE unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

#if LOCI_WARPGROUPS

// By one thread; publish_arrivals() by it and a barrier come before any use.
LOCI_DEVICE void begin_arrivals(Arrivals* arrivals, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(arrivals)), "r"(count)
               : "memory");
}
LOCI_DEVICE void publish_arrivals() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
LOCI_DEVICE void arrive(Arrivals* arrivals) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(arrivals)) : "memory");
}
// Arrives; the phase also waits for so many bytes.
LOCI_DEVICE void arrive_expecting(Arrivals* arrivals, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(arrivals)),
               "r"(bytes)
               : "memory");
}
// Waits for the end of the phase of this parity. The phase before the first one has ended.
LOCI_DEVICE void await_arrivals(Arrivals* arrivals, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(arrivals)),
      "r"(parity)
      : "memory");
}

// True in one lane of the whole warp, always the same one. The compiler knows that what runs there runs once.
LOCI_DEVICE bool elected() {
  unsigned is;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}\n"
               : "=r"(is)::"memory");
  return is != 0;
}

// Keeps what follows from being moved before `v`, which is never below zero, is computed: ptxas moves waits
// for products ahead of what was written before them, and so undoes their overlap.
LOCI_DEVICE void keep_behind(float v) {
  asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p trap;\n}\n" ::"f"(v) : "memory");
}

// Begins to copy the box at (x, y, z) of a map, by one thread (where a warp is, elected()); its bytes arrive
// at `arrivals`. `to` is a multiple of 1024.
LOCI_DEVICE void copy_tile_async(void* to, const TileMap& map, int x, int y, int z, Arrivals* arrivals) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(arrivals))
      : "memory");
}

// Begins to copy bytes of global memory, by one thread; they arrive at `arrivals`. Places and count are
// multiples of 16.
LOCI_DEVICE void copy_bytes_async(void* to, const void* from, unsigned bytes, Arrivals* arrivals) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(arrivals))
      : "memory");
}

// A hint that copies by the map will follow.
LOCI_DEVICE void prefetch_map(const TileMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// What the thread wrote to shared memory becomes visible to products and copies of tiles that are issued
// behind a later barrier.
LOCI_DEVICE void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Writes to shared memory what products will read.
LOCI_DEVICE void store_for_products(void* to, std::uint32_t value) {
  *static_cast<std::uint32_t*>(to) = value;
}

// A barrier of some of the block's warps: `threads` that come here or to arrive_at_barrier(). Number 0 is
// __syncthreads()'s.
LOCI_DEVICE void meet_at_barrier(unsigned number, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// Does not wait.
LOCI_DEVICE void arrive_at_barrier(unsigned number, unsigned threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// The warpgroup gives registers back, or takes more: each of its threads has so many from now on.
template <int kRegisters>
LOCI_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
LOCI_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Comes before a product if the warpgroup touched the registers of its operands since the last wait.
LOCI_DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// The products since the last commit become a group.
LOCI_DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

#define LOCI_SUMS_4(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define LOCI_SUMS_16(d, n) \
  LOCI_SUMS_4(d, n), LOCI_SUMS_4(d, n + 1), LOCI_SUMS_4(d, n + 2), LOCI_SUMS_4(d, n + 3)
#define LOCI_SUMS_32(d) LOCI_SUMS_16(d, 0), LOCI_SUMS_16(d, 4)
#define LOCI_SUMS_64(d) LOCI_SUMS_32(d), LOCI_SUMS_16(d, 8), LOCI_SUMS_16(d, 12)
#define LOCI_NAMES_32                                                                                  \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26," \
  "%27,%28,%29,%30,%31"
#define LOCI_NAMES_64                                                                                     \
  LOCI_NAMES_32                                                                                           \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56," \
  "%57,%58,%59,%60,%61,%62,%63"

// Waits until at most `Groups` of the warpgroup's groups are under way; `d` are sums of one that is done.
template <int Groups>
LOCI_DEVICE void wait_products(float (&d)[8][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %32;" : LOCI_SUMS_32(d) : "n"(Groups) : "memory");
}
template <int Groups>
LOCI_DEVICE void wait_products(float (&d)[16][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %64;" : LOCI_SUMS_64(d) : "n"(Groups) : "memory");
}
// Where all sums go on being added to: until registers that older groups read may be written again.
template <int Groups>
LOCI_DEVICE void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Groups) : "memory");
}

#define LOCI_MULTIPLY_SHARED(type)                                                    \
  asm volatile(                                                                       \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                    \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" LOCI_NAMES_64 \
      "}, %64, %65, p, 1, 1, 0, 0;\n}\n"                                              \
      : LOCI_SUMS_64(d)                                                               \
      : "l"(a), "l"(b), "r"(static_cast<unsigned>(add)))
#define LOCI_MULTIPLY_REGISTERS_64(type, columns)                                             \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" LOCI_NAMES_32 \
               "}, {%32,%33,%34,%35}, %36, 1, 1, 1, " columns ";"                             \
               : LOCI_SUMS_32(d)                                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define LOCI_MULTIPLY_REGISTERS_128(type, columns)                                             \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" LOCI_NAMES_64 \
               "}, {%64,%65,%66,%67}, %68, 1, 1, 1, " columns ";"                              \
               : LOCI_SUMS_64(d)                                                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// d[64][128] (+)= a[64][16] * b[128][16]^T. Both are tiles of shared memory (tile_of_rows()). Sums are as
// mma_16x8x16()'s: warp w of the warpgroup has rows 16w .. 16w + 15; d[n] is of columns 8n .. 8n + 7.
template <class T>
LOCI_DEVICE void multiply_shared(float (&d)[16][4], std::uint64_t a, std::uint64_t b, bool add) {
  if constexpr (std::is_same_v<T, Half>) {
    LOCI_MULTIPLY_SHARED("f16");
  } else {
    LOCI_MULTIPLY_SHARED("bf16");
  }
}
// d[64][8 * kTiles] += a[64][16] * b[16][8 * kTiles]. Each warp's rows of a are fragments, as
// mma_16x8x16()'s; b is a tile of shared memory (tile_of_columns()).
template <class T, int kTiles>
LOCI_DEVICE void multiply_registers(float (&d)[kTiles][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  static_assert(kTiles == 8 || kTiles == 16);
  if constexpr (kTiles == 8) {
    if constexpr (std::is_same_v<T, Half>) {
      LOCI_MULTIPLY_REGISTERS_64("f16", "1");
    } else {
      LOCI_MULTIPLY_REGISTERS_64("bf16", "1");
    }
  } else if constexpr (std::is_same_v<T, Half>) {
    LOCI_MULTIPLY_REGISTERS_128("f16", "1");
  } else {
    LOCI_MULTIPLY_REGISTERS_128("bf16", "1");
  }
}
// The same, where b is a tile_of_rows(): a row for each of its columns.
template <class T, int kTiles>
LOCI_DEVICE void multiply_registers_by_rows(float (&d)[kTiles][4], const std::uint32_t (&a)[4],
                                            std::uint64_t b) {
  static_assert(kTiles == 8 || kTiles == 16);
  if constexpr (kTiles == 8) {
    if constexpr (std::is_same_v<T, Half>) {
      LOCI_MULTIPLY_REGISTERS_64("f16", "0");
    } else {
      LOCI_MULTIPLY_REGISTERS_64("bf16", "0");
    }
  } else if constexpr (std::is_same_v<T, Half>) {
    LOCI_MULTIPLY_REGISTERS_128("f16", "0");
  } else {
    LOCI_MULTIPLY_REGISTERS_128("bf16", "0");
  }
}

// As pack2(), in one instruction.
template <class T>
LOCI_DEVICE std::uint32_t pack2_fast(float low, float high) {
  std::uint32_t both;
  if constexpr (std::is_same_v<T, Half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  }
  return both;
}

#undef LOCI_SUMS_4
#undef LOCI_SUMS_16
#undef LOCI_SUMS_32
#undef LOCI_SUMS_64
#undef LOCI_NAMES_32
#undef LOCI_NAMES_64
#undef LOCI_MULTIPLY_SHARED
#undef LOCI_MULTIPLY_REGISTERS_64
#undef LOCI_MULTIPLY_REGISTERS_128

#endif  // LOCI_WARPGROUPS
#endif  // __CUDACC__

// Tiles in shared memory have rows of 64 values (128 bytes), eight of which are 1024 bytes that begin at a
// multiple of 1024; the 16-byte chunks of a row are permuted: chunk ^ row % 8. These are the words by which a
// product knows a tile (PTX manual, "Matrix descriptor"): its address in 16 bytes, from bit 16 and from bit
// 32 how far its repetitions lie apart, and 1 in bit 62: permuted in 128 bytes.
//
// A row for each row of a or column of b: 16 values of it from `address` on, which may be 0, 32, 64 or 96
// bytes behind the begin of a row.
LOCI_DEVICE std::uint64_t tile_of_rows(unsigned address) {
  return std::uint64_t{1} << 62 | std::uint64_t{1024 / 16} << 32 | std::uint64_t{1} << 16 |
         (address & 0x3ffff) >> 4;
}
// A row for each of b's 16 rows, from `address` on; columns 64 and up lie `next` bytes behind.
LOCI_DEVICE std::uint64_t tile_of_columns(unsigned address, unsigned next) {
  return std::uint64_t{1} << 62 | std::uint64_t{1024 / 16} << 32 | std::uint64_t{next / 16} << 16 |
         (address & 0x3ffff) >> 4;
}

}  // namespace loci::cuda
