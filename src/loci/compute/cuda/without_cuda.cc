// SPDX-License-Identifier: Apache-2.0
// The CUDA backend of a program that was built without a CUDA toolkit.
#include "loci/compute/cuda/cuda_backend.h"
#include "loci/compute/cuda/devices.h"

namespace loci {
namespace {

constexpr const char* kWithout =
    "this program was built without CUDA: run make cuda-toolkit, then make build";

}  // namespace

std::vector<CudaDeviceInfo> cuda_devices(std::string& reason) {
  reason = kWithout;
  return {};
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const ModelSpec& /*spec*/,
                                                   const CudaBackendOptions& /*options*/) {
  return Status(StatusCode::kUnavailable, kWithout);
}

}  // namespace loci
