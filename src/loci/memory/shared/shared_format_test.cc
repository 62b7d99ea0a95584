// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/shared_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "loci/base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace loci {
namespace {

ChainKey key_of(std::uint8_t number) {
  ChainKey key;
  key.bytes.fill(number);
  return key;
}

SharedKeys secrets_of(std::uint8_t number) {
  SharedKeys keys;
  keys.names.fill(number);
  keys.seals.fill(static_cast<std::uint8_t>(number + 100));
  return keys;
}

const std::vector<SharedGroup> kShapes = {{.layers = 7, .layer_slice_bytes = 50'000},
                                          {.layers = 3, .layer_slice_bytes = 200'000}};

std::vector<std::byte> block_of(std::uint32_t group) {
  std::vector<std::byte> block(kShapes[group].layers * kShapes[group].layer_slice_bytes);
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>(mix64(i + group) & 0xff);
  return block;
}

Status open_all(const SharedFormat& format, const ChainKey& key, std::uint32_t group,
                std::span<const std::byte> value, std::vector<std::byte>* out = nullptr) {
  for (std::uint32_t i = 0; i < format.pack_count(group); ++i) {
    const SharedFormat::Pack pack = format.pack(group, i);
    std::vector<std::byte> slices(format.slices_bytes(group, pack));
    LOCI_RETURN_IF_ERROR(format.open(key, group, pack, value.subspan(pack.offset, pack.bytes), slices));
    if (out != nullptr) out->insert(out->end(), slices.begin(), slices.end());
  }
  return {};
}

TEST(SharedFormat, PacksAreTheValue) {
  const SharedFormat format(secrets_of(1), kShapes);
  EXPECT_EQ(format.pack_count(0), 4u);  // two layers of 50,000 bytes are within 128 KiB
  EXPECT_EQ(format.pack_count(1), 3u);  // a layer is more
  for (std::uint32_t group = 0; group < 2; ++group) {
    std::uint64_t end = 0;
    std::uint32_t layers = 0;
    for (std::uint32_t i = 0; i < format.pack_count(group); ++i) {
      const SharedFormat::Pack pack = format.pack(group, i);
      EXPECT_EQ(pack.offset, end);
      EXPECT_EQ(pack.first, layers);
      end += pack.bytes;
      layers += pack.count;
    }
    EXPECT_EQ(end, format.value_bytes(group));
    EXPECT_EQ(layers, kShapes[group].layers);
  }
}

TEST(SharedFormat, WhatIsSealedOpens) {
  const SharedFormat format(secrets_of(1), kShapes);
  for (std::uint32_t group = 0; group < 2; ++group) {
    const std::vector<std::byte> block = block_of(group);
    const std::vector<std::byte> value = format.seal(key_of(1), group, block);
    EXPECT_EQ(value.size(), format.value_bytes(group));
    std::vector<std::byte> out;
    EXPECT_TRUE(open_all(format, key_of(1), group, value, &out).ok());
    EXPECT_EQ(out, block);
    EXPECT_NE(value, format.seal(key_of(1), group, block)) << "a nonce was drawn twice";
  }
}

TEST(SharedFormat, NothingElseOpens) {
  const SharedFormat format(secrets_of(1), kShapes);
  const std::vector<std::byte> value = format.seal(key_of(1), 0, block_of(0));
  EXPECT_EQ(open_all(format, key_of(2), 0, value).code(), StatusCode::kDataLoss) << "another block";
  EXPECT_EQ(open_all(SharedFormat(secrets_of(2), kShapes), key_of(1), 0, value).code(), StatusCode::kDataLoss)
      << "another secret";
  SharedKeys half = secrets_of(1);
  half.seals.back() ^= 1;
  EXPECT_EQ(open_all(SharedFormat(half, kShapes), key_of(1), 0, value).code(), StatusCode::kDataLoss);
  // A pack in another's place.
  const SharedFormat::Pack first = format.pack(0, 0), second = format.pack(0, 1);
  std::vector<std::byte> slices(format.slices_bytes(0, second));
  const std::span<const std::byte> bytes(value);
  ASSERT_EQ(first.bytes, second.bytes);
  EXPECT_EQ(format.open(key_of(1), 0, second, bytes.subspan(first.offset, first.bytes), slices).code(),
            StatusCode::kDataLoss);
  // Another shape of the same size.
  const SharedFormat two(secrets_of(1), {{.layers = 2, .layer_slice_bytes = 50'000}});
  const SharedFormat four(secrets_of(1), {{.layers = 4, .layer_slice_bytes = 25'000}});
  ASSERT_EQ(two.value_bytes(0), four.value_bytes(0));
  const std::vector<std::byte> halves = two.seal(key_of(1), 0, std::vector<std::byte>(100'000));
  EXPECT_TRUE(open_all(two, key_of(1), 0, halves).ok());
  EXPECT_EQ(open_all(four, key_of(1), 0, halves).code(), StatusCode::kDataLoss);
}

TEST(SharedFormat, EveryBitCounts) {
  const SharedFormat format(secrets_of(3), {{.layers = 1, .layer_slice_bytes = 24}});
  const std::vector<std::byte> value = format.seal(key_of(1), 0, std::vector<std::byte>(24, std::byte{7}));
  for (std::size_t bit = 0; bit < value.size() * 8; ++bit) {
    std::vector<std::byte> damaged = value;
    damaged[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(open_all(format, key_of(1), 0, damaged).code(), StatusCode::kDataLoss) << "bit " << bit;
  }
  std::vector<std::byte> slices(24);
  for (std::size_t size = 0; size < value.size(); ++size) {
    const auto cut = std::span<const std::byte>(value).first(size);
    const Status status = format.open(key_of(1), 0, format.pack(0, 0), cut, slices);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), "expected " + std::to_string(value.size()) +
                                    " bytes of a sealed value, found " + std::to_string(size));
  }
}

TEST(SharedFormat, NamesAreApart) {
  std::set<std::string> names;
  for (std::uint8_t secret = 1; secret < 4; ++secret) {
    const SharedFormat format(secrets_of(secret), kShapes);
    for (std::uint8_t key = 0; key < 4; ++key) {
      for (std::uint32_t group = 0; group < 2; ++group) names.insert(format.name(key_of(key), group));
    }
  }
  EXPECT_EQ(names.size(), 24u);
  const std::string name = *names.begin();
  EXPECT_EQ(name.size(), 39u);
  EXPECT_TRUE(name.starts_with("loci:1:"));
  EXPECT_EQ(SharedFormat(secrets_of(1), kShapes).name(key_of(1), 0),
            SharedFormat(secrets_of(1), kShapes).name(key_of(1), 0));
}

TEST(SharedFormat, RandomBytesDoNotOpen) {
  for (std::uint64_t run = 0; run < 500; ++run) {
    std::vector<std::uint8_t> input(random_word(run, 0) % 400);
    // Mostly zeros, which change nothing of the genuine value that they are laid over.
    for (std::size_t i = 0; i < input.size(); ++i) {
      const std::uint64_t word = random_word(run, i + 1);
      input[i] = i < 2 || word % 64 < run % 8 ? static_cast<std::uint8_t>(word >> 8) : 0;
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

}  // namespace
}  // namespace loci
