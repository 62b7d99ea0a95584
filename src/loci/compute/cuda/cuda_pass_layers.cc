// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/cuda_pass_layers.h"

#include <algorithm>
#include <utility>

namespace loci::cuda {

void PassLayers::leave(const float* change, const RowNorm& post) {
  if (changes_.first == nullptr) {
    changes_.first = change;
    changes_.post = post;
  } else {
    changes_.second = change;
    changes_.post2 = post;
  }
}

void PassLayers::add_changes(const PassHooks& hooks, const RowNorm& norm, const RowNorm* beside,
                             std::uint32_t rows, std::byte* normed, Stream& stream) {
  if (hooks.overwrite) hooks.overwrite();
  AddNormArguments arguments;
  arguments.residual = buffers_.residual.as<float>();
  arguments.change = changes_.first;
  arguments.change2 = changes_.second;
  arguments.post = changes_.post;
  arguments.post2 = changes_.post2;
  arguments.norm = norm;
  arguments.output = normed;
  if (beside != nullptr) {
    arguments.norm2 = *beside;
    arguments.output2 = buffers_.normed_beside.data();
  }
  arguments.rows = rows;
  arguments.width = spec_.hidden;
  arguments.type = element_;
  add_norm(arguments, stream);
  changes_ = {};
}

void PassLayers::multiply(const CudaProjection& projection, const void* input, std::uint32_t rows,
                          void* output, ProductOutput mode, Stream& stream) {
  ProductArguments arguments;
  arguments.matrix = &projection.matrix;
  arguments.input = input;
  arguments.input_stride = projection.matrix.columns;
  arguments.rows = rows;
  arguments.output = output;
  arguments.output_stride = projection.matrix.rows;
  arguments.mode = mode;
  arguments.bias = projection.bias;
  products_.multiply(arguments, stream);
}

void PassLayers::multiply_and_add(const CudaProjection& projection, const void* input, std::uint32_t rows,
                                  const RowNorm& post, Memory& change, Stream& stream) {
  if (post.present()) {
    multiply(projection, input, rows, change.data(), ProductOutput::kFloats, stream);
    leave(change.as<float>(), post);
  } else {
    multiply(projection, input, rows, buffers_.residual.data(), ProductOutput::kAdded, stream);
  }
}

void PassLayers::begin(const PassLaunch& launch, const PassHooks& hooks, Stream& stream) {
  const DescriptorLayout& layout = *launch.layout;
  const std::uint32_t rows = launch.rows_in_layer.front();
  auto* tokens = reinterpret_cast<std::uint32_t*>(buffers_.descriptors.data() + layout.tokens);
  changes_ = {};
  if (launch.feeds) {
    feed_tokens({at<std::uint32_t>(layout.sources), buffers_.samples.as<std::uint32_t>(), tokens, rows},
                stream);
  }
  for (std::uint32_t layer = 0; layer < spec_.layer_count(); ++layer) {
    const std::uint32_t group = launch.group_of[layer];
    if (launch.copies[group] == 0) continue;
    copy_tokens(launch.states[layer], at<TokenCopy>(layout.groups[group].copies), launch.copies[group],
                stream);
  }
  if (hooks.copied) hooks.copied();
  EmbedArguments arguments;
  arguments.embedding = &weights_.embedding();
  arguments.positions = weights_.position_embedding();
  arguments.tokens = tokens;
  arguments.row_positions = at<std::uint32_t>(layout.learned_positions);
  arguments.rows = rows;
  arguments.scale = spec_.embedding_scale;
  arguments.output = buffers_.residual.as<float>();
  embed(arguments, stream);
}

void PassLayers::issue(const PassLaunch& launch, const PassHooks& hooks, std::uint32_t logits_rows,
                       Stream& stream) {
  begin(launch, hooks, stream);
  for (std::uint32_t layer = 0; layer < spec_.layer_count(); ++layer) run_layer(launch, hooks, layer, stream);
  if (launch.wanted_rows > 0) run_output(launch, hooks, logits_rows, stream);
}

void PassLayers::prepare_attention(const PassHooks& hooks, const CudaLayer& weights, std::uint32_t rows,
                                   std::byte* input, Stream& stream) {
  const bool two = spec_.parallel && weights.ffn_norm.present();
  add_changes(hooks, weights.attention_norm, two ? &weights.ffn_norm : nullptr, rows, input, stream);
}

void PassLayers::place(const PassLaunch& launch, std::uint32_t layer, Stream& stream) {
  const DescriptorLayout& layout = *launch.layout;
  PlaceArguments arguments = place_arguments(spec_, weights_, element_, layer);
  arguments.qkv = buffers_.qkv.data();
  arguments.queries = buffers_.queries.data();
  arguments.state = launch.states[layer];
  arguments.positions = at<std::uint32_t>(layout.positions);
  arguments.places = at<std::uint32_t>(layout.groups[launch.group_of[layer]].places);
  arguments.rows = launch.rows_in_layer[layer];
  arguments.heads = spec_.heads;
  place_rows(arguments, stream);
}

void PassLayers::attend_layer(const PassLaunch& launch, std::uint32_t layer, Stream& stream) {
  const DescriptorLayout& layout = *launch.layout;
  const DescriptorLayout::Attention& from = layout.attentions[launch.attention_of[layer]];
  AttentionArguments arguments;
  arguments.queries = buffers_.queries.data();
  arguments.output = buffers_.attended.data();
  arguments.state = launch.states[layer];
  arguments.tables = at<std::uint32_t>(layout.tables);
  arguments.runs = at<AttentionRun>(layout.groups[launch.group_of[layer]].runs);
  arguments.tasks = at<AttentionTask>(from.tasks);
  arguments.warpgroup_tasks = at<AttentionTask>(from.warpgroup_tasks);
  arguments.merges = at<AttentionMerge>(from.merges);
  arguments.counts = at<AttentionCounts>(from.counts);
  arguments.tasks_max = from.tasks_max;
  arguments.warpgroup_tasks_max = from.warpgroup_tasks_max;
  arguments.merges_max = from.merges_max;
  arguments.partial_values = buffers_.partial_values.as<float>();
  arguments.partial_statistics = buffers_.partial_statistics.as<float>();
  arguments.sinks = weights_.layers()[layer].sinks;
  arguments.heads = spec_.heads;
  arguments.window = spec_.layers[layer].window;
  arguments.split_keys = deterministic_ ? kAttentionSplitKeys : 0;
  arguments.scale = spec_.attention_scale;
  arguments.softcap = spec_.attention_softcap;
  arguments.type = element_;
  arguments.prompt_tiles = from.prompt_tiles;
  attend(arguments, stream);
}

void PassLayers::run_layer(const PassLaunch& launch, const PassHooks& hooks, std::uint32_t layer,
                           Stream& stream) {
  const std::uint32_t rows = launch.rows_in_layer[layer], after = launch.rows_after[layer];
  if (rows == 0) return;
  const CudaLayer& weights = weights_.layers()[layer];
  std::byte* normed = buffers_.normed.data();
  std::byte* attention_input =
      launch.inputs == nullptr ? normed : launch.inputs + std::uint64_t{layer} * rows * spec_.hidden * 2;
  prepare_attention(hooks, weights, rows, attention_input, stream);
  if (hooks.hidden) hooks.hidden(layer, attention_input);
  multiply(weights.qkv, attention_input, rows, buffers_.qkv.data(), ProductOutput::kElements, stream);
  // Before the layer's new keys and values: a block that arrives is written beside them.
  if (hooks.await) hooks.await(layer);
  place(launch, layer, stream);
  if (after == 0) return;
  attend_layer(launch, layer, stream);
  multiply_and_add(weights.attention_output, buffers_.attended.data(), after, weights.attention_post_norm,
                   buffers_.attention_change, stream);
  const void* input = !spec_.parallel              ? normed
                      : weights.ffn_norm.present() ? buffers_.normed_beside.data()
                                                   : attention_input;
  if (!spec_.parallel) add_changes(hooks, weights.ffn_norm, nullptr, after, normed, stream);
  if (weights.mixture()) {
    run_mixture(weights, input, after, stream);
  } else {
    feed_forward(weights, input, after, stream);
  }
}

void PassLayers::feed_forward(const CudaLayer& weights, const void* input, std::uint32_t rows,
                              Stream& stream) {
  multiply(weights.gate_up, input, rows, buffers_.gate_up.data(), ProductOutput::kElements, stream);
  activate({buffers_.gate_up.data(), buffers_.activated.data(), weights.gated, spec_.activation, rows,
            weights.ffn, element_},
           stream);
  multiply_and_add(weights.down, buffers_.activated.data(), rows, weights.ffn_post_norm, buffers_.ffn_change,
                   stream);
}

void PassLayers::run_mixture(const CudaLayer& weights, const void* input, std::uint32_t rows,
                             Stream& stream) {
  const std::uint32_t used = rows * spec_.expert_uses;
  multiply(weights.router, input, rows, buffers_.scores.data(), ProductOutput::kFloats, stream);
  RouteArguments route_arguments;
  route_arguments.scores = buffers_.scores.as<float>();
  route_arguments.rows = rows;
  route_arguments.experts = spec_.experts;
  route_arguments.uses = spec_.expert_uses;
  route_arguments.normalised = spec_.expert_weights_normalised;
  route_arguments.chosen = buffers_.chosen.as<std::uint32_t>();
  route_arguments.weights = buffers_.expert_weights.as<float>();
  route_arguments.offsets = buffers_.expert_offsets.as<std::uint32_t>();
  route_arguments.sources = buffers_.expert_sources.as<std::uint32_t>();
  route_arguments.places = buffers_.expert_places.as<std::uint32_t>();
  route(route_arguments, stream);
  gather_rows(input, buffers_.expert_sources.as<std::uint32_t>(), used, spec_.hidden,
              buffers_.expert_inputs.data(), stream);
  const auto multiply_experts = [&](const CudaProjection& projection, const void* from, void* to,
                                    ProductOutput mode) {
    ProductArguments arguments;
    arguments.matrix = &projection.matrix;
    arguments.input = from;
    arguments.input_stride = projection.matrix.columns;
    arguments.rows = used;
    arguments.output = to;
    arguments.output_stride = projection.matrix.outputs();
    arguments.mode = mode;
    arguments.bias = projection.bias;
    products_.multiply_experts(arguments, buffers_.expert_offsets.as<std::uint32_t>(), spec_.experts, stream);
  };
  multiply_experts(weights.gate_up, buffers_.expert_inputs.data(), buffers_.gate_up.data(),
                   ProductOutput::kElements);
  activate({buffers_.gate_up.data(), buffers_.activated.data(), weights.gated, spec_.activation, used,
            weights.ffn, element_},
           stream);
  multiply_experts(weights.down, buffers_.activated.data(), buffers_.expert_products.data(),
                   ProductOutput::kFloats);
  combine({buffers_.expert_products.as<float>(), buffers_.expert_weights.as<float>(),
           buffers_.expert_places.as<std::uint32_t>(), buffers_.ffn_change.as<float>(), rows,
           spec_.expert_uses, spec_.hidden},
          stream);
  leave(buffers_.ffn_change.as<float>(), weights.ffn_post_norm);
}

void PassLayers::run_output(const PassLaunch& launch, const PassHooks& hooks, std::uint32_t logits_rows,
                            Stream& stream) {
  add_changes(hooks, weights_.output_norm(), nullptr, launch.wanted_rows, buffers_.normed.data(), stream);
  for (std::uint32_t begin = 0; begin < launch.wanted_rows; begin += logits_rows) {
    const std::uint32_t end = std::min(launch.wanted_rows, begin + logits_rows);
    ProductArguments arguments;
    arguments.matrix = &weights_.output();
    arguments.input = buffers_.normed.data() + std::uint64_t{begin} * spec_.hidden * 2;
    arguments.input_stride = spec_.hidden;
    arguments.rows = end - begin;
    arguments.output = buffers_.logits.data();
    arguments.output_stride = spec_.vocabulary;
    arguments.mode = ProductOutput::kFloats;
    products_.multiply(arguments, stream);
    if (spec_.output_softcap != 0) {
      cap_logits(buffers_.logits.as<float>(), std::uint64_t{end - begin} * spec_.vocabulary,
                 spec_.output_softcap, stream);
    }
    // Rows that are sampled are the first; there is room for all of them.
    if (begin == 0 && launch.samples_max > 0) sample_rows(launch, stream);
    if (hooks.logits) hooks.logits(begin, end, buffers_.logits.as<float>());
  }
}

void PassLayers::sample_rows(const PassLaunch& launch, Stream& stream) {
  SampleArguments arguments;
  arguments.logits = buffers_.logits.as<float>();
  arguments.vocabulary = spec_.vocabulary;
  arguments.rows = at<SampleRow>(launch.layout->samples);
  arguments.count = at<std::uint32_t>(launch.layout->sample_count);
  arguments.count_max = launch.samples_max;
  arguments.samples = buffers_.samples.as<std::uint32_t>();
  arguments.workspace = buffers_.sample_workspace.data();
  sample(arguments, stream);
}

}  // namespace loci::cuda
