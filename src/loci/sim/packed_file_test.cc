// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/packed_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "loci/base/folder_testing.h"

namespace loci::sim {
namespace {

class PackedFileTest : public testing::Test {
 protected:
  std::string plain(const std::string& text) const {
    const std::string path = folder_.file("text");
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string packed(const std::string& text) const {
    const std::string path = folder_.file("text.gz");
    gzFile file = ::gzopen(path.c_str(), "wb");
    EXPECT_EQ(::gzwrite(file, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    ::gzclose(file);
    return path;
  }
  static std::vector<std::string> lines(const std::string& path) {
    PackedFile file = PackedFile::open(path).value();
    std::vector<std::string> found;
    while (auto line = file.line().value()) found.push_back(*std::move(line));
    return found;
  }

  const TestFolder folder_;
};

TEST_F(PackedFileTest, LinesHaveAnyLengthAndNeedNoEnd) {
  const std::vector<std::string> wanted = {"a", "", std::string((1 << 20) - 4, 'b'),
                                           std::string(3 << 20, 'c'), "the last"};
  std::string text;
  for (const std::string& line : wanted) text += line + "\n";
  text.pop_back();
  EXPECT_EQ(lines(plain(text)), wanted);
  EXPECT_EQ(lines(packed(text)), wanted);
  EXPECT_EQ(lines(packed(text + "\n")), wanted) << "an end of the last line begins no other";
  EXPECT_EQ(lines(plain("")), std::vector<std::string>());
}

TEST_F(PackedFileTest, TheWholeTextIsTheSamePlainAndPacked) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{5}, std::size_t{1} << 20, (std::size_t{1} << 21) + 7}) {
    const std::string text(size, 'x');
    EXPECT_EQ(read_text(plain(text)).value(), text);
    EXPECT_EQ(read_text(packed(text)).value(), text);
  }
}

TEST_F(PackedFileTest, DamageIsAnErrorThatNamesTheFile) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i * 7919 % 10'007) + "\n";
  const std::string path = packed(text);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  const Status whole = read_text(path).status();
  EXPECT_EQ(whole.code(), StatusCode::kDataLoss);
  EXPECT_NE(whole.message().find(path + ": expected the end of the gzip data"), std::string::npos);
  PackedFile file = PackedFile::open(path).value();
  Result<std::optional<std::string>> line = file.line();
  while (line.ok() && *line) line = file.line();
  EXPECT_EQ(line.status().code(), StatusCode::kDataLoss) << "no end of the file";
  const std::string other = packed(text);
  std::fstream bytes(other, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(-6, std::ios::end);  // in the checksum
  const int letter = bytes.get();
  bytes.seekp(-6, std::ios::end);
  bytes.put(static_cast<char>(letter ^ 1));
  bytes.close();
  EXPECT_EQ(read_text(other).status().message(), other + ": incorrect data check");
  EXPECT_EQ(PackedFile::open(folder_.file("none")).status().code(), StatusCode::kNotFound);
}

TEST_F(PackedFileTest, SharedDataIsWhereTheEnvironmentSays) {
  plain("x");
  const char* before = std::getenv("LOCI_SHARED_DATA");
  const std::optional<std::string> kept = before ? std::optional<std::string>(before) : std::nullopt;
  ::setenv("LOCI_SHARED_DATA", folder_.path().c_str(), 1);
  EXPECT_EQ(shared_data("text"), folder_.file("text"));
  EXPECT_EQ(shared_data("none"), std::nullopt);
  kept ? ::setenv("LOCI_SHARED_DATA", kept->c_str(), 1) : ::unsetenv("LOCI_SHARED_DATA");
}

}  // namespace
}  // namespace loci::sim
