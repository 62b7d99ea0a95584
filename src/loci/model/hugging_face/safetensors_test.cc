// SPDX-License-Identifier: Apache-2.0
#include "loci/model/hugging_face/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "loci/base/folder_testing.h"
#include "loci/base/random.h"
#include "loci/model/hugging_face/directory_testing.h"
#include "loci/model/hugging_face/shards.h"

namespace loci {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

SafetensorsBuilder small() {
  SafetensorsBuilder builder;
  builder.header["__metadata__"] = {{"format", "pt"}};
  builder.add_floats("a", {2, 3}, {1, 2, 3, 4, 5, 6});
  builder.add("half", "F16", {4}, std::vector<std::byte>(8));
  builder.add("scalar", "I64", {}, std::vector<std::byte>(8));
  return builder;
}

void expect_refusal(const std::string& file, StatusCode code, std::string_view field,
                    std::string_view message) {
  const auto read = read_safetensors(bytes_of(file));
  ASSERT_FALSE(read.ok()) << message;
  EXPECT_EQ(read.status().code(), code) << read.status().to_string();
  EXPECT_EQ(read.status().field(), field) << read.status().to_string();
  EXPECT_NE(read.status().message().find(message), std::string::npos) << read.status().to_string();
}

std::string with_header(const std::string& json, const std::string& data = {}) {
  const std::uint64_t length = json.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + json + data;
}

TEST(Safetensors, ReadsTensorsInOrder) {
  const std::string file = small().text();
  const auto tensors = read_safetensors(bytes_of(file)).value();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].shape, (std::vector<std::uint64_t>{2, 3}));
  float last = 0;
  std::memcpy(&last, tensors[0].bytes.data() + 20, 4);
  EXPECT_EQ(last, 6);
  EXPECT_EQ(tensors[1].type->name, "F16");
  EXPECT_TRUE(tensors[2].shape.empty());
  EXPECT_TRUE(read_safetensors(bytes_of(with_header("{}"))).value().empty());
}

TEST(Safetensors, RefusesDamagedFilesByFieldAndOffset) {
  constexpr auto kData = StatusCode::kDataLoss, kInvalid = StatusCode::kInvalidArgument;
  const std::string file = small().text();
  expect_refusal("short", kData, "header length", "expected a safetensors file (at least 8 bytes), found 5");
  expect_refusal(std::string(8, '\xff') + "{}", kInvalid, "header length", "at offset 0");
  expect_refusal(file.substr(0, 40), kData, "header length", "at offset 8");
  expect_refusal(file.substr(0, file.size() - 1), kData, "scalar: data_offsets", "truncated");
  expect_refusal(file + "x", kData, "file size", "found 41");
  expect_refusal(with_header("{\"a\": }"), kInvalid, "header", "parse error");
  expect_refusal(with_header("[]"), kInvalid, "header", "expected an object");
  expect_refusal(with_header(R"({"a": 1})"), kInvalid, "a", "expected an object");
  expect_refusal(with_header(R"({"__metadata__": {"a": 1}})"), kInvalid, "__metadata__", "strings");
  const auto one = [](const std::string& fields) {
    return with_header("{\"a\": {" + fields + "}}", std::string(8, 'x'));
  };
  expect_refusal(one(R"("dtype": "F33", "shape": [2], "data_offsets": [0, 8])"), kInvalid, "a: dtype",
                 "BF16");
  expect_refusal(one(R"("shape": [2], "data_offsets": [0, 8])"), kInvalid, "a: dtype", "found nothing");
  expect_refusal(one(R"("dtype": "F32", "shape": [-2], "data_offsets": [0, 8])"), kInvalid, "a: shape",
                 "unsigned");
  expect_refusal(one(R"("dtype": "F32", "shape": [0], "data_offsets": [0, 0])"), kInvalid, "a: shape",
                 "found 0");
  expect_refusal(one(R"("dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8])"), kData,
                 "a: shape", "2^64");
  expect_refusal(one(R"("dtype": "F32", "shape": [1,1,1,1,1,1,1,1,2], "data_offsets": [0, 8])"), kInvalid,
                 "a: shape", "at most 8");
  expect_refusal(one(R"("dtype": "F32", "shape": [3], "data_offsets": [0, 8])"), kData, "a: data_offsets",
                 "expected the 12 bytes that dtype and shape make, found 8 (from 0 to 8)");
  expect_refusal(one(R"("dtype": "F32", "shape": [2], "data_offsets": [8, 0])"), kData, "a: data_offsets",
                 "begin");
  expect_refusal(one(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 18446744073709551615])"), kData,
                 "a: data_offsets", "truncated");
  expect_refusal(one(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8], "more": 1)"), kInvalid,
                 "a: more", "only dtype");
  expect_refusal(with_header(R"({"a": 1, "a": 2})"), kInvalid, "header", "appears twice");
  expect_refusal(
      with_header(R"({"": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", std::string(8, 'x')),
      kInvalid, "header", "expected names for tensors, found an empty one");
  expect_refusal(with_header(std::string(100, '[')), kInvalid, "header", "deeper");
}

