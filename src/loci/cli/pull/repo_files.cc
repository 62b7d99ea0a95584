// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/pull/repo_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "loci/base/ascii.h"
#include "loci/base/json_reader.h"
#include "loci/cli/pull/repo_reference.h"

namespace loci {
namespace {

constexpr std::size_t kNamesShown = 12;
constexpr const char* kDefaultQuantisation = "Q4_K_M";

bool is_hex(const std::string& text, std::size_t digits) {
  return text.size() == digits && is_lower_hex(text);
}

std::string string_at(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_gguf(const std::string& path) { return lower_ascii(path).ends_with(".gguf"); }
std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

constexpr std::string_view kPartForm = "-00000-of-00000";

// Where the "-00002-of-00003" of a part's name begins, right before its last dot; npos: it is no part.
std::size_t part_at(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  if (dot == path.npos || dot < kPartForm.size()) return path.npos;
  const std::size_t begin = dot - kPartForm.size();
  const auto fits = [](char form, char c) { return form == '0' ? c >= '0' && c <= '9' : c == form; };
  return std::equal(kPartForm.begin(), kPartForm.end(), path.begin() + begin, fits) ? begin : path.npos;
}

// A split model's parts have one name but for their number: "model-00002-of-00003.gguf".
std::string without_part(std::string path) {
  const std::size_t at = part_at(lower_ascii(path));
  if (at != path.npos) path.erase(at, kPartForm.find("-of-"));
  return path;
}

// "model.safetensors", or a part of it.
bool is_weights_file(std::string path) {
  if (const std::size_t at = part_at(path); at != path.npos) path.erase(at, kPartForm.size());
  return path == "model.safetensors";
}

// The models among the GGUF files: all parts of each.
std::map<std::string, std::vector<RepoFile>> gguf_models(const std::vector<RepoFile>& files) {
  std::map<std::string, std::vector<RepoFile>> out;
  for (const RepoFile& file : files) {
    // Projectors of images are no models.
    if (is_gguf(file.path) && !lower_ascii(base_name(file.path)).starts_with("mmproj")) {
      out[without_part(file.path)].push_back(file);
    }
  }
  for (auto& [name, parts] : out) {
    std::sort(parts.begin(), parts.end(),
              [](const RepoFile& a, const RepoFile& b) { return a.path < b.path; });
  }
  return out;
}

// "q4_k_m" in "model-q4_k_m.gguf", but "q4_k" not.
bool names_quantisation(const std::string& path, const std::string& wanted) {
  const std::string name = lower_ascii(base_name(path));
  const std::string word = lower_ascii(wanted);
  for (std::size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
    const char before = at == 0 ? '-' : name[at - 1];
    const char after = at + word.size() == name.size() ? '.' : name[at + word.size()];
    if ((before == '-' || before == '.' || before == '_') && (after == '-' || after == '.')) return true;
  }
  return false;
}

std::string shown_names(std::vector<std::string> names) {
  if (names.empty()) return "nothing";
  const std::size_t more = names.size() > kNamesShown ? names.size() - kNamesShown : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "), more == 0 ? "" : fmt::format(" and {} more", more));
}

ChosenFiles model_of(std::vector<RepoFile> parts) {
  std::string entry = parts.front().path;
  return {.files = std::move(parts), .entry = std::move(entry)};
}

Result<ChosenFiles> choose_directory(const std::vector<RepoFile>& files) {
  static constexpr std::array<std::string_view, 10> kBeside = {
      "config.json",           "generation_config.json",  "tokenizer.json",
      "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
      "chat_template.jinja",   "chat_template.json",      "model.safetensors.index.json",
      "tokenizer.model"};
  ChosenFiles out;
  bool has_configuration = false;
  bool has_weights = false;
  for (const RepoFile& file : files) {
    const bool is_weights = is_weights_file(file.path);
    if (!is_weights && std::find(kBeside.begin(), kBeside.end(), file.path) == kBeside.end()) continue;
    has_weights = has_weights || is_weights;
    has_configuration = has_configuration || file.path == "config.json";
    out.files.push_back(file);
  }
  if (!has_weights || !has_configuration)
    return not_found("the repo has no config.json with model.safetensors");
  return out;
}

Result<ChosenFiles> choose_quantisation(const std::map<std::string, std::vector<RepoFile>>& models,
                                        const std::string& wanted) {
  std::vector<std::string> found;
  std::vector<std::string> all;
  for (const auto& [name, parts] : models) {
    all.push_back(name);
    if (names_quantisation(name, wanted)) found.push_back(name);
  }
  if (found.size() == 1) return model_of(models.at(found.front()));
  if (found.empty()) {
    return not_found(fmt::format("expected a GGUF file or a quantisation of the repo, found {}; it has {}",
                                 wanted, shown_names(all)));
  }
  return not_found(
      fmt::format("expected one model of {}, found several; name the file: {}", wanted, shown_names(found)));
}

}  // namespace

Result<std::vector<RepoFile>> parse_repo_tree(std::string_view json) {
  const nlohmann::json page = read_json<nlohmann::json>(json, {}).value;
  if (!page.is_array()) return data_loss("the registry's list of files is no JSON array");
  std::vector<RepoFile> out;
  for (const nlohmann::json& entry : page) {
    if (!entry.is_object()) return data_loss("an entry of the registry's list of files is no object");
    if (string_at(entry, "type") != "file") continue;
    RepoFile file{.path = string_at(entry, "path"), .sha256 = {}, .git_sha1 = {}};
    LOCI_RETURN_IF_ERROR(check_repo_path(file.path));
    const auto size = entry.find("size");
    if (size == entry.end() || !size->is_number_unsigned()) {
      return data_loss(fmt::format("the registry's list of files gives no size for {}", file.path));
    }
    file.size = size->get<std::uint64_t>();
    if (file.size > kRepoFileBytesMax) {
      return data_loss(fmt::format("the registry's list of files gives {} {} bytes, at most {} are allowed",
                                   file.path, file.size, kRepoFileBytesMax));
    }
    if (const auto large = entry.find("lfs"); large != entry.end() && large->is_object()) {
      file.sha256 = string_at(*large, "oid");
      if (file.sha256.starts_with("sha256:")) file.sha256.erase(0, 7);
      if (!is_hex(file.sha256, 64)) file.sha256.clear();
    } else if (std::string oid = string_at(entry, "oid"); is_hex(oid, 40)) {
      file.git_sha1 = std::move(oid);
    }
    out.push_back(std::move(file));
  }
  return out;
}

Result<ChosenFiles> choose_files(const std::vector<RepoFile>& files, const std::string& wanted) {
  const std::map<std::string, std::vector<RepoFile>> models = gguf_models(files);
  const auto exact =
      std::find_if(files.begin(), files.end(), [&](const RepoFile& file) { return file.path == wanted; });
  if (exact != files.end()) {
    const auto model = models.find(without_part(wanted));
    return model_of(model != models.end() ? model->second : std::vector<RepoFile>{*exact});
  }
  if (!wanted.empty()) return choose_quantisation(models, wanted);
  if (Result<ChosenFiles> directory = choose_directory(files); directory.ok()) return directory;
  if (models.size() == 1) return model_of(models.begin()->second);
  if (Result<ChosenFiles> usual = choose_quantisation(models, kDefaultQuantisation); usual.ok()) return usual;
  std::vector<std::string> names;
  for (const auto& [name, parts] : models) names.push_back(name);
  if (names.empty())
    return not_found("expected GGUF files, or config.json with model.safetensors; the repo has neither");
  return not_found(fmt::format("the repo has several models; say which one, with :FILE or :QUANTISATION: {}",
                               shown_names(names)));
}

}  // namespace loci
