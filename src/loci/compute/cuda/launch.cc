#include "loci/compute/cuda/launch.h"

#include <fmt/format.h>

#include "loci/base/check.h"

namespace loci::cuda {

void check_launch_shape(const char* name, const LaunchShape& shape, std::uint32_t shared_bytes_max) {
  constexpr std::uint32_t kGridX = 0x7fffffff, kGridYz = 65535, kThreads = 1024, kBlockZ = 64;
  const Extent &grid = shape.grid, &block = shape.block;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const bool taken = grid.x <= kGridX && grid.y <= kGridYz && grid.z <= kGridYz && threads >= 1 &&
                     threads <= kThreads && block.z <= kBlockZ && shape.shared_bytes <= shared_bytes_max;
  LOCI_CHECK(taken,
             fmt::format("{}: a grid of {} x {} x {} blocks of {} x {} x {} threads with {} bytes of shared "
                         "memory (a block may have {})",
                         name, grid.x, grid.y, grid.z, block.x, block.y, block.z, shape.shared_bytes,
                         shared_bytes_max)
                 .c_str());
}

}  // namespace loci::cuda
