// SPDX-License-Identifier: Apache-2.0
// Makes the backend that the option device chooses. This is the only place where a program decides between
// CPU and GPU.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loci/compute/backend.h"
#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/cuda/cuda_backend.h"
#include "loci/compute/device_choice.h"
#include "loci/compute/state_type.h"
#include "loci/model/model_spec.h"

namespace loci {

struct BackendOptions {
  DeviceChoice device;
  std::optional<StateType> state_type;  // absent: the backend's own
  CpuBackendOptions cpu;                // used if it is the CPU
  CudaBackendOptions cuda;              // used if it is a GPU; the ordinal is that of the chosen one
};

struct MadeBackend {
  std::unique_ptr<Backend> backend;
  std::optional<CudaDeviceInfo> gpu;  // the GPU that it is on
  std::string chosen;                 // for people: "cuda:0 (NVIDIA H200)", "cpu"
  std::string why;                    // for people: "no GPU: no driver"; empty if the device was asked for by
                                      // name
};

// How backends are made; tests give their own.
struct BackendMakers {
  std::function<std::vector<CudaDeviceInfo>(std::string& reason)> devices;
  std::function<Result<std::unique_ptr<Backend>>(std::uint32_t ordinal)> cuda;
  std::function<Result<std::unique_ptr<Backend>>()> cpu;
};

// kAuto: the first GPU on which the model can be loaded, else the CPU; `why` says why. Errors: those of
// plan_device(), and those of the backend that was asked for by name (a GPU's name device).
Result<MadeBackend> make_backend(const DeviceChoice& choice, const BackendMakers& makers);

// The same for this machine. Further errors: those of make_cpu_backend() and make_cuda_backend().
Result<MadeBackend> make_backend(const ModelSpec& spec, const BackendOptions& options);

}  // namespace loci
