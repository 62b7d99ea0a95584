// SPDX-License-Identifier: Apache-2.0
// The source of a model, in any format on disk: metadata under GGUF's keys, tensors under GGUF's names. A
// GGUF file (gguf.h) is one. A Hugging Face directory presents itself in the same terms, so that a family's
// reader is written only once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/tensor.h"

namespace loci {

struct GgufArray;
using GgufValue =
    std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, float,
                 bool, std::string, GgufArray, std::uint64_t, std::int64_t, double>;

// An array keeps its elements in one typed vector; nested arrays are kept as vectors of arrays.
struct GgufArray {
  std::variant<std::vector<std::uint8_t>, std::vector<std::int8_t>, std::vector<std::uint16_t>,
               std::vector<std::int16_t>, std::vector<std::uint32_t>, std::vector<std::int32_t>,
               std::vector<float>, std::vector<bool>, std::vector<std::string>, std::vector<GgufArray>,
               std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<double>>
      elements;
  std::size_t size() const;
};

// The type number of a tensor whose format does not number types.
inline constexpr std::uint32_t kNoTypeNumber = UINT32_MAX;

// A tensor of a type with which Loci does not compute: it can be listed, but not used.
struct OpaqueTensor {
  std::string name;
  std::uint32_t type_number = 0;  // GGUF's, or kNoTypeNumber
  std::string type_name;          // "Q4_K", or "type 77" if GGUF's list has no such number
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::optional<std::uint64_t> size_bytes;  // absent if the type's encoding is unknown
};

// "an unsigned integer", "a string", "an array of strings": for messages.
std::string describe_type(const GgufValue& value);

// Which convention rows and values follow, where formats differ.
enum class SourceFormat : std::uint8_t {
  kGguf,         // Llama's query and key rows are permuted, Gemma's norm weights include their 1
  kHuggingFace,  // as published
};

// Immutable and thread-safe. Owns what its views point to.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  virtual SourceFormat format() const = 0;
  virtual const std::map<std::string, GgufValue, std::less<>>& metadata() const = 0;
  virtual const std::vector<TensorView>& tensors() const = 0;              // in the source's order
  virtual const std::vector<OpaqueTensor>& opaque_tensors() const = 0;     // of unsupported types; in the
                                                                           // source's order
  virtual const TensorView* find_tensor(std::string_view name) const = 0;  // nullptr also for an opaque
                                                                           // tensor
  virtual const OpaqueTensor* find_opaque_tensor(std::string_view name) const = 0;

  const GgufValue* find(std::string_view key) const;
  // Errors: kInvalidArgument if the tensor is missing or of an unsupported type (with the list of supported
  // ones).
  Result<TensorView> get_tensor(std::string_view name) const;

  // Typed look-ups. Integers of any width convert if the value fits. Errors: kInvalidArgument "key: expected
  // an unsigned integer, found a string".
  Result<std::uint64_t> get_uint(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string> get_string(std::string_view key) const;
  Result<std::vector<std::string>> get_strings(std::string_view key) const;
  Result<std::vector<std::int32_t>> get_ints(std::string_view key) const;
  Result<std::vector<float>> get_floats(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
};

}  // namespace loci
