#include "loci/compute/cpu/packed_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "loci/base/check.h"

namespace loci::cpu {

namespace {

using Byte = std::uint8_t;

std::optional<PackedType> packed_type(TensorType type) {
  switch (type) {
    case TensorType::kF32: return PackedType::kF32;
    case TensorType::kF16: return PackedType::kF16;
    case TensorType::kBF16: return PackedType::kBF16;
    case TensorType::kQ4_0: return PackedType::kQ4_0;
    case TensorType::kQ4_1: return PackedType::kQ4_1;
    case TensorType::kQ8_0: return PackedType::kQ8_0;
    case TensorType::kQ6_K: return PackedType::kQ6_K;
    default: return std::nullopt;
  }
  return std::nullopt;
}

// GGUF: f16 scale (Q4_1: f16 minimum); 16 bytes, byte j has element j in its low nibble and j + 16 in
// its high one.
void pack_q4(const Byte* row, std::uint32_t steps, bool minimum, std::uint32_t lane, Byte* out) {
  const std::uint32_t head = minimum ? 4 : 2, step_bytes = minimum ? 320 : 288;
  for (std::uint32_t step = 0; step < steps; ++step, row += head + 16, out += step_bytes) {
    for (std::uint32_t c = 0; c < 4; ++c) std::memcpy(out + 64 * c + 4 * lane, row + head + 4 * c, 4);
    std::memcpy(out + 256 + 2 * lane, row, 2);
    if (minimum) std::memcpy(out + 288 + 2 * lane, row + 2, 2);
  }
}

// GGUF: f16 scale, 32 signed bytes.
void pack_q8_0(const Byte* row, std::uint32_t steps, std::uint32_t lane, Byte* out) {
  for (std::uint32_t step = 0; step < steps; ++step, row += 34, out += 544) {
    for (std::uint32_t c = 0; c < 8; ++c) {
      std::uint32_t four;
      std::memcpy(&four, row + 2 + 4 * c, 4);
      four ^= 0x80808080u;
      std::memcpy(out + 64 * c + 4 * lane, &four, 4);
    }
    std::memcpy(out + 512 + 2 * lane, row, 2);
  }
}

// GGUF: for 256 elements 128 bytes of low nibbles, 64 of upper bit pairs, 16 i8 scales, an f16 scale.
// Element 128 h + 32 q + i has its low bits in nibble q / 2 of byte 64 h + 32 (q % 2) + i, its upper ones
// in pair q of byte 32 h + i.
void pack_q6_k(const Byte* row, std::uint32_t steps, std::uint32_t lane, Byte* out) {
  for (std::uint32_t step = 0; step < steps; ++step, out += 448) {
    const Byte* block = row + (step / 8) * 210;
    const std::uint32_t half = (step % 8) / 4, quarter = step % 4;
    const Byte* low = block + 64 * half + 32 * (quarter % 2);
    const Byte* high = block + 128 + 32 * half;
    Byte six[32];
    for (std::uint32_t i = 0; i < 32; ++i) {
      const std::uint32_t nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
      six[i] = static_cast<Byte>(nibble | (((high[i] >> (2 * quarter)) & 3) << 4));
    }
    for (std::uint32_t i = 0; i < 16; ++i) {
      const std::uint32_t at = 64 * (i / 4) + 4 * lane + i % 4;
      out[at] = static_cast<Byte>((six[i] & 15) | ((six[i + 16] & 15) << 4));
    }
    for (std::uint32_t h = 0; h < 2; ++h) {
      for (std::uint32_t j = 0; j < 4; ++j) {
        std::uint32_t pairs = 0;
        for (std::uint32_t f = 0; f < 4; ++f)
          pairs |= static_cast<std::uint32_t>(six[16 * h + 4 * f + j] >> 4) << (2 * f);
        out[256 + 64 * h + 4 * lane + j] = static_cast<Byte>(pairs);
      }
    }
    out[384 + lane] = block[192 + 2 * (step % 8)];
    out[400 + lane] = block[192 + 2 * (step % 8) + 1];
    std::memcpy(out + 416 + 2 * lane, block + 208, 2);
  }
}

void pack_float(const Byte* row, std::uint32_t columns, std::uint32_t width, std::uint32_t lane, Byte* out) {
  for (std::uint32_t column = 0; column < columns; ++column) {
    std::memcpy(out + (std::size_t{column} * kLanes + lane) * width, row + std::size_t{column} * width,
                width);
  }
}

// A missing row of Q8_0 is zero by its scale; its bytes only must be defined, which zeroed memory is.
void pack_row(const Byte* row, const PackedMatrix& matrix, std::uint32_t lane, Byte* out) {
  switch (matrix.type) {
    case PackedType::kQ4_1: return pack_q4(row, matrix.steps, true, lane, out);
    case PackedType::kQ4_0: return pack_q4(row, matrix.steps, false, lane, out);
    case PackedType::kQ8_0: return pack_q8_0(row, matrix.steps, lane, out);
    case PackedType::kQ6_K: return pack_q6_k(row, matrix.steps, lane, out);
    case PackedType::kF32: return pack_float(row, matrix.columns, 4, lane, out);
    case PackedType::kF16:
    case PackedType::kBF16: return pack_float(row, matrix.columns, 2, lane, out);
  }
}

}  // namespace

Result<PackedMatrix> describe_packed(const TensorView& tensor) {
  const std::optional<PackedType> type = packed_type(tensor.type);
  if (!type) {
    return invalid_argument(
        fmt::format("no kernel multiplies weights of type {}", tensor_type_info(tensor.type).name),
        tensor.name);
  }
  PackedMatrix matrix;
  matrix.type = *type;
  matrix.rows = static_cast<std::uint32_t>(tensor.rows);
  matrix.columns = static_cast<std::uint32_t>(tensor.columns);
  const std::uint32_t block = tensor_type_info(tensor.type).block_elements;
  if (tensor.columns % block != 0) {
    return invalid_argument(fmt::format("rows of {} are multiples of {}, not of {} elements",
                                        tensor_type_info(tensor.type).name, block, tensor.columns),
                            tensor.name);
  }
  matrix.groups = (matrix.rows + kLanes - 1) / kLanes;
  matrix.steps = matrix.quantized() ? matrix.columns / kQuantBlock : (matrix.columns + 1) / 2;
  matrix.group_bytes = std::uint64_t{matrix.steps} * kPackedStepBytes[static_cast<std::size_t>(matrix.type)];
  return matrix;
}

void pack_group(const TensorView& tensor, const PackedMatrix& matrix, std::uint32_t group) {
  Byte* out = matrix.data + group * matrix.group_bytes;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t row = group * kLanes + lane;
    if (row >= matrix.rows) break;
    pack_row(reinterpret_cast<const Byte*>(tensor.row(row).data()), matrix, lane, out);
  }
}

}  // namespace loci::cpu
