// SPDX-License-Identifier: Apache-2.0
// Lists the GPUs of this machine, for the option device and for people. Listing takes no memory on any of
// them: only a backend opens its GPU. Thread-safe.
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
};

// Empty if there is no driver, no GPU, or no CUDA in this build; then `reason` says which.
std::vector<CudaDeviceInfo> cuda_devices(std::string& reason);

}  // namespace loci
