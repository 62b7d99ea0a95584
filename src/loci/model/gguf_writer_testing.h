// SPDX-License-Identifier: Apache-2.0
// Writing GGUF files (version 3): for tests, fuzz corpora and random models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/gguf.h"

namespace loci {

// Collects metadata and tensors, then writes them in the order they were added. Nothing is checked
// beyond what the format needs, so that tests can write wrong models. Thread-compatible.
class GgufWriter {
 public:
  // `alignment` is a power of two; it is written as general.alignment if it is not 32.
  explicit GgufWriter(std::uint32_t alignment = 32);

  void add(std::string key, GgufValue value);
  void add_strings(std::string key, std::vector<std::string> values);
  void add_ints(std::string key, std::vector<std::int32_t> values);
  // Replaces the value of a key that was added before.
  void replace(std::string_view key, GgufValue value);
  // Removes a key that was added before.
  void remove(std::string_view key);

  // `data` holds rows * columns elements, encoded as `type` says.
  void add_tensor(std::string name, TensorType type, std::uint64_t rows, std::uint64_t columns,
                  std::vector<std::byte> data);
  // Makes the bytes of a tensor when they are written, for large random models. It is called once for each
  // row, with the row's bytes, by several threads at once and in any order.
  using FillRow = std::function<void(std::uint64_t row, std::span<std::byte> bytes)>;
  void add_tensor(std::string name, TensorType type, std::uint64_t rows, std::uint64_t columns, FillRow fill);
  // Adds a tensor of any shape and type number. Dimensions are in GGUF's order, the row's length first.
  void add_raw_tensor(std::string name, std::uint32_t type, std::vector<std::uint64_t> dimensions,
                      std::vector<std::byte> data);
  // Removes a tensor that was added before.
  void remove_tensor(std::string_view name);

  std::vector<std::byte> to_bytes() const;
  // Errors: kInternal with the path and the system's message (disk full, no such folder).
  Status write_file(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    std::uint32_t type;
    std::vector<std::uint64_t> dimensions;
    std::uint64_t rows;
    std::uint64_t size_bytes;
    FillRow fill;
  };
  using Sink = std::function<Status(std::span<const std::byte>)>;
  std::vector<std::byte> header() const;
  static Status write_rows(const Tensor& tensor, const Sink& sink);
  Status write(const Sink& sink) const;

  std::uint32_t alignment_;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace loci
