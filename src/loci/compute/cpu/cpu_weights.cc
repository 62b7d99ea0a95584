#include "loci/compute/cpu/cpu_weights.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <span>
#include <utility>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

namespace loci::cpu {

namespace {

struct MatrixJob {
  const TensorView* tensor;
  const TensorView* bias;  // or nullptr
  PackedMatrix* matrix;
  bool keep_file;  // rows are read from the file later
};
struct VectorJob {
  const TensorView* tensor;
  const float** vector;
};

Status check_shape(const TensorView& tensor, std::uint64_t rows, std::uint64_t columns) {
  if (tensor.present() && tensor.rows == rows && tensor.columns == columns) return {};
  return invalid_argument(
      fmt::format("expected a tensor [{}, {}], found [{}, {}]", rows, columns, tensor.rows, tensor.columns),
      tensor.name);
}

Status check_vector(const TensorView& tensor, std::uint64_t count) {
  if (!tensor.present()) return {};
  return check_shape(tensor, 1, count);
}

Status check_layer(const ModelSpec& spec, const LayerSpec& layer) {
  const std::uint64_t q = std::uint64_t{spec.heads} * spec.head_dim, kv = spec.kv_width();
  LOCI_RETURN_IF_ERROR(check_shape(layer.attention_norm.weight, 1, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(layer.ffn_norm.weight, 1, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(layer.query, q, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(layer.key, kv, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(layer.value, kv, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(layer.attention_output, spec.hidden, q));
  LOCI_RETURN_IF_ERROR(check_shape(layer.ffn.gate, spec.ffn, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(layer.ffn.up, spec.ffn, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(layer.ffn.down, spec.hidden, spec.ffn));
  LOCI_RETURN_IF_ERROR(check_vector(layer.query_bias, q));
  LOCI_RETURN_IF_ERROR(check_vector(layer.key_bias, kv));
  LOCI_RETURN_IF_ERROR(check_vector(layer.value_bias, kv));
  return check_vector(layer.attention_output_bias, spec.hidden);
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

// The file's pages are clean and can be read again: the system may have them back. Pages of other memory
// stay as they are.
void release_pages(const TensorView& tensor) {
  constexpr std::uintptr_t kPage = 4096;
  const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(tensor.data) + kPage - 1) / kPage * kPage;
  const std::uintptr_t end =
      (reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.size_bytes()) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_PAGEOUT);
}

void pack_all(std::span<const MatrixJob> jobs, ThreadPool& pool) {
  pool.run([&](std::uint32_t thread) {
    for (const MatrixJob& job : jobs) {
      WorkRange range;
      while (pool.claim(thread, job.matrix->groups, range)) {
        for (std::uint32_t group = range.begin; group < range.end; ++group)
          pack_group(*job.tensor, *job.matrix, group);
      }
      pool.barrier(thread);
      if (thread == 0 && !job.keep_file) release_pages(*job.tensor);
    }
  });
}

}  // namespace

Result<CpuWeights> CpuWeights::pack(const ModelSpec& spec, ThreadPool& pool) {
  CpuWeights weights;
  std::vector<MatrixJob> matrices;
  std::vector<VectorJob> vectors;
  weights.layers_.resize(spec.layers.size());
  const auto add_matrix = [&](const TensorView& tensor, const TensorView* bias, PackedMatrix& matrix,
                              ActivationForms& input, bool keep_file = false) -> Status {
    LOCI_ASSIGN_OR_RETURN(matrix, describe_packed(tensor));
    add_form(input, matrix);
    matrices.push_back({&tensor, bias != nullptr && bias->present() ? bias : nullptr, &matrix, keep_file});
    return {};
  };
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& from = spec.layers[i];
    CpuLayer& to = weights.layers_[i];
    LOCI_RETURN_IF_ERROR(check_layer(spec, from));
    vectors.push_back({&from.attention_norm.weight, &to.attention_norm});
    vectors.push_back({&from.ffn_norm.weight, &to.ffn_norm});
    LOCI_RETURN_IF_ERROR(add_matrix(from.query, &from.query_bias, to.query, weights.qkv_input));
    LOCI_RETURN_IF_ERROR(add_matrix(from.key, &from.key_bias, to.key, weights.qkv_input));
    LOCI_RETURN_IF_ERROR(add_matrix(from.value, &from.value_bias, to.value, weights.qkv_input));
    LOCI_RETURN_IF_ERROR(add_matrix(from.attention_output, &from.attention_output_bias, to.attention_output,
                                    weights.attention_output_input));
    LOCI_RETURN_IF_ERROR(add_matrix(from.ffn.gate, nullptr, to.ffn_gate, weights.ffn_input));
    LOCI_RETURN_IF_ERROR(add_matrix(from.ffn.up, nullptr, to.ffn_up, weights.ffn_input));
    LOCI_RETURN_IF_ERROR(add_matrix(from.ffn.down, nullptr, to.ffn_down, weights.down_input));
  }
  LOCI_RETURN_IF_ERROR(check_shape(spec.output_norm.weight, 1, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(spec.embedding, spec.vocabulary, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(spec.output, spec.vocabulary, spec.hidden));
  vectors.push_back({&spec.output_norm.weight, &weights.output_norm_});
  LOCI_RETURN_IF_ERROR(add_matrix(spec.output, nullptr, weights.output_, weights.output_input,
                                  spec.output.data == spec.embedding.data));

  std::uint64_t bytes = 0;
  for (const MatrixJob& job : matrices) {
    bytes += aligned(job.matrix->size_bytes()) +
             (job.bias != nullptr ? aligned(job.matrix->groups * kLanes * 4) : 0);
  }
  bytes += vectors.size() * aligned(std::uint64_t{padded_to_lanes(spec.hidden)} * sizeof(float));
  LOCI_ASSIGN_OR_RETURN(weights.memory_, Buffer::allocate(bytes, "the packed weights"));
  std::uint8_t* at = weights.memory_.data();
  for (const VectorJob& job : vectors) {
    float* vector = take_vector(at, padded_to_lanes(spec.hidden));
    decode_row(*job.tensor, 0, {vector, job.tensor->columns});
    *job.vector = vector;
  }
  for (const MatrixJob& job : matrices) {
    job.matrix->data = at;
    at += aligned(job.matrix->size_bytes());
    if (job.bias == nullptr) continue;
    float* bias = take_vector(at, job.matrix->groups * kLanes);
    decode_row(*job.bias, 0, {bias, job.bias->columns});
    job.matrix->bias = bias;
  }
  pack_all(matrices, pool);
  return weights;
}

}  // namespace loci::cpu
