// SPDX-License-Identifier: Apache-2.0
#include "loci/model/split_gguf.h"

#include <gtest/gtest.h>

#include "loci/base/folder_testing.h"
#include "loci/model/gguf_writer_testing.h"
#include "loci/model/open_source.h"

namespace loci {
namespace {

// Three parts of a model with one tensor each.
class SplitGgufTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::uint16_t part = 0; part < 3; ++part) write(part, make(part));
  }
  static GgufWriter make(std::uint16_t part) {
    GgufWriter writer;
    if (part == 0) writer.add("general.architecture", std::string("llama"));
    writer.add("split.no", part);
    writer.add("split.count", std::uint16_t{3});
    writer.add("split.tensors.count", std::int32_t{3});
    writer.add_tensor("tensor." + std::to_string(part), TensorType::kF32, 1, 8,
                      std::vector<std::byte>(32, static_cast<std::byte>(part)));
    return writer;
  }
  std::string path(int part) const {
    return folder_.file("m-0000" + std::to_string(part + 1) + "-of-00003.gguf");
  }
  void write(int part, const GgufWriter& writer) const { ASSERT_TRUE(writer.write_file(path(part)).ok()); }
  void expect_refusal(StatusCode code, std::string_view field, const std::string& named,
                      int opened = 0) const {
    const Status status = open_model_source(path(opened)).status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_EQ(status.field(), field) << status.to_string();
    EXPECT_NE(status.message().find(named), std::string::npos) << status.to_string();
  }

  TestFolder folder_;
};

TEST_F(SplitGgufTest, IsOneSource) {
  const OpenedSource opened = open_model_source(path(0)).value();
  EXPECT_EQ(opened.format, "GGUF version 3, 3 parts");
  const ModelSource& source = *opened.source;
  EXPECT_EQ(source.get_string("general.architecture").value(), "llama");
  ASSERT_EQ(source.tensors().size(), 3u);
  for (int part = 0; part < 3; ++part) {
    const TensorView* tensor = source.find_tensor("tensor." + std::to_string(part));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->row(0)[31], static_cast<std::byte>(part));
  }
  EXPECT_EQ(source.find_tensor("tensor.3"), nullptr);
}

TEST_F(SplitGgufTest, NamesTheMissingPart) {
  std::filesystem::remove(path(1));
  expect_refusal(StatusCode::kNotFound, "", path(1) + ": expected part 2 of 3");
}

TEST_F(SplitGgufTest, IsOpenedByItsFirstPart) {
  expect_refusal(StatusCode::kInvalidArgument, "split.no", "open " + path(0), 1);
  std::filesystem::rename(path(0), folder_.file("renamed.gguf"));
  const Status status = open_model_source(folder_.file("renamed.gguf")).status();
  EXPECT_EQ(status.field(), "split.count");
  EXPECT_NE(status.message().find("-00001-of-00003.gguf"), std::string::npos) << status.to_string();
}

TEST_F(SplitGgufTest, RefusesSwappedParts) {
  write(1, make(2));
  expect_refusal(StatusCode::kDataLoss, "split.no", path(1) + ": expected part 2 of 3, found part 3");
}

TEST_F(SplitGgufTest, RefusesPartsOfDifferentModels) {
  GgufWriter other = make(1);
  other.replace("split.count", std::uint16_t{4});
  write(1, other);
  expect_refusal(StatusCode::kDataLoss, "split.count", path(1));
  other = make(1);
  other.replace("split.tensors.count", std::int32_t{30});
  write(1, other);
  expect_refusal(StatusCode::kDataLoss, "split.tensors.count", path(1));
  other = make(1);
  other.add("general.architecture", std::string("qwen2"));
  write(1, other);
  expect_refusal(StatusCode::kDataLoss, "general.architecture", path(1));
  other = make(1);
  other.add_tensor("tensor.0", TensorType::kF32, 1, 8, std::vector<std::byte>(32));
  write(1, other);
  expect_refusal(
      StatusCode::kDataLoss, "tensor.0",
      path(1) + ": expected each tensor in one part, found this one again: parts of different models");
}

TEST_F(SplitGgufTest, RefusesTooFewTensorsAndTruncatedParts) {
  GgufWriter other = make(2);
  other.remove_tensor("tensor.2");
  write(2, other);
  expect_refusal(StatusCode::kDataLoss, "split.tensors.count", ": expected 3 tensors in all parts, found 2");
  write(2, make(2));
  std::filesystem::resize_file(path(2), std::filesystem::file_size(path(2)) - 1);
  expect_refusal(StatusCode::kDataLoss, "tensor.2", path(2));
}

TEST_F(SplitGgufTest, OnlyDirectoriesAreQuantised) {
  EXPECT_EQ(open_model_source(path(0), {.quantize = TensorType::kQ8_0}).status().field(), "quantize");
  EXPECT_EQ(parse_quantize("q4_0").value(), TensorType::kQ4_0);
  const Status unknown = parse_quantize("Q9").status();
  EXPECT_EQ(unknown.field(), "quantize");
  EXPECT_NE(unknown.message().find("q8_0, q4_0"), std::string::npos) << unknown.message();
}

}  // namespace
}  // namespace loci
