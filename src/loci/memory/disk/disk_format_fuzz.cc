// SPDX-License-Identifier: Apache-2.0
// Fuzzes the decoders of records, superblocks and noted limits: any bytes are allowed, and what verifies is
// read back as it was after it is written again. The first byte is the number of layers; the checksum is
// mended, so that what lies behind it is reached.
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "loci/base/random.h"
#include "loci/memory/disk/disk_format.h"

namespace {

void expect(bool condition) {
  if (!condition) __builtin_trap();
}

void mend(std::span<std::byte> bytes, std::uint64_t seed) {
  const std::uint64_t checksum = XXH3_64bits_withSeed(bytes.data() + 8, bytes.size() - 8, seed);
  std::memcpy(bytes.data(), &checksum, sizeof checksum);
}

void check_record(std::uint32_t layers, std::span<const std::byte> input, bool mended) {
  const loci::RecordPlace place({}, 3, 77, loci::StateForm::kKeysAndValues);
  std::vector<std::byte> bytes(loci::record_bytes(layers));
  // So that what was found once is near: a valid record, with the input over it.
  loci::encode_record(place, {.depth = 1}, std::vector<std::uint64_t>(layers), bytes);
  for (std::size_t i = 0; i < std::min(input.size(), bytes.size()); ++i) bytes[i] ^= input[i];
  if (mended) mend(bytes, loci::mix64((std::uint64_t{place.group} << 32) | place.slot));
  loci::BlockEntry entry;
  if (loci::decode_record(place, layers, bytes, entry) != loci::RecordState::kValid) return;
  std::vector<std::uint64_t> checksums;
  for (std::uint32_t i = 0; i < layers; ++i) checksums.push_back(loci::recorded_checksum(bytes, i));
  std::vector<std::byte> again(bytes.size());
  loci::encode_record(place, entry, checksums, again);
  loci::BlockEntry second;
  expect(loci::decode_record(place, layers, again, second) == loci::RecordState::kValid && second == entry);
}

void check_superblock(std::span<const std::byte> input, bool mended) {
  std::vector<std::byte> bytes = loci::encode_superblock({.groups = {{.layers = 1, .layer_slice_bytes = 1}}});
  for (std::size_t i = 0; i < std::min(input.size(), bytes.size()); ++i) bytes[i] ^= input[i];
  if (mended) mend(bytes, loci::kSuperblockSeed);
  const auto decoded = loci::decode_superblock(bytes);
  if (decoded.ok()) expect(loci::decode_superblock(loci::encode_superblock(*decoded)).value() == *decoded);
}

void check_limit(std::span<const std::byte> input, bool mended) {
  std::vector<std::byte> bytes = loci::encode_state_limit({}, loci::kNanosPerSecond);
  bytes.resize(std::max(bytes.size(), input.size()));
  for (std::size_t i = 0; i < input.size(); ++i) bytes[i] ^= input[i];
  if (mended) mend(bytes, loci::kStateLimitSeed);
  const auto decoded = loci::decode_state_limit({}, bytes);
  if (!decoded.ok()) return;
  expect(*decoded > 0 &&
         loci::decode_state_limit({}, loci::encode_state_limit({}, *decoded)).value() == *decoded);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size)).subspan(1);
  const std::uint32_t layers = data[0] % 100;
  for (const bool mended : {false, true}) {
    check_record(layers, input, mended);
    check_superblock(input, mended);
    check_limit(input, mended);
  }
  loci::BlockEntry entry;
  (void)loci::decode_record(loci::RecordPlace({}, 0, 0, loci::StateForm::kKeysAndValues), layers, input,
                            entry);
  (void)loci::decode_superblock(input);
  (void)loci::decode_state_limit({}, input);
  return 0;
}
