// SPDX-License-Identifier: Apache-2.0
// A model whose GGUF file was split (llama.cpp's gguf-split): NAME-00001-of-00003.gguf holds the metadata
// and some tensors, the other parts the rest.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/gguf.h"

namespace loci {

// Immutable and thread-safe; owns the parts.
class SplitGguf final : public ModelSource {
 public:
  // Whether `file` says that it is a part of several.
  static bool is_part(const GgufFile& file);
  // `first` was opened from `path`; the other parts are opened by their names beside it. Errors: those of
  // GgufFile::open(); kInvalidArgument if the path is not that of the first part; kNotFound for a missing
  // part; kDataLoss if a part has the wrong number, belongs to another model or number of parts, or if the
  // parts do not hold split.tensors.count tensors, each once. All errors name the part.
  static Result<SplitGguf> open(GgufFile first, const std::string& path);

  std::uint64_t file_bytes() const;  // of all parts
  std::uint32_t version() const { return parts_.front().version(); }
  std::size_t part_count() const { return parts_.size(); }
  SourceFormat format() const override { return SourceFormat::kGguf; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const override;
  const std::vector<TensorView>& tensors() const override { return tensors_; }
  const std::vector<OpaqueTensor>& opaque_tensors() const override { return opaques_; }
  const TensorView* find_tensor(std::string_view name) const override;
  const OpaqueTensor* find_opaque_tensor(std::string_view name) const override;

 private:
  SplitGguf() = default;

  std::vector<GgufFile> parts_;
  std::vector<TensorView> tensors_;
  std::vector<OpaqueTensor> opaques_;
};

}  // namespace loci
