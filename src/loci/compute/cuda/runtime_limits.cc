// SPDX-License-Identifier: Apache-2.0
// Launches that both implementations refuse.
#include "loci/compute/cuda/runtime.h"

#include <fmt/format.h>

#include <sstream>
#include <string>

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

bool has_code_for(std::string_view architectures, std::uint32_t capability) {
  std::istringstream list{std::string(architectures)};
  for (std::string each; std::getline(list, each, ',');) {
    const auto compiled = static_cast<std::uint32_t>(std::stoul(each));
    const bool alone = each.back() == 'a';  // for this very capability
    // (Tegra's 8.7 does not run what was compiled for 8.0. On 9.0 kernels are chosen that are empty unless
    // they were compiled for 90a.)
    if (!alone && capability == 90) continue;
    if (alone || capability == 87 ? compiled == capability
                                  : compiled / 10 == capability / 10 && compiled <= capability)
      return true;
  }
  return false;
}

Status check_capability(const DeviceProperties& properties, std::string_view architectures) {
  if (has_code_for(architectures, properties.capability)) return {};
  return Status(
      StatusCode::kUnavailable,
      fmt::format(
          "cuda:{} ({}) has compute capability {}.{}, for which this program has no code: it was built "
          "for {} (LOCI_CUDA_ARCHITECTURES)",
          properties.ordinal, properties.name, properties.capability / 10, properties.capability % 10,
          architectures));
}

}  // namespace loci::cuda
