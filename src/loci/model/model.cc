#include "loci/model/model.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "loci/model/gguf.h"

namespace loci {
namespace {

constexpr const char* kTemplateKey = "tokenizer.chat_template";

Result<std::optional<ChatTemplate>> read_template(const ModelSource& file, const Tokenizer& tokenizer) {
  if (!file.has(kTemplateKey)) return std::optional<ChatTemplate>();
  LOCI_ASSIGN_OR_RETURN(const std::string source, file.get_string(kTemplateKey));
  Result<ChatTemplate> parsed = ChatTemplate::parse(source, tokenizer);
  if (!parsed.ok()) return parsed.status().with_context(kTemplateKey);
  return std::optional<ChatTemplate>(std::move(parsed).value());
}

Result<Model> build_model(const std::string& path, GgufFile file) {
  LOCI_ASSIGN_OR_RETURN(ModelSpec spec, read_model_spec(file));
  LOCI_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::from_gguf(file));
  if (tokenizer.vocabulary_size() != spec.vocabulary) {
    return invalid_argument("expected as many tokens as the embedding has rows (" +
                                std::to_string(spec.vocabulary) + "), found " +
                                std::to_string(tokenizer.vocabulary_size()),
                            "tokenizer.ggml.tokens");
  }
  LOCI_ASSIGN_OR_RETURN(std::optional<ChatTemplate> chat_template, read_template(file, tokenizer));
  return Model{.path = path,
               .id = std::filesystem::path(path).stem().string(),
               .source = std::make_unique<GgufFile>(std::move(file)),
               .spec = std::move(spec),
               .tokenizer = std::move(tokenizer),
               .chat_template = std::move(chat_template)};
}

}  // namespace

Result<Model> load_model(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path));
  Result<Model> model = build_model(path, std::move(file));
  if (!model.ok()) return model.status().with_context(path);
  return model;
}

}  // namespace loci
