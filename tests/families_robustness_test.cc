// SPDX-License-Identifier: Apache-2.0
// Files of every family, damaged in each key, field and tensor: an error that names what is at fault, or a
// model, never a crash; and what is published but not computed is refused by name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "loci/base/folder_testing.h"
#include "loci/base/rounds_testing.h"
#include "loci/model/gguf.h"
#include "loci/model/gguf_writer_testing.h"
#include "loci/model/hugging_face/directory_testing.h"
#include "loci/model/hugging_face/hugging_face_source.h"
#include "loci/model/hugging_face/tensor_plan.h"
#include "loci/model/model.h"
#include "reference/golden_file.h"

namespace loci {
namespace {

using Bytes = std::vector<std::byte>;
using Json = nlohmann::json;

std::string test_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

// A writer of the same file, to be changed.
GgufWriter copy_of(const GgufFile& file) {
  GgufWriter writer;
  for (const auto& [key, value] : file.metadata()) writer.add(key, value);
  for (const TensorView& tensor : file.tensors()) {
    writer.add_tensor(tensor.name, tensor.type, tensor.rows, tensor.columns,
                      Bytes(tensor.data, tensor.data + tensor.size_bytes()));
  }
  return writer;
}

Result<ModelSpec> read(const GgufWriter& writer) {
  const Bytes bytes = writer.to_bytes();
  LOCI_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::parse(bytes));
  return read_model_spec(file);  // its numbers alone are looked at
}

class DamagedFamilyTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const GoldenFamily golden = read_golden_family(GetParam()).value();
    file_ = std::make_unique<GgufFile>(GgufFile::open(golden.gguf_path).value());
    prefix_ = file_->get_string("general.architecture").value() + ".";
  }

  // An error says what it is about.
  Status read_changed(const std::function<void(GgufWriter&)>& change) {
    GgufWriter writer = copy_of(*file_);
    change(writer);
    const Status status = read(writer).status();
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
      EXPECT_FALSE(status.field().empty()) << status.to_string();
    }
    return status;
  }
  Status read_with(const std::string& key, const GgufValue& value) {
    return read_changed([&](GgufWriter& writer) { writer.replace(key, value); });
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : file_->metadata()) {
      if (key.starts_with(prefix_)) keys.push_back(key);
    }
    return keys;
  }
  bool is_mixture() const { return file_->has(prefix_ + "expert_count"); }
  bool is_required(const std::string& key) const {
    static const std::set<std::string> dense = {"block_count", "embedding_length", "context_length",
                                                "feed_forward_length", "attention.head_count"};
    static const std::set<std::string> mixture = {
        "block_count",       "embedding_length",           "context_length",      "expert_count",
        "expert_used_count", "expert_feed_forward_length", "attention.head_count"};
    const std::string name = key.substr(prefix_.size());
    return name.starts_with("attention.layer_norm") || (is_mixture() ? mixture : dense).contains(name);
  }
  // Keys that converters write and a specification does not depend on.
  bool is_unread(const std::string& key) const {
    const std::string name = key.substr(prefix_.size());
    return name == "tensor_data_layout" || (is_mixture() && name == "feed_forward_length");
  }

  std::unique_ptr<GgufFile> file_;
  std::string prefix_;
};

TEST_P(DamagedFamilyTest, UnchangedItIsTheSameModel) {
  EXPECT_EQ(read(copy_of(*file_))->fingerprint, read_model_spec(*file_)->fingerprint);
}

TEST_P(DamagedFamilyTest, EachKeyMissing) {
  for (const std::string& key : keys()) {
    const Status status = read_changed([&](GgufWriter& writer) { writer.remove(key); });
    if (!is_required(key)) continue;
    EXPECT_EQ(status.field(), key) << status.to_string();
    EXPECT_NE(status.message().find("found no such key"), std::string::npos) << status.to_string();
  }
}

TEST_P(DamagedFamilyTest, EachKeyOfAnotherType) {
  for (const std::string& key : keys()) {
    if (is_unread(key)) continue;
    for (const GgufValue& value :
         {GgufValue(GgufArray{std::vector<float>{1, 2}}), GgufValue(GgufArray{std::vector<GgufArray>(3)}),
          std::holds_alternative<std::string>(*file_->find(key)) ? GgufValue(7u) : GgufValue("word")}) {
      EXPECT_EQ(read_with(key, value).field(), key) << describe_type(value);
    }
  }
}

