// SPDX-License-Identifier: Apache-2.0
// The default model's tokenizer and chat template against llama.cpp: the prompts of its golden answers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "loci/model/default_model.h"
#include "loci/model/model.h"
#include "reference/golden_file.h"

namespace loci {
namespace {

TEST(PromptOracleTest, TemplateAndTokenizerMakeLlamaCppsPrompts) {
  Result<GoldenChats> golden = read_golden_chats();
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  ASSERT_EQ(golden->chats.size(), 50u);
  Result<Model> model = load_model(default_model_path());
  ASSERT_TRUE(model.ok()) << model.status().to_string() << " ('make model' fetches the model)";
  ASSERT_TRUE(model->chat_template.has_value());
  for (const GoldenChat& chat : golden->chats) {
    const nlohmann::json message = {{"role", "user"}, {"content", chat.text}};
    const nlohmann::json context = {{"messages", nlohmann::json::array({message})},
                                    {"add_generation_prompt", true}};
    Result<std::vector<TokenId>> tokens = model->chat_template->encode(context.dump());
    ASSERT_TRUE(tokens.ok()) << tokens.status().to_string();
    EXPECT_EQ(*tokens, chat.prompt) << chat.text;
  }
}

}  // namespace
}  // namespace loci
