// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/cpu_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "loci/compute/cpu/file_pages.h"

namespace loci::cpu {

namespace {

struct MatrixJob {
  TensorView tensor;
  TensorView bias;  // or absent
  PackedMatrix* matrix;
};
struct VectorJob {
  TensorView tensor;
  const float** vector;
  float factor;
};

// Part `index` of `parts` that lie one after the other: rows of a matrix or of biases, or columns of one
// row of biases.
TensorView part_of(TensorView tensor, std::uint64_t index, std::uint64_t parts) {
  if (!tensor.present() || parts == 1) return tensor;
  tensor.data += tensor.size_bytes() / parts * index;
  (tensor.rows == 1 ? tensor.columns : tensor.rows) /= parts;
  return tensor;
}

void add_form(ActivationForms& forms, const PackedMatrix& matrix) {
  (matrix.quantized() ? forms.quantized : forms.floats) = true;
}

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

float* take_vector(std::uint8_t*& at, std::uint64_t count) {
  float* vector = reinterpret_cast<float*>(at);
  at += aligned(count * sizeof(float));
  return vector;
}

// The file's pages are given back piece by piece as they are packed, so that a model is not held twice.
void pack_range(const MatrixJob& job, WorkRange range, const FilePages& files) {
  constexpr std::uint64_t kPieceBytes = 4u << 20;
  const std::uint64_t group_bytes = kLanes * job.tensor.row_bytes();
  const auto piece = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kPieceBytes / group_bytes));
  for (std::uint32_t begin = range.begin; begin < range.end; begin += piece) {
    const std::uint32_t end = std::min(range.end, begin + piece);
    for (std::uint32_t group = begin; group < end; ++group) pack_group(job.tensor, *job.matrix, group);
    files.release(job.tensor, std::uint64_t{begin} * kLanes,
                  std::min<std::uint64_t>(job.tensor.rows, std::uint64_t{end} * kLanes));
  }
}

void pack_all(std::span<const MatrixJob> jobs, ThreadPool& pool) {
  const FilePages files;
  pool.run([&](std::uint32_t thread) {
    for (const MatrixJob& job : jobs) {
      WorkRange range;
      while (pool.claim(thread, job.matrix->groups, range)) pack_range(job, range, files);
      pool.barrier(thread);
    }
  });
}

// What is to be packed, in the order in which passes use it.
class Jobs {
 public:
  // Errors: a type that no kernel multiplies.
  Status add_matrix(const TensorView& tensor, const TensorView& bias, PackedMatrix& matrix,
                    ActivationForms& input) {
    LOCI_ASSIGN_OR_RETURN(matrix, describe_packed(tensor));
    add_form(input, matrix);
    matrices_.push_back({tensor, bias, &matrix});
    return {};
  }
  void add_vector(const TensorView& tensor, const float*& vector, float factor = 1) {
    if (tensor.present()) vectors_.push_back({tensor, &vector, factor});
  }
  void add_norm(const NormSpec& norm, CpuNorm& to) {
    add_vector(norm.weight, to.weight);
    add_vector(norm.bias, to.bias);
  }
  Status add_ffn(const ModelSpec& spec, const FeedForwardSpec& from, CpuWeights& weights, CpuLayer& to);

  // Fills all that was added.
  Result<Buffer> pack(ThreadPool& pool) const;

 private:
  std::vector<MatrixJob> matrices_;
  std::vector<VectorJob> vectors_;
};

