// SPDX-License-Identifier: Apache-2.0
// Tensors of a plan made in memory: values that GGUF's converters change, and matrices that are encoded
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

// As which type a tensor is made. A layer's matrices become `quantize`, embedding and output Q8_0; norms,
// biases, routers and learned positions stay as they are, and so do rows that are no whole number of the
// type's blocks: for them Q8_0 is tried, then F16.
TensorType choose_type(const TensorPlan& plan, std::optional<TensorType> quantize);

struct MadeTensors {
  std::vector<TensorView> tensors;  // in the plans' order; views of files, or of `memory`
  std::vector<OwnedBytes> memory;
  std::vector<std::string> notes;  // what was encoded as what, for people
};

// Rows are shared out over `threads`; pages of files that were read are given back tensor by tensor, so
// that memory holds what was made and little more. Errors: kInvalidArgument naming a tensor with a value
// that is not finite; kResourceExhausted.
Result<MadeTensors> make_tensors(const std::vector<TensorPlan>& plans, std::optional<TensorType> quantize,
                                 unsigned threads);

}  // namespace loci
