// SPDX-License-Identifier: Apache-2.0
#include "loci/model/hugging_face/directory_testing.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "loci/base/check.h"
#include "loci/model/quantize.h"

namespace loci {
namespace {

std::string published_llama_name(const std::string& name) {
  if (name == "token_embd.weight") return "model.embed_tokens.weight";
  if (name == "output_norm.weight") return "model.norm.weight";
  if (name == "output.weight") return "lm_head.weight";
  const std::size_t dot = name.find('.', 4);
  const std::string layer = "model.layers." + name.substr(4, dot - 4) + ".", part = name.substr(dot + 1);
  const std::size_t end = part.rfind('.');
  const std::pair<const char*, const char*> parts[] = {
      {"attn_q", "self_attn.q_proj"},   {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},   {"attn_output", "self_attn.o_proj"},
      {"attn_norm", "input_layernorm"}, {"ffn_norm", "post_attention_layernorm"},
      {"ffn_gate", "mlp.gate_proj"},    {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"}};
  for (const auto& [gguf, published] : parts)
    if (part.substr(0, end) == gguf) return layer + published + part.substr(end);
  LOCI_CHECK(false, name.c_str());
  return {};
}

}  // namespace

std::vector<float> unpermuted(const std::vector<float>& values, std::uint64_t columns,
                              std::uint64_t head_dim) {
  std::vector<float> out(values.size());
  const std::uint64_t rows = values.size() / columns;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t place = row % head_dim, half = head_dim / 2;
    const std::uint64_t from = row - place + (place < half ? 2 * place : 2 * (place - half) + 1);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from * columns), columns,
                out.begin() + static_cast<std::ptrdiff_t>(row * columns));
  }
  return out;
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  LOCI_CHECK(file.good(), path.c_str());
}

void SafetensorsBuilder::add(const std::string& name, const std::string& dtype,
                             std::vector<std::uint64_t> shape, std::span<const std::byte> bytes) {
  header[name] = {
      {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
  data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string SafetensorsBuilder::text() const {
  std::string json = header.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  const std::uint64_t length = json.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + json + data;
}

nlohmann::json publish_tokenizer(const GgufFile& file) {
  using nlohmann::json;
  const std::vector<std::string> tokens = file.get_strings("tokenizer.ggml.tokens").value();
  const std::vector<std::int32_t> types = file.get_ints("tokenizer.ggml.token_type").value();
  json vocab = json::object(), added = json::array();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    vocab[tokens[id]] = id;
    if (types[id] == 3) added.push_back({{"id", id}, {"content", tokens[id]}, {"special", true}});
  }
  json digits = {{"type", "Digits"}, {"individual_digits", true}};
  json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {
      {"added_tokens", added},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array({digits, bytes})}}},
      {"decoder", bytes},
      {"model",
       {{"type", "BPE"}, {"vocab", vocab}, {"merges", file.get_strings("tokenizer.ggml.merges").value()}}}};
}

PublishedModel publish_llama(const GgufFile& file, const RandomModelOptions& options) {
  PublishedModel model;
  for (const TensorView& tensor : file.tensors()) {
    std::vector<float> values(tensor.rows * tensor.columns);
    for (std::uint64_t row = 0; row < tensor.rows; ++row)
      decode_row(tensor, row, std::span(values).subspan(row * tensor.columns, tensor.columns));
    const bool is_vector = tensor.rows == 1;
    if (tensor.name.find("attn_q.") != std::string::npos || tensor.name.find("attn_k.") != std::string::npos)
      values = unpermuted(values, is_vector ? 1 : tensor.columns, options.head_dim);
    std::vector<std::uint64_t> shape = {tensor.columns};
    if (!is_vector) shape.insert(shape.begin(), tensor.rows);
    model.tensors.add_floats(published_llama_name(tensor.name), shape, values);
  }
  model.config = {{"model_type", "llama"},
                  {"hidden_size", options.hidden},
                  {"intermediate_size", options.ffn},
                  {"num_hidden_layers", options.layers},
                  {"num_attention_heads", options.heads},
                  {"num_key_value_heads", options.kv_heads},
                  {"head_dim", options.head_dim},
                  {"max_position_embeddings", options.context_length},
                  {"vocab_size", file.find_tensor("token_embd.weight")->rows},
                  {"rms_norm_eps", file.get_float("llama.attention.layer_norm_rms_epsilon").value()},
                  {"rope_theta", 10000.0},
                  {"hidden_act", "silu"}};
  return model;
}

}  // namespace loci
