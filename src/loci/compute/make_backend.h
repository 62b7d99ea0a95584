// SPDX-License-Identifier: Apache-2.0
// The backend of whatever the option device chooses: the one place where a program decides between CPU and
// GPU.
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
  CpuBackendOptions cpu;                // where it is the CPU
  CudaBackendOptions cuda;              // where it is a GPU; the ordinal is the chosen one's
};

struct MadeBackend {
  std::unique_ptr<Backend> backend;
  std::optional<CudaDeviceInfo> gpu;  // that it is on; its free memory is what the weights left
  std::string chosen;                 // for people: "cuda:0 (NVIDIA H200)", "cpu"
  std::string why;                    // for people: "no GPU: no driver"; empty where it was asked for by name
};

// How backends are made; tests give their own.
struct BackendMakers {
  std::function<std::vector<CudaDeviceInfo>(std::string& reason)> devices;
  std::function<Result<std::unique_ptr<Backend>>(std::uint32_t ordinal)> cuda;
  std::function<Result<std::unique_ptr<Backend>>()> cpu;
};

// kAuto: the first GPU that takes the model, else the CPU; `why` says why. Errors: plan_device()'s, and
// those of the backend that was asked for by name (naming device for a GPU's).
Result<MadeBackend> make_backend(const DeviceChoice& choice, const BackendMakers& makers);

// The same of this machine. Errors besides: those of make_cpu_backend() and make_cuda_backend().
Result<MadeBackend> make_backend(const ModelSpec& spec, const BackendOptions& options);

}  // namespace loci
