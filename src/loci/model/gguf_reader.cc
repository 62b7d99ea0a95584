// SPDX-License-Identifier: Apache-2.0
#include "loci/model/gguf_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <type_traits>
#include <utility>

#include "loci/base/printable.h"

namespace loci {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF's numbers are read in place");

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxKeyBytes = 65535;  // GGUF's own limit
constexpr std::uint64_t kMaxTensorNameBytes = 255;
constexpr std::size_t kShownNameBytes = 64;
constexpr std::uint32_t kMaxDimensions = 4;
constexpr int kMaxArrayDepth = 4;

// GGUF's value types are the indices of GgufValue and of GgufArray::elements.
constexpr std::uint32_t kValueTypes = std::variant_size_v<GgufValue>;
static_assert(kValueTypes == 13 && std::variant_size_v<decltype(GgufArray::elements)> == kValueTypes);
// The fewest bytes that one value of each type takes.
constexpr std::uint64_t kMinValueBytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
constexpr std::uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Types that others compute with, so that their files can be listed.
struct ForeignType {
  std::uint32_t number;
  std::string_view name;
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
};
constexpr ForeignType kForeignTypes[] = {
    {9, "Q8_1", 32, 36},      {15, "Q8_K", 256, 292}, {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50}, {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {24, "I8", 1, 1},         {25, "I16", 1, 2},      {26, "I32", 1, 4},        {27, "I64", 1, 8},
    {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56}, {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},
};

// A name for an error: of a damaged file it may be a piece of anything, with line ends.
std::string shown_name(std::string_view name) {
  std::string shown = printable(name.substr(0, kShownNameBytes), LineEnds::kReplace);
  return name.size() > kShownNameBytes ? shown + "..." : shown;
}

// Reads little-endian values one after the other; never past the end.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return bytes_.size() - position_; }

  Status require(std::uint64_t count, std::string_view field) const {
    if (count <= remaining()) return {};
    return data_loss(
        fmt::format("expected {} more bytes at offset {}, found {}: the file is truncated or damaged", count,
                    position_, remaining()),
        std::string(field));
  }
  // What must be there for `count` items of at least `item_bytes` each.
  Status require_items(std::uint64_t count, std::uint64_t item_bytes, std::string_view field) const {
    if (count <= remaining() / item_bytes) return {};
    return data_loss(fmt::format("expected at most {} (what {} remaining bytes can hold), found {}",
                                 remaining() / item_bytes, remaining(), count),
                     std::string(field));
  }
  template <class T>
  Result<T> scalar(std::string_view field) {
    LOCI_RETURN_IF_ERROR(require(sizeof(T), field));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }
  Result<std::string> string(std::string_view field, std::uint64_t max_bytes = UINT64_MAX) {
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t length, scalar<std::uint64_t>(field));
    if (length > max_bytes) {
      return data_loss(fmt::format("expected a string of at most {} bytes at offset {}, found {}", max_bytes,
                                   position_ - 8, length),
                       std::string(field));
    }
    LOCI_RETURN_IF_ERROR(require(length, field));
    std::string text(reinterpret_cast<const char*>(bytes_.data() + position_), length);
    position_ += length;
    return text;
  }
  template <class T>
  void copy_checked(std::vector<T>& out) {  // the caller has called require_items
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + position_, out.size() * sizeof(T));
    position_ += out.size() * sizeof(T);
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
};

Result<bool> read_bool(Cursor& cursor, std::string_view field) {
  LOCI_ASSIGN_OR_RETURN(const std::uint8_t byte, cursor.scalar<std::uint8_t>(field));
  if (byte > 1) return data_loss(fmt::format("expected a bool (0 or 1), found {}", byte), std::string(field));
  return byte == 1;
}

Status unknown_value_type(std::uint32_t type, std::string_view field) {
  return data_loss(fmt::format("expected a value type from 0 to {}, found {}", kValueTypes - 1, type),
                   std::string(field));
}

Result<GgufArray> read_array(Cursor& cursor, std::string_view field, int depth);

