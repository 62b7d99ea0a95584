// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of rows: elements on the host, random values, and outputs with guards around them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "loci/compute/cuda/check/device_testing.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/model/quantize.h"
#include "loci/model/tensor.h"

namespace loci::cuda {

inline float element_value(ElementType type, std::uint16_t bits) {
  return type == ElementType::kHalf ? f16_to_f32(bits) : bf16_to_f32(bits);
}
// The bits of a finite value.
inline std::uint16_t element_bits(ElementType type, float value) {
  return type == ElementType::kHalf ? f32_to_f16(value) : f32_to_bf16(value);
}
inline double largest_element(ElementType type) {
  return type == ElementType::kHalf ? 65504.0 : std::ldexp(255.0, 120);
}
// The relative error of rounding an exact value to the type.
inline double element_rounding(ElementType type) { return type == ElementType::kHalf ? 0x1p-11 : 0x1p-8; }
inline const char* name_of(ElementType type) { return type == ElementType::kHalf ? "f16" : "bf16"; }
inline constexpr ElementType kElementTypes[] = {ElementType::kHalf, ElementType::kBFloat16};

class RowsTest : public DeviceTest {
 protected:
  // An output of `count` values, filled with garbage, between guards that no kernel may touch.
  template <class T>
  class Output {
   public:
    Output(RowsTest& test, std::size_t count)
        : test_(test), count_(count), memory_(test.filled(count * sizeof(T) + 2 * kGuardBytes)) {}
    T* data() const { return reinterpret_cast<T*>(memory_.data() + kGuardBytes); }
    std::vector<T> values() const {
      const std::vector<std::uint8_t> bytes = test_.download<std::uint8_t>(memory_);
      for (std::size_t i = 0; i < kGuardBytes; ++i) {
        EXPECT_EQ(bytes[i], 0xff) << "written before the output";
        EXPECT_EQ(bytes[bytes.size() - 1 - i], 0xff) << "written after the output";
      }
      std::vector<T> values(count_);
      std::memcpy(values.data(), bytes.data() + kGuardBytes, count_ * sizeof(T));
      return values;
    }

   private:
    static constexpr std::size_t kGuardBytes = 256;
    RowsTest& test_;
    std::size_t count_;
    Memory memory_;
  };

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  bool coin() { return below(2) == 0; }
  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(random_); }
  std::vector<float> floats(std::size_t count, float low, float high) {
    std::vector<float> values(count);
    for (float& value : values) value = uniform(low, high);
    return values;
  }
  std::vector<std::uint16_t> elements(ElementType type, std::size_t count, float low, float high) {
    std::vector<std::uint16_t> values(count);
    for (std::uint16_t& value : values) value = element_bits(type, uniform(low, high));
    return values;
  }
  std::mt19937& random() { return random_; }

  static void expect_near(double got, double want, double slack, const std::string& where) {
    EXPECT_TRUE(std::fabs(got - want) <= slack) << where << ": " << got << ", expected " << want;
  }
  // Allows an error of `slack` beside the rounding to the type.
  static void expect_element(ElementType type, std::uint16_t got, double want, double slack,
                             const std::string& where) {
    const double largest = largest_element(type);
    want = std::min(std::max(want, -largest), largest);
    const double subnormal = type == ElementType::kHalf ? 0x1p-24 : 0;
    expect_near(element_value(type, got), want, std::fabs(want) * element_rounding(type) + slack + subnormal,
                where);
  }

 private:
  std::mt19937 random_{7};
};

}  // namespace loci::cuda
