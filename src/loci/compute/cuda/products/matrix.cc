// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/products/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "loci/base/check.h"
#include "loci/compute/cuda/products/packed_layout.h"
#include "loci/compute/cuda/products/packing.h"
#include "loci/model/quantize.h"

namespace loci::cuda {
namespace {

constexpr std::uint64_t kPartAlignment = 256;

MatrixFormat element_format(ElementType element) {
  return element == ElementType::kHalf ? MatrixFormat::kHalf : MatrixFormat::kBFloat16;
}

bool wants_range(const TensorView& tensor) {
  return tensor.present() && (tensor.type == TensorType::kBF16 || tensor.type == TensorType::kMXFP4);
}

// The tensors of one part, and where its rows are in them.
struct PartSource {
  std::span<const TensorView> tensors;
  std::uint32_t experts = 1;

  TileRow row(std::uint64_t index, std::uint32_t outputs) const {
    const std::uint64_t expert = index / outputs;
    std::uint64_t local = index % outputs;
    for (const TensorView& tensor : tensors) {
      const std::uint64_t each = tensor.rows / experts;
      if (local < each) return {&tensor, expert * each + local};
      local -= each;
    }
    LOCI_CHECK(false, "a part's outputs are the sum of its tensors' rows");
    return {};
  }
};

// Calls work(0) .. work(count - 1), on `threads` threads where that is worth while.
void in_parallel(std::uint64_t count, unsigned threads, const std::function<void(std::uint64_t)>& work) {
  const auto run = [&](std::uint64_t first, std::uint64_t step) {
    for (std::uint64_t i = first; i < count; i += step) work(i);
  };
  const std::uint64_t workers = std::min<std::uint64_t>(threads, count / 16);
  if (workers < 2) return run(0, 1);
  std::vector<std::jthread> others;
  for (std::uint64_t w = 1; w < workers; ++w) others.emplace_back([&run, w, workers] { run(w, workers); });
  run(0, workers);
}

// A row as elements.
void encode_elements(const TileRow& from, ElementType element, std::byte* to) {
  const TensorView& tensor = *from.tensor;
  const bool as_it_is = tensor.type == (element == ElementType::kHalf ? TensorType::kF16 : TensorType::kBF16);
  if (as_it_is) {
    std::memcpy(to, tensor.row(from.row).data(), tensor.row_bytes());
    return;
  }
  std::vector<float> values(tensor.columns);
  decode_row(tensor, from.row, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = element == ElementType::kHalf
                                   ? f32_to_f16(std::clamp(values[i], -65504.0f, 65504.0f))
                                   : f32_to_bf16(values[i]);
    std::memcpy(to + 2 * i, &bits, sizeof(bits));
  }
}

Status check_tensor(const TensorView& tensor, const TensorView& first, std::uint32_t experts,
                    ElementType element) {
  if (!tensor.present() || tensor.rows == 0 || tensor.columns == 0) {
    return invalid_argument(fmt::format("{}: expected a matrix, found none", tensor.name), tensor.name);
  }
  if (tensor.columns % 8 != 0 || tensor.columns % tensor_type_info(tensor.type).block_elements != 0) {
    return invalid_argument(
        fmt::format("{}: the GPU's kernels need a multiple of 8 columns in whole blocks, found {}",
                    tensor.name, tensor.columns),
        tensor.name);
  }
  if (tensor.columns != first.columns) {
    return invalid_argument(fmt::format("{}: expected {} columns as {} has, found {}", tensor.name,
                                        first.columns, first.name, tensor.columns),
                            tensor.name);
  }
  if (tensor.rows > UINT32_MAX / 2 || tensor.columns > UINT32_MAX / 2 || tensor.rows % experts != 0) {
    return invalid_argument(fmt::format("{}: expected rows for each of {} experts, found {} x {}",
                                        tensor.name, experts, tensor.rows, tensor.columns),
                            tensor.name);
  }
  if (experts > 1 && is_packed(format_of(tensor.type, element)) && tensor.rows / experts % kTileRows != 0) {
    return invalid_argument(
        fmt::format("{}: the GPU's kernels need a multiple of {} rows in each expert of {}, found {}",
                    tensor.name, kTileRows, tensor_type_info(tensor.type).name, tensor.rows / experts),
        tensor.name);
  }
  return {};
}

}  // namespace

MatrixFormat format_of(TensorType type, ElementType element) {
  switch (type) {
    case TensorType::kQ8_0:
    case TensorType::kQ5_0:
    case TensorType::kIQ4_NL: return MatrixFormat::kQ8_0;
    case TensorType::kQ4_0: return MatrixFormat::kQ4_0;
    case TensorType::kQ4_1: return MatrixFormat::kQ4_1;
    case TensorType::kQ4_K: return MatrixFormat::kQ4_K;
    case TensorType::kQ6_K: return MatrixFormat::kQ6_K;
    default: return element_format(element);
  }
}

ElementType best_element_type(const ModelSpec& spec) {
  const auto ffn_wants = [](const FeedForwardSpec& ffn) {
    return wants_range(ffn.gate) || wants_range(ffn.up) || wants_range(ffn.down);
  };
  bool range = wants_range(spec.embedding) || wants_range(spec.output);
  for (const LayerSpec& layer : spec.layers) {
    range = range || wants_range(layer.query) || wants_range(layer.key) || wants_range(layer.value) ||
            wants_range(layer.attention_output) || ffn_wants(layer.ffn);
  }
  return range ? ElementType::kBFloat16 : ElementType::kHalf;
}

DeviceMatrix matrix_of_elements(ElementType element, std::uint32_t rows, std::uint32_t columns, Memory data) {
  DeviceMatrix matrix;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.parts.push_back({element_format(element), 0, rows, 0, data.size()});
  matrix.data = std::move(data);
  return matrix;
}

MatrixLoader::MatrixLoader(const Device& device, ElementType element, unsigned threads, Memory staging)
    : device_(device),
      element_(element),
      threads_(std::max(threads, 1u)),
      staging_(std::move(staging)),
      stream_(device),
      done_{Event(device), Event(device)} {}

Result<std::unique_ptr<MatrixLoader>> MatrixLoader::make(const Device& device, ElementType element,
                                                         unsigned threads, std::uint64_t staging_bytes) {
  LOCI_ASSIGN_OR_RETURN(
      Memory staging, Memory::allocate(device, MemoryKind::kPinned, staging_bytes, "the staging of weights"));
  return std::unique_ptr<MatrixLoader>(new MatrixLoader(device, element, threads, std::move(staging)));
}

Result<DeviceMatrix> MatrixLoader::load(std::span<const TensorView> stacked, std::uint32_t experts) {
  LOCI_CHECK(!stacked.empty() && experts > 0, "a matrix is made of tensors");
  DeviceMatrix matrix;
  matrix.columns = static_cast<std::uint32_t>(stacked[0].columns);
  matrix.experts = experts;
  std::uint64_t bytes = 0;
  std::vector<std::span<const TensorView>> sources;
  for (std::size_t i = 0; i < stacked.size();) {
    MatrixPart part;
    part.format = format_of(stacked[i].type, element_);
    part.first_output = matrix.outputs();
    const std::size_t begin = i;
    for (; i < stacked.size() && format_of(stacked[i].type, element_) == part.format; ++i) {
      LOCI_RETURN_IF_ERROR(check_tensor(stacked[i], stacked[0], experts, element_));
      part.outputs += static_cast<std::uint32_t>(stacked[i].rows / experts);
      matrix.name += (matrix.name.empty() ? "" : " + ") + stacked[i].name;
    }
    matrix.rows += part.outputs * experts;
    const std::uint64_t rows = std::uint64_t{part.outputs} * experts;
    part.data_offset = bytes;
    part.data_bytes = is_packed(part.format)
                          ? (rows + kTileRows - 1) / kTileRows * tile_bytes(part.format, matrix.columns)
                          : rows * matrix.columns * 2;
    bytes += (part.data_bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    sources.push_back(stacked.subspan(begin, i - begin));
    matrix.parts.push_back(part);
  }
  LOCI_ASSIGN_OR_RETURN(matrix.data,
                        Memory::allocate(device_, MemoryKind::kDevice, bytes, matrix.name.c_str()));
  for (std::size_t i = 0; i < sources.size(); ++i) {
    LOCI_RETURN_IF_ERROR(upload(matrix, matrix.parts[i], sources[i]));
  }
  return matrix;
}

Status MatrixLoader::upload(const DeviceMatrix& matrix, const MatrixPart& part,
                            std::span<const TensorView> stacked) {
  const PartSource source{stacked, matrix.experts};
  const std::uint64_t rows = std::uint64_t{part.outputs} * matrix.experts;
  const bool packed = is_packed(part.format);
  const std::uint64_t step_rows = packed ? kTileRows : 1;
  const std::uint64_t step_bytes = packed ? tile_bytes(part.format, matrix.columns) : matrix.columns * 2ull;
  const std::uint64_t steps = (rows + step_rows - 1) / step_rows;
  const std::uint64_t steps_once = staging_.size() / 2 / step_bytes;
  if (steps_once == 0) {
    return resource_exhausted(
        fmt::format("{}: {} columns do not fit the staging of weights", matrix.name, matrix.columns),
        matrix.name);
  }
  for (std::uint64_t first = 0; first < steps; first += steps_once, half_ ^= 1) {
    const std::uint64_t count = std::min(steps_once, steps - first);
    std::byte* to = staging_.data() + half_ * (staging_.size() / 2);
    done_[half_].synchronize();
    in_parallel(count, threads_, [&](std::uint64_t i) {
      const std::uint64_t row = (first + i) * step_rows;
      if (!packed) return encode_elements(source.row(row, part.outputs), element_, to + i * step_bytes);
      std::array<TileRow, kTileRows> tile{};
      for (std::uint64_t r = 0; r < std::min<std::uint64_t>(kTileRows, rows - row); ++r) {
        tile[r] = source.row(row + r, part.outputs);
      }
      pack_tile(part.format, matrix.columns, tile, to + i * step_bytes);
    });
    stream_.copy(matrix.data.data() + part.data_offset + first * step_bytes, to, count * step_bytes);
    stream_.record(done_[half_]);
  }
  return device_.status();
}

Status MatrixLoader::finish() {
  stream_.synchronize();
  return device_.status();
}

}  // namespace loci::cuda
