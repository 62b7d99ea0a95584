// SPDX-License-Identifier: Apache-2.0
// Reading GGUF files (versions 2 and 3) by memory map. Every length and offset is checked against the file
// before it is used: a damaged file is refused with an error that names the field, the value and what was
// expected, and never crashes the program.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/model_source.h"

namespace loci {

// Immutable after opening and thread-safe. Owns the map; tensor views point into it.
class GgufFile final : public ModelSource {
 public:
  // Errors: kNotFound, kInvalidArgument (not GGUF, unknown version, big-endian), kDataLoss (truncated,
  // duplicate names, offsets outside the file, tensors that overlap, sizes whose product overflows). The file
  // must not be shortened while it is open.
  static Result<GgufFile> open(const std::string& path);
  // Parses bytes that the caller keeps alive (tests, fuzzing). They should start at an address that is
  // a multiple of the file's alignment, as a mapped file's do: tensor views inherit it.
  static Result<GgufFile> parse(std::span<const std::byte> bytes);
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile() override;

  std::uint32_t version() const;
  std::uint64_t file_bytes() const;
  SourceFormat format() const override { return SourceFormat::kGguf; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const override;
  const std::vector<TensorView>& tensors() const override;
  const std::vector<OpaqueTensor>& opaque_tensors() const override;
  const TensorView* find_tensor(std::string_view name) const override;
  const OpaqueTensor* find_opaque_tensor(std::string_view name) const override;

 private:
  struct State;
  explicit GgufFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace loci
