// SPDX-License-Identifier: Apache-2.0
// Shared by tests of kernels: a device (the simulated one, or in gpu-check the machine's first GPU), and
// vectors that are copied there and back. Tests never touch device memory themselves.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> opened = Device::open(0);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    device_ = std::move(opened).value();
    stream_ = std::make_unique<Stream>(*device_);
  }
  // Fails the test if the device was lost.
  void TearDown() override {
    if (stream_ != nullptr) stream_->synchronize();
    stream_.reset();
    if (device_ != nullptr && !may_be_lost_) {
      EXPECT_TRUE(device_->status().ok()) << device_->status().message();
    }
  }

  const Device& device() const { return *device_; }
  Stream& stream() { return *stream_; }
  // True on the simulated device, for which tests choose small shapes.
  bool simulated() const { return device_->properties().simulated; }

  template <class T>
  Memory upload(std::span<const T> values) {
    Memory memory = allocate(values.size_bytes());
    if (!values.empty()) {
      const Memory staging = pinned(values.size_bytes());
      std::memcpy(staging.data(), values.data(), values.size_bytes());
      stream_->copy(memory.data(), staging.data(), values.size_bytes());
      stream_->synchronize();
    }
    return memory;
  }
  template <class T>
  Memory upload(const std::vector<T>& values) {
    return upload(std::span<const T>(values));
  }
  template <class T>
  std::vector<T> download(const Memory& memory) {
    std::vector<T> values(memory.size() / sizeof(T));
    if (!values.empty()) {
      const Memory staging = pinned(memory.size());
      stream_->copy(staging.data(), memory.data(), memory.size());
      stream_->synchronize();
      std::memcpy(values.data(), staging.data(), values.size() * sizeof(T));
    }
    return values;
  }
  // Device memory with every byte set to `value`, so that a test sees what a kernel did not write.
  Memory filled(std::uint64_t bytes, std::uint8_t value = 0xff) {
    Memory memory = allocate(bytes);
    stream_->fill(memory.data(), value, bytes);
    return memory;
  }
  Memory pinned(std::uint64_t bytes) {
    return std::move(Memory::allocate(*device_, MemoryKind::kPinned, bytes, "test")).value();
  }
  void expect_lost() { may_be_lost_ = true; }

 private:
  Memory allocate(std::uint64_t bytes) {
    return std::move(Memory::allocate(*device_, MemoryKind::kDevice, bytes, "test")).value();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  bool may_be_lost_ = false;
};

}  // namespace loci::cuda
