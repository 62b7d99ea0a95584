// SPDX-License-Identifier: Apache-2.0
// What a kernel sees of Hopper's asynchronous units on the simulated device (simt_warpgroup.h has the
// functions' contracts). Only kernels include this, through simt_warpgroup.h.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/simulated/simt.h"
#include "loci/compute/cuda/tile_map.h"

#define __grid_constant__

namespace loci::cuda {

struct Arrivals;

namespace simulated {

// In shared memory: where the hardware's instructions know it. No block's begins at a multiple of 1024.
unsigned shared_address(const void* pointer);

void begin_arrivals(Arrivals* arrivals, unsigned count);
void publish_arrivals();
void arrive(Arrivals* arrivals, std::uint32_t bytes);
void await_arrivals(Arrivals* arrivals, unsigned parity);
void copy_tile(void* to, const TileMap& map, int x, int y, int z, Arrivals* arrivals);
void copy_bytes(void* to, const void* from, std::uint32_t bytes, Arrivals* arrivals);
void publish_shared();
void store_for_products(void* to, std::uint32_t value);
void meet_at_barrier(unsigned number, unsigned threads, bool wait);
void begin_products();
void commit_products();
void wait_products(std::uint32_t groups);

// A product of one warp, of 16 rows. `a`: four registers, or null: the tile `a_tile`.
struct WarpProduct {
  MmaType type;
  int columns;
  float* d;
  const std::uint32_t* a;
  std::uint64_t a_tile, b_tile;
  bool b_rows;  // b's tile is of rows, not of columns
  bool add;
};
void multiply(const WarpProduct& product);

}  // namespace simulated

inline unsigned shared_address(const void* pointer) { return simulated::shared_address(pointer); }
inline void begin_arrivals(Arrivals* arrivals, unsigned count) { simulated::begin_arrivals(arrivals, count); }
inline void publish_arrivals() { simulated::publish_arrivals(); }
inline void arrive(Arrivals* arrivals) { simulated::arrive(arrivals, 0); }
inline void arrive_expecting(Arrivals* arrivals, unsigned bytes) { simulated::arrive(arrivals, bytes); }
inline void await_arrivals(Arrivals* arrivals, unsigned parity) {
  simulated::await_arrivals(arrivals, parity);
}
inline void copy_tile_async(void* to, const TileMap& map, int x, int y, int z, Arrivals* arrivals) {
  simulated::copy_tile(to, map, x, y, z, arrivals);
}
inline void copy_bytes_async(void* to, const void* from, unsigned bytes, Arrivals* arrivals) {
  simulated::copy_bytes(to, from, bytes, arrivals);
}
inline void prefetch_map(const TileMap&) {}
inline void publish_shared() { simulated::publish_shared(); }
inline void store_for_products(void* to, std::uint32_t value) { simulated::store_for_products(to, value); }
inline void meet_at_barrier(unsigned number, unsigned threads) {
  simulated::meet_at_barrier(number, threads, true);
}
inline void arrive_at_barrier(unsigned number, unsigned threads) {
  simulated::meet_at_barrier(number, threads, false);
}
template <int kRegisters>
void give_registers() {}
template <int kRegisters>
void take_registers() {}
inline bool elected() {
  simulated::meet_warp(simulated::Meeting::kWarp, nullptr, [](void* const(&)[32]) {});
  return simulated::this_lane() == 0;
}
inline void keep_behind(float) {}
inline void begin_products() { simulated::begin_products(); }
inline void commit_products() { simulated::commit_products(); }
template <int Groups, int kTiles>
void wait_products(float (&)[kTiles][4]) {
  simulated::wait_products(Groups);
}
template <int Groups>
void wait_products() {
  simulated::wait_products(Groups);
}
template <class T>
constexpr simulated::MmaType kMmaType =
    std::is_same_v<T, Half> ? simulated::MmaType::kHalf : simulated::MmaType::kBFloat16;
template <class T>
void multiply_shared(float (&d)[16][4], std::uint64_t a, std::uint64_t b, bool add) {
  simulated::multiply({kMmaType<T>, 128, &d[0][0], nullptr, a, b, true, add});
}
template <class T, int kTiles>
void multiply_registers(float (&d)[kTiles][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  simulated::multiply({kMmaType<T>, 8 * kTiles, &d[0][0], a, 0, b, false, true});
}
template <class T, int kTiles>
void multiply_registers_by_rows(float (&d)[kTiles][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  simulated::multiply({kMmaType<T>, 8 * kTiles, &d[0][0], a, 0, b, true, true});
}
template <class T>
std::uint32_t pack2(float low, float high);
template <class T>
std::uint32_t pack2_fast(float low, float high) {
  return pack2<T>(low, high);
}

}  // namespace loci::cuda
