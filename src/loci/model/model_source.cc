// SPDX-License-Identifier: Apache-2.0
#include "loci/model/model_source.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>

namespace loci {
namespace {

constexpr std::string_view kTypeNames[] = {"an unsigned 8-bit integer",
                                           "a signed 8-bit integer",
                                           "an unsigned 16-bit integer",
                                           "a signed 16-bit integer",
                                           "an unsigned 32-bit integer",
                                           "a signed 32-bit integer",
                                           "a 32-bit float",
                                           "a bool",
                                           "a string",
                                           "an array",
                                           "an unsigned 64-bit integer",
                                           "a signed 64-bit integer",
                                           "a 64-bit float"};
constexpr std::string_view kElementNames[] = {"unsigned 8-bit integers",
                                              "signed 8-bit integers",
                                              "unsigned 16-bit integers",
                                              "signed 16-bit integers",
                                              "unsigned 32-bit integers",
                                              "signed 32-bit integers",
                                              "32-bit floats",
                                              "bools",
                                              "strings",
                                              "arrays",
                                              "unsigned 64-bit integers",
                                              "signed 64-bit integers",
                                              "64-bit floats"};

Status wrong_type(std::string_view key, std::string_view expected, const GgufValue* found) {
  return invalid_argument(fmt::format("expected {}, found {}", expected,
                                      found == nullptr ? "no such key" : describe_type(*found)),
                          std::string(key));
}

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// What the elements of an array convert to, or the error of the first that does not.
template <class To, class Convert>
Result<std::vector<To>> convert_array(std::string_view key, std::string_view expected, const GgufValue* value,
                                      Convert convert) {
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  if (array == nullptr) return wrong_type(key, expected, value);
  return std::visit([&](const auto& elements) { return convert(elements); }, array->elements);
}

}  // namespace

std::size_t GgufArray::size() const {
  return std::visit([](const auto& vector) { return vector.size(); }, elements);
}

std::string describe_type(const GgufValue& value) {
  if (const auto* array = std::get_if<GgufArray>(&value)) {
    return fmt::format("an array of {}", kElementNames[array->elements.index()]);
  }
  return std::string(kTypeNames[value.index()]);
}

const GgufValue* ModelSource::find(std::string_view key) const {
  const auto found = metadata().find(key);
  return found == metadata().end() ? nullptr : &found->second;
}

Result<TensorView> ModelSource::get_tensor(std::string_view name) const {
  if (const TensorView* tensor = find_tensor(name)) return *tensor;
  if (const OpaqueTensor* opaque = find_opaque_tensor(name)) {
    std::string supported;
    for (const TensorTypeInfo& info : supported_tensor_types()) {
      supported += fmt::format("{}{}", supported.empty() ? "" : ", ", info.name);
    }
    const std::string number = opaque->type_number == kNoTypeNumber
                                   ? std::string()
                                   : fmt::format(" (type number {})", opaque->type_number);
    return invalid_argument(
        fmt::format("expected a tensor of type {}, found {}{}", supported, opaque->type_name, number),
        std::string(name));
  }
  return invalid_argument("expected this tensor, found that the file has none of this name",
                          std::string(name));
}

Result<std::uint64_t> ModelSource::get_uint(std::string_view key) const {
  constexpr std::string_view kExpected = "an unsigned integer";
  const GgufValue* value = find(key);
  if (value == nullptr) return wrong_type(key, kExpected, nullptr);
  return std::visit(
      [&]<class T>(const T& number) -> Result<std::uint64_t> {
        if constexpr (kIsInteger<T>) {
          if (std::cmp_less(number, 0)) {
            return invalid_argument(fmt::format("expected {}, found {}", kExpected, number),
                                    std::string(key));
          }
          return static_cast<std::uint64_t>(number);
        } else {
          return wrong_type(key, kExpected, value);
        }
      },
      *value);
}

Result<double> ModelSource::get_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr) {
    if (const auto* single = std::get_if<float>(value)) return static_cast<double>(*single);
    if (const auto* number = std::get_if<double>(value)) return *number;
  }
  return wrong_type(key, "a float", value);
}

Result<bool> ModelSource::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr) {
    if (const auto* boolean = std::get_if<bool>(value)) return *boolean;
  }
  return wrong_type(key, "a bool", value);
}

Result<std::string> ModelSource::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr) {
    if (const auto* text = std::get_if<std::string>(value)) return *text;
  }
  return wrong_type(key, "a string", value);
}

Result<std::vector<std::string>> ModelSource::get_strings(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of strings";
  const GgufValue* value = find(key);
  return convert_array<std::string>(
      key, kExpected, value,
      [&]<class T>(const std::vector<T>& elements) -> Result<std::vector<std::string>> {
        if constexpr (std::is_same_v<T, std::string>) {
          return elements;
        } else {
          return wrong_type(key, kExpected, value);
        }
      });
}

Result<std::vector<std::int32_t>> ModelSource::get_ints(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of integers";
  const GgufValue* value = find(key);
  return convert_array<std::int32_t>(
      key, kExpected, value,
      [&]<class T>(const std::vector<T>& elements) -> Result<std::vector<std::int32_t>> {
        if constexpr (kIsInteger<T>) {
          std::vector<std::int32_t> out;
          out.reserve(elements.size());
          for (const T element : elements) {
            if (!std::in_range<std::int32_t>(element)) {
              return invalid_argument(
                  fmt::format("expected integers of 32 bits, found {} at index {}", element, out.size()),
                  std::string(key));
            }
            out.push_back(static_cast<std::int32_t>(element));
          }
          return out;
        } else {
          return wrong_type(key, kExpected, value);
        }
      });
}

Result<std::vector<float>> ModelSource::get_floats(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of floats";
  const GgufValue* value = find(key);
  return convert_array<float>(key, kExpected, value,
                              [&]<class T>(const std::vector<T>& elements) -> Result<std::vector<float>> {
                                if constexpr (std::is_floating_point_v<T>) {
                                  return std::vector<float>(elements.begin(), elements.end());
                                } else {
                                  return wrong_type(key, kExpected, value);
                                }
                              });
}

}  // namespace loci
