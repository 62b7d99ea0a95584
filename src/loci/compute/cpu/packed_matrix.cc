// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/packed_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "loci/base/check.h"
#include "loci/model/tensor_block.h"

namespace loci::cpu {

namespace {

using Byte = std::uint8_t;

PackedType packed_type(TensorType type) {
  switch (type) {
    case TensorType::kF32: return PackedType::kF32;
    case TensorType::kF16: return PackedType::kF16;
    case TensorType::kBF16: return PackedType::kBF16;
    case TensorType::kQ4_0: return PackedType::kQ4_0;
    case TensorType::kQ4_1: return PackedType::kQ4_1;
    case TensorType::kQ5_0: return PackedType::kQ5_0;
    case TensorType::kQ5_1: return PackedType::kQ5_1;
    case TensorType::kQ8_0: return PackedType::kQ8_0;
    case TensorType::kQ2_K: return PackedType::kQ2_K;
    case TensorType::kQ3_K: return PackedType::kQ3_K;
    case TensorType::kQ4_K: return PackedType::kQ4_K;
    case TensorType::kQ5_K: return PackedType::kQ5_K;
    case TensorType::kQ6_K: return PackedType::kQ6_K;
    case TensorType::kIQ4_NL: return PackedType::kIQ4_NL;
    case TensorType::kIQ4_XS: return PackedType::kIQ4_XS;
    case TensorType::kMXFP4: return PackedType::kMXFP4;
  }
  LOCI_CHECK(false, "a TensorType outside its enumeration");
}

// --- planes of 32 unsigned integers v; kernel_table.h has the layouts ---

// Four bytes at once, as a chunk of one lane has them.
std::uint32_t load_four(const Byte* from) {
  std::uint32_t four;
  std::memcpy(&four, from, 4);
  return four;
}
void store_four(Byte* to, std::uint32_t four) { std::memcpy(to, &four, 4); }
constexpr std::uint32_t kEach = 0x01010101u;  // times a mask of a byte: the mask of all four

// The low four bits.
void put_nibbles(const Byte* v, std::uint32_t lane, Byte* out) {
  for (std::uint32_t c = 0; c < 4; ++c) {
    const std::uint32_t low = load_four(v + 4 * c) & 15 * kEach,
                        high = load_four(v + 16 + 4 * c) & 15 * kEach;
    store_four(out + 64 * c + 4 * lane, low | high << 4);
  }
}

// Nibbles that already lie as GGUF's 32-element types have them: byte i holds elements i and i + 16.
void copy_nibbles(const Byte* nibbles, std::uint32_t lane, Byte* out) {
  for (std::uint32_t c = 0; c < 4; ++c) std::memcpy(out + 64 * c + 4 * lane, nibbles + 4 * c, 4);
}

void put_bytes(const Byte* v, std::uint32_t lane, Byte* out) {
  for (std::uint32_t c = 0; c < 8; ++c) std::memcpy(out + 64 * c + 4 * lane, v + 4 * c, 4);
}

// The two bits from `shift` on.
void put_pairs(const Byte* v, std::uint32_t shift, std::uint32_t lane, Byte* out) {
  for (std::uint32_t h = 0; h < 2; ++h) {
    std::uint32_t pairs = 0;
    for (std::uint32_t f = 0; f < 4; ++f) {
      pairs |= (load_four(v + 16 * h + 4 * f) >> shift & 3 * kEach) << (2 * f);
    }
    store_four(out + 64 * h + 4 * lane, pairs);
  }
}

// Bit `shift`.
void put_bit(const Byte* v, std::uint32_t shift, std::uint32_t lane, Byte* out) {
  std::uint32_t bits = 0;
  for (std::uint32_t c = 0; c < 8; ++c) bits |= (load_four(v + 4 * c) >> shift & kEach) << c;
  store_four(out + 4 * lane, bits);
}

// --- types of 32 elements ---

// f16 scale, 32 signed bytes.
void pack_q8_0(const Byte* block, std::uint32_t lane, Byte* out) {
  Byte v[32];
  for (std::uint32_t i = 0; i < 32; ++i) v[i] = block[2 + i] ^ 0x80;
  put_bytes(v, lane, out);
  std::memcpy(out + 512 + 2 * lane, block, 2);
}

// [head bytes: f16 scale and minimum], nibbles.
void pack_nibbles(const Byte* block, std::uint32_t head, std::uint32_t lane, Byte* out) {
  copy_nibbles(block + head, lane, out);
  std::memcpy(out + 256 + 2 * lane, block, 2);
  if (head == 4) std::memcpy(out + 288 + 2 * lane, block + 2, 2);
}

// [head bytes: f16 scale and minimum], 32 fifth bits, nibbles.
void pack_fives(const Byte* block, std::uint32_t head, std::uint32_t lane, Byte* out) {
  copy_nibbles(block + head + 4, lane, out);
  Byte bits[32];
  for (std::uint32_t i = 0; i < 32; ++i) bits[i] = block[head + i / 8] >> (i % 8) & 1;
  put_bit(bits, 0, lane, out + 256);
  std::memcpy(out + 320 + 2 * lane, block, 2);
  if (head == 4) std::memcpy(out + 352 + 2 * lane, block + 2, 2);
}

// An exponent, nibbles.
void pack_mxfp4(const Byte* block, std::uint32_t lane, Byte* out) {
  copy_nibbles(block + 1, lane, out);
  QuantBlock parts;
  unpack_block(TensorType::kMXFP4, reinterpret_cast<const std::byte*>(block), parts);
  std::memcpy(out + 256 + 2 * lane, &parts.scale_bits, 2);
}

// --- types of 256 elements ---

// One block of 32 of a superblock: planes to `out`; v is value + bias.
void pack_planes(PackedType type, const Byte* v, std::uint32_t lane, Byte* out) {
  switch (type) {
    case PackedType::kQ2_K: return put_pairs(v, 0, lane, out);
    case PackedType::kQ3_K: put_pairs(v, 0, lane, out); return put_bit(v, 2, lane, out + 128);
    case PackedType::kQ4_K: return put_nibbles(v, lane, out);
    case PackedType::kQ5_K: put_nibbles(v, lane, out); return put_bit(v, 4, lane, out + 256);
    default: put_nibbles(v, lane, out); return put_pairs(v, 4, lane, out + 256);
  }
}

// The integer scales of 32 columns, and what goes with them.
void pack_scales(PackedType type, const QuantBlock& parts, std::uint32_t index, std::uint32_t lane,
                 Byte* out) {
  const auto scale = [&](std::uint32_t g) { return static_cast<Byte>(parts.scales[g]); };
  switch (type) {
    case PackedType::kQ2_K:
      for (std::uint32_t h = 0; h < 2; ++h) {
        out[16 * h + lane] = static_cast<Byte>(scale(2 * index + h) | parts.offsets[2 * index + h] << 4);
      }
      return;
    case PackedType::kQ3_K:
    case PackedType::kQ6_K:
      for (std::uint32_t h = 0; h < 2; ++h) out[16 * h + lane] = scale(2 * index + h);
      return;
    case PackedType::kQ4_K:
    case PackedType::kQ5_K: out[16 + lane] = parts.offsets[index]; [[fallthrough]];
    default: out[lane] = scale(index); return;
  }
}

struct SuperLayout {
  std::uint32_t plane_bytes, scale_bytes;
  std::int32_t bias;
};
SuperLayout super_layout(PackedType type) {
  switch (type) {
    case PackedType::kQ2_K: return {128, 32, 0};
    case PackedType::kQ3_K: return {192, 32, 4};
    case PackedType::kQ4_K: return {256, 32, 0};
    case PackedType::kQ5_K: return {320, 32, 0};
    case PackedType::kQ6_K: return {384, 32, 32};
    default: return {256, 16, 0};  // IQ4_XS
  }
}

void pack_super(TensorType tensor_type, PackedType type, const Byte* block, std::uint32_t lane, Byte* out) {
  const SuperLayout layout = super_layout(type);
  QuantBlock parts;
  unpack_block(tensor_type, reinterpret_cast<const std::byte*>(block), parts);
  Byte* scales = out + 8 * layout.plane_bytes;
  for (std::uint32_t index = 0; index < 8; ++index) {
    if (type == PackedType::kIQ4_XS) {  // the table's indices, not its values
      copy_nibbles(block + 8 + 16 * index, lane, out + index * layout.plane_bytes);
    } else {
      Byte v[32];
      for (std::uint32_t i = 0; i < 32; ++i)
        v[i] = static_cast<Byte>(parts.values[32 * index + i] + layout.bias);
      pack_planes(type, v, lane, out + index * layout.plane_bytes);
    }
    pack_scales(type, parts, index, lane, scales + index * layout.scale_bytes);
  }
  Byte* super = scales + 8 * layout.scale_bytes;
  std::memcpy(super + 2 * lane, &parts.scale_bits, 2);
  if (parts.has_offset) std::memcpy(super + 32 + 2 * lane, &parts.offset_bits, 2);
}

template <class Bits>
void pack_float(const Byte* row, std::uint32_t columns, std::uint32_t lane, Byte* out) {
  for (std::uint32_t column = 0; column < columns; ++column) {
    std::memcpy(out + (std::size_t{column} * kLanes + lane) * sizeof(Bits), row + column * sizeof(Bits),
                sizeof(Bits));
  }
}

void pack_step(TensorType tensor_type, PackedType type, const Byte* block, std::uint32_t lane, Byte* out) {
  switch (type) {
    case PackedType::kQ4_0:
    case PackedType::kIQ4_NL: return pack_nibbles(block, 2, lane, out);
    case PackedType::kQ4_1: return pack_nibbles(block, 4, lane, out);
    case PackedType::kQ5_0: return pack_fives(block, 2, lane, out);
    case PackedType::kQ5_1: return pack_fives(block, 4, lane, out);
    case PackedType::kQ8_0: return pack_q8_0(block, lane, out);
    case PackedType::kMXFP4: return pack_mxfp4(block, lane, out);
    default: return pack_super(tensor_type, type, block, lane, out);
  }
}

// A missing row is zero by its scale; its other bytes only must be defined, which zeroed memory is.
void pack_row(const TensorView& tensor, const PackedMatrix& matrix, std::uint32_t row, std::uint32_t lane,
              Byte* out) {
  const Byte* from = reinterpret_cast<const Byte*>(tensor.row(row).data());
  if (matrix.type == PackedType::kF32) return pack_float<std::uint32_t>(from, matrix.columns, lane, out);
  if (!matrix.quantized()) return pack_float<std::uint16_t>(from, matrix.columns, lane, out);
  const std::uint32_t block_bytes = tensor_type_info(tensor.type).block_bytes;
  for (std::uint32_t step = 0; step < matrix.steps; ++step) {
    pack_step(tensor.type, matrix.type, from, lane, out);
    from += block_bytes;
    out += kPackedStepBytes[static_cast<std::size_t>(matrix.type)];
  }
}

}  // namespace

Result<PackedMatrix> describe_packed(const TensorView& tensor) {
  PackedMatrix matrix;
  matrix.type = packed_type(tensor.type);
  matrix.rows = static_cast<std::uint32_t>(tensor.rows);
  matrix.columns = static_cast<std::uint32_t>(tensor.columns);
  const std::uint32_t block = tensor_type_info(tensor.type).block_elements;
  if (tensor.columns % block != 0) {
    return invalid_argument(fmt::format("rows of {} are multiples of {}, not of {} elements",
                                        tensor_type_info(tensor.type).name, block, tensor.columns),
                            tensor.name);
  }
  const auto type = static_cast<std::size_t>(matrix.type);
  matrix.groups = (matrix.rows + kLanes - 1) / kLanes;
  matrix.steps = (matrix.columns + kPackedStepColumns[type] - 1) / kPackedStepColumns[type];
  matrix.group_bytes = std::uint64_t{matrix.steps} * kPackedStepBytes[type];
  return matrix;
}

void pack_group(const TensorView& tensor, const PackedMatrix& matrix, std::uint32_t group) {
  Byte* out = matrix.data + group * matrix.group_bytes;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t row = group * kLanes + lane;
    if (row >= matrix.rows) break;
    pack_row(tensor, matrix, row, lane, out);
  }
}

}  // namespace loci::cpu
