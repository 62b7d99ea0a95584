// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/make_backend.h"

#include <utility>

namespace loci {

Result<MadeBackend> make_backend(const DeviceChoice& choice, const BackendMakers& makers) {
  std::string reason;
  std::vector<CudaDeviceInfo> devices;
  if (choice.kind != DeviceKind::kCpu) devices = makers.devices(reason);
  LOCI_ASSIGN_OR_RETURN(const DevicePlan plan, plan_device(choice, devices, reason));
  std::string why_no_gpu = plan.why_no_gpu;
  for (const CudaDeviceInfo& gpu : plan.gpus) {
    Result<std::unique_ptr<Backend>> made = makers.cuda(gpu.ordinal);
    if (made.ok()) {
      const bool asked = choice.kind == DeviceKind::kCuda;
      return MadeBackend{.backend = std::move(made).value(),
                         .gpu = gpu,
                         .chosen = gpu_name(gpu),
                         .why = asked ? "" : "the first GPU that takes the model"};
    }
    const std::string message = gpu_name(gpu) + ": " + made.status().message();
    if (!plan.then_cpu) return Status(made.status().code(), message, "device");
    // The first one's reason is told: it is the one that should have served.
    if (why_no_gpu.empty()) why_no_gpu = message;
  }
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<Backend> cpu, makers.cpu());
  const bool asked = choice.kind == DeviceKind::kCpu;
  return MadeBackend{.backend = std::move(cpu),
                     .gpu = std::nullopt,
                     .chosen = "cpu",
                     .why = asked ? "" : "no GPU: " + why_no_gpu};
}

Result<MadeBackend> make_backend(const ModelSpec& spec, const BackendOptions& options) {
  const auto cuda = [&](std::uint32_t ordinal) {
    CudaBackendOptions chosen = options.cuda;
    chosen.ordinal = ordinal;
    chosen.state_type = options.state_type;
    return make_cuda_backend(spec, chosen);
  };
  const auto cpu = [&] {
    CpuBackendOptions chosen = options.cpu;
    chosen.state_type = options.state_type.value_or(chosen.state_type);
    return make_cpu_backend(spec, chosen);
  };
  return make_backend(options.device, BackendMakers{.devices = cuda_devices, .cuda = cuda, .cpu = cpu});
}

}  // namespace loci
