// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/devices.h"

#include <algorithm>

#include "loci/compute/cuda/runtime.h"

namespace loci {

std::vector<CudaDeviceInfo> cuda_devices(std::string& reason) {
  std::vector<CudaDeviceInfo> devices;
  reason.clear();
  const std::uint32_t count = cuda::Device::count();
  for (std::uint32_t ordinal = 0; ordinal < std::max(count, 1u); ++ordinal) {
    const Result<cuda::DeviceProperties> found = cuda::Device::find(ordinal);
    if (found.ok()) {
      devices.push_back({ordinal, found->name, found->capability, found->memory_bytes});
    } else if (reason.empty()) {
      reason = found.status().message();
    }
  }
  if (!devices.empty()) reason.clear();
  return devices;
}

}  // namespace loci
