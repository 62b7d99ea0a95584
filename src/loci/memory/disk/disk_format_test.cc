// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_format.h"

#include <gtest/gtest.h>

#include "loci/memory/disk/disk_layout.h"
#include "loci/memory/disk/disk_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace loci {
namespace {

constexpr RecordPlace kPlace({1, 2, 3}, 2, 41, StateForm::kKeysAndValues);

std::vector<std::uint64_t> checksums_of(std::uint32_t layers) {
  std::vector<std::uint64_t> all;
  for (std::uint32_t i = 0; i < layers; ++i) all.push_back(mix64(i));
  return all;
}

std::vector<std::byte> record_of(const BlockEntry& entry, std::uint32_t layers) {
  std::vector<std::byte> bytes(record_bytes(layers));
  encode_record(kPlace, entry, checksums_of(layers), bytes);
  return bytes;
}

RecordState decode(const RecordPlace& place, std::uint32_t layers, std::span<const std::byte> bytes) {
  BlockEntry entry;
  return decode_record(place, layers, bytes, entry);
}

TEST(DiskFormat, RecordsComeBackAsTheyWere) {
  for (const std::uint32_t layers : {0u, 1u, 30u, 35u, 36u, 200u}) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const BlockEntry entry = test_entry(seed, static_cast<std::uint32_t>(seed + 1));
      const std::vector<std::byte> bytes = record_of(entry, layers);
      EXPECT_EQ(bytes.size() % kDiskSector, 0u);
      BlockEntry found;
      ASSERT_EQ(decode_record(kPlace, layers, bytes, found), RecordState::kValid);
      EXPECT_EQ(found, entry);
      for (std::uint32_t i = 0; i < layers; ++i) EXPECT_EQ(recorded_checksum(bytes, i), mix64(i));
    }
  }
  EXPECT_EQ(record_bytes(0), 512u);
  EXPECT_EQ(record_bytes(35), 512u);
  EXPECT_EQ(record_bytes(36), 1024u);
}

TEST(DiskFormat, EveryFlippedBitIsFound) {
  std::vector<std::byte> bytes = record_of(test_entry(2), 30);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    ASSERT_EQ(decode(kPlace, 30, bytes), RecordState::kDamaged) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  EXPECT_EQ(decode(kPlace, 30, bytes), RecordState::kValid);
}

TEST(DiskFormat, EveryTornSectorIsFound) {
  const std::vector<std::byte> first = record_of(test_entry(2), 120);
  std::vector<std::byte> second(first.size());
  encode_record(kPlace, test_entry(3), std::vector<std::uint64_t>(120, 77), second);
  ASSERT_EQ(first.size(), 3 * kDiskSector);
  for (unsigned mixture = 1; mixture < 7; ++mixture) {
    std::vector<std::byte> torn = first;
    for (unsigned sector = 0; sector < 3; ++sector) {
      if ((mixture >> sector & 1) == 0) continue;
      std::copy_n(second.begin() + sector * 512, 512, torn.begin() + sector * 512);
    }
    EXPECT_EQ(decode(kPlace, 120, torn), RecordState::kDamaged) << mixture;
  }
}

TEST(DiskFormat, ARecordOfAnotherPlaceOrModelIsNotTaken) {
  const std::vector<std::byte> bytes = record_of(test_entry(2), 30);
  RecordPlace place = kPlace;
  place.slot = 42;
  EXPECT_EQ(decode(place, 30, bytes), RecordState::kDamaged);
  place = kPlace;
  place.group = 1;
  EXPECT_EQ(decode(place, 30, bytes), RecordState::kDamaged);
  place = kPlace;
  place.model_fingerprint[15] ^= 1;
  EXPECT_EQ(decode(place, 30, bytes), RecordState::kForeign);
  EXPECT_EQ(decode(kPlace, 29, bytes), RecordState::kDamaged);
  EXPECT_EQ(decode(kPlace, 0, std::vector<std::byte>(512)), RecordState::kEmpty);
  EXPECT_EQ(decode(kPlace, 0, {}), RecordState::kDamaged);
}

