// SPDX-License-Identifier: Apache-2.0
// The parts that families are put together from: sizes, heads, windows, and the tensors of a layer under
// GGUF's names. A family's file names its parts and says what is its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loci/model/families/spec_reader.h"
#include "loci/model/model_spec.h"

namespace loci {

// All of these return kInvalidArgument naming the key or tensor at fault.

// A specification that has the family's name (the reader's prefix) and the model's.
ModelSpec start_spec(const SpecReader& reader);

// embedding_length, context_length, the norms' epsilon (by spec.norm), heads with their size and scale,
// and the vocabulary, which is the embedding with its rows.
Status read_sizes(SpecReader& reader, ModelSpec& spec);
// feed_forward_length of a model without experts.
Status read_dense_sizes(const SpecReader& reader, ModelSpec& spec);
// expert_count, expert_used_count and an expert's feed-forward size of a mixture.
Status read_mixture_sizes(const SpecReader& reader, ModelSpec& spec);

// "activation": silu, gelu, gelu_tanh or relu. GGUF's converters leave it out; this key is Loci's, for models
// of one family that are published with different ones.
Status read_activation(const SpecReader& reader, Activation otherwise, ModelSpec& spec);

// Query and key rows of GGUF's Llama were permuted, so that adjacent dimensions rotate together.
RopeLayout permuted_layout(const ModelSource& source);

// One layer that is being read: where its tensors come from and where they go.
struct LayerPart {
  SpecReader& reader;
  const ModelSpec& spec;
  LayerSpec& layer;
  std::uint32_t index = 0;

  std::string name(std::string_view part) const;  // "blk.3.attn_q.weight"
};

// NAME.weight [1, width], and NAME.bias where norms have one (spec.norm).
Status read_norm(const LayerPart& part, std::string_view name, NormSpec& norm);
// attn_q_norm and attn_k_norm, of each head.
Status read_head_norms(const LayerPart& part);
// attn_q, attn_k, attn_v (or attn_qkv, as converters may fuse them) and attn_output, with biases where the
// file has them.
Status read_attention(const LayerPart& part);
// The same from attn_qkv alone, whose rows are all queries, all keys, all values.
Status read_fused_attention(const LayerPart& part);
// ffn_gate, ffn_up, ffn_down.
Status read_gated_ffn(const LayerPart& part);
// The same from ffn_up, whose rows are the gate's, then up's.
Status read_fused_ffn(const LayerPart& part);
// ffn_up, ffn_down, with biases where the file has them.
Status read_plain_ffn(const LayerPart& part);
// ffn_gate_inp and the experts' ffn_{gate,up,down}_exps, with biases where the file has them.
Status read_mixture(const LayerPart& part);

// Which layers look through a window: every `period`-th sees everything, the others the window. 0: all
// have it, and 1: none.
struct WindowDefaults {
  std::uint32_t period = 0;
  std::uint32_t window = 0;  // where the file says none; 0: none
};
// Sets the layers' windows by attention.sliding_window and attention.sliding_window_pattern (a period, or
// a bool for each layer). A window of the whole context is none. Returns which layers have one, that one
// included.
Result<std::vector<bool>> read_windows(const SpecReader& reader, const WindowDefaults& defaults,
                                       ModelSpec& spec);

// block_count layers, each by `read_layer`, rotated by ropes[0] until it says otherwise.
Status read_layers(SpecReader& reader, ModelSpec& spec, Status (*read_layer)(const LayerPart& part));
// The output norm, the output matrix (the embedding where it is absent), and that no tensor is left.
Status finish_spec(SpecReader& reader, ModelSpec& spec);

// All of a decoder without peculiarities: one rotation, windows where the file says so, layers alike.
Result<ModelSpec> read_decoder(SpecReader& reader,
                               Status (*read_feed_forward_sizes)(const SpecReader&, ModelSpec&),
                               Status (*read_layer)(const LayerPart& part));

}  // namespace loci