template <class T>
Status read_elements(Cursor& cursor, std::string_view field, std::uint64_t count, int depth,
                     std::vector<T>& out) {
  if constexpr (std::is_same_v<T, bool>) {
    out.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      LOCI_ASSIGN_OR_RETURN(const bool value, read_bool(cursor, field));
      out.push_back(value);
    }
  } else if constexpr (std::is_arithmetic_v<T>) {
    out.resize(count);
    cursor.copy_checked(out);
  } else {
    out.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, std::string>) {
        LOCI_ASSIGN_OR_RETURN(std::string value, cursor.string(field));
        out.push_back(std::move(value));
      } else {
        LOCI_ASSIGN_OR_RETURN(GgufArray value, read_array(cursor, field, depth + 1));
        out.push_back(std::move(value));
      }
    }
  }
  return {};
}

// Calls `body` with the type at index `type` of Variant, as std::type_identity; `type` is in range.
template <class Variant, class Body, std::size_t... Index>
Status dispatch_type(std::uint32_t type, Body body, std::index_sequence<Index...>) {
  Status status;
  const auto call_if = [&](bool chosen, auto identity) {
    if (chosen) status = body(identity);
  };
  (call_if(type == Index, std::type_identity<std::variant_alternative_t<Index, Variant>>{}), ...);
  return status;
}

Result<GgufArray> read_array(Cursor& cursor, std::string_view field, int depth) {
  if (depth > kMaxArrayDepth) {
    return data_loss(fmt::format("expected arrays nested at most {} deep, found more", kMaxArrayDepth),
                     std::string(field));
  }
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t type, cursor.scalar<std::uint32_t>(field));
  if (type >= kValueTypes) return unknown_value_type(type, field);
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t count, cursor.scalar<std::uint64_t>(field));
  LOCI_RETURN_IF_ERROR(cursor.require_items(count, kMinValueBytes[type], field));
  GgufArray array;
  using Elements = decltype(array.elements);
  LOCI_RETURN_IF_ERROR(dispatch_type<Elements>(
      type,
      [&]<class Vector>(std::type_identity<Vector>) {
        return read_elements(cursor, field, count, depth, array.elements.template emplace<Vector>());
      },
      std::make_index_sequence<kValueTypes>()));
  return array;
}

template <class T>
Result<T> read_alternative(Cursor& cursor, std::string_view field) {
  if constexpr (std::is_same_v<T, bool>) {
    return read_bool(cursor, field);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return cursor.scalar<T>(field);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return cursor.string(field);
  } else {
    return read_array(cursor, field, 1);
  }
}

Result<GgufValue> read_value(Cursor& cursor, std::string_view field) {
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t type, cursor.scalar<std::uint32_t>(field));
  if (type >= kValueTypes) return unknown_value_type(type, field);
  GgufValue value;
  LOCI_RETURN_IF_ERROR(dispatch_type<GgufValue>(
      type,
      [&]<class T>(std::type_identity<T>) -> Status {
        LOCI_ASSIGN_OR_RETURN(T alternative, read_alternative<T>(cursor, field));
        value.emplace<T>(std::move(alternative));
        return {};
      },
      std::make_index_sequence<kValueTypes>()));
  return value;
}

Status read_metadata(Cursor& cursor, std::uint64_t count, GgufContents& contents) {
  for (std::uint64_t i = 0; i < count; ++i) {
    LOCI_ASSIGN_OR_RETURN(std::string key, cursor.string(fmt::format("metadata key {}", i), kMaxKeyBytes));
    if (key.empty())
      return data_loss("expected a name, found an empty one", fmt::format("metadata key {}", i));
    LOCI_ASSIGN_OR_RETURN(GgufValue value, read_value(cursor, key));
    const auto [place, inserted] = contents.metadata.emplace(std::move(key), std::move(value));
    if (!inserted) return data_loss("expected each metadata key once, found it twice", place->first);
  }
  return {};
}

// A tensor's entry in the table, before its data is looked for.
struct TensorEntry {
  std::string name;
  std::uint64_t columns = 1;
  std::uint64_t rows = 1;
  std::uint32_t type = 0;
  std::uint64_t offset = 0;  // from the start of the data
  std::optional<std::uint64_t> size_bytes;
};

bool multiply(std::uint64_t a, std::uint64_t b, std::uint64_t& product) {
  return !__builtin_mul_overflow(a, b, &product);
}

Status size_tensor(TensorEntry& entry, std::uint32_t block_elements, std::uint32_t block_bytes,
                   std::string_view type_name) {
  if (entry.columns % block_elements != 0) {
    return data_loss(fmt::format("expected a row length that is a multiple of {} for type {}, found {}",
                                 block_elements, type_name, entry.columns),
                     entry.name);
  }
  std::uint64_t row_bytes = 0, size_bytes = 0;
  if (!multiply(entry.columns / block_elements, block_bytes, row_bytes) ||
      !multiply(row_bytes, entry.rows, size_bytes)) {
    return data_loss(
        fmt::format("expected a size below 2^64 bytes, found [{}, {}]", entry.rows, entry.columns),
        entry.name);
  }
  entry.size_bytes = size_bytes;
  return {};
}

