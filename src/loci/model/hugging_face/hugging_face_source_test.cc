// SPDX-License-Identifier: Apache-2.0
#include "loci/model/hugging_face/hugging_face_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "loci/base/folder_testing.h"
#include "loci/model/hugging_face/directory_testing.h"
#include "loci/model/hugging_face/encode_tensors.h"
#include "loci/model/hugging_face/tensor_names.h"
#include "loci/model/model.h"
#include "loci/model/quantize.h"
#include "loci/model/sampling_defaults.h"

namespace loci {
namespace {

std::vector<float> values_of(const TensorView& tensor) {
  std::vector<float> values(tensor.rows * tensor.columns);
  for (std::uint64_t row = 0; row < tensor.rows; ++row)
    decode_row(tensor, row, std::span(values).subspan(row * tensor.columns, tensor.columns));
  return values;
}

class HuggingFaceSourceTest : public ::testing::Test {
 protected:
  void SetUp() override { make({.biases = true}); }
  void make(const RandomModelOptions& options) {
    options_ = options;
    bytes_ = make_random_model(options).value().to_bytes();
    gguf_ = std::make_unique<GgufFile>(GgufFile::parse(bytes_).value());
    model_ = publish_llama(*gguf_, options);
    write();
  }
  void write() {
    write_text(folder_.file("config.json"), model_.config.dump());
    write_text(folder_.file("model.safetensors"), model_.tensors.text());
  }
  Result<HuggingFaceSource> open(std::optional<TensorType> quantize = std::nullopt, unsigned threads = 2) {
    return HuggingFaceSource::open(folder_.path(), {.quantize = quantize, .threads = threads});
  }
  void expect_refusal(StatusCode code, std::string_view field, std::string_view message) {
    const Status status = open().status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_EQ(status.field(), field) << status.to_string();
    EXPECT_NE(status.message().find(message), std::string::npos) << status.to_string();
  }

