// SPDX-License-Identifier: Apache-2.0
// Lists the GPUs of this machine without making a backend; for the device "auto" and for people. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace loci {

struct CudaDeviceInfo {
  std::uint32_t ordinal = 0;
  std::string name;                // "NVIDIA H200"
  std::uint32_t capability = 0;    // 90: compute capability 9.0
  std::uint64_t memory_bytes = 0;  // in all
  std::uint64_t free_bytes = 0;    // now
};

// Empty if there is no driver, no GPU, or no CUDA in this build; then `reason` says which.
std::vector<CudaDeviceInfo> cuda_devices(std::string& reason);

}  // namespace loci