Status Jobs::add_ffn(const ModelSpec& spec, const FeedForwardSpec& from, CpuWeights& weights, CpuLayer& to) {
  const bool mixture = from.router.present();
  const std::uint32_t parts = mixture ? spec.experts : 1;
  std::uint32_t& width = mixture ? weights.expert_width : weights.ffn_width;
  const auto found = static_cast<std::uint32_t>(from.up.rows / parts);
  if (width != 0 && width != found) {
    return invalid_argument(fmt::format("expected {} rows as in the layers before, found {}",
                                        std::uint64_t{width} * parts, from.up.rows),
                            from.up.name);
  }
  width = found;
  if (mixture) {
    LOCI_RETURN_IF_ERROR(add_matrix(from.router, from.router_bias, to.router, weights.router_input));
  }
  ActivationForms& input = mixture ? weights.expert_input : weights.ffn_input;
  ActivationForms& down = mixture ? weights.expert_down_input : weights.down_input;
  to.ffn.resize(parts);  // its elements stay where they are from now on
  for (std::uint32_t i = 0; i < parts; ++i) {
    CpuFeedForward& part = to.ffn[i];
    if (from.gate.present()) {
      LOCI_RETURN_IF_ERROR(
          add_matrix(part_of(from.gate, i, parts), part_of(from.gate_bias, i, parts), part.gate, input));
    }
    LOCI_RETURN_IF_ERROR(
        add_matrix(part_of(from.up, i, parts), part_of(from.up_bias, i, parts), part.up, input));
    LOCI_RETURN_IF_ERROR(
        add_matrix(part_of(from.down, i, parts), part_of(from.down_bias, i, parts), part.down, down));
  }
  return {};
}

Result<Buffer> Jobs::pack(ThreadPool& pool) const {
  std::uint64_t bytes = 0;
  for (const MatrixJob& job : matrices_) {
    bytes += aligned(job.matrix->size_bytes());
    if (job.bias.present()) bytes += aligned(job.matrix->groups * kLanes * sizeof(float));
  }
  const auto length = [](const VectorJob& job) {
    return padded_to_lanes(static_cast<std::uint32_t>(job.tensor.columns));
  };
  for (const VectorJob& job : vectors_) bytes += aligned(length(job) * sizeof(float));
  LOCI_ASSIGN_OR_RETURN(Buffer memory, Buffer::allocate(bytes, "the packed weights"));
  std::uint8_t* at = memory.data();
  for (const VectorJob& job : vectors_) {
    float* vector = take_vector(at, length(job));
    decode_row(job.tensor, 0, {vector, job.tensor.columns});
    for (std::uint64_t i = 0; i < job.tensor.columns; ++i) vector[i] *= job.factor;
    *job.vector = vector;
  }
  for (const MatrixJob& job : matrices_) {
    job.matrix->data = at;
    at += aligned(job.matrix->size_bytes());
    if (!job.bias.present()) continue;
    float* bias = take_vector(at, job.matrix->groups * kLanes);
    decode_row(job.bias, 0, {bias, job.bias.columns});
    job.matrix->bias = bias;
  }
  pack_all(matrices_, pool);
  return memory;
}

}  // namespace

Result<CpuWeights> CpuWeights::pack(const ModelSpec& spec, ThreadPool& pool) {
  constexpr float kLog2E = 1.44269504088896341f;
  CpuWeights weights;
  Jobs jobs;
  weights.layers_.resize(spec.layers.size());
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& from = spec.layers[i];
    CpuLayer& to = weights.layers_[i];
    jobs.add_norm(from.attention_norm, to.attention_norm);
    jobs.add_norm(from.attention_post_norm, to.attention_post_norm);
    jobs.add_norm(from.ffn_norm, to.ffn_norm);
    jobs.add_norm(from.ffn_post_norm, to.ffn_post_norm);
    jobs.add_norm(from.query_norm, to.query_norm);
    jobs.add_norm(from.key_norm, to.key_norm);
    jobs.add_vector(from.attention_sinks, to.sinks, kLog2E);
    LOCI_RETURN_IF_ERROR(jobs.add_matrix(from.query, from.query_bias, to.query, weights.qkv_input));
    LOCI_RETURN_IF_ERROR(jobs.add_matrix(from.key, from.key_bias, to.key, weights.qkv_input));
    LOCI_RETURN_IF_ERROR(jobs.add_matrix(from.value, from.value_bias, to.value, weights.qkv_input));
    LOCI_RETURN_IF_ERROR(jobs.add_matrix(from.attention_output, from.attention_output_bias,
                                         to.attention_output, weights.attention_output_input));
    LOCI_RETURN_IF_ERROR(jobs.add_ffn(spec, from.ffn, weights, to));
  }
  jobs.add_norm(spec.output_norm, weights.output_norm_);
  LOCI_RETURN_IF_ERROR(jobs.add_matrix(spec.output, {}, weights.output_, weights.output_input));
  LOCI_ASSIGN_OR_RETURN(weights.memory_, jobs.pack(pool));
  return weights;
}

}  // namespace loci::cpu
