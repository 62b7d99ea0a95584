// SPDX-License-Identifier: Apache-2.0
// Chooses the processor that computes: what the option device says, and which of the machine's GPUs it means.
// Pure: the machine's devices are arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/compute/cuda/devices.h"

namespace loci {

enum class DeviceKind : std::uint8_t { kAuto, kCpu, kCuda };

struct DeviceChoice {
  DeviceKind kind = DeviceKind::kAuto;
  std::uint32_t ordinal = 0;  // number of the GPU; only for kCuda
  friend bool operator==(const DeviceChoice&, const DeviceChoice&) = default;
};

// "auto", "cpu", "cuda:0"; "cuda" is the first GPU. Errors: kInvalidArgument, without a field.
Result<DeviceChoice> parse_device_choice(const std::string& text);
std::string device_choice_name(const DeviceChoice& choice);

// The oldest GPUs that kernels are compiled for.
inline constexpr std::uint32_t kCudaCapabilityMin = 80;

// The devices to try, in order.
struct DevicePlan {
  std::vector<CudaDeviceInfo> gpus;
  bool then_cpu = false;
  std::string why_no_gpu;  // why `gpus` is empty, for people
};

// `devices` and `reason` come from cuda_devices(). kAuto: every GPU that kernels support, then the CPU.
// Errors: kUnavailable naming device, if the GPU that was asked for is missing or too old.
Result<DevicePlan> plan_device(const DeviceChoice& choice, const std::vector<CudaDeviceInfo>& devices,
                               const std::string& reason);

// "cuda:0 (NVIDIA H200)"
std::string gpu_name(const CudaDeviceInfo& gpu);

}  // namespace loci
