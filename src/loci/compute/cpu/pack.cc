#include "loci/compute/cpu/pack.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>

namespace loci {
namespace {

Result<PackedFormat> packed_format(const TensorView& tensor) {
  switch (tensor.type) {
    case TensorType::kQ4_0: return PackedFormat::kQ4_0;
    case TensorType::kQ4_1: return PackedFormat::kQ4_1;
    case TensorType::kQ8_0: return PackedFormat::kQ8_0;
    case TensorType::kQ6_K: return PackedFormat::kQ6_K;
    case TensorType::kF16: return PackedFormat::kF16;
    case TensorType::kBF16: return PackedFormat::kBF16;
    case TensorType::kF32: return PackedFormat::kF32;
  }
  return invalid_argument("no kernel multiplies this type", tensor.name);
}

std::uint64_t record_bytes(PackedFormat format) {
  switch (format) {
    case PackedFormat::kQ4_0: return 288;
    case PackedFormat::kQ4_1: return 320;
    case PackedFormat::kQ8_0: return 544;
    case PackedFormat::kQ6_K: return 576;
    case PackedFormat::kF16: return 1024;
    case PackedFormat::kBF16: return 1024;
    case PackedFormat::kF32: return 2048;
  }
  return 0;
}

// Four columns' bytes a lane: byte (k, lane) of a block of 32 columns.
std::size_t byte_place(std::uint32_t k, std::uint32_t lane) { return (k / 4) * 64 + lane * 4 + k % 4; }

void put_f16(std::uint8_t* scales, std::uint32_t lane, const std::uint8_t* from) {
  std::memcpy(scales + 2 * lane, from, 2);
}

// GGUF Q4: [f16 d][f16 m, Q4_1 only][16 bytes]: byte j has column j low and column 16 + j high.
void pack_q4(const std::uint8_t* block, std::uint32_t lane, std::uint32_t scales, std::uint8_t* record) {
  const std::uint8_t* nibbles = block + 2 * scales;
  for (std::uint32_t j = 0; j < 16; ++j) record[byte_place(j, lane)] = nibbles[j];
  for (std::uint32_t s = 0; s < scales; ++s) put_f16(record + 256 + 32 * s, lane, block + 2 * s);
}

void pack_q8_0(const std::uint8_t* block, std::uint32_t lane, std::uint8_t* record) {
  for (std::uint32_t k = 0; k < 32; ++k) {
    record[byte_place(k, lane)] = static_cast<std::uint8_t>(block[2 + k] ^ 0x80);
  }
  put_f16(record + 512, lane, block);
}

// GGUF Q6_K: [128 low nibbles][64 high pairs][16 int8 scales][f16 d] for 256 columns; `part` names 32.
void pack_q6_k(const std::uint8_t* block, std::uint32_t part, std::uint32_t lane, std::uint8_t* record) {
  const std::uint32_t half = part / 4, quarter = part % 4;
  for (std::uint32_t k = 0; k < 32; ++k) {
    const std::uint8_t low_byte = block[64 * half + 32 * (quarter % 2) + k];
    const std::uint32_t low = quarter < 2 ? low_byte & 15u : low_byte >> 4u;
    const std::uint32_t high = (block[128 + 32 * half + k] >> (2 * quarter)) & 3u;
    record[byte_place(k, lane)] = static_cast<std::uint8_t>(low | (high << 4));
  }
  put_f16(record + 512, lane, block + 208);
  record[544 + lane] = block[192 + 2 * part];
  record[560 + lane] = block[192 + 2 * part + 1];
}

void pack_float(const TensorView& tensor, std::uint64_t row, std::uint32_t b, std::uint32_t lane,
                std::uint8_t* record) {
  const std::size_t element = tensor_type_info(tensor.type).block_bytes;
  const auto* from = reinterpret_cast<const std::uint8_t*>(tensor.row(row).data());
  for (std::uint64_t k = 0; k < 32 && 32ull * b + k < tensor.columns; ++k) {
    std::memcpy(record + (k * kLanes + lane) * element, from + (32ull * b + k) * element, element);
  }
}

}  // namespace

Result<PackedMatrix> make_packed(const TensorView& tensor) {
  PackedMatrix packed;
  LOCI_ASSIGN_OR_RETURN(packed.format, packed_format(tensor));
  packed.outputs = static_cast<std::uint32_t>(tensor.rows);
  packed.groups = (packed.outputs + kLanes - 1) / kLanes;
  packed.blocks = static_cast<std::uint32_t>((tensor.columns + kQuantBlock - 1) / kQuantBlock);
  packed.bytes = std::uint64_t{packed.groups} * packed.blocks * record_bytes(packed.format);
  const std::uint64_t size = packed.bytes + 4096;  // prefetches look a little ahead
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return resource_exhausted(fmt::format("no memory for {} bytes of packed weights", size), tensor.name);
  }
  madvise(data, size, MADV_HUGEPAGE);
  packed.data = std::shared_ptr<std::uint8_t>(static_cast<std::uint8_t*>(data),
                                              [size](std::uint8_t* p) { munmap(p, size); });
  return packed;
}

void pack_groups(const TensorView& tensor, PackedMatrix& packed, std::uint32_t begin, std::uint32_t end) {
  const std::uint64_t bytes = record_bytes(packed.format);
  const TensorTypeInfo& type = tensor_type_info(tensor.type);
  for (std::uint32_t group = begin; group < end; ++group) {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t row = std::uint64_t{group} * kLanes + lane;
      if (row >= tensor.rows) break;
      const auto* from = reinterpret_cast<const std::uint8_t*>(tensor.row(row).data());
      for (std::uint32_t b = 0; b < packed.blocks; ++b) {
        std::uint8_t* record = packed.data.get() + (std::uint64_t{group} * packed.blocks + b) * bytes;
        switch (packed.format) {
          case PackedFormat::kQ4_0: pack_q4(from + std::uint64_t{b} * type.block_bytes, lane, 1, record); break;
          case PackedFormat::kQ4_1: pack_q4(from + std::uint64_t{b} * type.block_bytes, lane, 2, record); break;
          case PackedFormat::kQ8_0: pack_q8_0(from + std::uint64_t{b} * type.block_bytes, lane, record); break;
          case PackedFormat::kQ6_K:
            pack_q6_k(from + std::uint64_t{b / 8} * type.block_bytes, b % 8, lane, record);
            break;
          default: pack_float(tensor, row, b, lane, record);
        }
      }
    }
  }
}

}  // namespace loci
