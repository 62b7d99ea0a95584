// SPDX-License-Identifier: Apache-2.0
// Reading config.json, for the `configure` functions of families (hugging_face.h): fields become GGUF's keys.
// Options that a family does not compute are refused, naming the field.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/model/families/hugging_face.h"
#include "loci/model/json_file.h"

namespace loci {

using Metadata = std::map<std::string, GgufValue, std::less<>>;

enum class FieldKind : std::uint8_t { kCount, kNumber, kFlag };  // an integer, any number, a bool
enum class FieldNeed : std::uint8_t { kRequired, kOptional };

// A field of config.json whose value goes under a key as it is ("llama." is put before the key). A null
// is an absent field, as in transformers.
struct PublishedField {
  std::string_view field;
  std::string_view key;
  FieldKind kind = FieldKind::kCount;
  FieldNeed need = FieldNeed::kRequired;
};

// Most decoders' sizes: layers, hidden, feed-forward, context, heads, RMS norm, vocabulary.
inline constexpr PublishedField kDecoderFields[] = {
    {"num_hidden_layers", "block_count"},
    {"hidden_size", "embedding_length"},
    {"intermediate_size", "feed_forward_length"},
    {"max_position_embeddings", "context_length"},
    {"num_attention_heads", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv", FieldKind::kCount, FieldNeed::kOptional},
    {"head_dim", "attention.key_length", FieldKind::kCount, FieldNeed::kOptional},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", FieldKind::kNumber},
    {"vocab_size", "vocab_size", FieldKind::kCount, FieldNeed::kOptional},
};

// Llama's tensor names and what others added to them: biases, norms of heads, a mixture's experts.
inline constexpr PublishedTensor kDecoderTensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"},
    {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"},
    {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"},
    {"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias"},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
    {"model.layers.{}.self_attn.rotary_emb.inv_freq", ""},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.mlp.experts.{e}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight", TensorChange::kStack},
    {"model.layers.{}.mlp.experts.{e}.up_proj.weight", "blk.{}.ffn_up_exps.weight", TensorChange::kStack},
    {"model.layers.{}.mlp.experts.{e}.down_proj.weight", "blk.{}.ffn_down_exps.weight", TensorChange::kStack},
};

// Turns one config.json into metadata. Errors: kInvalidArgument naming the field. Thread-compatible; both
// must outlive it.
class PublishedConfig {
 public:
  PublishedConfig(const nlohmann::json& config, std::string_view family, Metadata& metadata);

  const JsonFields& fields() const { return fields_; }
  bool has(std::string_view field) const { return fields_.has(field); }
  Status copy(std::span<const PublishedField> fields);
  Status copy(std::initializer_list<PublishedField> fields);
  void set(std::string_view key, GgufValue value);
  void set_count(std::string_view key, std::uint64_t value);

  // These refuse a field that is present with any other value.
  Status expect(std::string_view field, std::initializer_list<std::string_view> values) const;
  // Only for bool, because a list of one text would convert to bool too.
  template <std::same_as<bool> Value>
  Status expect(std::string_view field, Value value) const {
    return expect_bool(field, value);
  }

  // Copies the field's activation under the names of read_activation() (parts.h).
  Status copy_activation(std::string_view field);
  // Copies rope_theta, partial_rotary_factor and rope_scaling, or rope_parameters instead of these.
  Status copy_rope();
  // Copies sliding_window, and layer_types if the list is present: "sliding_attention", "full_attention".
  Status copy_windows();
  // The same, if use_sliding_window is true.
  Status copy_windows_if_used();

 private:
  PublishedConfig(JsonFields fields, std::string_view family, Metadata& metadata);
  Status copy_scaling(const JsonFields& scaling);
  Status expect_bool(std::string_view field, bool value) const;

  JsonFields fields_;
  std::string family_;
  Metadata* metadata_;
};

// The published families; each is defined in its family's file.
extern const PublishedFamily kPublishedFalcon, kPublishedGemma2, kPublishedGemma3, kPublishedGemma3Whole,
    kPublishedGptBigCode, kPublishedGptOss, kPublishedLlama, kPublishedMistral, kPublishedOpt, kPublishedPhi3,
    kPublishedQwen2, kPublishedQwen3, kPublishedQwen3Moe, kPublishedSmolLm3;

}  // namespace loci
