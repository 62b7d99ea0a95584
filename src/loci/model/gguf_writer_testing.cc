// SPDX-License-Identifier: Apache-2.0
#include "loci/model/gguf_writer_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

using Bytes = std::vector<std::byte>;

void append_raw(Bytes& out, const void* data, std::size_t size) {
  const std::size_t end = out.size();
  out.resize(end + size);
  if (size != 0) std::memcpy(out.data() + end, data, size);
}

template <class T>
void append(Bytes& out, T value) {
  static_assert(std::is_arithmetic_v<T> && std::endian::native == std::endian::little);
  append_raw(out, &value, sizeof(T));
}

void append(Bytes& out, const std::string& text) {
  append(out, std::uint64_t{text.size()});
  append_raw(out, text.data(), text.size());
}

void append(Bytes& out, const GgufArray& array) {
  append(out, static_cast<std::uint32_t>(array.elements.index()));
  std::visit(
      [&]<class T>(const std::vector<T>& elements) {
        append(out, std::uint64_t{elements.size()});
        for (const T& element : elements) append(out, element);
      },
      array.elements);
}

void pad(Bytes& out, std::size_t alignment) {
  out.resize((out.size() + alignment - 1) / alignment * alignment);
}

std::uint64_t padded(std::uint64_t size, std::uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

GgufWriter::GgufWriter(std::uint32_t alignment) : alignment_(alignment) {
  LOCI_CHECK(std::has_single_bit(alignment), "an alignment is a power of two");
  if (alignment != 32) add("general.alignment", alignment);
}

void GgufWriter::add(std::string key, GgufValue value) {
  metadata_.emplace_back(std::move(key), std::move(value));
}

void GgufWriter::add_strings(std::string key, std::vector<std::string> values) {
  add(std::move(key), GgufArray{std::move(values)});
}

void GgufWriter::add_ints(std::string key, std::vector<std::int32_t> values) {
  add(std::move(key), GgufArray{std::move(values)});
}

void GgufWriter::replace(std::string_view key, GgufValue value) {
  for (auto& [name, old] : metadata_) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  LOCI_CHECK(false, "replace() needs a key that was added");
}

void GgufWriter::remove(std::string_view key) {
  const auto removed = std::erase_if(metadata_, [&](const auto& entry) { return entry.first == key; });
  LOCI_CHECK(removed == 1, "remove() needs a key that was added");
}

void GgufWriter::add_tensor(std::string name, TensorType type, std::uint64_t rows, std::uint64_t columns,
                            FillRow fill) {
  const TensorTypeInfo& info = tensor_type_info(type);
  LOCI_CHECK(columns % info.block_elements == 0, "a row is a whole number of blocks");
  std::vector<std::uint64_t> dimensions = {columns};
  if (rows != 1) dimensions.push_back(rows);
  const std::uint64_t size_bytes = rows * (columns / info.block_elements * info.block_bytes);
  tensors_.push_back({std::move(name), static_cast<std::uint32_t>(type), std::move(dimensions), rows,
                      size_bytes, std::move(fill)});
}

void GgufWriter::add_tensor(std::string name, TensorType type, std::uint64_t rows, std::uint64_t columns,
                            std::vector<std::byte> data) {
  const TensorTypeInfo& info = tensor_type_info(type);
  LOCI_CHECK(data.size() == rows * (columns / info.block_elements * info.block_bytes),
             "data of the tensor's size");
  add_tensor(std::move(name), type, rows, columns,
             [data = std::move(data)](std::uint64_t row, std::span<std::byte> bytes) {
               std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(row * bytes.size()), bytes.size(),
                           bytes.begin());
             });
}

void GgufWriter::add_raw_tensor(std::string name, std::uint32_t type, std::vector<std::uint64_t> dimensions,
                                std::vector<std::byte> data) {
  const std::uint64_t size_bytes = data.size();
  tensors_.push_back({std::move(name), type, std::move(dimensions), 1, size_bytes,
                      [data = std::move(data)](std::uint64_t, std::span<std::byte> bytes) {
                        std::copy(data.begin(), data.end(), bytes.begin());
                      }});
}

