// SPDX-License-Identifier: Apache-2.0
// How a tensor with GGUF's name is made of published tensors, row by row.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/families/hugging_face.h"
#include "loci/model/hugging_face/shards.h"
#include "loci/model/model_source.h"

namespace loci {

// Immutable and thread-safe; points into the shards.
struct TensorPlan {
  std::string name;  // GGUF's
  TensorType type = TensorType::kF32;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  TensorChange change = TensorChange::kNone;
  std::vector<TensorView> parts;  // kStack: one for each expert; otherwise one
  // kGroupedQkv: the row (of a bias: the element) of the part that becomes row i.
  std::vector<std::uint32_t> order;
  std::uint32_t turn = 0;  // if a tensor is split: which of the two this is, 0 or 1
  // kMxfp4: for each row and block of 32 columns 16 bytes in `blocks` and one in `scales`; `parts` is empty.
  std::span<const std::byte> blocks, scales;

  // True if its bytes are those of its only part in the file.
  bool is_view() const;
  std::uint64_t row_bytes() const;
  // Writes row `index` in `type`; `out` holds row_bytes().
  void copy_row(std::uint64_t index, std::span<std::byte> out) const;
  // The same as float32; `out` holds `columns`.
  void decode_row(std::uint64_t index, std::span<float> out) const;
};

struct TensorPlans {
  std::vector<TensorPlan> tensors;    // by name
  std::vector<OpaqueTensor> opaques;  // tensors of dtypes with which Loci does not compute
};

// `metadata` has the model's GGUF keys, for the numbers of heads. Errors: kInvalidArgument naming the tensor:
// `family` has no name for it, two tensors get the same name, experts are not numbered 0, 1, ... or differ in
// shape, or the rows do not match the heads.
Result<TensorPlans> plan_tensors(const Shards& shards, const PublishedFamily& family,
                                 const std::map<std::string, GgufValue, std::less<>>& metadata);

}  // namespace loci
