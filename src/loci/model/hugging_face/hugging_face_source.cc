// SPDX-License-Identifier: Apache-2.0
#include "loci/model/hugging_face/hugging_face_source.h"

#include <utility>

#include "loci/model/hugging_face/directory_metadata.h"
#include "loci/model/hugging_face/encode_tensors.h"
#include "loci/model/hugging_face/shards.h"

namespace loci {

struct HuggingFaceSource::State {
  Shards shards;
  std::map<std::string, GgufValue, std::less<>> metadata;
  MadeTensors made;
  std::vector<OpaqueTensor> opaques;
  // By views of the tensors' own names.
  std::map<std::string_view, std::size_t> tensor_index;
  std::map<std::string_view, std::size_t> opaque_index;
};

HuggingFaceSource::HuggingFaceSource(std::unique_ptr<State> state) : state_(std::move(state)) {
  const auto& tensors = state_->made.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) state_->tensor_index.emplace(tensors[i].name, i);
  const auto& opaque = state_->opaques;
  for (std::size_t i = 0; i < opaque.size(); ++i) state_->opaque_index.emplace(opaque[i].name, i);
}
HuggingFaceSource::HuggingFaceSource(HuggingFaceSource&&) noexcept = default;
HuggingFaceSource& HuggingFaceSource::operator=(HuggingFaceSource&&) noexcept = default;
HuggingFaceSource::~HuggingFaceSource() = default;

Result<HuggingFaceSource> HuggingFaceSource::open(const std::string& directory,
                                                  const HuggingFaceOptions& options) {
  auto state = std::make_unique<State>();
  LOCI_ASSIGN_OR_RETURN(DirectoryMetadata read, read_directory_metadata(directory));
  state->metadata = std::move(read.metadata);
  LOCI_ASSIGN_OR_RETURN(state->shards, open_shards(directory));
  LOCI_ASSIGN_OR_RETURN(TensorPlans plans, plan_tensors(state->shards, *read.family, state->metadata));
  state->opaques = std::move(plans.opaques);
  LOCI_ASSIGN_OR_RETURN(state->made, make_tensors(plans.tensors, options.quantize, options.threads));
  return HuggingFaceSource(std::move(state));
}

std::uint64_t HuggingFaceSource::file_bytes() const { return state_->shards.file_bytes; }
const std::vector<std::string>& HuggingFaceSource::notes() const { return state_->made.notes; }
const std::map<std::string, GgufValue, std::less<>>& HuggingFaceSource::metadata() const {
  return state_->metadata;
}
const std::vector<TensorView>& HuggingFaceSource::tensors() const { return state_->made.tensors; }
const std::vector<OpaqueTensor>& HuggingFaceSource::opaque_tensors() const { return state_->opaques; }

const TensorView* HuggingFaceSource::find_tensor(std::string_view name) const {
  const auto found = state_->tensor_index.find(name);
  return found == state_->tensor_index.end() ? nullptr : &tensors()[found->second];
}

const OpaqueTensor* HuggingFaceSource::find_opaque_tensor(std::string_view name) const {
  const auto found = state_->opaque_index.find(name);
  return found == state_->opaque_index.end() ? nullptr : &opaque_tensors()[found->second];
}

}  // namespace loci
