// Reading GGUF files (versions 2 and 3) by memory map. Every length and offset is checked against the
// file before it is used: a damaged file is refused by naming the field, the value and what was
// expected; it is never a crash.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
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

// A tensor of a type that Loci does not compute with: it can be listed, not used.
struct GgufOpaqueTensor {
  std::string name;
  std::uint32_t type_number = 0;
  std::string type_name;  // "Q4_K", or "type 77" where GGUF's list as of now has no such number
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::optional<std::uint64_t> size_bytes;  // absent where the type's encoding is unknown
};

// "an unsigned integer", "a string", "an array of strings": for messages.
std::string describe_type(const GgufValue& value);

// Immutable after opening and thread-safe. Owns the map; tensor views point into it.
class GgufFile {
 public:
  // Errors: kNotFound, kInvalidArgument (not GGUF, unknown version, big-endian), kDataLoss (truncated,
  // duplicate names, offsets outside the file, tensors that overlap, sizes that don't multiply).
  // The file must not be shortened while it is open.
  static Result<GgufFile> open(const std::string& path);
  // Parses bytes that the caller keeps alive (tests, fuzzing). They should start at an address that is
  // a multiple of the file's alignment, as a mapped file's do: tensor views inherit it.
  static Result<GgufFile> parse(std::span<const std::byte> bytes);
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  std::uint32_t version() const;
  std::uint64_t file_bytes() const;
  const std::map<std::string, GgufValue, std::less<>>& metadata() const;
  const std::vector<TensorView>& tensors() const;               // in the file's order
  const std::vector<GgufOpaqueTensor>& opaque_tensors() const;  // those of unsupported types, likewise
  const GgufValue* find(std::string_view key) const;
  const TensorView* find_tensor(std::string_view name) const;  // nullptr too for an opaque one
  const GgufOpaqueTensor* find_opaque_tensor(std::string_view name) const;
  // Errors: kInvalidArgument where the tensor is missing or of an unsupported type (with the list of
  // supported ones).
  Result<TensorView> get_tensor(std::string_view name) const;

  // Typed look-ups. Integers of any width convert when the value fits. Errors: kInvalidArgument
  // "key: expected an unsigned integer, found a string".
  Result<std::uint64_t> get_uint(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string> get_string(std::string_view key) const;
  Result<std::vector<std::string>> get_strings(std::string_view key) const;
  Result<std::vector<std::int32_t>> get_ints(std::string_view key) const;
  Result<std::vector<float>> get_floats(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

 private:
  struct State;
  explicit GgufFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace loci
