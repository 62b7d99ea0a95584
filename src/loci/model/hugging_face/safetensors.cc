// SPDX-License-Identifier: Apache-2.0
#include "loci/model/hugging_face/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "loci/model/json_file.h"

namespace loci {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the header's length is read in place");

constexpr SafetensorsType kTypes[] = {
    {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"U8", 1},  {"I8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"I16", 2}, {"U16", 2}, {"I32", 4},  {"U32", 4}, {"F64", 8}, {"I64", 8},  {"U64", 8},
};
constexpr std::size_t kMaxDimensions = 8;
constexpr std::uint64_t kLengthBytes = 8;

Result<const SafetensorsType*> read_type(const JsonFields& fields) {
  LOCI_ASSIGN_OR_RETURN(const std::string name, fields.get_string("dtype"));
  std::string known;
  for (const SafetensorsType& type : kTypes) {
    if (type.name == name) return &type;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", type.name);
  }
  return fields.unexpected("dtype", "one of " + known);
}

Result<std::vector<std::uint64_t>> read_numbers(const JsonFields& fields, std::string_view name) {
  const json* value = fields.find(name);
  std::vector<std::uint64_t> numbers;
  const auto is_unsigned = [](const json& element) { return element.is_number_unsigned(); };
  if (value == nullptr || !value->is_array() || !std::all_of(value->begin(), value->end(), is_unsigned))
    return fields.unexpected(name, "an array of unsigned integers");
  for (const json& element : *value) numbers.push_back(element.get<std::uint64_t>());
  return numbers;
}

Result<std::uint64_t> size_of(const std::vector<std::uint64_t>& shape, std::uint32_t element_bytes,
                              const JsonFields& fields) {
  std::uint64_t bytes = element_bytes;
  for (const std::uint64_t dimension : shape) {
    if (dimension == 0)
      return invalid_argument("expected dimensions of at least 1, found 0", fields.field("shape"));
    if (__builtin_mul_overflow(bytes, dimension, &bytes))
      return data_loss("expected a size below 2^64 bytes, found more", fields.field("shape"));
  }
  return bytes;
}

// `data_begin`: where in the file the tensors' bytes begin.
Result<SafetensorsTensor> read_tensor(const std::string& name, const json& entry,
                                      std::span<const std::byte> file, std::uint64_t data_begin) {
  const JsonFields fields(entry, name);
  if (name.empty()) return invalid_argument("expected names for tensors, found an empty one", "header");
  if (!entry.is_object())
    return invalid_argument(fmt::format("expected an object, found {}", describe_json(entry)), name);
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return invalid_argument("expected only dtype, shape and data_offsets, found this field",
                              fields.field(key));
  }
  SafetensorsTensor tensor{.name = name};
  LOCI_ASSIGN_OR_RETURN(tensor.type, read_type(fields));
  LOCI_ASSIGN_OR_RETURN(tensor.shape, read_numbers(fields, "shape"));
  if (tensor.shape.size() > kMaxDimensions) {
    return invalid_argument(
        fmt::format("expected at most {} dimensions, found {}", kMaxDimensions, tensor.shape.size()),
        fields.field("shape"));
  }
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t size, size_of(tensor.shape, tensor.type->bytes, fields));
  LOCI_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> offsets, read_numbers(fields, "data_offsets"));
  const std::uint64_t data_bytes = file.size() - data_begin;
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    return data_loss("expected two offsets, the begin and an end that is not before it",
                     fields.field("data_offsets"));
  if (offsets[1] > data_bytes) {
    return data_loss(
        fmt::format("expected an end within the {} bytes of tensors (which begin at byte {} of the "
                    "file), found {}: the file is truncated or damaged",
                    data_bytes, data_begin, offsets[1]),
        fields.field("data_offsets"));
  }
  if (offsets[1] - offsets[0] != size) {
    return data_loss(fmt::format("expected the {} bytes that dtype and shape make, found {} (from {} to {})",
                                 size, offsets[1] - offsets[0], offsets[0], offsets[1]),
                     fields.field("data_offsets"));
  }
  tensor.bytes = file.subspan(data_begin + offsets[0], size);
  return tensor;
}

Status check_metadata(const json& metadata) {
  const bool is_text =
      metadata.is_object() &&
      std::all_of(metadata.begin(), metadata.end(), [](const json& value) { return value.is_string(); });
  if (is_text) return {};
  return invalid_argument("expected an object of strings", "__metadata__");
}

// From the first byte to the last each belongs to one tensor.
Status check_places(const std::vector<SafetensorsTensor>& tensors, std::span<const std::byte> data) {
  const std::byte* expected = data.data();
  const auto offset = [&](const std::byte* at) { return at - data.data(); };
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.bytes.data() != expected) {
      return data_loss(
          fmt::format("expected data at offset {} (where the tensor before it ends), found {}: tensors "
                      "may neither overlap nor leave a gap",
                      offset(expected), offset(tensor.bytes.data())),
          tensor.name + ": data_offsets");
    }
    expected += tensor.bytes.size();
  }
  if (offset(expected) == static_cast<std::ptrdiff_t>(data.size())) return {};
  return data_loss(fmt::format("expected the file to end with the last tensor, at offset {} of the tensors' "
                               "bytes, found {}",
                               offset(expected), data.size()),
                   "file size");
}

}  // namespace

Result<std::vector<SafetensorsTensor>> read_safetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return data_loss(fmt::format("expected a safetensors file (at least 8 bytes), found {}", bytes.size()),
                     "header length");
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kSafetensorsHeaderBytesMax) {
    return invalid_argument(
        fmt::format("expected a header of at most {} bytes at offset 0, found {}: not a safetensors file?",
                    kSafetensorsHeaderBytesMax, length),
        "header length");
  }
  if (length > bytes.size() - kLengthBytes) {
    return data_loss(
        fmt::format("expected {} bytes of header at offset 8, found {}: the file is truncated or "
                    "damaged",
                    length, bytes.size() - kLengthBytes),
        "header length");
  }
  const std::uint64_t data_begin = kLengthBytes + length;
  Result<json> header =
      parse_model_json({reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length});
  if (!header.ok()) return invalid_argument("at offset 8: " + header.status().message(), "header");
  if (!header->is_object()) {
    return invalid_argument(fmt::format("expected an object at offset 8, found {}", describe_json(*header)),
                            "header");
  }
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") {
      LOCI_RETURN_IF_ERROR(check_metadata(entry));
      continue;
    }
    LOCI_ASSIGN_OR_RETURN(SafetensorsTensor tensor, read_tensor(name, entry, bytes, data_begin));
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    return a.bytes.data() < b.bytes.data();
  });
  LOCI_RETURN_IF_ERROR(check_places(tensors, bytes.subspan(data_begin)));
  return tensors;
}

}  // namespace loci
