// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/cuda_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <thread>
#include <utility>

namespace loci::cuda {

namespace {

constexpr const char* kWhat = "the model's weights (a smaller model or quantisation needs less)";
constexpr std::uint64_t kVectorAlignment = 64;  // floats between the begins of vectors: 256 bytes

// Vectors of f32, gathered on the host and uploaded at once. Where they will be is known in the end.
class Vectors {
 public:
  // `parts` one after the other, of `counts` values each; absent ones are zeros. All absent: none.
  struct Part {
    const TensorView* tensor;
    std::uint64_t count;
  };
  void add(std::initializer_list<Part> parts, std::uint32_t experts, const float*& to) {
    if (std::none_of(parts.begin(), parts.end(), [](const Part& part) { return part.tensor->present(); }))
      return;
    wanted_.push_back({&to, values_.size()});
    for (std::uint32_t expert = 0; expert < experts; ++expert) {
      for (const Part& part : parts) add_part(*part.tensor, part.count, expert);
    }
    values_.resize((values_.size() + kVectorAlignment - 1) / kVectorAlignment * kVectorAlignment);
  }
  void add(const TensorView& tensor, const float*& to) { add({{&tensor, tensor.columns}}, 1, to); }
  void add(const NormSpec& norm, const ModelSpec& spec, RowNorm& to) {
    add(norm.weight, to.weight);
    add(norm.bias, to.bias);
    to.kind = spec.norm;
    to.epsilon = spec.norm_epsilon;
  }

  const std::vector<float>& values() const { return values_; }
  void settle(const float* begin) const {
    for (const auto& [to, at] : wanted_) *to = begin + at;
  }

 private:
  // Biases of experts lie one after the other in one row, or a row each.
  void add_part(const TensorView& tensor, std::uint64_t count, std::uint32_t expert) {
    const std::size_t at = values_.size();
    values_.resize(at + count);
    if (!tensor.present()) return;
    if (tensor.rows > 1) return decode_row(tensor, expert, {values_.data() + at, count});
    std::vector<float> row(tensor.columns);
    decode_row(tensor, 0, row);
    std::copy_n(row.begin() + static_cast<std::ptrdiff_t>(expert * count), count, values_.begin() + at);
  }

  std::vector<float> values_;
  std::vector<std::pair<const float**, std::size_t>> wanted_;
};

// Copies from memory that is not pinned, piece by piece.
class Uploader {
 public:
  static Result<Uploader> make(const Device& device) {
    LOCI_ASSIGN_OR_RETURN(Memory staging, Memory::allocate(device, MemoryKind::kPinned, kPieceBytes, kWhat));
    return Uploader(device, std::move(staging));
  }
  void copy(std::byte* to, const void* from, std::uint64_t bytes) {
    for (std::uint64_t at = 0; at < bytes; at += kPieceBytes) {
      const std::uint64_t piece = std::min(kPieceBytes, bytes - at);
      std::memcpy(staging_.data(), static_cast<const std::byte*>(from) + at, piece);
      stream_.copy(to + at, staging_.data(), piece);
      stream_.synchronize();
    }
  }

