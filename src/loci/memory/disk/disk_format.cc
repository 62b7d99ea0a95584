// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_format.h"

#include <fmt/format.h>
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // the same sums, by the widest instructions that there are
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "loci/base/check.h"
#include "loci/base/random.h"

namespace loci {
namespace {

constexpr std::uint32_t kGroupFormShift = 24;  // a superblock's word: a group's form and layers

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr std::uint32_t kRecordMagic = 0x4254534c;              // "LSTB"
constexpr std::uint64_t kSuperblockMagic = 0x4b53494449434f4c;  // "LOCIDISK"
constexpr std::uint64_t kStateLimitMagic = 0x54494d4c49434f4c;  // "LOCILMIT"
constexpr std::uint64_t kStateLimitBytes = 48;
constexpr std::uint32_t kStateLimitVersion = 1;
constexpr std::uint64_t kMagicAt = 8, kVersionAt = 12, kFormAt = 14, kParentKindAt = 15, kModelAt = 16,
                        kGroupAt = 32, kSlotAt = 36, kDepthAt = 40, kLayersAt = 44, kKeyAt = 48,
                        kParentAt = 64, kAboveAt = 80, kUsedAt = 96, kTokensAt = 104,
                        kChecksumsAt = kTokensAt + std::uint64_t{kBlockTokens} * 4;

static_assert(sizeof(TokenId) == 4 && std::is_trivially_copyable_v<TokenId>);

template <class T>
void put(std::span<std::byte> bytes, std::uint64_t at, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <class T>
T get(std::span<const std::byte> bytes, std::uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::uint64_t place_seed(std::uint32_t group, std::uint32_t slot) {
  return mix64((std::uint64_t{group} << 32) | slot);
}

bool all_zero(std::span<const std::byte> bytes) {
  return bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

// Whether what a verified record says of itself can be.
bool possible(const BlockEntry& entry, std::uint8_t parent_kind) {
  return parent_kind <= static_cast<std::uint8_t>(ParentKind::kGate) && entry.depth >= 1 &&
         (entry.parent_kind == ParentKind::kGate || entry.above == ChainKey{});
}

std::uint16_t version_of(StateForm form) {
  return form == StateForm::kHidden ? kDiskVersion : kDiskVersionFirst;
}

void seal(const RecordPlace& place, std::span<std::byte> record) {
  put(record, 0,
      XXH3_64bits_withSeed(record.data() + 8, record.size() - 8, place_seed(place.group, place.slot)));
}

}  // namespace

std::uint64_t record_bytes(std::uint32_t layers) {
  return (kChecksumsAt + std::uint64_t{layers} * 8 + kDiskSector - 1) / kDiskSector * kDiskSector;
}

static_assert(kUsedAt + sizeof(std::int64_t) <= kDiskSector);

void encode_record(const RecordPlace& place, const BlockEntry& entry,
                   std::span<const std::uint64_t> checksums, std::span<std::byte> into) {
  const auto layers = static_cast<std::uint32_t>(checksums.size());
  LOCI_CHECK(into.size() == record_bytes(layers), "a record's bytes");
  std::memset(into.data(), 0, into.size());
  put(into, kMagicAt, kRecordMagic);
  put(into, kVersionAt, version_of(place.form));
  put(into, kFormAt, place.form);
  put(into, kParentKindAt, entry.parent_kind);
  put(into, kModelAt, place.model_fingerprint);
  put(into, kGroupAt, place.group);
  put(into, kSlotAt, place.slot);
  put(into, kDepthAt, entry.depth);
  put(into, kLayersAt, layers);
  put(into, kKeyAt, entry.key.bytes);
  put(into, kParentAt, entry.parent.bytes);
  put(into, kAboveAt, entry.above.bytes);
  put(into, kUsedAt, entry.used_at);
  std::memcpy(into.data() + kTokensAt, entry.tokens.data(), sizeof entry.tokens);
  if (layers > 0) std::memcpy(into.data() + kChecksumsAt, checksums.data(), checksums.size_bytes());
  seal(place, into);
}

void date_record(const RecordPlace& place, std::int64_t used_at, std::span<std::byte> record) {
  put(record, kUsedAt, used_at);
  seal(place, record);
}

RecordState decode_record(const RecordPlace& place, std::uint32_t layers, std::span<const std::byte> bytes,
                          BlockEntry& entry) {
  if (bytes.size() != record_bytes(layers)) return RecordState::kDamaged;
  if (get<std::uint64_t>(bytes, 0) == 0 && all_zero(bytes)) return RecordState::kEmpty;
  if (get<std::uint64_t>(bytes, 0) !=
      XXH3_64bits_withSeed(bytes.data() + 8, bytes.size() - 8, place_seed(place.group, place.slot))) {
    return RecordState::kDamaged;
  }
  if (get<std::uint32_t>(bytes, kMagicAt) != kRecordMagic) return RecordState::kDamaged;
  if (get<std::uint16_t>(bytes, kVersionAt) != version_of(place.form)) return RecordState::kForeign;
  if (get<std::array<std::uint8_t, 16>>(bytes, kModelAt) != place.model_fingerprint) {
    return RecordState::kForeign;
  }
  if (get<std::uint32_t>(bytes, kGroupAt) != place.group ||
      get<std::uint32_t>(bytes, kSlotAt) != place.slot || get<std::uint32_t>(bytes, kLayersAt) != layers) {
    return RecordState::kDamaged;
  }
  const auto parent_kind = get<std::uint8_t>(bytes, kParentKindAt);
  entry.parent_kind = static_cast<ParentKind>(parent_kind);
  entry.depth = get<std::uint32_t>(bytes, kDepthAt);
  entry.key.bytes = get<std::array<std::uint8_t, 16>>(bytes, kKeyAt);
  entry.parent.bytes = get<std::array<std::uint8_t, 16>>(bytes, kParentAt);
  entry.above.bytes = get<std::array<std::uint8_t, 16>>(bytes, kAboveAt);
  entry.used_at = get<std::int64_t>(bytes, kUsedAt);
  std::memcpy(entry.tokens.data(), bytes.data() + kTokensAt, sizeof entry.tokens);
  const bool form = get<std::uint8_t>(bytes, kFormAt) == static_cast<std::uint8_t>(place.form);
  return form && possible(entry, parent_kind) ? RecordState::kValid : RecordState::kDamaged;
}

std::uint64_t recorded_checksum(std::span<const std::byte> record, std::uint32_t layer) {
  return get<std::uint64_t>(record, kChecksumsAt + std::uint64_t{layer} * 8);
}

std::uint64_t slice_checksum(std::uint32_t slot, std::uint32_t layer, std::span<const std::byte> slice) {
  return XXH3_64bits_withSeed(slice.data(), slice.size(), mix64(~((std::uint64_t{slot} << 32) | layer)));
}

std::uint16_t version_of_files(std::span<const DiskGroup> groups) {
  const bool has_hidden = std::ranges::find(groups, StateForm::kHidden, &DiskGroup::form) != groups.end();
  return version_of(has_hidden ? StateForm::kHidden : StateForm::kKeysAndValues);
}

std::vector<std::byte> encode_superblock(const Superblock& superblock) {
  LOCI_CHECK(superblock.groups.size() <= kDiskGroupsMax, "groups of a superblock");
  std::vector<std::byte> bytes(kSuperblockBytes);
  put(bytes, 8, kSuperblockMagic);
  put(bytes, 16, std::uint32_t{version_of_files(superblock.groups)});
  put(bytes, 20, static_cast<std::uint32_t>(superblock.groups.size()));
  put(bytes, 24, superblock.set);
  put(bytes, 40, superblock.model_fingerprint);
  put(bytes, 56, superblock.directory);
  put(bytes, 60, superblock.directories);
  put(bytes, 64, superblock.holes);
  std::uint64_t at = 72;
  for (const DiskGroup& group : superblock.groups) {
    put(bytes, at, group.layers | static_cast<std::uint32_t>(group.form) << kGroupFormShift);
    put(bytes, at + 4, group.slots);
    put(bytes, at + 8, group.layer_slice_bytes);
    at += 16;
  }
  put(bytes, 0, XXH3_64bits_withSeed(bytes.data() + 8, bytes.size() - 8, kSuperblockSeed));
  return bytes;
}

Result<Superblock> decode_superblock(std::span<const std::byte> bytes) {
  if (bytes.size() != kSuperblockBytes || get<std::uint64_t>(bytes, 8) != kSuperblockMagic ||
      get<std::uint64_t>(bytes, 0) !=
          XXH3_64bits_withSeed(bytes.data() + 8, bytes.size() - 8, kSuperblockSeed)) {
    return data_loss("the superblock is damaged");
  }
  const auto version = get<std::uint32_t>(bytes, 16);
  if (version < kDiskVersionFirst || version > kDiskVersion)
    return unimplemented(fmt::format("version {}, this Loci's is {}", version, kDiskVersion));
  Superblock superblock;
  const auto groups = get<std::uint32_t>(bytes, 20);
  superblock.set = get<std::array<std::uint8_t, 16>>(bytes, 24);
  superblock.model_fingerprint = get<std::array<std::uint8_t, 16>>(bytes, 40);
  superblock.directory = get<std::uint32_t>(bytes, 56);
  superblock.directories = get<std::uint32_t>(bytes, 60);
  superblock.holes = get<std::uint32_t>(bytes, 64);
  if (groups > kDiskGroupsMax || superblock.directory >= superblock.directories) {
    return data_loss("the superblock is damaged");
  }
  for (std::uint64_t at = 72; superblock.groups.size() < groups; at += 16) {
    const auto layers = get<std::uint32_t>(bytes, at);
    if (layers >> kGroupFormShift > 1) return data_loss("the superblock is damaged");
    superblock.groups.push_back({.layers = layers & ((1u << kGroupFormShift) - 1),
                                 .layer_slice_bytes = get<std::uint64_t>(bytes, at + 8),
                                 .slots = get<std::uint32_t>(bytes, at + 4),
                                 .form = static_cast<StateForm>(layers >> kGroupFormShift)});
  }
  if (version < kDiskVersion)
    std::erase_if(superblock.groups, [](const DiskGroup& group) { return group.form == StateForm::kHidden; });
  return superblock;
}

std::vector<std::byte> encode_state_limit(const std::array<std::uint8_t, 16>& model_fingerprint,
                                          Nanos limit) {
  LOCI_CHECK(limit > 0, "a limit of time");
  // In milliseconds, as records' dates are; 0: there is no limit.
  constexpr std::int64_t kMost = kNever / kNanosPerMilli;
  const std::int64_t limit_ms = limit == kNever ? 0 : std::min((limit - 1) / kNanosPerMilli + 1, kMost);
  std::vector<std::byte> bytes(kStateLimitBytes);
  put(bytes, 8, kStateLimitMagic);
  put(bytes, 16, kStateLimitVersion);
  put(bytes, 24, model_fingerprint);
  put(bytes, 40, limit_ms);
  put(bytes, 0, XXH3_64bits_withSeed(bytes.data() + 8, bytes.size() - 8, kStateLimitSeed));
  return bytes;
}

Result<Nanos> decode_state_limit(const std::array<std::uint8_t, 16>& model_fingerprint,
                                 std::span<const std::byte> bytes) {
  // (Of whatever length a later version has: its checksum tells that it is one.)
  if (bytes.size() < kStateLimitBytes || get<std::uint64_t>(bytes, 8) != kStateLimitMagic ||
      get<std::uint64_t>(bytes, 0) !=
          XXH3_64bits_withSeed(bytes.data() + 8, bytes.size() - 8, kStateLimitSeed)) {
    return data_loss("the note of its limit is damaged");
  }
  const auto version = get<std::uint32_t>(bytes, 16);
  if (version != kStateLimitVersion) {
    return unimplemented(
        fmt::format("the note of its limit has version {}, this Loci's is {}", version, kStateLimitVersion));
  }
  if (get<std::array<std::uint8_t, 16>>(bytes, 24) != model_fingerprint)
    return data_loss("the note of its limit is another model's");
  const auto limit_ms = get<std::int64_t>(bytes, 40);
  if (bytes.size() != kStateLimitBytes || limit_ms < 0 || limit_ms > kNever / kNanosPerMilli)
    return data_loss("the note of its limit is damaged");
  return limit_ms == 0 ? kNever : limit_ms * kNanosPerMilli;
}

}  // namespace loci
