// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/inspect.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "loci/base/folder_testing.h"
#include "loci/model/families/family.h"
#include "loci/model/gguf.h"
#include "loci/model/hugging_face/directory_testing.h"
#include "loci/model/random_model_testing.h"

namespace loci {
namespace {

std::string inspect(const GgufWriter& writer, InspectDetail detail) {
  const std::vector<std::byte> bytes = writer.to_bytes();
  OpenedSource opened{.source = nullptr, .format = "GGUF version 3", .file_bytes = bytes.size(), .notes = {}};
  opened.source = std::make_unique<GgufFile>(GgufFile::parse(bytes).value());
  return inspect_source(opened, "model.gguf", detail);
}

void expect_line(const std::string& report, std::string_view line) {
  EXPECT_NE(report.find("\n" + std::string(line) + "\n"), std::string::npos) << line << "\nis not in\n"
                                                                             << report;
}

TEST(Inspect, SaysWhatAModelIs) {
  const GgufWriter writer = make_random_model({.type = TensorType::kQ4_0,
                                               .hidden = 64,
                                               .heads = 4,
                                               .kv_heads = 2,
                                               .head_dim = 32,
                                               .ffn = 96,
                                               .layers = 3,
                                               .vocabulary = 300})
                                .value();
  const std::string report = inspect(writer, InspectDetail::kSummary);
  expect_line(report, "  path                 model.gguf");
  expect_line(report, "  architecture         llama");
  expect_line(report, "  layers               3");
  expect_line(report, "  attention heads      4 query, 2 key/value, 32 dimensions each");
  expect_line(report, "  context              2,048 tokens");
  // 2 * 3 layers * 2 heads of 32 values of 2 bytes, or of 1 and a scale
  for (const char* type : {"f16 ", "bf16"}) {
    expect_line(report, std::string("  ") + type +
                            "                 768 B (768 bytes) a token, 1,398,101 tokens per GiB, whole "
                            "context 1.5 MiB");
  }
  expect_line(
      report,
      "  q8                   396 B (396 bytes) a token, 2,711,469 tokens per GiB, whole context 792.0 "
      "KiB");
  expect_line(report, "  tokenizer            gpt2, pre-tokenizer smollm");
  expect_line(report, "  vocabulary           300 tokens");
  expect_line(report, "  end of sequence      2 <|im_end|>");
  expect_line(report, "  output               tied to the embedding");
  // 300 * 64 of the embedding and 3 layers of 64 * (128 + 2 * 64 + 128) + 3 * 64 * 96.
  expect_line(report, "  Q4_0             22          148,224     81.4 KiB");
  EXPECT_EQ(report.find("blk.0"), std::string::npos);
}

TEST(Inspect, ListsEveryTensor) {
  const std::string report = inspect(make_random_model({}).value(), InspectDetail::kEveryTensor);
  expect_line(report, "  blk.1.ffn_down.weight    F32                 [64, 128]     32.0 KiB");
}

TEST(Inspect, ExplainsWhatCannotBeServed) {
  GgufWriter writer;
  writer.add("general.architecture", std::string("mamba"));
  writer.add("general.name", std::string("evil\x1b[2J\nname"));
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{9});
  writer.add_raw_tensor("a", 16, {256}, std::vector<std::byte>(66));
  writer.add_raw_tensor("b", 77, {5}, std::vector<std::byte>(32));
  const std::string report = inspect(writer, InspectDetail::kEveryTensor);
  std::string known;
  for (const Family& family : families()) known += (known.empty() ? "" : ", ") + std::string(family.name);
  expect_line(report,
              "  can be served        no: general.architecture: expected one of the known families (" +
                  known + "), found \"mamba\"");
  expect_line(report, "  name                 evil?[2J?name");
  expect_line(report, "  end of sequence      9 (outside the vocabulary)");
  expect_line(report, "  chat template        none: completions only");
  expect_line(report, "  IQ2_XXS           1              256         66 B  not supported");
  expect_line(report, "  b    type 77                [1, 5]            ?");
}

TEST(Inspect, NothingInAFileReachesTheTerminal) {
  GgufWriter writer;
  writer.add("general.architecture", std::string("\x1b]0;title\x07\xc2\x9b"
                                                 "2J\nmamba"));
  writer.add_raw_tensor("a\x1b[2J", 16, {256}, std::vector<std::byte>(66));
  const std::string report = inspect(writer, InspectDetail::kEveryTensor);
  EXPECT_NE(report.find("found \"?]0;title??2J?mamba\"\n"), std::string::npos) << report;
  for (const char* control : {"\x1b", "\x07", "\xc2\x9b"})
    EXPECT_EQ(report.find(control), std::string::npos) << report;
}

TEST(Inspect, SaysWhatADirectoryHolds) {
  const RandomModelOptions options{.vocabulary = 300};
  const std::vector<std::byte> bytes = make_random_model(options).value().to_bytes();
  PublishedModel model = publish_llama(GgufFile::parse(bytes).value(), options);
  model.config["eos_token_id"] = {2, 0};
  const TestFolder folder;
  write_text(folder.file("config.json"), model.config.dump());
  write_text(folder.file("model.safetensors"), model.tensors.text());
  write_text(folder.file("tokenizer.json"), "{}");
  write_text(folder.file("chat_template.jinja"), "{{ messages }}");
  const auto report = inspect_model(folder.path(), InspectDetail::kSummary);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_NE(report->find("format               Hugging Face directory"), std::string::npos) << *report;
  expect_line(*report, "  layers               2");
  expect_line(*report, "  tokenizer            tokenizer.json, 2 B");
  expect_line(*report, "  end of sequence      2, 0");
  expect_line(*report, "  chat template        14 characters");
}

TEST(Inspect, ReportsAMissingFile) {
  EXPECT_EQ(inspect_model("/nonexistent/model.gguf", InspectDetail::kSummary).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace loci
