// SPDX-License-Identifier: Apache-2.0
#include "loci/model/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "loci/base/folder_testing.h"
#include "loci/base/rounds_testing.h"
#include "loci/model/gguf_testing.h"
#include "loci/model/gguf_writer_testing.h"
#include "loci/model/random_model_testing.h"

namespace loci {
namespace {

using Bytes = std::vector<std::byte>;

template <class T>
void put(Bytes& bytes, std::size_t at, T value) {
  ASSERT_LE(at + sizeof(T), bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

std::size_t find_text(const Bytes& bytes, std::string_view text) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return all.find(text);
}

void expect_error(const Bytes& bytes, StatusCode code, std::string_view field, std::string_view message) {
  const Status status = GgufFile::parse(bytes).status();
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_EQ(status.field(), field) << status.to_string();
  EXPECT_NE(status.message().find(message), std::string::npos) << status.to_string();
}

GgufWriter small_file() {
  GgufWriter writer;
  writer.add("count", std::uint32_t{7});
  writer.add_tensor("a", TensorType::kF32, 2, 3, Bytes(24, std::byte{1}));
  writer.add_tensor("b", TensorType::kQ4_0, 1, 64, Bytes(36, std::byte{2}));
  return writer;
}

TEST(Gguf, ReadsEveryMetadataType) {
  GgufWriter writer;
  const GgufArray nested{
      std::vector<GgufArray>{{std::vector<std::string>{"a", ""}}, {std::vector<bool>{true}}}};
  const std::vector<std::pair<std::string, GgufValue>> values = {
      {"u8", std::uint8_t{255}},
      {"i8", std::int8_t{-128}},
      {"u16", std::uint16_t{65535}},
      {"i16", std::int16_t{-32768}},
      {"u32", std::uint32_t{4294967295}},
      {"i32", std::int32_t{-5}},
      {"f32", 0.5f},
      {"bool", true},
      {"string", std::string("text \0 more", 11)},
      {"u64", UINT64_MAX},
      {"i64", INT64_MIN},
      {"f64", 0.1},
      {"array i32", GgufArray{std::vector<std::int32_t>{1, -2, 3}}},
      {"array u64", GgufArray{std::vector<std::uint64_t>{1, UINT64_MAX}}},
      {"array f32", GgufArray{std::vector<float>{1.5f, -2}}},
      {"array bool", GgufArray{std::vector<bool>{true, false, true}}},
      {"array string", GgufArray{std::vector<std::string>{"x", "", "yz"}}},
      {"array empty", GgufArray{std::vector<double>{}}},
      {"nested", nested},
  };
  for (const auto& [key, value] : values) writer.add(key, value);
  const Bytes bytes = writer.to_bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.metadata().size(), values.size());

  EXPECT_EQ(file.get_uint("u8").value(), 255u);
  EXPECT_EQ(file.get_uint("u16").value(), 65535u);
  EXPECT_EQ(file.get_uint("u32").value(), 4294967295u);
  EXPECT_EQ(file.get_uint("u64").value(), UINT64_MAX);
  EXPECT_EQ(std::get<std::int8_t>(*file.find("i8")), -128);
  EXPECT_EQ(std::get<std::int16_t>(*file.find("i16")), -32768);
  EXPECT_EQ(std::get<std::int64_t>(*file.find("i64")), INT64_MIN);
  EXPECT_EQ(file.get_float("f32").value(), 0.5);
  EXPECT_EQ(file.get_float("f64").value(), 0.1);
  EXPECT_TRUE(file.get_bool("bool").value());
  EXPECT_EQ(file.get_string("string").value(), std::string("text \0 more", 11));
  EXPECT_EQ(file.get_ints("array i32").value(), (std::vector<std::int32_t>{1, -2, 3}));
  EXPECT_EQ(file.get_floats("array f32").value(), (std::vector<float>{1.5f, -2}));
  EXPECT_EQ(file.get_strings("array string").value(), (std::vector<std::string>{"x", "", "yz"}));
  EXPECT_TRUE(file.get_floats("array empty").value().empty());
  EXPECT_EQ(std::get<std::vector<bool>>(std::get<GgufArray>(*file.find("array bool")).elements),
            (std::vector<bool>{true, false, true}));
  const auto& inner = std::get<std::vector<GgufArray>>(std::get<GgufArray>(*file.find("nested")).elements);
  ASSERT_EQ(inner.size(), 2u);
  EXPECT_EQ(std::get<std::vector<std::string>>(inner[0].elements)[0], "a");
}

TEST(Gguf, LookUpsNameKeyAndTypes) {
  GgufWriter writer;
  writer.add("text", std::string("x"));
  writer.add("negative", std::int32_t{-1});
  writer.add("wide", GgufArray{std::vector<std::int64_t>{1, INT64_MAX}});
  writer.add("texts", GgufArray{std::vector<std::string>{"x"}});
  const Bytes bytes = writer.to_bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  EXPECT_EQ(file.get_uint("text").status().to_string(),
            "invalid_argument: text: expected an unsigned integer, found a string");
  EXPECT_EQ(file.get_uint("negative").status().message(), "expected an unsigned integer, found -1");
  EXPECT_EQ(file.get_uint("none").status().message(), "expected an unsigned integer, found no such key");
  EXPECT_EQ(file.get_ints("wide").status().message(),
            "expected integers of 32 bits, found 9223372036854775807 at index 1");
  EXPECT_EQ(file.get_ints("texts").status().message(),
            "expected an array of integers, found an array of strings");
  EXPECT_EQ(file.get_float("text").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file.get_bool("text").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file.get_string("texts").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file.get_strings("text").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file.get_floats("texts").status().code(), StatusCode::kInvalidArgument);
}

TEST(Gguf, ReadsTensorsInTheFilesOrder) {
  for (const std::uint32_t alignment : {8u, 32u, 256u}) {
    GgufWriter writer(alignment);
    Bytes data(24);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
    writer.add_tensor("z", TensorType::kF32, 2, 3, data);
    writer.add_raw_tensor("cube", 0, {2, 3, 4}, Bytes(96));
    writer.add_tensor("a", TensorType::kBF16, 1, 5, Bytes(10, std::byte{9}));
    const Bytes bytes = writer.to_bytes();
    const GgufFile file = GgufFile::parse(bytes).value();
    ASSERT_EQ(file.tensors().size(), 3u);
    const TensorView& first = file.tensors()[0];
    EXPECT_EQ(first.name, "z");
    EXPECT_EQ(first.rows, 2u);
    EXPECT_EQ(first.columns, 3u);
    EXPECT_EQ((first.data - bytes.data()) % alignment, 0);
    EXPECT_EQ(std::memcmp(first.data, data.data(), data.size()), 0);
    EXPECT_EQ(file.tensors()[1].rows, 12u);
    EXPECT_EQ(file.find_tensor("a")->rows, 1u);
    EXPECT_EQ(file.find_tensor("a")->row(0)[9], std::byte{9});
    EXPECT_EQ(file.find_tensor("b"), nullptr);
  }
}

TEST(Gguf, ListsTensorsItCannotUse) {
  GgufWriter writer;
  writer.add_raw_tensor("k", 16, {256, 2}, Bytes(132));
  writer.add_raw_tensor("future", 77, {5}, Bytes(32));
  writer.add_tensor("a", TensorType::kF32, 1, 1, Bytes(4));
  const Bytes bytes = writer.to_bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  EXPECT_EQ(file.tensors().size(), 1u);
  ASSERT_EQ(file.opaque_tensors().size(), 2u);
  EXPECT_EQ(file.opaque_tensors()[0].type_name, "IQ2_XXS");
  EXPECT_EQ(file.opaque_tensors()[0].size_bytes, 132u);
  EXPECT_EQ(file.opaque_tensors()[1].type_name, "type 77");
  EXPECT_FALSE(file.opaque_tensors()[1].size_bytes.has_value());
  EXPECT_EQ(
      file.get_tensor("k").status().to_string(),
      "invalid_argument: k: expected a tensor of type F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, "
      "Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, found IQ2_XXS (type number 16)");
  EXPECT_EQ(file.get_tensor("none").status().field(), "none");
}

TEST(Gguf, RefusesWhatIsNotGguf) {
  const Bytes good = small_file().to_bytes();
  expect_error({}, StatusCode::kInvalidArgument, "magic", "expected a GGUF file, found 0 bytes");
  Bytes bytes = good;
  put(bytes, 0, 'H');
  expect_error(bytes, StatusCode::kInvalidArgument, "magic", "expected a file that starts with \"GGUF\"");
  bytes = good;
  put(bytes, 4, std::uint32_t{1});
  expect_error(bytes, StatusCode::kInvalidArgument, "version", "expected GGUF version 2 or 3, found 1");
  put(bytes, 4, std::uint32_t{0x03000000});
  expect_error(bytes, StatusCode::kInvalidArgument, "version",
               "expected a little-endian file, found a big-endian one of version 3: convert it with "
               "gguf-convert-endian from llama.cpp's gguf package");
  put(bytes, 4, std::uint32_t{2});
  EXPECT_EQ(GgufFile::parse(bytes)->version(), 2u);
}

TEST(Gguf, RefusesAbsurdCounts) {
  const Bytes good = small_file().to_bytes();
  Bytes bytes = good;
  put(bytes, 8, UINT64_MAX);
  expect_error(bytes, StatusCode::kDataLoss, "tensor_count", "found 18446744073709551615");
  bytes = good;
  put(bytes, 16, std::uint64_t{1} << 40);
  expect_error(bytes, StatusCode::kDataLoss, "metadata_kv_count", "found 1099511627776");
  bytes = good;
  put(bytes, 24, UINT64_MAX);  // the first key's length
  expect_error(bytes, StatusCode::kDataLoss, "metadata key 0", "at most 65535 bytes");
  bytes = good;
  put(bytes, 24 + 8 + 5, std::uint32_t{13});
  expect_error(bytes, StatusCode::kDataLoss, "count", "expected a value type from 0 to 12, found 13");

  GgufWriter array;
  array.add("list", GgufArray{std::vector<std::string>{"x"}});
  bytes = array.to_bytes();
  put(bytes, find_text(bytes, "list") + 4 + 4 + 4, UINT64_MAX);
  expect_error(bytes, StatusCode::kDataLoss, "list", "found 18446744073709551615");

  GgufWriter boolean;
  boolean.add("flag", true);
  bytes = boolean.to_bytes();
  put(bytes, find_text(bytes, "flag") + 4 + 4, std::uint8_t{2});
  expect_error(bytes, StatusCode::kDataLoss, "flag", "expected a bool (0 or 1), found 2");
}

TEST(Gguf, BoundsNesting) {
  GgufArray array{std::vector<std::int32_t>{1}};
  for (int depth = 2; depth <= 4; ++depth) array = GgufArray{std::vector<GgufArray>{array}};
  GgufWriter fits;
  fits.add("deep", array);
  EXPECT_TRUE(GgufFile::parse(fits.to_bytes()).ok());
  GgufWriter deep;
  deep.add("deep", GgufArray{std::vector<GgufArray>{array}});
  expect_error(deep.to_bytes(), StatusCode::kDataLoss, "deep", "nested at most 4 deep");
}

TEST(Gguf, RefusesDuplicates) {
  GgufWriter keys;
  keys.add("k", true);
  keys.add("k", false);
  expect_error(keys.to_bytes(), StatusCode::kDataLoss, "k", "found it twice");
  GgufWriter tensors;
  tensors.add_tensor("t", TensorType::kF32, 1, 1, Bytes(4));
  tensors.add_raw_tensor("t", 16, {256}, Bytes(66));
  expect_error(tensors.to_bytes(), StatusCode::kDataLoss, "t", "found it twice");
}

TEST(Gguf, RefusesWrongAlignment) {
  for (const std::uint32_t alignment : {0u, 4u, 48u, 1u << 21}) {
    GgufWriter writer;
    writer.add("general.alignment", alignment);
    expect_error(writer.to_bytes(), StatusCode::kDataLoss, "general.alignment",
                 "expected a power of two from 8 to 1048576, found " + std::to_string(alignment));
  }
  GgufWriter writer;
  writer.add("general.alignment", std::string("32"));
  expect_error(writer.to_bytes(), StatusCode::kDataLoss, "general.alignment", "found a string");
}

TEST(Gguf, RefusesWrongShapes) {
  const auto with = [](std::uint32_t type, std::vector<std::uint64_t> dimensions) {
    GgufWriter writer;
    writer.add_raw_tensor("t", type, std::move(dimensions), Bytes(64));
    return writer.to_bytes();
  };
  expect_error(with(0, {}), StatusCode::kDataLoss, "t", "expected 1 to 4 dimensions, found 0");
  expect_error(with(0, {1, 1, 1, 1, 1}), StatusCode::kDataLoss, "t", "expected 1 to 4 dimensions, found 5");
  expect_error(with(0, {4, 0}), StatusCode::kDataLoss, "t", "expected dimension 1 of at least 1, found 0");
  expect_error(with(2, {33}), StatusCode::kDataLoss, "t", "multiple of 32 for type Q4_0, found 33");
  expect_error(with(12, {255}), StatusCode::kDataLoss, "t", "multiple of 256 for type Q4_K, found 255");
  expect_error(with(0, {1, 1ull << 33, 1ull << 33}), StatusCode::kDataLoss, "t", "below 2^64");
  expect_error(with(77, {1ull << 40, 1ull << 40}), StatusCode::kDataLoss, "t", "fewer than 2^64 elements");
  expect_error(with(0, {1ull << 31, 1ull << 31}), StatusCode::kDataLoss, "t", "below 2^64 bytes");
  expect_error(with(0, {17}), StatusCode::kDataLoss, "t", "expected 68 bytes at offset 0");
}

TEST(Gguf, RefusesWrongPlaces) {
  const Bytes good = small_file().to_bytes();
  const std::size_t offset_of_b = find_text(good, "b\x01") + 1 + 4 + 8 + 4;  // name, dimensions, size, type
  ASSERT_EQ(good[offset_of_b], std::byte{32});
  Bytes bytes = good;
  put(bytes, offset_of_b, std::uint64_t{33});
  expect_error(bytes, StatusCode::kDataLoss, "b", "multiple of the alignment 32, found 33");
  put(bytes, offset_of_b, std::uint64_t{0});
  expect_error(bytes, StatusCode::kDataLoss, "b", "after that of a, which ends at offset 24, found offset 0");
  put(bytes, offset_of_b, std::uint64_t{64});
  expect_error(bytes, StatusCode::kDataLoss, "b", "expected 36 bytes at offset 64 of the tensor data");
  put(bytes, offset_of_b, UINT64_MAX - 31);
  expect_error(bytes, StatusCode::kDataLoss, "b", "offset 18446744073709551584");
}

TEST(Gguf, OpensFiles) {
  const TestFolder folder;
  const std::string path = folder.file("small.gguf");
  ASSERT_TRUE(small_file().write_file(path).ok());
  GgufFile file = GgufFile::open(path).value();
  EXPECT_EQ(file.file_bytes(), std::filesystem::file_size(path));
  const GgufFile moved = std::move(file);
  EXPECT_EQ(moved.find_tensor("b")->row(0)[35], std::byte{2});

  const Status missing = GgufFile::open(folder.file("none.gguf")).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("none.gguf"), std::string::npos);
  const Status directory = GgufFile::open(folder.path()).status();
  EXPECT_EQ(directory.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(directory.message().find(": expected a regular file, found a directory or device"),
            std::string::npos);
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(GgufFile::open(path).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(small_file().write_file(folder.file("none/small.gguf")).code(), StatusCode::kInternal);
}

// A complete model in a few kilobytes, with every kind of key and tensor that a model has.
Bytes small_model() {
  return make_random_model({.hidden = 8,
                            .heads = 2,
                            .kv_heads = 1,
                            .head_dim = 4,
                            .ffn = 8,
                            .layers = 1,
                            .tied_embedding = false,
                            .biases = true,
                            .rope_linear_factor = 2,
                            .rope_factors = true})
      .value()
      .to_bytes();
}

void expect_named(const Exercised& exercised, std::size_t at) {
  for (const Status& status : {exercised.parsed, exercised.specified}) {
    if (status.ok()) continue;
    EXPECT_TRUE(status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kInvalidArgument)
        << at << ": " << status.to_string();
    EXPECT_FALSE(status.field().empty()) << at << ": " << status.to_string();
    EXPECT_FALSE(status.message().empty()) << at;
  }
}

TEST(GgufDamage, ErrorsAreShortAndOfOneLine) {
  GgufWriter key;
  key.add(std::string(60'000, '\n'), std::uint32_t{7});
  Bytes bytes = key.to_bytes();
  bytes.resize(24 + 8 + 60'000 + 4 + 1);  // The head, the key, its value's type, a byte of that.
  expect_error(bytes, StatusCode::kDataLoss, std::string(64, '?') + "...", "more bytes");

  GgufWriter tensors;
  tensors.add_raw_tensor(std::string(254, '\n') + "a", 0, {8}, Bytes(32));
  tensors.add_raw_tensor(std::string(254, '\n') + "b", 0, {8}, {});
  const Status status = GgufFile::parse(tensors.to_bytes()).status();
  EXPECT_LT(status.to_string().size(), 400u);
  EXPECT_EQ(status.to_string().find('\n'), std::string::npos);
  EXPECT_FALSE(status.ok());
}

TEST(GgufDamage, EveryTruncationIsAnError) {
  const Bytes whole = small_model();
  ASSERT_TRUE(exercise_gguf(whole).specified.ok());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    const Exercised exercised = exercise_gguf(part);
    expect_named(exercised, length);
    // Only the padding behind the last tensor may be missing.
    EXPECT_TRUE(!exercised.parsed.ok() || length + 32 > whole.size()) << length;
  }
}

TEST(GgufDamage, EveryChangedByteIsAnErrorOrAnotherFile) {
  Bytes bytes = small_model();
  const GgufFile file = GgufFile::parse(bytes).value();
  const auto header_bytes = static_cast<std::size_t>(file.tensors()[0].data - bytes.data());
  int refused = 0;
  for (std::size_t at = 0; at < header_bytes; ++at) {
    const std::vector changes = {0x01u, 0x80u, 0xffu};
    for (const unsigned change : changes) {
      if (kSlowed && change != changes[at % changes.size()]) continue;
      bytes[at] ^= static_cast<std::byte>(change);
      const Exercised exercised = exercise_gguf(bytes);
      expect_named(exercised, at);
      refused += exercised.parsed.ok() && exercised.specified.ok() ? 0 : 1;
      bytes[at] ^= static_cast<std::byte>(change);
    }
  }
  EXPECT_GT(refused,
            static_cast<int>(test_rounds(1000, 3)));  // lengths, counts, types, names of tensors, sizes
}

}  // namespace
}  // namespace loci
