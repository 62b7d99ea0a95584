// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/device_choice.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <utility>

namespace loci {
namespace {

Status unavailable(std::string message) {
  return Status(StatusCode::kUnavailable, std::move(message), "device");
}

std::string too_old(const CudaDeviceInfo& gpu) {
  return fmt::format("{} is too old: expected compute capability {}.{} or newer, found {}.{}", gpu_name(gpu),
                     kCudaCapabilityMin / 10, kCudaCapabilityMin % 10, gpu.capability / 10,
                     gpu.capability % 10);
}

}  // namespace

Result<DeviceChoice> parse_device_choice(const std::string& text) {
  constexpr std::string_view kCuda = "cuda:";
  if (text == "auto") return DeviceChoice{};
  if (text == "cpu") return DeviceChoice{.kind = DeviceKind::kCpu};
  if (text == "cuda") return DeviceChoice{.kind = DeviceKind::kCuda};
  DeviceChoice choice{.kind = DeviceKind::kCuda};
  const char* const end = text.data() + text.size();
  if (text.starts_with(kCuda)) {
    const auto [at, error] = std::from_chars(text.data() + kCuda.size(), end, choice.ordinal);
    if (error == std::errc{} && at == end) return choice;
  }
  return invalid_argument(
      fmt::format("expected auto, cpu or cuda:N (the first GPU is cuda:0), found \"{}\"", text));
}

std::string device_choice_name(const DeviceChoice& choice) {
  switch (choice.kind) {
    case DeviceKind::kAuto: return "auto";
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kCuda: return fmt::format("cuda:{}", choice.ordinal);
  }
  return "";
}

std::string gpu_name(const CudaDeviceInfo& gpu) { return fmt::format("cuda:{} ({})", gpu.ordinal, gpu.name); }

Result<DevicePlan> plan_device(const DeviceChoice& choice, const std::vector<CudaDeviceInfo>& devices,
                               const std::string& reason) {
  DevicePlan plan;
  if (choice.kind == DeviceKind::kCpu) {
    plan.then_cpu = true;
    plan.why_no_gpu = "device cpu";
    return plan;
  }
  if (choice.kind == DeviceKind::kAuto) {
    plan.then_cpu = true;
    plan.why_no_gpu = reason;
    for (const CudaDeviceInfo& gpu : devices) {
      if (gpu.capability >= kCudaCapabilityMin) {
        plan.gpus.push_back(gpu);
      } else if (plan.why_no_gpu.empty()) {
        plan.why_no_gpu = too_old(gpu);
      }
    }
    return plan;
  }
  for (const CudaDeviceInfo& gpu : devices) {
    if (gpu.ordinal != choice.ordinal) continue;
    if (gpu.capability < kCudaCapabilityMin) return unavailable(too_old(gpu));
    plan.gpus.push_back(gpu);
    return plan;
  }
  if (devices.empty()) return unavailable(reason);
  return unavailable(fmt::format("there is no {}: this machine has cuda:0 to cuda:{}",
                                 device_choice_name(choice), devices.back().ordinal));
}

}  // namespace loci
