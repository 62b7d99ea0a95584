// SPDX-License-Identifier: Apache-2.0
#include "loci/model/hugging_face/shards.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "loci/model/json_file.h"

namespace loci {
namespace {

using nlohmann::json;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";
constexpr std::uint64_t kIndexBytesMax = 64 << 20;

Status add_shard(const std::string& path, Shards& shards) {
  LOCI_ASSIGN_OR_RETURN(FileMap map, FileMap::open(path));
  Result<std::vector<SafetensorsTensor>> tensors = read_safetensors(map.bytes());
  if (!tensors.ok()) return tensors.status().with_context(path);
  shards.file_bytes += map.bytes().size();
  shards.maps.push_back(std::move(map));
  for (SafetensorsTensor& tensor : *tensors) shards.tensors.push_back(std::move(tensor));
  return {};
}

struct Index {
  std::map<std::string, std::string> shard_of;  // by tensor
  std::set<std::string> shards;
  std::optional<double> total_size;
};

Status check_file_name(const std::string& name, const std::string& tensor) {
  const bool is_plain = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
                        name.find('\0') == std::string::npos;
  if (is_plain && name.ends_with(".safetensors")) return {};
  return invalid_argument("expected the name of a .safetensors file in this directory, found \"" +
                              json(name).dump(-1, ' ', true, json::error_handler_t::replace) + "\"",
                          "weight_map: " + tensor);
}

Result<Index> read_index(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string text, read_small_file(path, kIndexBytesMax));
  LOCI_ASSIGN_OR_RETURN(const json parsed, parse_model_json(text));
  const JsonFields fields(parsed, kIndexName);
  Index index;
  const json* map = fields.find("weight_map");
  if (map == nullptr || !map->is_object() || map->empty())
    return fields.unexpected("weight_map", "an object from tensors to files");
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) return JsonFields(*map, "weight_map").unexpected(tensor, "the name of a file");
    const auto& name = file.get_ref<const std::string&>();
    LOCI_RETURN_IF_ERROR(check_file_name(name, tensor));
    index.shard_of.emplace(tensor, name);
    index.shards.insert(name);
  }
  if (const json* metadata = fields.find("metadata")) {
    const JsonFields inner(*metadata, std::string(kIndexName) + ": metadata");
    if (inner.has("total_size")) {
      LOCI_ASSIGN_OR_RETURN(index.total_size, inner.get_number("total_size"));
    }
  }
  return index;
}

// `tensors` are those of shard `name`.
Status check_against(const Index& index, const std::string& name,
                     std::span<const SafetensorsTensor> tensors) {
  std::set<std::string_view> here;
  for (const SafetensorsTensor& tensor : tensors) {
    here.insert(tensor.name);
    const auto listed = index.shard_of.find(tensor.name);
    if (listed == index.shard_of.end()) {
      return data_loss(
          fmt::format("expected only tensors that {} lists, found this one in {}", kIndexName, name),
          tensor.name);
    }
    if (listed->second != name) {
      return data_loss(fmt::format("expected this tensor in {}, as {} says, found it in {}", listed->second,
                                   kIndexName, name),
                       tensor.name);
    }
  }
  for (const auto& [tensor, shard] : index.shard_of) {
    if (shard != name || here.contains(tensor)) continue;
    return data_loss(
        fmt::format("expected this tensor in {}, as {} says, found that it is not there", name, kIndexName),
        tensor);
  }
  return {};
}

Result<Shards> open_indexed(const std::string& directory) {
  LOCI_ASSIGN_OR_RETURN(const Index index, read_index(directory + "/" + kIndexName));
  Shards shards;
  std::uint64_t total_bytes = 0;
  for (const std::string& name : index.shards) {
    const std::size_t before = shards.tensors.size();
    const Status added = add_shard(directory + "/" + name, shards);
    if (added.code() == StatusCode::kNotFound) {
      return not_found(fmt::format("{}/{}: this shard, which {} lists, is missing: {}", directory, name,
                                   kIndexName, "download it again"));
    }
    LOCI_RETURN_IF_ERROR(added);
    LOCI_RETURN_IF_ERROR(check_against(index, name, std::span(shards.tensors).subspan(before)));
  }
  for (const SafetensorsTensor& tensor : shards.tensors) total_bytes += tensor.bytes.size();
  if (index.total_size && *index.total_size != static_cast<double>(total_bytes)) {
    return data_loss(fmt::format("expected {:.0f} bytes of tensors in all shards, found {}",
                                 *index.total_size, total_bytes),
                     std::string(kIndexName) + ": metadata: total_size");
  }
  return shards;
}

}  // namespace

Result<Shards> open_shards(const std::string& directory) {
  std::error_code error;
  if (std::filesystem::exists(directory + "/" + kIndexName, error)) {
    Result<Shards> shards = open_indexed(directory);
    if (!shards.ok() && shards.status().message().find(directory) == std::string::npos)
      return shards.status().with_context(directory);
    return shards;
  }
  if (!std::filesystem::exists(directory + "/" + kSingleName, error)) {
    return not_found(
        fmt::format("{}: expected {} or {}, found neither: Loci reads safetensors, not PyTorch's .bin",
                    directory, kSingleName, kIndexName));
  }
  Shards shards;
  LOCI_RETURN_IF_ERROR(add_shard(directory + "/" + kSingleName, shards));
  return shards;
}

}  // namespace loci
