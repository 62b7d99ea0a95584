// SPDX-License-Identifier: Apache-2.0
// The asynchronous units of one block of the simulated device: barriers in shared memory, the copy engine,
// and the products of warpgroups. They read and write shared memory through a *view* of their own. What
// threads write by copy_async_16() comes into it when the thread publishes it; what threads write plainly
// never does, so no kernel may prepare operands in that way. (The other direction is simple: tiles come into
// shared memory and the view at once.)
//
// A tile's bytes come at any time before somebody could know of them. A product reads its operands at any
// time between its issue and its wait, and its sums are NaNs until then. Both are drawn at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "loci/compute/cuda/simulated/warpgroup.h"

namespace loci::cuda::simulated {

class AsyncUnits {
 public:
  // A block begins. `wake` makes the threads go on that wait for the barrier.
  void begin(std::byte* shared, std::uint32_t bytes, std::uint32_t warps, std::uint64_t seed,
             std::function<void(const void* arrivals)> wake);
  // The block has ended. Aborts if something is under way.
  void end(const char* kernel);

  // Runs, at random, a copy that is under way; `must`: if there is one. True: it did.
  bool advance(bool must);

  unsigned address(const void* pointer) const {
    return static_cast<unsigned>(static_cast<const std::byte*>(pointer) - shared_) + kFirst;
  }

  void begin_arrivals(const void* arrivals, std::uint32_t count);
  void arrive(const void* arrivals, std::uint32_t bytes);
  bool phase_ended(const void* arrivals, unsigned parity);
  void copy_tile(std::byte* to, const TileMap& map, int x, int y, int z, const void* arrivals);
  void copy_bytes(std::byte* to, const std::byte* from, std::uint32_t bytes, const void* arrivals);
  // Bytes that a thread wrote are visible to the units.
  void publish(std::span<const std::byte> bytes);
  // They were written, and not published: the units see NaNs, unless nothing changed.
  void spoil(std::span<const std::byte> bytes);

  // Of a warp. The operands are of its 32 lanes.
  void begin_products(std::uint32_t warp);
  void multiply(std::uint32_t warp, void* const (&lanes)[32]);
  void commit_products(std::uint32_t warp);
  void wait_products(std::uint32_t warp, std::uint32_t groups);

 private:
  static constexpr unsigned kFirst = 640;  // address of the block's first byte: no multiple of 1024

  struct Barrier {
    std::uint32_t count = 0, left = 0;
    std::int64_t bytes = 0;
    std::uint32_t phase = 0;
  };
  struct Copy {
    std::byte* to = nullptr;
    const void* arrivals = nullptr;
    // Of a tile, or of bytes.
    TileMap map;
    std::int64_t x = 0, y = 0, z = 0;
    std::span<const std::byte> from;
  };
  struct Product {
    WarpProduct lanes[32];
    bool done = false;
  };
  struct Sums {
    float* d[32];
    int columns;
    std::vector<float> values;  // [lane][columns / 2]
  };
  struct Warp {
    bool fenced = false;
    std::deque<Product> products;       // under way, in order; some of them done
    std::vector<std::size_t> groups;    // ends of committed groups in `products`
    std::map<const float*, Sums> sums;  // by lane 0's
    std::uint64_t issued = 0;           // a digest of all products
  };

  void run(const Copy& copy);
  void run_tile(const Copy& copy);
  void run(Warp& warp, std::size_t end);
  void run(std::uint32_t warp_in_group, Product& product, Sums& sums);
  void complete(Barrier& barrier, const void* arrivals);
  // Eight values of a permuted row.
  void read_chunk(MmaType type, std::uint64_t address, float (&values)[8]) const;
  std::uint64_t draw(std::uint64_t below);

  std::byte* shared_ = nullptr;
  std::uint32_t bytes_ = 0;
  std::uint64_t random_ = 1;
  bool late_ = false;  // in this block tiles come when nothing else can go on
  std::function<void(const void*)> wake_;
  std::vector<std::byte> view_;
  std::map<const void*, Barrier> barriers_;
  std::vector<Copy> copies_;
  std::vector<Warp> warps_;
};

}  // namespace loci::cuda::simulated