const ForeignType* find_foreign(std::uint32_t type) {
  const auto* found = std::find_if(std::begin(kForeignTypes), std::end(kForeignTypes),
                                   [&](const ForeignType& foreign) { return foreign.number == type; });
  return found == std::end(kForeignTypes) ? nullptr : found;
}

Result<TensorEntry> read_tensor_entry(Cursor& cursor, std::uint64_t index, std::uint64_t alignment) {
  TensorEntry entry;
  LOCI_ASSIGN_OR_RETURN(entry.name, cursor.string(fmt::format("tensor name {}", index), kMaxTensorNameBytes));
  if (entry.name.empty())
    return data_loss("expected a name, found an empty one", fmt::format("tensor {}", index));
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t dimensions, cursor.scalar<std::uint32_t>(entry.name));
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    return data_loss(fmt::format("expected 1 to {} dimensions, found {}", kMaxDimensions, dimensions),
                     entry.name);
  }
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t size, cursor.scalar<std::uint64_t>(entry.name));
    if (size == 0)
      return data_loss(fmt::format("expected dimension {} of at least 1, found 0", i), entry.name);
    if (i == 0) {
      entry.columns = size;
    } else if (!multiply(entry.rows, size, entry.rows)) {
      return data_loss(
          fmt::format("expected dimensions whose product is below 2^64, found {} in dimension {}", size, i),
          entry.name);
    }
  }
  if (std::uint64_t elements = 0; !multiply(entry.rows, entry.columns, elements)) {
    return data_loss(
        fmt::format("expected fewer than 2^64 elements, found [{}, {}]", entry.rows, entry.columns),
        entry.name);
  }
  LOCI_ASSIGN_OR_RETURN(entry.type, cursor.scalar<std::uint32_t>(entry.name));
  LOCI_ASSIGN_OR_RETURN(entry.offset, cursor.scalar<std::uint64_t>(entry.name));
  if (entry.offset % alignment != 0) {
    return data_loss(fmt::format("expected a data offset that is a multiple of the alignment {}, found {}",
                                 alignment, entry.offset),
                     entry.name);
  }
  if (const TensorTypeInfo* info = find_tensor_type(entry.type)) {
    LOCI_RETURN_IF_ERROR(size_tensor(entry, info->block_elements, info->block_bytes, info->name));
  } else if (const ForeignType* foreign = find_foreign(entry.type)) {
    LOCI_RETURN_IF_ERROR(size_tensor(entry, foreign->block_elements, foreign->block_bytes, foreign->name));
  }
  return entry;
}

Status check_names(const std::vector<TensorEntry>& entries) {
  std::set<std::string_view> names;
  for (const TensorEntry& entry : entries) {
    if (!names.insert(entry.name).second) {
      return data_loss("expected each tensor name once, found it twice", entry.name);
    }
  }
  return {};
}

// Every tensor lies inside the data and on bytes of its own.
Status check_places(const std::vector<TensorEntry>& entries, std::uint64_t data_bytes) {
  std::vector<const TensorEntry*> by_offset;
  for (const TensorEntry& entry : entries) {
    const std::uint64_t size_bytes = entry.size_bytes.value_or(0);
    if (entry.offset > data_bytes || size_bytes > data_bytes - entry.offset) {
      return data_loss(
          fmt::format(
              "expected {} bytes at offset {} of the tensor data, found that it ends at {}: the file is "
              "truncated or damaged",
              size_bytes, entry.offset, data_bytes),
          entry.name);
    }
    by_offset.push_back(&entry);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->offset, a->size_bytes.value_or(0)) < std::pair(b->offset, b->size_bytes.value_or(0));
  });
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const TensorEntry& before = *by_offset[i - 1];
    const std::uint64_t end = before.offset + before.size_bytes.value_or(0);
    if (by_offset[i]->offset < end) {
      return data_loss(fmt::format("expected data after that of {}, which ends at offset {}, found offset {}",
                                   shown_name(before.name), end, by_offset[i]->offset),
                       by_offset[i]->name);
    }
  }
  return {};
}

