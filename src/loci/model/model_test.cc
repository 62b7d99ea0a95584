#include "loci/model/model.h"

#include <gtest/gtest.h>

#include <string>

#include "loci/model/default_model.h"
#include "loci/model/random_model.h"
#include "loci/model/test_folder.h"

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

TEST_F(ModelTest, LoadsAModelWithoutATemplate) {
  GgufWriter writer = make_random_model({}).value();
  writer.remove("tokenizer.chat_template");
  EXPECT_FALSE(load_model(write(writer, "plain.gguf"))->chat_template.has_value());
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