TEST(DiskFormat, SlicesVerifyInTheirPlaceAlone) {
  std::vector<std::byte> slice(4096, std::byte{5});
  const std::uint64_t checksum = slice_checksum(7, 3, slice);
  EXPECT_NE(slice_checksum(7, 4, slice), checksum);
  EXPECT_NE(slice_checksum(8, 3, slice), checksum);
  slice[4095] ^= std::byte{128};
  EXPECT_NE(slice_checksum(7, 3, slice), checksum);
}

TEST(DiskFormat, SuperblocksComeBackAndVerify) {
  Superblock superblock{.set = {9}, .model_fingerprint = {8}, .directory = 2, .directories = 3, .holes = 99};
  for (std::uint32_t g = 0; g < kDiskGroupsMax; ++g) {
    superblock.groups.push_back({.layers = g + 1, .layer_slice_bytes = g * 1000, .slots = g * 3});
  }
  std::vector<std::byte> bytes = encode_superblock(superblock);
  ASSERT_EQ(bytes.size(), kSuperblockBytes);
  EXPECT_EQ(decode_superblock(bytes).value(), superblock);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{64};
    EXPECT_EQ(decode_superblock(bytes).status().code(), StatusCode::kDataLoss) << at;
    bytes[at] ^= std::byte{64};
  }
  EXPECT_FALSE(decode_superblock(std::vector<std::byte>(kSuperblockBytes)).ok());
  EXPECT_FALSE(decode_superblock({}).ok());
}

// Keys and values are as in version 1, whose disks are taken over; hidden states have other rows since.
TEST(DiskFormat, OnlyHiddenStatesAreOfASecondVersion) {
  Superblock superblock{.groups = {{.layers = 4, .layer_slice_bytes = 8192, .slots = 6}}, .holes = 6};
  EXPECT_EQ(encode_superblock(superblock)[16], std::byte{1});
  EXPECT_EQ(record_of(test_entry(3), 4)[12], std::byte{1});
  RecordPlace hidden = kPlace;
  hidden.form = StateForm::kHidden;
  std::vector<std::byte> record(record_bytes(4));
  encode_record(hidden, test_entry(3), checksums_of(4), record);
  EXPECT_EQ(record[12], std::byte{2});
  EXPECT_EQ(decode(hidden, 4, record), RecordState::kValid);
  superblock.groups.push_back(
      {.layers = 4, .layer_slice_bytes = 4096, .slots = 12, .form = StateForm::kHidden});
  EXPECT_EQ(encode_superblock(superblock)[16], std::byte{2});
  EXPECT_EQ(decode_superblock(encode_superblock(superblock)).value(), superblock);
}

