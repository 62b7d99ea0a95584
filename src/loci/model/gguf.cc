// SPDX-License-Identifier: Apache-2.0
#include "loci/model/gguf.h"

#include <utility>

#include "loci/model/file_map.h"
#include "loci/model/gguf_reader.h"

namespace loci {

struct GgufFile::State {
  FileMap map;  // empty when the caller keeps the bytes
  std::uint64_t file_bytes = 0;
  GgufContents contents;
  // By views of the tensors' own names.
  std::map<std::string_view, std::size_t> tensor_index;
  std::map<std::string_view, std::size_t> opaque_index;
};

GgufFile::GgufFile(std::unique_ptr<State> state) : state_(std::move(state)) {
  const auto& tensors = state_->contents.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) state_->tensor_index.emplace(tensors[i].name, i);
  const auto& opaque = state_->contents.opaque_tensors;
  for (std::size_t i = 0; i < opaque.size(); ++i) state_->opaque_index.emplace(opaque[i].name, i);
}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<GgufFile> GgufFile::open(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(FileMap map, FileMap::open(path));
  Result<GgufContents> contents = read_gguf(map.bytes());
  if (!contents.ok()) return contents.status().with_context(path);
  auto state = std::make_unique<State>();
  state->map = std::move(map);
  state->file_bytes = state->map.bytes().size();
  state->contents = std::move(*contents);
  return GgufFile(std::move(state));
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes) {
  LOCI_ASSIGN_OR_RETURN(GgufContents contents, read_gguf(bytes));
  auto state = std::make_unique<State>();
  state->file_bytes = bytes.size();
  state->contents = std::move(contents);
  return GgufFile(std::move(state));
}

std::uint32_t GgufFile::version() const { return state_->contents.version; }
std::uint64_t GgufFile::file_bytes() const { return state_->file_bytes; }
const std::map<std::string, GgufValue, std::less<>>& GgufFile::metadata() const {
  return state_->contents.metadata;
}
const std::vector<TensorView>& GgufFile::tensors() const { return state_->contents.tensors; }
const std::vector<OpaqueTensor>& GgufFile::opaque_tensors() const { return state_->contents.opaque_tensors; }

const TensorView* GgufFile::find_tensor(std::string_view name) const {
  const auto found = state_->tensor_index.find(name);
  return found == state_->tensor_index.end() ? nullptr : &tensors()[found->second];
}

const OpaqueTensor* GgufFile::find_opaque_tensor(std::string_view name) const {
  const auto found = state_->opaque_index.find(name);
  return found == state_->opaque_index.end() ? nullptr : &opaque_tensors()[found->second];
}

}  // namespace loci
