// SPDX-License-Identifier: Apache-2.0
// The parts from which families are made: sizes, heads, windows, and the tensors of a layer under GGUF's
// names. A family's file names its parts and adds what only this family has.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loci/model/families/spec_reader.h"
#include "loci/model/model_spec.h"

namespace loci {

// All functions return kInvalidArgument naming the key or tensor at fault.

// A specification with the names of the family (the reader's prefix) and of the model.
ModelSpec start_spec(const SpecReader& reader);

// Reads embedding_length, context_length, the norms' epsilon (by spec.norm), the heads with their size and
// scale, and the embedding, whose rows are the vocabulary.
Status read_sizes(SpecReader& reader, ModelSpec& spec);
// Reads feed_forward_length of a model without experts.
Status read_dense_sizes(const SpecReader& reader, ModelSpec& spec);
// Reads expert_count, expert_used_count and the feed-forward size of an expert, for a mixture.
Status read_mixture_sizes(const SpecReader& reader, ModelSpec& spec);

// Reads "activation": silu, gelu, gelu_tanh or relu. The key is Loci's own, because GGUF's converters have
// none, and models of one family are published with different activations.
Status read_activation(const SpecReader& reader, Activation otherwise, ModelSpec& spec);

// The rotation's layout. In GGUF's Llama, rows of queries and keys are permuted, so that adjacent dimensions
// rotate together.
RopeLayout permuted_layout(const ModelSource& source);

// A layer being read: where its tensors come from and where they go.
struct LayerPart {
  SpecReader& reader;
  const ModelSpec& spec;
  LayerSpec& layer;
  std::uint32_t index = 0;

  std::string name(std::string_view part) const;  // "blk.3.attn_q.weight"
};

// Reads NAME.weight [1, width], and NAME.bias if norms have one (spec.norm).
Status read_norm(const LayerPart& part, std::string_view name, NormSpec& norm);
// Reads attn_q_norm and attn_k_norm, the norms of each head.
Status read_head_norms(const LayerPart& part);
// Reads attn_q, attn_k, attn_v (or attn_qkv, into which converters may fuse them) and attn_output, with
// biases if the file has them.
Status read_attention(const LayerPart& part);
// The same, only from attn_qkv, whose rows are all queries, all keys, all values.
Status read_fused_attention(const LayerPart& part);
// Reads ffn_gate, ffn_up, ffn_down.
Status read_gated_ffn(const LayerPart& part);
// The same from ffn_up, whose rows are those of the gate, then those of up.
Status read_fused_ffn(const LayerPart& part);
// Reads ffn_up and ffn_down, with biases if the file has them.
Status read_plain_ffn(const LayerPart& part);
// Reads ffn_gate_inp and the experts' ffn_{gate,up,down}_exps, with biases if the file has them.
Status read_mixture(const LayerPart& part);

// Which layers have a window: every `period`-th layer sees all tokens, the others see the window. 0: all
// layers have the window; 1: none has.
struct WindowDefaults {
  std::uint32_t period = 0;
  std::uint32_t window = 0;  // if the file names none; 0: none
};
// Sets the layers' windows by attention.sliding_window and attention.sliding_window_pattern (a period, or a
// bool for each layer). A window as long as the context is dropped. Returns which layers have a window,
// dropped ones included.
Result<std::vector<bool>> read_windows(const SpecReader& reader, const WindowDefaults& defaults,
                                       ModelSpec& spec);

// Reads block_count layers, each by `read_layer`. They rotate by ropes[0] unless it sets another.
Status read_layers(SpecReader& reader, ModelSpec& spec, Status (*read_layer)(const LayerPart& part));
// Reads the output norm and the output matrix (the embedding if it is absent), and checks that no tensor is
// left unread.
Status finish_spec(SpecReader& reader, ModelSpec& spec);

// Reads a whole decoder without peculiarities: one rotation, windows as the file says, all layers alike.
Result<ModelSpec> read_decoder(SpecReader& reader,
                               Status (*read_feed_forward_sizes)(const SpecReader&, ModelSpec&),
                               Status (*read_layer)(const LayerPart& part));

}  // namespace loci
