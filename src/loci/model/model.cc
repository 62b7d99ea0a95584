// SPDX-License-Identifier: Apache-2.0
#include "loci/model/model.h"

#include <filesystem>
#include <memory>
#include <utility>

namespace loci {
namespace {

constexpr const char* kTemplateKey = "tokenizer.chat_template";

Result<std::optional<ChatTemplate>> read_template(const ModelSource& file, const Tokenizer& tokenizer) {
  if (!file.has(kTemplateKey)) return std::optional<ChatTemplate>();
  LOCI_ASSIGN_OR_RETURN(const std::string source, file.get_string(kTemplateKey));
  if (source.empty()) return std::optional<ChatTemplate>();  // some files have the key alone
  Result<ChatTemplate> parsed = ChatTemplate::parse(source, tokenizer);
  if (!parsed.ok()) return parsed.status().with_context(kTemplateKey);
  return std::optional<ChatTemplate>(std::move(parsed).value());
}

// "models/tiny.v1.gguf" is tiny.v1, "models/SmolLM2-135M-00001-of-00002.gguf" and "models/SmolLM2-135M/"
// are SmolLM2-135M.
std::string id_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (std::filesystem::is_directory(absolute, error))
    return (absolute / "").lexically_normal().parent_path().filename().string();
  std::string stem = absolute.stem().string();
  const std::size_t part = stem.rfind("-00001-of-");
  if (part != std::string::npos && part + 15 == stem.size()) stem.resize(part);
  return stem;
}

Result<Model> build_model(const std::string& path, OpenedSource opened) {
  const ModelSource& source = *opened.source;
  LOCI_ASSIGN_OR_RETURN(ModelSpec spec, read_model_spec(source));
  LOCI_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::from_source(source));
  if (tokenizer.vocabulary_size() != spec.vocabulary) {
    return invalid_argument("expected as many tokens as the embedding has rows (" +
                                std::to_string(spec.vocabulary) + "), found " +
                                std::to_string(tokenizer.vocabulary_size()),
                            "tokenizer.ggml.tokens");
  }
  LOCI_ASSIGN_OR_RETURN(std::optional<ChatTemplate> chat_template, read_template(source, tokenizer));
  auto grammars = std::make_unique<GrammarCompiler>(tokenizer);
  SamplingDefaults sampling = read_sampling_defaults(source);
  return Model{.path = path,
               .id = id_of(path),
               .source = std::move(opened.source),
               .notes = std::move(opened.notes),
               .spec = std::move(spec),
               .tokenizer = std::move(tokenizer),
               .chat_template = std::move(chat_template),
               .sampling = std::move(sampling),
               .grammars = std::move(grammars)};
}

}  // namespace

Result<Model> load_model(const std::string& path, const LoadOptions& options) {
  LOCI_ASSIGN_OR_RETURN(OpenedSource opened, open_model_source(path, options));
  Result<Model> model = build_model(path, std::move(opened));
  if (!model.ok()) return model.status().with_context(path);
  return model;
}

}  // namespace loci