TEST_P(DamagedFamilyTest, EachNumberOutOfItsLimits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const std::string& key : keys()) {
    if (is_unread(key)) continue;
    const GgufValue* value = file_->find(key);
    if (std::holds_alternative<float>(*value)) {
      for (const double wrong : {-1.0, kInfinity, -kInfinity, std::nan(""), 1e300}) {
        EXPECT_EQ(read_with(key, wrong).field(), key) << wrong;
      }
      for (const double odd : {0.0, 1e-300, 1e-30, 1.0, 1e6}) read_with(key, odd).ok();
    } else if (std::holds_alternative<std::uint32_t>(*value)) {
      for (const std::int64_t wrong : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
        EXPECT_EQ(read_with(key, wrong).field(), key) << wrong;
      }
      EXPECT_EQ(read_with(key, std::numeric_limits<std::uint64_t>::max()).field(), key);
      if (is_required(key)) {
        EXPECT_EQ(read_with(key, 0u).field(), key);
      }
      for (const std::uint32_t odd : {0u, 1u, 2u, 3u, 5u, 17u, 1000u, UINT32_MAX}) read_with(key, odd).ok();
    }
  }
}

bool is_optional(const std::string& tensor) {
  return tensor == "output.weight" || tensor.starts_with("rope_") ||
         (tensor.ends_with(".bias") && tensor.find("norm") == std::string::npos);
}

TEST_P(DamagedFamilyTest, EachTensorMissingOrOfAnotherShape) {
  for (const TensorView& tensor : file_->tensors()) {
    const Status missing = read_changed([&](GgufWriter& writer) { writer.remove_tensor(tensor.name); });
    if (!is_optional(tensor.name)) {
      EXPECT_FALSE(missing.ok()) << tensor.name;
    }
    for (const auto& [rows, columns] : {std::pair<std::uint64_t, std::uint64_t>{7, 5},
                                        {tensor.rows + 1, tensor.columns},
                                        {tensor.rows, tensor.columns + 1}}) {
      const Status reshaped = read_changed([&](GgufWriter& writer) {
        writer.remove_tensor(tensor.name);
        writer.add_tensor(tensor.name, TensorType::kF32, rows, columns, Bytes(rows * columns * 4));
      });
      if (tensor.name == "token_embd.weight") {  // its rows are the vocabulary, if nothing says otherwise
        EXPECT_TRUE(!reshaped.ok() || columns == tensor.columns);
      } else {
        EXPECT_EQ(reshaped.field(), tensor.name) << reshaped.to_string();
      }
    }
  }
}

TEST_P(DamagedFamilyTest, ATensorThatItDoesNotCompute) {
  const Status status = read_changed([](GgufWriter& writer) {
    writer.add_tensor("blk.0.adapter.weight", TensorType::kF32, 2, 2, Bytes(16));
  });
  EXPECT_EQ(status.field(), "blk.0.adapter.weight");
}

INSTANTIATE_TEST_SUITE_P(All, DamagedFamilyTest, testing::ValuesIn(golden_family_names()),
                         [](const auto& tested) { return test_name(tested.param); });

// A golden directory with another config.json.
class ChangedDirectory {
 public:
  explicit ChangedDirectory(const std::string& name) : golden_(read_golden_family(name).value()) {
    std::filesystem::create_symlink(std::filesystem::absolute(golden_.directory + "/model.safetensors"),
                                    folder_.file("model.safetensors"));
    std::ifstream(golden_.directory + "/config.json") >> config;
  }
  Result<ModelSpec> read() const {
    // A new file, not one cut to nothing and filled: file systems write that to the disk at once.
    std::filesystem::remove(folder_.file("config.json"));
    std::ofstream(folder_.file("config.json")) << config;
    LOCI_ASSIGN_OR_RETURN(const HuggingFaceSource source, HuggingFaceSource::open(folder_.path(), {}));
    return read_model_spec(source);  // its numbers alone are looked at
  }

  Json config;

 private:
  GoldenFamily golden_;
  TestFolder folder_;
};

class DamagedConfigTest : public testing::TestWithParam<std::string> {};

