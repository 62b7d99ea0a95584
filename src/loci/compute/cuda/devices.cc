// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/devices.h"

#include <algorithm>
#include <memory>

#include "loci/compute/cuda/runtime.h"

namespace loci {

std::vector<CudaDeviceInfo> cuda_devices(std::string& reason) {
  std::vector<CudaDeviceInfo> devices;
  reason.clear();
  const std::uint32_t count = cuda::Device::count();
  for (std::uint32_t ordinal = 0; ordinal < std::max(count, 1u); ++ordinal) {
    const Result<std::unique_ptr<cuda::Device>> device = cuda::Device::open(ordinal);
    if (!device.ok()) {
      if (reason.empty()) reason = device.status().message();
      continue;
    }
    const cuda::DeviceProperties& properties = (*device)->properties();
    devices.push_back(
        {ordinal, properties.name, properties.capability, properties.memory_bytes, (*device)->free_bytes()});
  }
  if (!devices.empty()) reason.clear();
  return devices;
}

}  // namespace loci