void GgufWriter::remove_tensor(std::string_view name) {
  const auto removed = std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
  LOCI_CHECK(removed == 1, "remove_tensor() needs a tensor that was added");
}

Bytes GgufWriter::header() const {
  Bytes out;
  for (const char letter : {'G', 'G', 'U', 'F'}) append(out, letter);
  append(out, std::uint32_t{3});
  append(out, std::uint64_t{tensors_.size()});
  append(out, std::uint64_t{metadata_.size()});
  for (const auto& [key, value] : metadata_) {
    append(out, key);
    append(out, static_cast<std::uint32_t>(value.index()));
    std::visit([&](const auto& alternative) { append(out, alternative); }, value);
  }
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    append(out, tensor.name);
    append(out, static_cast<std::uint32_t>(tensor.dimensions.size()));
    for (const std::uint64_t size : tensor.dimensions) append(out, size);
    append(out, tensor.type);
    append(out, offset);
    offset = padded(offset + tensor.size_bytes, alignment_);
  }
  pad(out, alignment_);
  return out;
}

Status GgufWriter::write_rows(const Tensor& tensor, const Sink& sink) {
  constexpr std::uint64_t kPieceBytes = std::uint64_t{32} << 20, kThreadBytes = std::uint64_t{1} << 20;
  if (tensor.rows == 0) return {};
  const std::uint64_t row_bytes = tensor.size_bytes / tensor.rows;
  const std::uint64_t each =
      std::clamp<std::uint64_t>(kPieceBytes / std::max<std::uint64_t>(row_bytes, 1), 1, tensor.rows);
  Bytes piece(each * row_bytes);
  for (std::uint64_t first = 0; first < tensor.rows; first += each) {
    const std::uint64_t count = std::min(each, tensor.rows - first);
    const std::uint64_t threads = std::clamp<std::uint64_t>(
        count * row_bytes / kThreadBytes, 1, std::max(1u, std::thread::hardware_concurrency()));
    const auto fill = [&](std::uint64_t thread) {
      for (std::uint64_t i = count * thread / threads; i < count * (thread + 1) / threads; ++i) {
        tensor.fill(first + i, std::span(piece).subspan(i * row_bytes, row_bytes));
      }
    };
    {
      std::vector<std::jthread> helpers;
      for (std::uint64_t thread = 1; thread < threads; ++thread) helpers.emplace_back(fill, thread);
      fill(0);
    }
    LOCI_RETURN_IF_ERROR(sink(std::span(piece).first(count * row_bytes)));
  }
  return {};
}

Status GgufWriter::write(const Sink& sink) const {
  LOCI_RETURN_IF_ERROR(sink(header()));
  for (const Tensor& tensor : tensors_) {
    LOCI_RETURN_IF_ERROR(write_rows(tensor, sink));
    LOCI_RETURN_IF_ERROR(sink(Bytes(padded(tensor.size_bytes, alignment_) - tensor.size_bytes)));
  }
  return {};
}

Bytes GgufWriter::to_bytes() const {
  Bytes out;
  const Status status = write([&](std::span<const std::byte> bytes) {
    append_raw(out, bytes.data(), bytes.size());
    return Status();
  });
  LOCI_CHECK(status.ok(), "appending to memory does not fail");
  return out;
}

Status GgufWriter::write_file(const std::string& path) const {
  const auto failed = [&](std::string_view what) {
    return internal_error(fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno)));
  };
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) return failed("create it");
  LOCI_RETURN_IF_ERROR(write([&](std::span<const std::byte> bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size()) return Status();
    return failed("write it");
  }));
  if (std::fclose(file.release()) != 0) return failed("finish writing it");
  return {};
}

}  // namespace loci