TEST_P(DamagedConfigTest, EachFieldMissingOfAnotherTypeOrOutOfItsLimits) {
  ChangedDirectory directory(GetParam());
  ASSERT_TRUE(directory.read().ok()) << directory.read().status().to_string();
  const Json whole = directory.config;
  const auto check = [&](const std::string& what) {
    const Status status = directory.read().status();
    EXPECT_TRUE(status.ok() || !status.field().empty()) << what << ": " << status.to_string();
    directory.config = whole;
  };
  const Json values[] = {nullptr,
                         -1,
                         0,
                         1,
                         5,
                         1e300,
                         UINT64_MAX,
                         0.5,
                         "word",
                         true,
                         false,
                         Json::array(),
                         Json::array({1, "a", nullptr}),
                         Json::object({{"rope_type", "yarn"}})};
  std::size_t next = 0;
  for (const auto& [field, value] : whole.items()) {
    directory.config.erase(field);
    check(field);
    // All of them, or some, others for each field.
    for (std::uint64_t round = 0; round < test_rounds(std::size(values)); ++round) {
      const Json& wrong = values[next++ % std::size(values)];
      directory.config[field] = wrong;
      check(field + " " + wrong.dump());
      if (!value.is_object()) continue;
      for (const auto& [part, ignored] : value.items()) {
        directory.config[field][part] = wrong;
        check(field + "." + part + " " + wrong.dump());
        directory.config[field].erase(part);
        check(field + "." + part);
      }
    }
  }
}

std::vector<std::string> names_with_directory() {
  std::vector<std::string> names = golden_family_names();
  std::erase(names, "gpt-oss");
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, DamagedConfigTest, testing::ValuesIn(names_with_directory()),
                         [](const auto& tested) { return test_name(tested.param); });

void expect_refusal(const std::string& name, const Json& changes, const std::string& field,
                    const std::string& message) {
  ChangedDirectory directory(name);
  directory.config.update(changes);
  const Status status = directory.read().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name << field;
  EXPECT_EQ(status.field(), "config.json: " + field) << status.to_string();
  EXPECT_NE(status.message().find(message), std::string::npos) << status.to_string();
}

