// SPDX-License-Identifier: Apache-2.0
#include "loci/model/open_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "loci/model/hugging_face/hugging_face_source.h"
#include "loci/model/split_gguf.h"

namespace loci {
namespace {

// Those that `encode_row` makes for use.
constexpr std::string_view kQuantizeNames[] = {"q8_0", "q4_0", "q4_k"};

Result<OpenedSource> open_gguf(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path));
  OpenedSource opened;
  opened.format = fmt::format("GGUF version {}", file.version());
  if (!SplitGguf::is_part(file)) {
    opened.file_bytes = file.file_bytes();
    opened.source = std::make_unique<GgufFile>(std::move(file));
    return opened;
  }
  LOCI_ASSIGN_OR_RETURN(SplitGguf split, SplitGguf::open(std::move(file), path));
  opened.format += fmt::format(", {} parts", split.part_count());
  opened.file_bytes = split.file_bytes();
  opened.source = std::make_unique<SplitGguf>(std::move(split));
  return opened;
}

}  // namespace

Result<OpenedSource> open_model_source(const std::string& path, const LoadOptions& options) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    if (options.quantize) {
      return invalid_argument(
          "expected a Hugging Face directory to quantise, found a file: GGUF files are served as "
          "they are",
          "quantize");
    }
    return open_gguf(path);
  }
  LOCI_ASSIGN_OR_RETURN(
      HuggingFaceSource source,
      HuggingFaceSource::open(path, {.quantize = options.quantize, .threads = options.threads}));
  OpenedSource opened{.source = nullptr,
                      .format = "Hugging Face directory",
                      .file_bytes = source.file_bytes(),
                      .notes = source.notes()};
  opened.source = std::make_unique<HuggingFaceSource>(std::move(source));
  return opened;
}

Result<TensorType> parse_quantize(std::string_view name) {
  std::string known;
  for (const std::string_view candidate : kQuantizeNames) {
    std::string upper(candidate);
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
    for (const TensorTypeInfo& info : supported_tensor_types()) {
      if (info.name != upper) continue;
      if (candidate == name) return info.type;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate);
    }
  }
  return invalid_argument(fmt::format("expected one of {}, found \"{}\"", known, name), "quantize");
}

}  // namespace loci