TEST(Safetensors, RefusesOverlapsAndGaps) {
  for (const std::uint64_t begin : {std::uint64_t{4}, std::uint64_t{12}}) {
    SafetensorsBuilder builder;
    builder.add_floats("a", {2}, {1, 2});
    builder.add_floats("b", {2}, {3, 4});
    builder.header["b"]["data_offsets"] = {begin, begin + 8};
    builder.data.resize(20);
    expect_refusal(builder.text(), StatusCode::kDataLoss, "b: data_offsets", "expected data at offset 8");
  }
}

TEST(Safetensors, DamagedBytesNeverCrash) {
  const std::string whole = small().text();
  Random random(3);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string file = whole;
    for (std::uint64_t left = 1 + random.below(3); left > 0; --left)
      file[random.below(file.size())] = static_cast<char>(random.below(256));
    const auto read = read_safetensors(bytes_of(file));
    if (read.ok()) continue;
    ++refused;
    ASSERT_FALSE(read.status().field().empty()) << read.status().to_string();
  }
  EXPECT_GT(refused, 10'000);
}

class ShardsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SafetensorsBuilder one, two;
    one.add_floats("a", {2}, {1, 2});
    two.add_floats("b", {1}, {3});
    write_text(file("model-00001-of-00002.safetensors"), one.text());
    write_text(file("model-00002-of-00002.safetensors"), two.text());
    index_ = {{"metadata", {{"total_size", 12}}},
              {"weight_map",
               {{"a", "model-00001-of-00002.safetensors"}, {"b", "model-00002-of-00002.safetensors"}}}};
  }
  Result<Shards> open() {
    write_text(file("model.safetensors.index.json"), index_.dump());
    return open_shards(folder_.path());
  }
  void expect_refusal(StatusCode code, std::string_view field, std::string_view message) {
    const Status status = open().status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_EQ(status.field(), field) << status.to_string();
    EXPECT_NE(status.message().find(message), std::string::npos) << status.to_string();
    EXPECT_NE(status.message().find(folder_.path().string()), std::string::npos) << status.to_string();
  }
  std::string file(std::string_view name) const { return folder_.file(name); }

  TestFolder folder_;
  nlohmann::json index_;
};

TEST_F(ShardsTest, OpensEveryShard) {
  const Shards shards = open().value();
  ASSERT_EQ(shards.tensors.size(), 2u);
  EXPECT_EQ(shards.tensors[1].name, "b");
  EXPECT_EQ(shards.maps.size(), 2u);
}

TEST_F(ShardsTest, RefusesAMissingShard) {
  std::filesystem::remove(file("model-00002-of-00002.safetensors"));
  expect_refusal(
      StatusCode::kNotFound, "",
      "model-00002-of-00002.safetensors: this shard, which model.safetensors.index.json lists, is missing: ");
}

TEST_F(ShardsTest, RefusesATensorInTheWrongShard) {
  index_["weight_map"]["b"] = "model-00001-of-00002.safetensors";
  index_["weight_map"]["a"] = "model-00002-of-00002.safetensors";
  expect_refusal(StatusCode::kDataLoss, "a", "expected this tensor in model-00002-of-00002.safetensors");
}

TEST_F(ShardsTest, RefusesAMissingAndAnUnlistedTensor) {
  index_["weight_map"]["c"] = "model-00002-of-00002.safetensors";
  expect_refusal(StatusCode::kDataLoss, "c", "not there");
  index_["weight_map"].erase("c");
  index_["weight_map"].erase("b");
  index_["weight_map"]["x"] = "model-00002-of-00002.safetensors";
  expect_refusal(StatusCode::kDataLoss, "b", "expected only tensors that");
}

TEST_F(ShardsTest, RefusesAnotherTotal) {
  index_["metadata"]["total_size"] = 16;
  expect_refusal(StatusCode::kDataLoss, "model.safetensors.index.json: metadata: total_size",
                 "expected 16 bytes of tensors in all shards, found 12");
}

TEST_F(ShardsTest, RefusesPathsOutOfTheDirectory) {
  for (const char* path : {"../other.safetensors", "/tmp/other.safetensors", "..", "a/b.safetensors", ""}) {
    index_["weight_map"]["b"] = path;
    expect_refusal(StatusCode::kInvalidArgument, "weight_map: b", "in this directory");
  }
}

TEST_F(ShardsTest, SaysWhatADirectoryLacks) {
  const TestFolder empty;
  const Status status = open_shards(empty.path()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("model.safetensors.index.json"), std::string::npos) << status.to_string();
  EXPECT_NE(status.message().find("found neither: Loci reads safetensors, not PyTorch's .bin"),
            std::string::npos)
      << status.to_string();
}

}  // namespace
}  // namespace loci
