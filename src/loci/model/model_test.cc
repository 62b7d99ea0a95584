// SPDX-License-Identifier: Apache-2.0
#include "loci/model/model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "loci/base/folder_testing.h"
#include "loci/model/default_model.h"
#include "loci/model/gguf.h"
#include "loci/model/hugging_face/directory_testing.h"
#include "loci/model/random_model_testing.h"

namespace loci {
namespace {

class ModelTest : public ::testing::Test {
 protected:
  std::string write(const GgufWriter& writer, const std::string& name) {
    const std::string path = folder_.file(name);
    EXPECT_TRUE(writer.write_file(path).ok());
    return path;
  }

  TestFolder folder_;
};

constexpr const char* kConversation =
    R"({"messages": [{"role": "user", "content": "Hello there"}], "add_generation_prompt": true})";

TEST_F(ModelTest, LoadsARandomModelWhole) {
  const std::string path = write(make_random_model({}).value(), "tiny.v1.gguf");
  const Model model = load_model(path).value();
  EXPECT_EQ(model.id, "tiny.v1");
  EXPECT_EQ(model.path, path);
  EXPECT_EQ(model.tokenizer.vocabulary_size(), model.spec.vocabulary);
  ASSERT_TRUE(model.chat_template.has_value());
  const std::vector<TokenId> tokens = model.chat_template->encode(kConversation).value();
  EXPECT_EQ(model.tokenizer.decode(tokens, ControlText::kAsControl).value(),
            "<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n");
  // The views outlive the call that made them.
  std::vector<float> row(model.spec.hidden);
  decode_row(model.spec.output, model.spec.vocabulary - 1, row);
}

TEST_F(ModelTest, LoadsADirectoryLikeTheFile) {
  const RandomModelOptions options{.hidden = 64, .ffn = 96};
  const std::vector<std::byte> bytes = make_random_model(options).value().to_bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  PublishedModel published = publish_llama(file, options);
  const std::string folder = folder_.file("tiny-chat");
  std::filesystem::create_directory(folder);
  write_text(folder + "/config.json", published.config.dump());
  write_text(folder + "/generation_config.json", R"({"bos_token_id": 1, "eos_token_id": [2, 0]})");
  write_text(folder + "/model.safetensors", published.tensors.text());
  write_text(folder + "/tokenizer.json", publish_tokenizer(file).dump());
  write_text(folder + "/tokenizer_config.json",
             nlohmann::json{{"bos_token", "<|im_start|>"},
                            {"eos_token", "<|im_end|>"},
                            {"chat_template", file.get_string("tokenizer.chat_template").value()}}
                 .dump());
  const Result<Model> loaded = load_model(folder + "/");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Model plain = load_model(write(make_random_model(options).value(), "tiny-chat.gguf")).value();
  EXPECT_EQ(loaded->id, "tiny-chat");
  EXPECT_TRUE(loaded->notes.empty());
  EXPECT_EQ(loaded->tokenizer.end_tokens(), plain.tokenizer.end_tokens());
  ASSERT_TRUE(loaded->chat_template.has_value());
  const std::vector<TokenId> tokens = loaded->chat_template->encode(kConversation).value();
  EXPECT_EQ(tokens, plain.chat_template->encode(kConversation).value());

  const Model quantised = load_model(folder, {.quantize = TensorType::kQ4_0}).value();
  EXPECT_EQ(quantised.spec.layers.at(0).ffn.down.type, TensorType::kQ4_0);
  EXPECT_EQ(quantised.spec.embedding.type, TensorType::kQ8_0);
  EXPECT_EQ(quantised.notes.size(), 1u);
  EXPECT_NE(quantised.spec.fingerprint, loaded->spec.fingerprint);

  std::filesystem::remove(folder + "/tokenizer.json");
  const Status missing = load_model(folder).status();
  EXPECT_EQ(missing.field(), "tokenizer.json");
  EXPECT_NE(missing.message().find(folder), std::string::npos) << missing.to_string();
}

TEST_F(ModelTest, LoadsAModelWithoutATemplate) {
  GgufWriter writer = make_random_model({}).value();
  writer.remove("tokenizer.chat_template");
  EXPECT_FALSE(load_model(write(writer, "plain.gguf"))->chat_template.has_value());
  writer.add("tokenizer.chat_template", std::string());
  EXPECT_FALSE(load_model(write(writer, "empty.gguf"))->chat_template.has_value()) << "an empty one is none";
}

TEST_F(ModelTest, ErrorsNameTheFileAndTheField) {
  GgufWriter writer = make_random_model({}).value();
  writer.replace("general.architecture", std::string("mamba"));
  const std::string path = write(writer, "other.gguf");
  const Status unknown = load_model(path).status();
  EXPECT_EQ(unknown.field(), "general.architecture");
  EXPECT_NE(unknown.message().find(path), std::string::npos) << unknown.message();

  writer = make_random_model({}).value();
  writer.replace("tokenizer.chat_template", std::string("{% for %}"));
  const Status broken = load_model(write(writer, "broken.gguf")).status();
  EXPECT_EQ(broken.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(broken.message().find("tokenizer.chat_template"), std::string::npos) << broken.message();

  EXPECT_EQ(load_model(folder_.file("none.gguf")).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(load_model(write(make_random_model({.tokenizer = false}).value(), "mute.gguf")).ok());
}

TEST_F(ModelTest, LoadsTheDefaultModel) {
  const Result<Model> model = load_model(default_model_path());
  ASSERT_TRUE(model.ok()) << model.status().to_string() << "\n" << kDefaultModelHint;
  EXPECT_EQ(model->tokenizer.vocabulary_size(), 49152u);
  ASSERT_TRUE(model->chat_template.has_value());
  const std::vector<TokenId> tokens = model->chat_template->encode(kConversation).value();
  const std::string text = model->tokenizer.decode(tokens, ControlText::kAsControl).value();
  EXPECT_TRUE(text.ends_with("<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n")) << text;
}

}  // namespace
}  // namespace loci