Status read_tensors(Cursor& cursor, std::uint64_t count, std::uint64_t alignment,
                    std::span<const std::byte> bytes, GgufContents& contents) {
  std::vector<TensorEntry> entries;
  entries.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    LOCI_ASSIGN_OR_RETURN(TensorEntry entry, read_tensor_entry(cursor, i, alignment));
    entries.push_back(std::move(entry));
  }
  LOCI_RETURN_IF_ERROR(check_names(entries));
  const std::uint64_t data_start =
      std::min<std::uint64_t>((cursor.position() + alignment - 1) / alignment * alignment, bytes.size());
  LOCI_RETURN_IF_ERROR(check_places(entries, bytes.size() - data_start));
  for (TensorEntry& entry : entries) {
    if (find_tensor_type(entry.type) != nullptr) {
      contents.tensors.push_back({std::move(entry.name), static_cast<TensorType>(entry.type), entry.rows,
                                  entry.columns, bytes.data() + data_start + entry.offset});
    } else {
      const ForeignType* foreign = find_foreign(entry.type);
      contents.opaque_tensors.push_back(
          {std::move(entry.name), entry.type,
           foreign != nullptr ? std::string(foreign->name) : fmt::format("type {}", entry.type), entry.rows,
           entry.columns, entry.size_bytes});
    }
  }
  return {};
}

Result<std::uint64_t> find_alignment(const GgufContents& contents) {
  const auto found = contents.metadata.find("general.alignment");
  if (found == contents.metadata.end()) return kDefaultAlignment;
  const auto* alignment = std::get_if<std::uint32_t>(&found->second);
  if (alignment == nullptr) {
    return data_loss("expected an unsigned 32-bit integer, found " + describe_type(found->second),
                     found->first);
  }
  if (*alignment < 8 || *alignment > kMaxAlignment || !std::has_single_bit(*alignment)) {
    return data_loss(fmt::format("expected a power of two from 8 to {}, found {}", kMaxAlignment, *alignment),
                     found->first);
  }
  return std::uint64_t{*alignment};
}

Result<std::uint32_t> read_version(Cursor& cursor) {
  if (cursor.remaining() < 4) {
    return invalid_argument(fmt::format("expected a GGUF file, found {} bytes", cursor.remaining()), "magic");
  }
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t magic, cursor.scalar<std::uint32_t>("magic"));
  if (magic != kMagic) {
    return invalid_argument(fmt::format("expected a file that starts with \"GGUF\", found bytes 0x{:08x}",
                                        __builtin_bswap32(magic)),
                            "magic");
  }
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t version, cursor.scalar<std::uint32_t>("version"));
  if (version == 2 || version == 3) return version;
  if (const std::uint32_t swapped = __builtin_bswap32(version); swapped >= 1 && swapped <= 3) {
    return invalid_argument(
        fmt::format("expected a little-endian file, found a big-endian one of version {}: convert it with "
                    "gguf-convert-endian from llama.cpp's gguf package",
                    swapped),
        "version");
  }
  return invalid_argument(fmt::format("expected GGUF version 2 or 3, found {}", version), "version");
}

// Errors are of fields called as in the file.
Result<GgufContents> read_contents(std::span<const std::byte> bytes) {
  Cursor cursor(bytes);
  GgufContents contents;
  LOCI_ASSIGN_OR_RETURN(contents.version, read_version(cursor));
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t tensor_count, cursor.scalar<std::uint64_t>("tensor_count"));
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t metadata_count,
                        cursor.scalar<std::uint64_t>("metadata_kv_count"));
  LOCI_RETURN_IF_ERROR(cursor.require_items(metadata_count, kMinMetadataBytes, "metadata_kv_count"));
  LOCI_RETURN_IF_ERROR(read_metadata(cursor, metadata_count, contents));
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t alignment, find_alignment(contents));
  LOCI_RETURN_IF_ERROR(cursor.require_items(tensor_count, kMinTensorBytes, "tensor_count"));
  LOCI_RETURN_IF_ERROR(read_tensors(cursor, tensor_count, alignment, bytes, contents));
  return contents;
}

}  // namespace

Result<GgufContents> read_gguf(std::span<const std::byte> bytes) {
  Result<GgufContents> contents = read_contents(bytes);
  if (contents.ok()) return contents;
  const Status status = contents.status();
  return Status(status.code(), status.message(), shown_name(status.field()));
}

}  // namespace loci