TEST(DiskFormat, ANotedLimitComesBackAndVerifies) {
  constexpr std::array<std::uint8_t, 16> kModel = {1, 2, 3}, kOther = {4};
  constexpr Nanos kMilli = kNanosPerMilli;
  for (const Nanos limit : {kMilli, 7 * 86'400 * kNanosPerSecond, kNever})
    EXPECT_EQ(decode_state_limit(kModel, encode_state_limit(kModel, limit)).value(), limit);
  EXPECT_EQ(decode_state_limit(kModel, encode_state_limit(kModel, 1)).value(), kMilli) << "never shorter";
  EXPECT_LT(decode_state_limit(kModel, encode_state_limit(kModel, kNever - 1)).value(), kNever);
  std::vector<std::byte> bytes = encode_state_limit(kModel, kMilli);
  EXPECT_EQ(decode_state_limit(kOther, bytes).status().code(), StatusCode::kDataLoss);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_EQ(decode_state_limit(kModel, bytes).status().code(), StatusCode::kDataLoss) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_state_limit(kModel, std::span(bytes).first(size)).ok()) << size;
}

TEST(DiskFormat, AnyBytesMayBeDecoded) {
  Random random(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::uint8_t> input(1 + random.below(300));
    input[0] = static_cast<std::uint8_t>(random.next());
    // Few bytes differ from a valid record: that is where the decoder's own checks are.
    for (std::uint64_t i = random.below(4); i > 0; --i) {
      input[random.below(input.size())] = static_cast<std::uint8_t>(random.below(2) ? random.next() : 1);
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

TEST(DiskLayout, DividesAnySpaceWithoutExceedingIt) {
  Random random(11);
  for (int round = 0; round < 2000; ++round) {
    DiskStoreOptions options;
    std::uint64_t least = ~std::uint64_t{0};
    for (std::uint64_t i = 1 + random.below(4); i > 0; --i) {
      options.directories.push_back(
          {"x" + std::to_string(i), 150'000 + random.below(std::uint64_t{1} << (20 + random.below(24)))});
      least = std::min(least, options.directories.back().bytes);
    }
    for (std::uint64_t i = 1 + random.below(4); i > 0; --i) {
      options.groups.push_back({.layers = static_cast<std::uint32_t>(1 + random.below(80)),
                                .layer_slice_bytes = 1 + random.below(300'000)});
      options.shares.push_back(static_cast<std::uint32_t>(1 + random.below(40)));
    }
    const auto layout = divide_space(options);
    if (!layout.ok()) {
      EXPECT_EQ(layout.status().field(), "disk");
      continue;
    }
    // Slices lie in order, apart from one another, in packs that are aligned; little is empty.
    for (std::uint32_t g = 0; g < layout->groups.size(); ++g) {
      const DiskGroup& group = layout->groups[g];
      std::uint64_t end = 0;
      for (std::uint32_t layer = 0; layer < group.layers; ++layer) {
        const std::uint64_t at = layout->slice_offset(g, layer);
        ASSERT_GE(at, end);
        if (layer % layout->pack_layers(g) == 0) {
          ASSERT_EQ(at, layer / layout->pack_layers(g) * layout->pack_stride(g));
          ASSERT_EQ(at % kDiskAlignment, 0u);
        }
        end = at + group.layer_slice_bytes;
      }
      EXPECT_GE(layout->slot_stride(g), end);
      EXPECT_LT(layout->slot_stride(g), group.layers * group.layer_slice_bytes * 32 / 31 + kDiskAlignment);
    }
    EXPECT_LE(layout->directory_bytes(), least);
    // One more round of slots would not have fitted, unless numbers ran out.
    std::uint64_t round_bytes = 0, slots = 0;
    for (std::uint32_t g = 0; g < layout->groups.size(); ++g) {
      EXPECT_GE(layout->groups[g].slots, layout->directories);
      EXPECT_EQ(layout->groups[g].slots % layout->directories, 0u);
      round_bytes +=
          (options.shares[g] + 1) * (layout->slot_stride(g) + layout->record_stride(g) + record_bytes(0)) +
          8192;
      slots += layout->groups[g].slots;
    }
    EXPECT_EQ(layout->holes, slots);
    EXPECT_GT(layout->directory_bytes() + round_bytes + least / 1000, least);
  }
}

TEST(DiskLayout, PacksSlicesThatLeaveGaps) {
  const auto layout_of = [](std::uint64_t slice_bytes) {
    DiskStoreOptions options;
    options.directories = {{.path = "a", .bytes = 100 << 20}};
    options.groups = {{.layers = 30, .layer_slice_bytes = slice_bytes}};
    return divide_space(options).value();
  };
  // The default model's state in f16 and in q8.
  const DiskLayout f16 = layout_of(24576), q8 = layout_of(12672);
  EXPECT_EQ(f16.pack_layers(0), 1u);
  EXPECT_EQ(q8.pack_layers(0), 6u);
  EXPECT_LE(static_cast<double>(q8.slot_stride(0)), 0.55 * static_cast<double>(f16.slot_stride(0)));
}

// Rows of the default model, of Gemma 3 4B's shape and of those whose slices are whole pages.
TEST(DiskLayout, LeavesLittleOfHiddenStatesEmpty) {
  for (const std::uint64_t row : {648u, 2880u, 1152u, 4608u, 1153u}) {
    const DiskLayout layout{
        .groups = {{.layers = 30, .layer_slice_bytes = 8192 * row},
                   {.layers = 30, .layer_slice_bytes = 32 * row, .form = StateForm::kHidden}}};
    EXPECT_LE(static_cast<double>(layout.slot_stride(1)), 30 * 32 * 1.0205 * static_cast<double>(row)) << row;
    EXPECT_LE(layout.pack_layers(1), 10u) << "what is read alone is not much";
  }
}

// Whatever part of the blocks is in which form, together they take no more than one form alone may.
TEST(DiskLayout, FormsShareTheirRoom) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    const auto layers = static_cast<std::uint32_t>(1 + random.below(40));
    const std::uint64_t slice = 1 + random.below(100'000), space = 5'000'000 + random.below(1u << 30);
    DiskStoreOptions options{
        .directories = {{"a", space}, {"b", space}},
        .groups = {{.layers = layers, .layer_slice_bytes = slice}, {.layers = 2, .layer_slice_bytes = 5000}},
        .shares = {2, 1}};
    const auto without = divide_space(options);
    options.groups.push_back(
        {.layers = layers, .layer_slice_bytes = 1 + random.below(slice), .form = StateForm::kHidden});
    const auto layout = divide_space(options);
    ASSERT_EQ(layout.ok(), without.ok());
    if (!layout.ok()) continue;
    EXPECT_LE(layout->directory_bytes(), space);
    EXPECT_GE(layout->groups[0].slots + 2 + without->groups[0].slots / 8, without->groups[0].slots);
    EXPECT_GE(layout->holes, std::max(layout->groups[0].slots, layout->groups[2].slots));
    for (const std::uint64_t bytes : {space, space / 3, space / 50}) {
      const std::vector<std::uint32_t> slots = slots_within(*layout, options.shares, bytes);
      EXPECT_GE(slots[2], slots[0]);
      for (int i = 0; i < 10; ++i) {
        const auto used = static_cast<std::uint32_t>(random.below(slots[0] + 1));
        const std::uint32_t beside = slots_beside(slots[2], used, slots[0]);
        EXPECT_LE((used * layout->whole_slot_bytes(0) + beside * layout->whole_slot_bytes(2) +
                   slots[1] * layout->whole_slot_bytes(1)) /
                      2,
                  bytes);
        EXPECT_GE(slots_beside(slots[0], beside, slots[2]), used) << "from either side";
      }
    }
  }
}

TEST(DiskLayout, RefusesWhatMakesNoSense) {
  DiskStoreOptions options{.directories = {{"x", 1 << 30}},
                           .groups = {{.layers = 2, .layer_slice_bytes = 10}}};
  EXPECT_TRUE(divide_space(options).ok());
  const auto message = [&options] { return divide_space(options).status().message(); };
  options.shares = {1, 2};
  EXPECT_EQ(message(), "expected a share for each of 1 groups of layers, found 2");
  options.shares = {0};
  EXPECT_EQ(message(), "expected shares above 0, found 0");
  options.shares = {};
  options.directories.push_back({"x", 1 << 30});
  EXPECT_EQ(divide_space(options).status().field(), "disk") << "one directory twice";
  EXPECT_EQ(message(), "expected different directories, found x twice");
  options.directories = {};
  EXPECT_EQ(divide_space(options).status().field(), "disk");
  EXPECT_EQ(message(), "expected at least one directory");
  options.directories = {{"x", 1}};
  EXPECT_NE(message().find("for each directory, so that it holds a block, found 1 B"), std::string::npos)
      << message();
  options.groups.push_back({.layers = 2, .layer_slice_bytes = 11, .form = StateForm::kHidden});
  EXPECT_EQ(message(), "expected hidden states behind the keys and values of the same layers, and no larger");
  options.groups.pop_back();
  options.groups[0].layers = 0;
  EXPECT_EQ(message(), "expected groups of at least one layer and one byte, found one without");
}

}  // namespace
}  // namespace loci