TEST(PublishedFamilies, RefuseByNameWhatIsNotComputed) {
  expect_refusal("llama3", {{"model_type", "mamba"}}, "model_type",
                 "one of the known types (falcon, gemma2, gemma3, gemma3_text, gpt_bigcode, gpt_oss, llama, "
                 "mistral, opt, phi3, "
                 "qwen2, qwen3, qwen3_moe, smollm3), found \"mamba\"");
  expect_refusal("llama3", {{"hidden_act", "relu"}}, "hidden_act", "expected \"silu\", found \"relu\"");
  expect_refusal("llama3", {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}}},
                 "rope_scaling: rope_type", "found \"dynamic\"");
  expect_refusal(
      "llama-yarn",
      {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"mscale", 1.0}, {"mscale_all_dim", 0.5}}}},
      "rope_scaling: mscale", "expected 0.5 as in mscale_all_dim, found 1");
  expect_refusal("opt", {{"word_embed_proj_dim", 16}}, "word_embed_proj_dim", "are not computed");
  expect_refusal("opt", {{"do_layer_norm_before", false}}, "do_layer_norm_before", "expected true");
  expect_refusal("opt", {{"activation_function", "tanh"}}, "activation_function", "found \"tanh\"");
  expect_refusal("gemma3-vision", {{"text_config", nullptr}}, "text_config", "an object");
  expect_refusal("falcon-old", {{"alibi", true}}, "alibi", "expected false");
  expect_refusal("falcon-old", {{"parallel_attn", false}}, "parallel_attn", "expected true");
  expect_refusal("starcoder", {{"multi_query", false}}, "multi_query", "expected true");
  expect_refusal("qwen3moe", {{"decoder_sparse_step", 2}}, "decoder_sparse_step", "a mixture in every layer");
  expect_refusal("qwen3moe", {{"mlp_only_layers", {0}}}, "mlp_only_layers", "a mixture in every layer");
  expect_refusal("gemma3", {{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping", "none");
  expect_refusal("gemma3", {{"use_bidirectional_attention", true}}, "use_bidirectional_attention", "false");
  expect_refusal("gemma2", {{"layer_types", {"chunked_attention"}}}, "layer_types", "full_attention");
}

ModelSpec read_changed(const std::string& name, const Json& changes) {
  ChangedDirectory directory(name);
  directory.config.merge_patch(changes);  // a null erases
  Result<ModelSpec> spec = directory.read();
  EXPECT_TRUE(spec.ok()) << spec.status().to_string();
  return spec.ok() ? std::move(spec).value() : ModelSpec{};
}

std::vector<std::uint32_t> windows(const ModelSpec& spec) {
  std::vector<std::uint32_t> windows;
  for (const LayerSpec& layer : spec.layers) windows.push_back(layer.window);
  return windows;
}

// GPT-OSS's packed tensors alone: what becomes of them, or the error.
Result<TensorPlans> plan_packed(const std::function<void(SafetensorsBuilder&)>& fill) {
  const TestFolder folder;
  SafetensorsBuilder builder;
  fill(builder);
  write_text(folder.file("model.safetensors"), builder.text());
  LOCI_ASSIGN_OR_RETURN(const Shards shards, open_shards(folder.path()));
  for (const PublishedFamily& family : published_families()) {
    if (family.model_type == "gpt_oss") return plan_tensors(shards, family, {});
  }
  return internal_error("no such family");
}

TEST(PublishedFamilies, RefusePackedTensorsThatDoNotFitTogether) {
  const std::string gate_up = "model.layers.0.mlp.experts.gate_up_proj";
  const std::string down = "model.layers.0.mlp.experts.down_proj";
  const auto add = [](SafetensorsBuilder& builder, const std::string& name, const std::string& dtype,
                      std::vector<std::uint64_t> shape) {
    std::uint64_t bytes = dtype == "U8" ? 1 : 4;
    for (const std::uint64_t size : shape) bytes *= size;
    builder.add(name, dtype, std::move(shape), Bytes(bytes));
  };
  const Result<TensorPlans> whole = plan_packed([&](SafetensorsBuilder& builder) {
    add(builder, gate_up + "_blocks", "U8", {2, 6, 3, 16});
    add(builder, gate_up + "_scales", "U8", {2, 6, 3});
    add(builder, gate_up + "_bias", "F32", {2, 6});
  });
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  ASSERT_EQ(whole->tensors.size(), 4u);
  EXPECT_EQ(whole->tensors[1].name, "blk.0.ffn_gate_exps.weight");
  EXPECT_EQ(whole->tensors[1].rows, 6u);
  EXPECT_EQ(whole->tensors[1].columns, 96u);
  EXPECT_EQ(whole->tensors[2].columns, 3u);  // ffn_up_exps.bias

  struct Case {
    std::string name, dtype;
    std::vector<std::uint64_t> blocks, scales;  // empty: the tensor is not there
    std::string field, message;
  };
  for (const Case& wrong :
       {Case{down, "U8", {2, 4, 3, 16}, {}, down + "_blocks", "found only one of them"},
        Case{down, "U8", {}, {2, 4, 3}, down + "_scales", "found only one of them"},
        Case{down, "U8", {2, 4, 3, 15}, {2, 4, 3}, down + "_blocks", "found another"},
        Case{down, "U8", {2, 4, 2, 16}, {2, 4, 3}, down + "_blocks", "found another"},
        Case{down, "U8", {16}, {1}, down + "_blocks", "found another"},
        Case{gate_up, "U8", {2, 5, 3, 16}, {2, 5, 3}, gate_up + "_blocks", "rows of an even number"},
        Case{down,
             "F32",
             {2, 4, 3, 16},
             {2, 4, 3},
             down + "_blocks",
             "expected MXFP4's bytes (U8), found F32"}}) {
    const Status status = plan_packed([&](SafetensorsBuilder& builder) {
                            if (!wrong.blocks.empty())
                              add(builder, wrong.name + "_blocks", wrong.dtype, wrong.blocks);
                            if (!wrong.scales.empty())
                              add(builder, wrong.name + "_scales", "U8", wrong.scales);
                          }).status();
    EXPECT_EQ(status.field(), wrong.field) << status.to_string();
    EXPECT_NE(status.message().find(wrong.message), std::string::npos) << status.to_string();
  }
  const Status odd = plan_packed([&](SafetensorsBuilder& builder) {
                       add(builder, gate_up + "_bias", "F32", {2, 5});
                     }).status();
  EXPECT_EQ(odd.field(), gate_up + "_bias");
}

TEST(PublishedFamilies, ReadWindowsAsTransformersDoes) {
  using Windows = std::vector<std::uint32_t>;
  EXPECT_EQ(windows(read_changed("mistral", {{"sliding_window", nullptr}})), (Windows{0, 0}));
  EXPECT_EQ(windows(read_changed("mistral", {{"sliding_window", 512}})), (Windows{0, 0}));  // all there is
  EXPECT_EQ(windows(read_changed("mistral", {{"sliding_window", 511}})), (Windows{511, 511}));
  const Json qwen = {{"sliding_window", 8}, {"max_window_layers", 1}, {"layer_types", nullptr}};
  EXPECT_EQ(windows(read_changed("qwen3", qwen)), (Windows{0, 0}));  // use_sliding_window is false
  Json used = qwen;
  used["use_sliding_window"] = true;
  EXPECT_EQ(windows(read_changed("qwen3", used)), (Windows{0, 8}));
  used["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(windows(read_changed("qwen3", used)), (Windows{8, 0}));
  EXPECT_EQ(windows(read_changed("gemma2", {{"layer_types", nullptr}})), (Windows{12, 0, 12, 0}));
  const ModelSpec gemma = read_changed("gemma3", {{"layer_types", nullptr}, {"sliding_window_pattern", 3}});
  EXPECT_EQ(windows(gemma), (Windows{12, 12, 0, 12, 12, 0, 12}));
  EXPECT_EQ(gemma.layers[1].rope, 1u);
  EXPECT_EQ(gemma.layers[2].rope, 0u);
}

TEST(PublishedFamilies, ReadEverySpellingOfRotation) {
  const ModelSpec plain = read_changed("llama3", Json::object());
  Json parameters = {{"rope_theta", 500000.0},  {"rope_type", "llama3"},
                     {"factor", 8.0},           {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
  const Json version5 = {{"rope_theta", nullptr}, {"rope_scaling", nullptr}, {"rope_parameters", parameters}};
  EXPECT_EQ(read_changed("llama3", version5).fingerprint, plain.fingerprint);
  const ModelSpec phi = read_changed("phi3-long", Json::object());
  EXPECT_EQ(
      read_changed("phi3-long", {{"rope_scaling", {{"type", "su"}, {"rope_type", nullptr}}}}).fingerprint,
      phi.fingerprint);
  EXPECT_EQ(phi.ropes[0].dimensions, 12u);
  EXPECT_NEAR(phi.ropes[0].magnitude, std::sqrt(1 + std::log(512.0 / 64) / std::log(64.0)), 1e-12);
  const Json stated = {{"rope_scaling", {{"attention_factor", 1.25}}}};
  EXPECT_EQ(read_changed("phi3-long", stated).ropes[0].magnitude, 1.25);
  EXPECT_EQ(read_changed("llama-yarn", stated).ropes[0].magnitude, 1.25);
  const Json same = {{"rope_scaling", {{"mscale", 0.7}, {"mscale_all_dim", 0.7}}}};
  EXPECT_EQ(read_changed("llama-yarn", same).ropes[0].magnitude, 1);
}

TEST(PublishedFamilies, ReadEveryActivation) {
  EXPECT_EQ(read_changed("starcoder", Json::object()).activation, Activation::kGeluTanh);
  EXPECT_EQ(read_changed("starcoder", {{"activation_function", "gelu"}}).activation, Activation::kGelu);
  EXPECT_EQ(read_changed("opt", Json::object()).activation, Activation::kRelu);
  EXPECT_EQ(read_changed("opt", {{"activation_function", "gelu"}}).activation, Activation::kGelu);
}

TEST(PublishedFamilies, FillInWhatTheLargeGemma3ConfigsLeaveOut) {
  // Only what transformers' defaults agree with in the golden directory may be left out of it.
  const ModelSpec spec = read_changed("gemma3-vision", Json::object());
  const Json left_out = {{"text_config", {{"rope_theta", nullptr}, {"rms_norm_eps", nullptr}}}};
  EXPECT_EQ(read_changed("gemma3-vision", left_out).fingerprint, spec.fingerprint);
}

TEST(Families, ScaleAttentionAsTheFileSays) {
  const GgufFile file = GgufFile::open(read_golden_family("gemma2")->gguf_path).value();
  EXPECT_EQ(read(copy_of(file))->attention_scale, 0.25f);  // heads of 16
  GgufWriter writer = copy_of(file);
  writer.add("gemma2.attention.scale", 0.125f);
  EXPECT_EQ(read(writer)->attention_scale, 0.125f);
  EXPECT_EQ(read_changed("gemma3", {{"query_pre_attn_scalar", 64}}).attention_scale, 0.125f);
}

}  // namespace
}  // namespace loci
