// SPDX-License-Identifier: Apache-2.0
// Embeddings, and biases of a library's products: a thread a value. Embedding reads single rows of a packed
// matrix, 4 bytes at a time: a pass's tokens are few beside its products.
#include "loci/base/check.h"
#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/packed_layout.h"
#include "loci/compute/cuda/products/packing.h"
#include "loci/compute/cuda/products/product_parts.h"
#include "loci/compute/cuda/products/product_rows.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

struct RowsSource {
  const std::byte* data;     // null: no rows
  std::uint64_t tile_bytes;  // packed
  std::uint32_t rows;
  MatrixFormat format;
};

struct EmbedParams {
  RowsSource embedding, positions;
  const std::uint32_t* tokens;
  const std::uint32_t* row_positions;
  std::uint32_t columns;
  float scale;
  float* output;
};

LOCI_DEVICE float row_value(const RowsSource& from, std::uint32_t row, std::uint32_t column,
                            std::uint32_t columns) {
  if (from.format == MatrixFormat::kHalf) {
    return to_float(reinterpret_cast<const Half*>(from.data)[std::uint64_t{row} * columns + column]);
  }
  if (from.format == MatrixFormat::kBFloat16) {
    return to_float(reinterpret_cast<const BFloat16*>(from.data)[std::uint64_t{row} * columns + column]);
  }
  const std::uint32_t width = unit_columns(from.format);
  const std::byte* unit =
      from.data + row / kTileRows * from.tile_bytes + std::uint64_t{column / width} * unit_bytes(from.format);
  return packed_value(from.format, unit, row % kTileRows, column % width);
}

// Grid: (rows, columns / threads).
__global__ void __launch_bounds__(kThreads) embed_rows(EmbedParams p) {
  follow_previous();
  const std::uint32_t column = blockIdx.y * kThreads + threadIdx.x;
  if (column >= p.columns) return;
  const std::uint32_t token = p.tokens[blockIdx.x];
  // A token beyond the vocabulary cannot come here from a sample; zeros rather than foreign memory.
  float value = token < p.embedding.rows ? row_value(p.embedding, token, column, p.columns) * p.scale : 0.0f;
  if (p.positions.data != nullptr) {
    const std::uint32_t position = p.row_positions[blockIdx.x];
    if (position < p.positions.rows) value += row_value(p.positions, position, column, p.columns);
  }
  p.output[std::uint64_t{blockIdx.x} * p.columns + column] = value;
}

struct BiasParams {
  void* output;
  const float* bias;
  std::uint32_t stride, outputs;
};

// Grid: (rows, outputs / threads).
template <class T, bool kAdd>
__global__ void __launch_bounds__(kThreads) bias_rows(BiasParams p) {
  follow_previous();
  const std::uint32_t output = blockIdx.y * kThreads + threadIdx.x;
  if (output >= p.outputs) return;
  T* to = static_cast<T*>(p.output) + std::uint64_t{blockIdx.x} * p.stride + output;
  const float before = kAdd ? to_float(*to) : 0.0f;
  *to = from_float<T>(before + p.bias[output]);
}

RowsSource rows_source(const DeviceMatrix* matrix, std::uint32_t columns) {
  if (matrix == nullptr) return {nullptr, 0, 0, MatrixFormat::kHalf};
  LOCI_CHECK(matrix->parts.size() == 1 && matrix->columns == columns,
             "rows are looked up in one tensor's matrix");
  const MatrixFormat format = matrix->parts[0].format;
  return {matrix->data.data(), is_packed(format) ? tile_bytes(format, columns) : 0, matrix->rows, format};
}

}  // namespace

void embed(const EmbedArguments& arguments, Stream& stream) {
  EmbedParams p{};
  p.columns = arguments.embedding->columns;
  p.embedding = rows_source(arguments.embedding, p.columns);
  p.positions = rows_source(arguments.positions, p.columns);
  p.tokens = arguments.tokens;
  p.row_positions = arguments.row_positions;
  p.scale = arguments.scale;
  p.output = arguments.output;
  const LaunchShape shape{{arguments.rows, ceil_div(p.columns, kThreads), 1}, {kThreads, 1, 1}, 0};
  launch("embed_rows", embed_rows, shape, p, stream);
}

void place_bias(const BiasArguments& arguments, Stream& stream) {
  const BiasParams p{arguments.output, arguments.bias, arguments.stride, arguments.outputs};
  const LaunchShape shape{{arguments.rows, ceil_div(p.outputs, kThreads), 1}, {kThreads, 1, 1}, 0};
  if (arguments.mode == ProductOutput::kAdded) {
    launch("bias_rows", bias_rows<float, true>, shape, p, stream);
  } else if (arguments.mode == ProductOutput::kFloats) {
    launch("bias_rows", bias_rows<float, false>, shape, p, stream);
  } else if (arguments.type == ElementType::kHalf) {
    launch("bias_rows", bias_rows<Half, false>, shape, p, stream);
  } else {
    launch("bias_rows", bias_rows<BFloat16, false>, shape, p, stream);
  }
}

}  // namespace loci::cuda