  TestFolder folder_;
  RandomModelOptions options_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<GgufFile> gguf_;
  PublishedModel model_;
};

TEST_F(HuggingFaceSourceTest, IsTheSameModelAsTheGgufFile) {
  const HuggingFaceSource source = open().value();
  EXPECT_EQ(source.format(), SourceFormat::kHuggingFace);
  const ModelSpec ours = read_model_spec(source).value(), theirs = read_model_spec(*gguf_).value();
  EXPECT_EQ(ours.hidden, theirs.hidden);
  EXPECT_EQ(ours.heads, theirs.heads);
  EXPECT_EQ(ours.kv_heads, theirs.kv_heads);
  EXPECT_EQ(ours.ffn, theirs.ffn);
  EXPECT_EQ(ours.vocabulary, theirs.vocabulary);
  EXPECT_EQ(ours.context_length, theirs.context_length);
  EXPECT_EQ(ours.norm_epsilon, theirs.norm_epsilon);
  EXPECT_EQ(ours.ropes.at(0).inverse_frequency, theirs.ropes.at(0).inverse_frequency);
  EXPECT_EQ(ours.ropes.at(0).layout, RopeLayout::kHalves);
  ASSERT_EQ(source.tensors().size(), gguf_->tensors().size());
  for (const TensorView& tensor : gguf_->tensors()) {
    const TensorView* found = source.find_tensor(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    std::vector<float> expected = values_of(tensor);
    if (tensor.name.find("attn_q.") != std::string::npos || tensor.name.find("attn_k.") != std::string::npos)
      expected = unpermuted(expected, tensor.rows == 1 ? 1 : tensor.columns, options_.head_dim);
    EXPECT_EQ(values_of(*found), expected) << tensor.name;
  }
}

TEST_F(HuggingFaceSourceTest, QuantisesMatricesAndNothingElse) {
  const HuggingFaceSource plain = open().value();
  const HuggingFaceSource alone = open(TensorType::kQ4_0, 1).value();
  const HuggingFaceSource source = open(TensorType::kQ4_0, 3).value();
  for (const TensorView& tensor : source.tensors()) {
    const TensorView& original = *plain.find_tensor(tensor.name);
    const bool is_table = tensor.name == "token_embd.weight";
    const bool is_kept = original.rows == 1;
    EXPECT_EQ(tensor.type, is_kept    ? TensorType::kF32
                           : is_table ? TensorType::kQ8_0
                                      : TensorType::kQ4_0)
        << tensor.name;
    if (is_kept) continue;
    std::vector<std::byte> row(tensor.row_bytes());
    std::vector<float> values(tensor.columns);
    for (std::uint64_t i = 0; i < tensor.rows; ++i) {
      decode_row(original, i, values);
      encode_row(tensor.type, values, row);
      ASSERT_TRUE(std::equal(row.begin(), row.end(), tensor.row(i).begin())) << tensor.name << " row " << i;
    }
    const TensorView& other = *alone.find_tensor(tensor.name);
    EXPECT_EQ(std::memcmp(other.data, tensor.data, tensor.size_bytes()), 0) << "threads change nothing";
  }
  ASSERT_EQ(source.notes().size(), 1u);
  EXPECT_NE(source.notes()[0].find("14 tensors as Q4_0, 1 tensors as Q8_0"), std::string::npos)
      << source.notes()[0];
}

TEST_F(HuggingFaceSourceTest, FallsBackWhereRowsAreNoWholeBlocks) {
  make({.hidden = 48, .heads = 3, .kv_heads = 3, .head_dim = 16, .ffn = 64});
  const HuggingFaceSource source = open(TensorType::kQ4_0).value();
  EXPECT_EQ(source.find_tensor("blk.0.ffn_down.weight")->type, TensorType::kQ4_0);
  EXPECT_EQ(source.find_tensor("blk.0.ffn_up.weight")->type, TensorType::kF16);
  EXPECT_EQ(source.find_tensor("token_embd.weight")->type, TensorType::kF16);
  ASSERT_EQ(source.notes().size(), 2u);
  EXPECT_NE(source.notes()[1].find("12 tensors have rows that are no multiple of Q4_0's 32"),
            std::string::npos)
      << source.notes()[1];
}

TEST_F(HuggingFaceSourceTest, RefusesToQuantiseWhatIsNotFinite) {
  auto& entry = model_.tensors.header["model.layers.0.mlp.up_proj.weight"];
  const float bad = std::nanf("");
  std::memcpy(&model_.tensors.data[entry["data_offsets"][0].get<std::size_t>() + 64], &bad, 4);
  write();
  EXPECT_TRUE(open().ok());
  const Status status = open(TensorType::kQ8_0).status();
  EXPECT_EQ(status.field(), "blk.0.ffn_up.weight");
  EXPECT_EQ(status.message(), "expected finite values, found others in row 0: it can't be quantised");
}

TEST_F(HuggingFaceSourceTest, CopiesWhatLiesAcrossElements) {
  // One byte before the first float: no float lies on a multiple of 4.
  SafetensorsBuilder shifted;
  shifted.add("model.layers.0.self_attn.rotary_emb.inv_freq", "U8", {1}, std::vector<std::byte>(1));
  for (const auto& [name, entry] : model_.tensors.header.items()) {
    const auto begin = entry["data_offsets"][0].get<std::size_t>(),
               end = entry["data_offsets"][1].get<std::size_t>();
    shifted.add(name, "F32", entry["shape"].get<std::vector<std::uint64_t>>(),
                std::as_bytes(std::span(model_.tensors.data)).subspan(begin, end - begin));
  }
  std::map<std::string, std::vector<float>> expected;
  for (const HuggingFaceSource plain = open().value(); const TensorView& tensor : plain.tensors())
    expected[tensor.name] = values_of(tensor);
  model_.tensors = shifted;
  write();
  const HuggingFaceSource source = open().value();
  for (const TensorView& tensor : source.tensors()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % 4, 0u);
    EXPECT_EQ(values_of(tensor), expected[tensor.name]) << tensor.name;
  }
}

TEST_F(HuggingFaceSourceTest, NamesTheFieldAtFault) {
  const nlohmann::json config = model_.config;
  const auto with = [&](const char* field, const nlohmann::json& value) {
    model_.config = config;
    model_.config[field] = value;
    write();
  };
  with("model_type", "mamba");
  expect_refusal(StatusCode::kInvalidArgument, "config.json: model_type", "found \"mamba\"");
  EXPECT_NE(open().status().message().find("llama"), std::string::npos);
  with("hidden_size", "large");
  expect_refusal(StatusCode::kInvalidArgument, "config.json: hidden_size", "found \"large\"");
  with("num_hidden_layers", nullptr);
  expect_refusal(StatusCode::kInvalidArgument, "config.json: num_hidden_layers", "found nothing");
  with("hidden_act", "gelu");
  expect_refusal(StatusCode::kInvalidArgument, "config.json: hidden_act", "silu");
  write_text(folder_.file("config.json"), "{");
  expect_refusal(StatusCode::kInvalidArgument, "config.json", "expected valid JSON");
  with("eos_token_id", {2, "x"});
  expect_refusal(StatusCode::kInvalidArgument, "config.json: eos_token_id", "found an array");
  std::filesystem::remove(folder_.file("config.json"));
  EXPECT_EQ(open().status().code(), StatusCode::kNotFound);
}

TEST_F(HuggingFaceSourceTest, RefusesTensorsWithoutANameAndOfOtherTypes) {
  model_.tensors.add_floats("model.layers.0.mlp.extra_proj.weight", {1}, {1});
  write();
  expect_refusal(StatusCode::kInvalidArgument, "model.layers.0.mlp.extra_proj.weight",
                 "models of type llama");
  make({});
  model_.tensors.header["model.norm.weight"]["dtype"] = "I32";
  write();
  const HuggingFaceSource source = open().value();
  EXPECT_EQ(source.opaque_tensors().at(0).type_name, "I32");
  const Status status = read_model_spec(source).status();
  EXPECT_EQ(status.field(), "output_norm.weight");
  EXPECT_TRUE(status.message().ends_with("found I32")) << status.message();
}

TEST_F(HuggingFaceSourceTest, GenerationConfigNamesTheEnds) {
  model_.config["eos_token_id"] = 2;
  model_.config["bos_token_id"] = 1;
  write();
  write_text(folder_.file("generation_config.json"), R"({"eos_token_id": [2, 0]})");
  write_text(
      folder_.file("tokenizer_config.json"),
      R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  const HuggingFaceSource source = open().value();
  EXPECT_EQ(source.get_ints("tokenizer.ggml.end_token_ids").value(), (std::vector<std::int32_t>{2, 0}));
  EXPECT_EQ(source.get_uint("tokenizer.ggml.bos_token_id").value(), 1u);
  EXPECT_EQ(source.get_string("tokenizer.chat_template").value(), "D");
  write_text(folder_.file("chat_template.jinja"), "J");
  EXPECT_EQ(open()->get_string("tokenizer.chat_template").value(), "J");
}

TEST_F(HuggingFaceSourceTest, GenerationConfigSaysHowTokensAreDrawn) {
  write();
  EXPECT_FALSE(read_sampling_defaults(open().value()).any());
  write_text(folder_.file("generation_config.json"),
             R"({"do_sample": false, "temperature": 0.6, "top_k": 20, "top_p": null, "min_p": 2,
                 "repetition_penalty": "much"})");
  const SamplingDefaults defaults = read_sampling_defaults(open().value());
  EXPECT_EQ(defaults.temperature, 0.6f);
  EXPECT_EQ(defaults.top_k, 20u);
  EXPECT_FALSE(defaults.top_p.has_value());
  EXPECT_FALSE(defaults.min_p.has_value());
  EXPECT_FALSE(defaults.repetition_penalty.has_value());
  ASSERT_EQ(defaults.ignored.size(), 2u);
  EXPECT_NE(defaults.ignored[0].find("min_p: expected from 0 to 1, found 2"), std::string::npos);
}

// What a request would be refused for is no default: the client that left it out could not mend it.
TEST_F(HuggingFaceSourceTest, GenerationConfigIsHeldToTheRangesOfRequests) {
  write();
  const auto read = [&](const char* config) {
    write_text(folder_.file("generation_config.json"), config);
    return read_sampling_defaults(open().value());
  };
  const SamplingDefaults beyond = read(R"({"temperature": 500, "repetition_penalty": 101, "top_p": 1e-60})");
  EXPECT_FALSE(beyond.any());
  ASSERT_EQ(beyond.ignored.size(), 3u);
  EXPECT_NE(beyond.ignored[0].find("temp: expected from 0 to 100, found 500"), std::string::npos);
  EXPECT_NE(beyond.ignored[1].find("top_p: expected more than 0 to 1, found 1e-60"), std::string::npos);
  const SamplingDefaults most = read(R"({"temperature": 100, "repetition_penalty": 100, "top_p": 1})");
  EXPECT_EQ(most.temperature, 100.0f);
  EXPECT_EQ(most.repetition_penalty, 100.0f);
  EXPECT_TRUE(most.ignored.empty());
}

// A family with every change, as tables of families/ hold them.
constexpr PublishedTensor kChanges[] = {
    {"norm.{}", "blk.{}.norm", TensorChange::kAddOne},
    {"experts.{}.{e}.up", "blk.{}.ffn_up_exps.weight", TensorChange::kStack},
    {"fused.{}.weight", "blk.{}.attn_qkv.weight", TensorChange::kGroupedQkv},
    {"fused.{}.bias", "blk.{}.attn_qkv.bias", TensorChange::kGroupedQkv},
};
constexpr PublishedFamily kFamily{"test", "test", nullptr, kChanges};

std::vector<TensorView> make_changed(const SafetensorsBuilder& builder, std::string& file, MadeTensors& made,
                                     Status& status) {
  file = builder.text();
  Shards shards;
  shards.tensors = read_safetensors(std::as_bytes(std::span(file))).value();
  const Result<TensorPlans> plans = plan_tensors(
      shards, kFamily,
      {{"test.attention.head_count", std::uint32_t{4}}, {"test.attention.head_count_kv", std::uint32_t{2}}});
  status = plans.status();
  if (!plans.ok()) return {};
  made = make_tensors(plans->tensors, std::nullopt, 2).value();
  return made.tensors;
}

TEST(TensorChanges, AreThoseOfTheConverters) {
  SafetensorsBuilder builder;
  builder.add_floats("norm.7", {2}, {0.5f, -1});
  for (int expert = 10; expert >= 0; --expert)
    builder.add_floats("experts.0." + std::to_string(expert) + ".up", {1, 2},
                       {static_cast<float>(expert), static_cast<float>(-expert)});
  // 4 query heads and 2 key/value heads of one row each: two groups of [q q k v].
  builder.add_floats("fused.3.weight", {8, 1}, {0, 1, 20, 30, 2, 3, 21, 31});
  builder.add_floats("fused.3.bias", {8}, {0, 1, 20, 30, 2, 3, 21, 31});
  std::string file;
  MadeTensors made;
  Status status;
  const std::vector<TensorView> tensors = make_changed(builder, file, made, status);
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_EQ(tensors.size(), 4u);
  const std::vector<float> ungrouped = {0, 1, 2, 3, 20, 21, 30, 31};
  EXPECT_EQ(tensors[0].name, "blk.0.ffn_up_exps.weight");
  EXPECT_EQ(tensors[0].rows, 11u);
  for (std::uint64_t expert = 0; expert < 11; ++expert) {
    EXPECT_EQ(values_of(tensors[0])[2 * expert], static_cast<float>(expert));
  }
  EXPECT_EQ(tensors[1].name, "blk.3.attn_qkv.bias");
  EXPECT_EQ(tensors[1].rows, 1u);
  EXPECT_EQ(values_of(tensors[1]), ungrouped);
  EXPECT_EQ(tensors[2].rows, 8u);
  EXPECT_EQ(values_of(tensors[2]), ungrouped);
  EXPECT_EQ(values_of(tensors[3]), (std::vector<float>{1.5f, 0}));
}

TEST(TensorChanges, RefuseWhatDoesNotFit) {
  const auto refusal = [](const SafetensorsBuilder& builder) {
    std::string file;
    MadeTensors made;
    Status status;
    make_changed(builder, file, made, status);
    return status;
  };
  SafetensorsBuilder hole, uneven, rows, twice;
  hole.add_floats("experts.0.0.up", {1}, {1});
  hole.add_floats("experts.0.2.up", {1}, {1});
  EXPECT_EQ(refusal(hole).field(), "experts.0.2.up");
  uneven.add_floats("experts.0.0.up", {1}, {1});
  uneven.add_floats("experts.0.1.up", {2}, {1, 2});
  EXPECT_EQ(refusal(uneven).field(), "experts.0.1.up");
  rows.add_floats("fused.0.weight", {9, 1}, std::vector<float>(9));
  EXPECT_EQ(refusal(rows).field(), "fused.0.weight");
}

TEST(TensorNames, MatchPatterns) {
  const auto name = [](std::string_view published) {
    const auto match = match_name(published, kChanges);
    return match ? match->name : "none";
  };
  EXPECT_EQ(name("norm.12"), "blk.12.norm");
  EXPECT_EQ(match_name("experts.3.17.up", kChanges)->expert, 17u);
  for (const char* other :
       {"norm.", "norm.01", "norm.1x", "norm.-1", "norm.99999999999", "xnorm.1", "norm.1.", ""})
    EXPECT_EQ(name(other), "none") << other;
}

}  // namespace
}  // namespace loci
