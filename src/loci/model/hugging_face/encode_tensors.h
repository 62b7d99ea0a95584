// SPDX-License-Identifier: Apache-2.0
// Makes the tensors of a plan in memory: values that GGUF's converters change, and matrices that are encoded
// while they are loaded (the option quantize).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/hugging_face/tensor_plan.h"

namespace loci {

struct FreeAligned {
  void operator()(std::byte* bytes) const;
};
using OwnedBytes = std::unique_ptr<std::byte[], FreeAligned>;

// The type that a tensor gets. Matrices of layers get `quantize`, embedding and output Q8_0. Norms, biases,
// routers and learned positions keep their type. If rows are not a whole number of the type's blocks, Q8_0 is
// tried, then F16.
TensorType choose_type(const TensorPlan& plan, std::optional<TensorType> quantize);

struct MadeTensors {
  std::vector<TensorView> tensors;  // in the plans' order; views of files, or of `memory`
  std::vector<OwnedBytes> memory;
  std::vector<std::string> notes;  // which tensors were encoded as which type, for people
};

// `threads` threads share the rows. Pages of files are given back after each tensor, so memory holds the new
// tensors and little more. Errors: kInvalidArgument naming a tensor with a value that is not finite;
// kResourceExhausted.
Result<MadeTensors> make_tensors(const std::vector<TensorPlan>& plans, std::optional<TensorType> quantize,
                                 unsigned threads);

}  // namespace loci
