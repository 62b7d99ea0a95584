// SPDX-License-Identifier: Apache-2.0
// Which processor computes: what the option device says, and which of the machine's GPUs that means. Pure:
// the machine's devices are arguments.
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
  std::uint32_t ordinal = 0;  // of kCuda
  friend bool operator==(const DeviceChoice&, const DeviceChoice&) = default;
};

// "auto", "cpu", "cuda:0"; "cuda" is the first. Errors: kInvalidArgument, without a field.
Result<DeviceChoice> parse_device_choice(const std::string& text);
std::string device_choice_name(const DeviceChoice& choice);

// The oldest GPUs that kernels are compiled for.
inline constexpr std::uint32_t kCudaCapabilityMin = 80;

// What is to be tried, in order.
struct DevicePlan {
  std::vector<CudaDeviceInfo> gpus;
  bool then_cpu = false;
  std::string why_no_gpu;  // where gpus is empty
};

// `devices` and `reason` as of cuda_devices(). kAuto: every GPU that kernels serve, then the CPU. Errors:
// kUnavailable naming device, where the one that was asked for is not there or is too old.
Result<DevicePlan> plan_device(const DeviceChoice& choice, const std::vector<CudaDeviceInfo>& devices,
                               const std::string& reason);

// "cuda:0 (NVIDIA H200)"
std::string gpu_name(const CudaDeviceInfo& gpu);

}  // namespace loci
