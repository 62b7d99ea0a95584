// SPDX-License-Identifier: Apache-2.0
#include "loci/model/split_gguf.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

namespace loci {
namespace {

constexpr std::uint64_t kMaxParts = 10'000;

std::string part_name(const std::string& prefix, std::uint64_t index, std::uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, index + 1, count);
}

// The part that `path`, of part `index` of `count`, begins with; its errors say which file to open.
Result<std::string> prefix_of(const std::string& path, std::uint64_t index, std::uint64_t count) {
  const std::string ending = part_name("", index, count);
  const bool is_named = path.ends_with(ending);
  const std::string prefix = is_named ? path.substr(0, path.size() - ending.size()) : std::string();
  if (index != 0) {
    const std::string first =
        is_named ? part_name(prefix, 0, count) : "the one whose name ends in -00001-of-...";
    return invalid_argument(fmt::format("{}: expected the first of {} parts, found part {}: open {}", path,
                                        count, index + 1, first),
                            "split.no");
  }
  if (!is_named) {
    return invalid_argument(
        fmt::format("{}: expected a name that ends in {} for the first of {} parts, by which the "
                    "others are found",
                    path, ending, count),
        "split.count");
  }
  return prefix;
}

Status at(Status status, const std::string& path) { return status.ok() ? status : status.with_context(path); }

Status expect_number(const GgufFile& part, const std::string& key, std::uint64_t expected) {
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t found, part.get_uint(key));
  if (found == expected) return {};
  return data_loss(fmt::format("expected {}, as the first part says, found {}: parts of different models?",
                               expected, found),
                   key);
}

// What the first part says of the model, a later one may repeat and not contradict.
Status check_part(const GgufFile& first, const GgufFile& part, std::uint64_t index, std::uint64_t count) {
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t number, part.get_uint("split.no"));
  if (number != index)
    return data_loss(fmt::format("expected part {} of {}, found part {}", index + 1, count, number + 1),
                     "split.no");
  LOCI_RETURN_IF_ERROR(expect_number(part, "split.count", count));
  if (first.has("split.tensors.count") && part.has("split.tensors.count")) {
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t tensors, first.get_uint("split.tensors.count"));
    LOCI_RETURN_IF_ERROR(expect_number(part, "split.tensors.count", tensors));
  }
  for (const char* key : {"general.architecture", "general.name"}) {
    if (!part.has(key)) continue;
    const Result<std::string> ours = first.get_string(key), theirs = part.get_string(key);
    if (!ours.ok() || !theirs.ok() || *ours != *theirs)
      return data_loss(fmt::format("expected {}, as the first part says, found {}: parts of different models",
                                   ours.ok() ? *ours : "nothing", theirs.ok() ? *theirs : "another type"),
                       key);
  }
  return {};
}

}  // namespace

bool SplitGguf::is_part(const GgufFile& file) {
  const Result<std::uint64_t> count = file.get_uint("split.count");
  return count.ok() && *count > 1;
}

Result<SplitGguf> SplitGguf::open(GgufFile first, const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t count, first.get_uint("split.count"));
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t index, first.get_uint("split.no"));
  if (count > kMaxParts) {
    return data_loss(fmt::format("{}: expected at most {} parts, found {}", path, kMaxParts, count),
                     "split.count");
  }
  LOCI_ASSIGN_OR_RETURN(const std::string prefix, prefix_of(path, index, count));
  SplitGguf split;
  split.parts_.push_back(std::move(first));
  for (std::uint64_t i = 1; i < count; ++i) {
    const std::string name = part_name(prefix, i, count);
    std::error_code error;
    if (!std::filesystem::exists(name, error))
      return not_found(
          fmt::format("{}: expected part {} of {} beside {}, found no such file", name, i + 1, count, path));
    LOCI_ASSIGN_OR_RETURN(GgufFile part, GgufFile::open(name));
    LOCI_RETURN_IF_ERROR(at(check_part(split.parts_.front(), part, i, count), name));
    split.parts_.push_back(std::move(part));
  }
  std::set<std::string_view> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto add = [&](const std::string& tensor) -> Status {
      if (names.insert(tensor).second) return {};
      return data_loss(
          fmt::format("{}: expected each tensor in one part, found this one again: parts of different "
                      "models",
                      part_name(prefix, i, count)),
          tensor);
    };
    for (const TensorView& tensor : split.parts_[i].tensors()) {
      LOCI_RETURN_IF_ERROR(add(tensor.name));
      split.tensors_.push_back(tensor);
    }
    for (const OpaqueTensor& tensor : split.parts_[i].opaque_tensors()) {
      LOCI_RETURN_IF_ERROR(add(tensor.name));
      split.opaques_.push_back(tensor);
    }
  }
  const GgufFile& head = split.parts_.front();
  if (head.has("split.tensors.count")) {
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t tensors, head.get_uint("split.tensors.count"));
    if (tensors != names.size())
      return data_loss(
          fmt::format("{}: expected {} tensors in all parts, found {}", path, tensors, names.size()),
          "split.tensors.count");
  }
  return split;
}

std::uint64_t SplitGguf::file_bytes() const {
  std::uint64_t bytes = 0;
  for (const GgufFile& part : parts_) bytes += part.file_bytes();
  return bytes;
}

const std::map<std::string, GgufValue, std::less<>>& SplitGguf::metadata() const {
  return parts_.front().metadata();
}

const TensorView* SplitGguf::find_tensor(std::string_view name) const {
  for (const GgufFile& part : parts_)
    if (const TensorView* tensor = part.find_tensor(name)) return tensor;
  return nullptr;
}

const OpaqueTensor* SplitGguf::find_opaque_tensor(std::string_view name) const {
  for (const GgufFile& part : parts_)
    if (const OpaqueTensor* tensor = part.find_opaque_tensor(name)) return tensor;
  return nullptr;
}

}  // namespace loci