 private:
  static constexpr std::uint64_t kPieceBytes = 4u << 20;
  Uploader(const Device& device, Memory staging) : staging_(std::move(staging)), stream_(device) {}
  Memory staging_;
  Stream stream_;
};

Status load_ffn(const ModelSpec& spec, const FeedForwardSpec& from, MatrixLoader& loader, Vectors& vectors,
                CudaWeights& weights, CudaLayer& to) {
  const bool mixture = from.router.present();
  const std::uint32_t experts = mixture ? spec.experts : 1;
  to.ffn = static_cast<std::uint32_t>(from.up.rows / experts);
  to.gated = from.gate.present();
  std::uint32_t& widest = mixture ? weights.expert_width : weights.ffn_width;
  widest = std::max(widest, to.ffn);
  if (to.ffn % 8 != 0) {
    return invalid_argument("expected a width that is a multiple of 8: no CUDA kernel serves others",
                            from.up.name);
  }
  if (mixture) {
    LOCI_ASSIGN_OR_RETURN(to.router.matrix, loader.load(from.router));
    vectors.add(from.router_bias, to.router.bias);
  }
  if (to.gated) {
    const TensorView both[] = {from.gate, from.up};
    LOCI_ASSIGN_OR_RETURN(to.gate_up.matrix, loader.load(both, experts));
    vectors.add({{&from.gate_bias, to.ffn}, {&from.up_bias, to.ffn}}, experts, to.gate_up.bias);
  } else {
    LOCI_ASSIGN_OR_RETURN(to.gate_up.matrix, loader.load({&from.up, 1}, experts));
    vectors.add({{&from.up_bias, to.ffn}}, experts, to.gate_up.bias);
  }
  LOCI_ASSIGN_OR_RETURN(to.down.matrix, loader.load({&from.down, 1}, experts));
  vectors.add({{&from.down_bias, spec.hidden}}, experts, to.down.bias);
  return {};
}

Status load_layer(const ModelSpec& spec, const LayerSpec& from, MatrixLoader& loader, Vectors& vectors,
                  CudaWeights& weights, CudaLayer& to) {
  vectors.add(from.attention_norm, spec, to.attention_norm);
  vectors.add(from.attention_post_norm, spec, to.attention_post_norm);
  vectors.add(from.ffn_norm, spec, to.ffn_norm);
  vectors.add(from.ffn_post_norm, spec, to.ffn_post_norm);
  vectors.add(from.query_norm.weight, to.query_norm);
  vectors.add(from.key_norm.weight, to.key_norm);
  vectors.add(from.attention_sinks, to.sinks);
  const TensorView qkv[] = {from.query, from.key, from.value};
  LOCI_ASSIGN_OR_RETURN(to.qkv.matrix, loader.load(qkv, 1));
  vectors.add({{&from.query_bias, from.query.rows},
               {&from.key_bias, from.key.rows},
               {&from.value_bias, from.value.rows}},
              1, to.qkv.bias);
  LOCI_ASSIGN_OR_RETURN(to.attention_output.matrix, loader.load(from.attention_output));
  vectors.add(from.attention_output_bias, to.attention_output.bias);
  return load_ffn(spec, from.ffn, loader, vectors, weights, to);
}

// [position][pair]
std::vector<float2> rotations(const RopeSpec& rope, std::uint32_t begin, std::uint32_t end) {
  std::vector<float2> table;
  table.reserve(std::size_t{end - begin} * rope.inverse_frequency.size());
  for (std::uint32_t position = begin; position < end; ++position) {
    for (const double frequency : rope.inverse_frequency) {
      const double angle = position * frequency;
      table.push_back({static_cast<float>(rope.magnitude * std::cos(angle)),
                       static_cast<float>(rope.magnitude * std::sin(angle))});
    }
  }
  return table;
}

Result<Memory> upload_rotations(const ModelSpec& spec, const Device& device, std::uint32_t context_tokens,
                                Uploader& uploader, std::vector<CudaRope>& ropes) {
  std::uint64_t bytes = 0;
  for (const RopeSpec& rope : spec.ropes)
    bytes += std::uint64_t{context_tokens} * rope.dimensions / 2 * sizeof(float2);
  if (bytes == 0) {
    ropes.resize(spec.ropes.size());
    return Memory();
  }
  LOCI_ASSIGN_OR_RETURN(Memory memory, Memory::allocate(device, MemoryKind::kDevice, bytes,
                                                        "tables of rotations (option context)"));
  std::byte* at = memory.data();
  for (const RopeSpec& rope : spec.ropes) {
    ropes.push_back({reinterpret_cast<const float2*>(at), rope.dimensions, rope.layout});
    constexpr std::uint32_t kPositions = 4096;  // at a time
    for (std::uint32_t begin = 0; begin < context_tokens; begin += kPositions) {
      const std::vector<float2> table = rotations(rope, begin, std::min(context_tokens, begin + kPositions));
      uploader.copy(at, table.data(), table.size() * sizeof(float2));
      at += table.size() * sizeof(float2);
    }
  }
  return memory;
}

}  // namespace

Result<CudaWeights> CudaWeights::load(const ModelSpec& spec, const Device& device, ElementType element,
                                      std::uint32_t context_tokens) {
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  LOCI_ASSIGN_OR_RETURN(const std::unique_ptr<MatrixLoader> loader,
                        MatrixLoader::make(device, element, threads));
  LOCI_ASSIGN_OR_RETURN(Uploader uploader, Uploader::make(device));
  CudaWeights weights;
  Vectors vectors;
  weights.layers_.resize(spec.layers.size());  // they stay where they are from now on
  LOCI_ASSIGN_OR_RETURN(weights.embedding_, loader->load(spec.embedding));
  if (spec.position_embedding.present()) {
    LOCI_ASSIGN_OR_RETURN(weights.position_embedding_, loader->load(spec.position_embedding));
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    LOCI_RETURN_IF_ERROR(load_layer(spec, spec.layers[i], *loader, vectors, weights, weights.layers_[i]));
  }
  RowNorm output_norm;  // `weights` moves
  vectors.add(spec.output_norm, spec, output_norm);
  if (spec.output.data != spec.embedding.data) {
    LOCI_ASSIGN_OR_RETURN(weights.output_, loader->load(spec.output));
  }
  if (!vectors.values().empty()) {
    const std::uint64_t bytes = vectors.values().size() * sizeof(float);
    LOCI_ASSIGN_OR_RETURN(weights.vectors_, Memory::allocate(device, MemoryKind::kDevice, bytes, kWhat));
    uploader.copy(weights.vectors_.data(), vectors.values().data(), bytes);
  }
  vectors.settle(weights.vectors_.as<const float>());
  weights.output_norm_ = output_norm;
  LOCI_ASSIGN_OR_RETURN(weights.rotations_,
                        upload_rotations(spec, device, context_tokens, uploader, weights.ropes_));
  LOCI_RETURN_IF_ERROR(loader->finish());
  LOCI_RETURN_IF_ERROR(device.status());
  const auto add = [&](const DeviceMatrix& matrix) { weights.size_bytes_ += matrix.size_bytes(); };
  add(weights.embedding_);
  add(weights.position_embedding_);
  add(weights.output_);
  for (const CudaLayer& layer : weights.layers_) {
    for (const CudaProjection* projection :
         {&layer.qkv, &layer.attention_output, &layer.router, &layer.gate_up, &layer.down}) {
      add(projection->matrix);
    }
  }
  weights.size_bytes_ += weights.vectors_.size() + weights.rotations_.size();
  return weights;
}

PlaceArguments place_arguments(const ModelSpec& spec, const CudaWeights& weights, ElementType element,
                               std::uint32_t layer) {
  PlaceArguments arguments;
  arguments.query_norm = weights.layers()[layer].query_norm;
  arguments.key_norm = weights.layers()[layer].key_norm;
  arguments.norm_epsilon = spec.norm_epsilon;
  if (const auto rope = spec.layers[layer].rope; rope && weights.ropes()[*rope].dimensions > 0) {
    arguments.rope = weights.ropes()[*rope].table;
    arguments.rope_dimensions = weights.ropes()[*rope].dimensions;
    arguments.rope_layout = weights.ropes()[*rope].layout;
  }
  arguments.type = element;
  return arguments;
}

}  // namespace loci::cuda
