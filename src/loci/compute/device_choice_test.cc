// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/device_choice.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "loci/compute/backend_testing.h"
#include "loci/compute/make_backend.h"

namespace loci {
namespace {

CudaDeviceInfo gpu(std::uint32_t ordinal, std::uint32_t capability) {
  return {.ordinal = ordinal,
          .name = "GPU " + std::to_string(ordinal),
          .capability = capability,
          .memory_bytes = 1000};
}

TEST(DeviceChoice, IsReadAndWritten) {
  for (const char* text : {"auto", "cpu", "cuda:0", "cuda:7", "cuda:4294967295"}) {
    const Result<DeviceChoice> choice = parse_device_choice(text);
    ASSERT_TRUE(choice.ok()) << text;
    EXPECT_EQ(device_choice_name(*choice), text);
  }
  EXPECT_EQ(parse_device_choice("cuda").value(), (DeviceChoice{.kind = DeviceKind::kCuda, .ordinal = 0}));
}

TEST(DeviceChoice, RefusesWhatIsNone) {
  for (const char* text :
       {"", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:1x", "cuda:4294967296", "cuda0", " cpu"}) {
    const Result<DeviceChoice> choice = parse_device_choice(text);
    ASSERT_FALSE(choice.ok()) << text;
    EXPECT_NE(choice.status().message().find("\"" + std::string(text) + "\""), std::string::npos);
  }
}

TEST(StateTypeTest, IsReadAndWritten) {
  for (const StateType type : kStateTypes) {
    const Result<StateType> read = parse_state_type(state_type_name(type));
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, type);
  }
  EXPECT_NE(parse_state_type("q4").status().message().find("f16, bf16 or q8"), std::string::npos);
}

TEST(PlanDevice, AutoTriesEveryGpuThatKernelsServe) {
  const DevicePlan plan = plan_device({}, {gpu(0, 75), gpu(1, 80), gpu(2, 90)}, "").value();
  ASSERT_EQ(plan.gpus.size(), 2u);
  EXPECT_EQ(plan.gpus[0].ordinal, 1u);
  EXPECT_EQ(plan.gpus[1].ordinal, 2u);
  EXPECT_TRUE(plan.then_cpu);
}

TEST(PlanDevice, AutoSaysWhyThereIsNoGpu) {
  const DevicePlan none = plan_device({}, {}, "no driver").value();
  EXPECT_TRUE(none.gpus.empty());
  EXPECT_EQ(none.why_no_gpu, "no driver");
  const DevicePlan old = plan_device({}, {gpu(0, 75)}, "").value();
  EXPECT_TRUE(old.gpus.empty());
  EXPECT_EQ(old.why_no_gpu, "cuda:0 (GPU 0) is too old: expected compute capability 8.0 or newer, found 7.5");
}

TEST(PlanDevice, TheCpuNeedsNoGpu) {
  const DevicePlan plan = plan_device({.kind = DeviceKind::kCpu}, {gpu(0, 90)}, "").value();
  EXPECT_TRUE(plan.gpus.empty());
  EXPECT_TRUE(plan.then_cpu);
}

TEST(PlanDevice, TheGpuThatWasAskedForOrNone) {
  const DeviceChoice second{.kind = DeviceKind::kCuda, .ordinal = 1};
  const DevicePlan plan = plan_device(second, {gpu(0, 90), gpu(1, 89)}, "").value();
  ASSERT_EQ(plan.gpus.size(), 1u);
  EXPECT_EQ(plan.gpus[0].ordinal, 1u);
  EXPECT_FALSE(plan.then_cpu);

  const Status missing = plan_device(second, {gpu(0, 90)}, "").status();
  EXPECT_EQ(missing.code(), StatusCode::kUnavailable);
  EXPECT_EQ(missing.field(), "device");
  EXPECT_EQ(missing.message(), "there is no cuda:1: this machine has cuda:0 to cuda:0");
  EXPECT_EQ(plan_device(second, {}, "no driver").status().message(), "no driver");
  EXPECT_NE(plan_device(second, {gpu(0, 90), gpu(1, 70)}, "").status().message().find("too old"),
            std::string::npos);
}

// A backend that is nothing but a name.
std::unique_ptr<Backend> named_backend(std::string name) {
  BackendInfo info;
  info.name = std::move(name);
  return std::make_unique<EmptyBackend>(std::move(info));
}

// A machine of two GPUs; `full` take no model.
struct Machine {
  std::vector<std::uint32_t> full;
  std::uint32_t listed = 0;
  std::vector<std::uint32_t> tried;

  BackendMakers makers() {
    return {.devices =
                [this](std::string&) {
                  ++listed;
                  return std::vector<CudaDeviceInfo>{gpu(0, 90), gpu(1, 90)};
                },
            .cuda = [this](std::uint32_t ordinal) -> Result<std::unique_ptr<Backend>> {
              tried.push_back(ordinal);
              for (const std::uint32_t one : full) {
                if (one == ordinal) return resource_exhausted("the weights do not fit");
              }
              return named_backend("cuda");
            },
            .cpu = []() -> Result<std::unique_ptr<Backend>> { return named_backend("cpu"); }};
  }
};

TEST(MakeBackend, AutoTakesTheFirstGpuThatTakesTheModel) {
  Machine machine;
  const Result<MadeBackend> first = make_backend({}, machine.makers());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->backend->info().name, "cuda");
  EXPECT_EQ(first->chosen, "cuda:0 (GPU 0)");
  EXPECT_EQ(first->gpu->ordinal, 0u);
  EXPECT_EQ(machine.tried, std::vector<std::uint32_t>{0}) << "the other one is nobody's business";

  Machine crowded{.full = {0}};
  const Result<MadeBackend> second = make_backend({}, crowded.makers());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->gpu->ordinal, 1u);
  EXPECT_EQ(crowded.tried, (std::vector<std::uint32_t>{0, 1}));
}

TEST(MakeBackend, AutoFallsBackToTheCpuAndSaysWhy) {
  Machine crowded{.full = {0, 1}};
  const Result<MadeBackend> made = make_backend({}, crowded.makers());
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->backend->info().name, "cpu");
  EXPECT_FALSE(made->gpu.has_value());
  EXPECT_EQ(made->chosen, "cpu");
  EXPECT_EQ(made->why, "no GPU: cuda:0 (GPU 0): the weights do not fit");
}

TEST(MakeBackend, WhatWasAskedForByNameIsNotReplaced) {
  Machine crowded{.full = {1}};
  const Status status = make_backend({.kind = DeviceKind::kCuda, .ordinal = 1}, crowded.makers()).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.field(), "device");
  EXPECT_EQ(status.message(), "cuda:1 (GPU 1): the weights do not fit");

  Machine machine;
  const Result<MadeBackend> cpu = make_backend({.kind = DeviceKind::kCpu}, machine.makers());
  ASSERT_TRUE(cpu.ok());
  EXPECT_EQ(cpu->chosen, "cpu");
  EXPECT_EQ(cpu->why, "");
  EXPECT_EQ(machine.listed, 0u) << "GPUs are of no matter";
}

}  // namespace
}  // namespace loci
