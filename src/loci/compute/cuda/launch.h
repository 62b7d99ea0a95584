// SPDX-License-Identifier: Apache-2.0
// Launching kernels. A kernel takes one params struct, by value; a launcher beside it checks shapes.
//
//   struct ScaleParams { float* values; std::uint32_t count; float factor; };
//   __global__ void scale(ScaleParams p) { follow_previous(); ... }  // simt.h: kernels that begin early
//   launch("scale", scale, shape, params, stream);
#pragma once

#include <cstdint>
#include <type_traits>

#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

inline constexpr std::uint32_t kWarp = 32;

constexpr std::uint32_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint32_t>((a + b - 1) / b);
}

// Does nothing if the grid of `shape` is empty. If a kernel needs more than 48 KiB of shared memory, it is
// requested here.
template <class Params>
void launch(const char* name, void (*kernel)(Params), const LaunchShape& shape, const Params& params,
            Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Params>);
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
#ifdef __CUDACC__
  stream.launch_kernel(name, reinterpret_cast<const void*>(kernel), shape, &params, sizeof(Params));
#else
  // A simulated kernel is called through a function that knows the type of its params.
  struct Thunk {
    void (*call)(void (*)(), const void*);
    void (*kernel)();
  };
  const Thunk thunk{[](void (*erased)(), const void* argument) {
                      reinterpret_cast<void (*)(Params)>(erased)(*static_cast<const Params*>(argument));
                    },
                    reinterpret_cast<void (*)()>(kernel)};
  stream.launch_kernel(name, &thunk, shape, &params, sizeof(Params));
#endif
}

}  // namespace loci::cuda
