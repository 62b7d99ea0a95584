// SPDX-License-Identifier: Apache-2.0
// Names, lists, hashes and folders of pulled models; tests/pull_test.py pulls from a server.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "loci/base/folder_testing.h"
#include "loci/cli/pull/file_hash.h"
#include "loci/cli/pull/model_folder.h"
#include "loci/cli/pull/repo_files.h"
#include "loci/cli/pull/repo_reference.h"

namespace loci {
namespace {

namespace fs = std::filesystem;

TEST(RepoReference, ReadsNamesRevisionsAndFiles) {
  const RepoReference full = parse_repo_reference("owner/na.me-1@refs/pr/1:sub/model.Q4_K_M.gguf").value();
  EXPECT_EQ(full.repo, "owner/na.me-1");
  EXPECT_EQ(full.revision, "refs/pr/1");
  EXPECT_EQ(full.file, "sub/model.Q4_K_M.gguf");
  EXPECT_EQ(full.text(), "owner/na.me-1@refs/pr/1:sub/model.Q4_K_M.gguf");
  EXPECT_EQ(parse_repo_reference("a/b")->revision, "main");
  EXPECT_EQ(parse_repo_reference("a/b:Q8_0")->text(), "a/b:Q8_0");
  for (const char* wrong :
       {"",       "a",        "/b",    "a/",     "a/b/c",      "../b",   "a/..", "./b",
        ".a/b",   "-a/b",     "a/b@",  "a/b@..", "a/b@x/../y", "a/b@/x", "a/b:", "a/b:../x",
        "a/b:/x", "a/b:x//y", "a b/c", "a/b\n",  "a/b@x y",    "a\\b/c"}) {
    EXPECT_FALSE(parse_repo_reference(wrong).ok()) << wrong;
  }
}

TEST(RepoReference, RefusesPathsThatLeadOut) {
  for (const std::string path : {"a", "a/b", "a.b/c d", "..a/b..", "ü/x"})
    EXPECT_TRUE(check_repo_path(path).ok()) << path;
  const std::vector<std::string> wrong = {"",
                                          "/",
                                          "/etc/passwd",
                                          "..",
                                          ".",
                                          "../x",
                                          "a/../x",
                                          "a/..",
                                          "a/./b",
                                          "a//b",
                                          "a/",
                                          "a\\..\\x",
                                          "a\nb",
                                          "a\xc2\x9b"
                                          "2J",
                                          std::string("a\0b", 3),
                                          ".loci-lock",
                                          "a/.loci-parts/x"};
  for (const std::string& path : wrong) {
    EXPECT_FALSE(check_repo_path(path).ok()) << path;
  }
  EXPECT_FALSE(check_repo_path(std::string("a\0b", 3)).ok());
  EXPECT_FALSE(check_repo_path(std::string(201, 'x')).ok());
}

TEST(RepoReference, ErrorsSayWhatWasExpectedAndFound) {
  const auto error = [](std::string_view text) { return parse_repo_reference(text).status().message(); };
  EXPECT_EQ(error("a/b/c"), "expected OWNER/NAME[@REVISION][:FILE], found \"a/b/c\"");
  EXPECT_EQ(error("a/b@x y"), "after '@' expected a branch, a tag or a commit, found \"x y\"");
  EXPECT_EQ(error("a/b:../x"),
            "after ':' expected a file of the repo or a quantisation such as Q4_K_M, found \"../x\"");
  const auto path_error = [](const std::string& path) { return check_repo_path(path).message(); };
  EXPECT_EQ(path_error(""), "the file name \"\" is empty");
  EXPECT_EQ(path_error("a\\b"), "the file name \"a\\b\" has a control character or a backslash");
  EXPECT_EQ(path_error("a/../x"), "the file name \"a/../x\" leads out of the repo's folder");
  EXPECT_EQ(path_error(".loci-lock"), "the file name \".loci-lock\" is one of Loci's own");
  EXPECT_NE(path_error(std::string(201, 'x')).find("has a name of 201 bytes, at most 200 are allowed"),
            std::string::npos);
  std::string deep = "x";
  while (deep.size() <= 1024) deep += "/x";
  EXPECT_NE(path_error(deep).find("has 1025 bytes, at most 1024 are allowed"), std::string::npos);
}

TEST(RepoReference, NoPathThatIsAcceptedLeavesTheFolder) {
  std::mt19937 random(3);
  const std::string alphabet = "./\\ab:\x01%";
  const fs::path root = "/models/owner/name/main";
  int accepted = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string path(1 + random() % 9, '\0');
    for (char& c : path) c = alphabet[random() % alphabet.size()];
    if (!check_repo_path(path).ok()) continue;
    ++accepted;
    const std::string resolved = (root / path).lexically_normal().string();
    ASSERT_TRUE(resolved.starts_with(root.string() + "/")) << path;
  }
  EXPECT_GT(accepted, 1000);
}

TEST(RepoFiles, ReadsAListOfFiles) {
  const std::vector<RepoFile> files = parse_repo_tree(R"([
      {"type": "directory", "path": "sub", "oid": "1", "size": 0},
      {"type": "file", "path": "config.json", "size": 12, "oid": "ce013625030ba8dba906f756967f9e9ca394464a"},
      {"type": "file", "path": "sub/m.gguf", "size": 5, "oid": "aa",
       "lfs": {"oid": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", "size": 5, "pointerSize": 1}},
      {"type": "file", "path": "odd", "size": 5, "oid": "what"}])")
                                          .value();
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].git_sha1, "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(files[1].sha256.substr(0, 4), "2cf2");
  EXPECT_EQ(files[1].git_sha1, "") << "the hash of the pointer is not the content's";
  EXPECT_EQ(files[2].sha256 + files[2].git_sha1, "");
  for (const char* wrong :
       {"", "{}", "[1]", R"([{"type": "file", "path": "../x", "size": 1}])",
        R"([{"type": "file", "path": "x"}])", R"([{"type": "file", "path": "x", "size": -1}])",
        R"([{"type": "file", "path": 3, "size": 1}])", R"([{"type": "file", "path": "x", "size": "1"}])"}) {
    EXPECT_FALSE(parse_repo_tree(wrong).ok()) << wrong;
  }
  const std::string deep =
      R"([{"type": "directory", "of": )" + std::string(100, '[') + std::string(100, ']') + "}]";
  EXPECT_FALSE(parse_repo_tree(deep).ok());
}

TEST(RepoFiles, RefusesSizesWhoseSumCouldWrap) {
  const auto sized = [](std::uint64_t size) {
    return parse_repo_tree(fmt::format(R"([{{"type": "file", "path": "m.gguf", "size": {}}}])", size));
  };
  EXPECT_EQ(sized(kRepoFileBytesMax)->at(0).size, kRepoFileBytesMax);
  const Status refused = sized(std::uint64_t{1} << 63).status();
  EXPECT_EQ(refused.code(), StatusCode::kDataLoss);
  EXPECT_EQ(refused.message(),
            "the registry's list of files gives m.gguf 9223372036854775808 bytes, at most 70368744177664 are "
            "allowed");
}

std::vector<RepoFile> named(const std::vector<std::string>& paths) {
  std::vector<RepoFile> out;
  for (const std::string& path : paths)
    out.push_back({.path = path, .size = 1, .sha256 = {}, .git_sha1 = {}});
  return out;
}

std::vector<std::string> paths_of(const Result<ChosenFiles>& chosen) {
  std::vector<std::string> out;
  if (!chosen.ok()) return {chosen.status().message()};
  for (const RepoFile& file : chosen->files) out.push_back(file.path);
  return out;
}

using Paths = std::vector<std::string>;

TEST(RepoFiles, ChoosesAmongGgufFiles) {
  const std::vector<RepoFile> files =
      named({"README.md", "m-Q4_K.gguf", "m-Q4_K_M.gguf", "m-q8_0.gguf", "mmproj-m-Q8_0.gguf",
             "big/m-F16-00001-of-00002.gguf", "big/m-F16-00002-of-00002.gguf"});
  EXPECT_EQ(paths_of(choose_files(files, "Q8_0")), Paths{"m-q8_0.gguf"});
  EXPECT_EQ(paths_of(choose_files(files, "q4_k")), Paths{"m-Q4_K.gguf"});
  EXPECT_EQ(paths_of(choose_files(files, "m-Q4_K.gguf")), Paths{"m-Q4_K.gguf"});
  const Paths both = {"big/m-F16-00001-of-00002.gguf", "big/m-F16-00002-of-00002.gguf"};
  EXPECT_EQ(paths_of(choose_files(files, "F16")), both);
  EXPECT_EQ(paths_of(choose_files(files, both[1])), both) << "one part stands for all";
  EXPECT_EQ(choose_files(files, both[1])->entry, both[0]) << "the first is served";
  EXPECT_EQ(paths_of(choose_files(files, "")), Paths{"m-Q4_K_M.gguf"}) << "the usual one";
  EXPECT_EQ(paths_of(choose_files(files, "README.md")), Paths{"README.md"});
  const Result<ChosenFiles> absent = choose_files(files, "Q2_K");
  ASSERT_FALSE(absent.ok());
  EXPECT_NE(absent.status().message().find("m-Q4_K_M.gguf"), std::string::npos) << "says what there is";
  EXPECT_FALSE(choose_files(named({"a-Q8_0.gguf", "b-Q8_0.gguf"}), "Q8_0").ok());
  EXPECT_FALSE(choose_files(named({"a-Q8_0.gguf", "b-Q8_0.gguf"}), "").ok());
  EXPECT_EQ(paths_of(choose_files(named({"a-Q2_K.gguf", "x"}), "")), Paths{"a-Q2_K.gguf"}) << "the only one";
}

TEST(RepoFiles, SaysWhatThereIsToChoose) {
  const auto message = [](const std::vector<RepoFile>& files, const std::string& wanted) {
    return choose_files(files, wanted).status().message();
  };
  const std::vector<RepoFile> two = named({"a-Q8_0.gguf", "b-Q8_0.gguf"});
  EXPECT_EQ(
      message(two, "Q2_K"),
      "expected a GGUF file or a quantisation of the repo, found Q2_K; it has a-Q8_0.gguf, b-Q8_0.gguf");
  EXPECT_EQ(message(two, "Q8_0"),
            "expected one model of Q8_0, found several; name the file: a-Q8_0.gguf, b-Q8_0.gguf");
  EXPECT_EQ(
      message(two, ""),
      "the repo has several models; say which one, with :FILE or :QUANTISATION: a-Q8_0.gguf, b-Q8_0.gguf");
  EXPECT_EQ(message(named({"README.md"}), ""),
            "expected GGUF files, or config.json with model.safetensors; the repo has neither");
}

TEST(RepoFiles, ChoosesADirectory) {
  const std::vector<RepoFile> files = named(
      {"README.md", "config.json", "tokenizer.json", "chat_template.jinja",
       "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json",
       "onnx/model.onnx", "pytorch_model.bin", "onnx/config.json", "m.gguf"});
  const Result<ChosenFiles> chosen = choose_files(files, "");
  EXPECT_EQ(paths_of(chosen),
            (Paths{"config.json", "tokenizer.json", "chat_template.jinja", "model-00001-of-00002.safetensors",
                   "model-00002-of-00002.safetensors", "model.safetensors.index.json"}));
  EXPECT_EQ(chosen->entry, "");
  EXPECT_FALSE(choose_files(named({"config.json", "pytorch_model.bin"}), "").ok());
  EXPECT_FALSE(choose_files({}, "").ok());
}

TEST(FileHash, Sha1IsTheStandards) {
  const auto sha1 = [](std::string_view text, std::size_t piece) {
    Sha1 hash;
    for (std::size_t at = 0; at < text.size(); at += piece) hash.update(text.substr(at, piece));
    return hash.hex();
  };
  EXPECT_EQ(sha1("", 1), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(sha1("abc", 3), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 5),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(sha1(std::string(1'000'000, 'a'), 997), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

class FolderTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  // As a pull leaves it.
  PulledRepo pulled(const std::string& text, const std::vector<std::string>& paths) {
    PulledRepo out{.repo = parse_repo_reference(text).value(), .folder = {}, .files = {}};
    out.folder = repo_folder(root_.string(), out.repo);
    EXPECT_TRUE(RepoLock::take(out.folder).ok());
    for (const std::string& path : paths) {
      write(out.folder + "/" + path, "12345");
      out.files.push_back({.path = path, .size = 5, .sha256 = "ab", .git_sha1 = {}});
    }
    EXPECT_TRUE(write_pulled(out).ok());
    return out;
  }

  const TestFolder folder_;
  const fs::path& root_ = folder_.path();
};

TEST_F(FolderTest, HashesOfFiles) {
  const std::string path = (root_ / "x").string();
  write(path, "hello\n");
  EXPECT_EQ(git_sha1_of_file(path).value(), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(sha256_of_file(path).value(), "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  EXPECT_FALSE(sha256_of_file(path + "y").ok());
}

TEST_F(FolderTest, FindsWhatIsWhole) {
  const PulledRepo repo = pulled("o/n@refs/pr/1", {"m-Q8_0.gguf", "sub/m-Q4_0.gguf"});
  EXPECT_EQ(repo.folder, root_.string() + "/o/n/refs%2Fpr%2F1");
  const auto find = [&](const std::string& text) {
    return find_pulled(root_.string(), parse_repo_reference(text).value());
  };
  EXPECT_EQ(find("o/n@refs/pr/1:Q8_0"), repo.folder + "/m-Q8_0.gguf");
  EXPECT_EQ(find("o/n@refs/pr/1:sub/m-Q4_0.gguf"), repo.folder + "/sub/m-Q4_0.gguf");
  EXPECT_EQ(find("o/n@refs/pr/1:Q2_K"), std::nullopt);
  EXPECT_EQ(find("o/n:Q8_0"), std::nullopt) << "another revision";
  write(repo.folder + "/m-Q8_0.gguf", "123");
  EXPECT_EQ(find("o/n@refs/pr/1:Q8_0"), std::nullopt) << "its size has changed";
  const std::vector<PulledRepo> all = list_pulled(root_.string());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].repo.text(), "o/n@refs/pr/1");
  EXPECT_EQ(all[0].files.size(), 2u);
  write(repo.folder + "/.loci-files.json", "{\"files\": [{\"path\": \"../../x\", \"size\": 1}]}");
  EXPECT_TRUE(list_pulled(root_.string()).empty()) << "a damaged list counts as none";
}

TEST_F(FolderTest, WhatIsWithdrawnIsNotFoundThoughItsFilesAreThere) {
  const PulledRepo repo = pulled("o/n", {"m-Q8_0.gguf", "m-Q4_0.gguf"});
  const auto find = [&](const std::string& text) {
    return find_pulled(root_.string(), parse_repo_reference(text).value());
  };
  const RepoFile other{.path = "other", .sha256 = {}, .git_sha1 = {}};
  EXPECT_TRUE(withdraw_pulled(repo.folder, repo.repo, {repo.files[0], other}).ok());
  EXPECT_EQ(find("o/n:Q8_0"), std::nullopt);
  EXPECT_EQ(find("o/n:Q4_0"), repo.folder + "/m-Q4_0.gguf");
}

// The next pull ends, or `loci rm` finds what is there.
TEST_F(FolderTest, WhatIsUnfinishedIsAddedOrRemoved) {
  const PulledRepo repo = pulled("o/n", {"m-Q8_0.gguf", "m-Q4_0.gguf"});
  const auto rm = [&](const std::string& text) {
    return remove_pulled(root_.string(), parse_repo_reference(text).value());
  };
  EXPECT_TRUE(withdraw_pulled(repo.folder, repo.repo, repo.files).ok());
  EXPECT_TRUE(add_pulled(repo.folder, repo.repo, {repo.files[0]}).ok());
  EXPECT_EQ(read_pulled(repo.folder)->files.size(), 1u);
  EXPECT_EQ(read_pulled(repo.folder)->unfinished.size(), 1u);
  write(repo.folder + "/m-Q4_0.gguf", "123456789");
  EXPECT_EQ(rm("o/n:Q4_0").value(), 9u) << "what it had, and not what was listed";
  EXPECT_EQ(rm("o/n").value(), 5u);
  EXPECT_TRUE(fs::is_empty(root_));

  // The first pull of a model was interrupted after one of its files.
  const PulledRepo first{.repo = repo.repo, .folder = repo.folder, .files = {}};
  EXPECT_TRUE(RepoLock::take(first.folder).ok());
  EXPECT_TRUE(withdraw_pulled(first.folder, first.repo, repo.files).ok());
  write(first.folder + "/m-Q8_0.gguf", "12345");
  EXPECT_EQ(rm("o/n").value(), 5u);
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(FolderTest, PartsOfAFirstPullAreRemoved) {
  const std::string folder = (root_ / "o/n/main").string();
  EXPECT_TRUE(RepoLock::take(folder).ok());
  write(folder + "/.loci-parts/0a1b", "1234567");
  const auto rm = [&](const std::string& text) {
    return remove_pulled(root_.string(), parse_repo_reference(text).value());
  };
  EXPECT_FALSE(rm("o/n:Q8_0").ok()) << "nobody knows whose parts they are";
  EXPECT_EQ(rm("o/n").value(), 7u);
  EXPECT_TRUE(fs::is_empty(root_));
  EXPECT_FALSE(rm("o/n").ok());
}

TEST_F(FolderTest, RemovesWhatWasPulledAndNothingElse) {
  const PulledRepo repo = pulled("o/n", {"m-Q8_0.gguf", "sub/m-Q4_0.gguf"});
  write(repo.folder + "/sub/mine", "x");
  write((root_ / "loose.gguf").string(), "x");
  EXPECT_FALSE(remove_pulled(root_.string(), parse_repo_reference("o/other").value()).ok());
  EXPECT_FALSE(remove_pulled(root_.string(), parse_repo_reference("o/n:Q2_K").value()).ok());
  EXPECT_EQ(remove_pulled(root_.string(), parse_repo_reference("o/n:Q8_0").value()).value(), 5u);
  EXPECT_FALSE(fs::exists(repo.folder + "/m-Q8_0.gguf"));
  EXPECT_TRUE(fs::exists(repo.folder + "/sub/m-Q4_0.gguf"));
  EXPECT_EQ(remove_pulled(root_.string(), parse_repo_reference("o/n").value()).value(), 5u);
  EXPECT_TRUE(fs::exists(repo.folder + "/sub/mine")) << "what somebody else put there stays";
  EXPECT_TRUE(fs::exists(root_ / "loose.gguf"));
  EXPECT_TRUE(list_pulled(root_.string()).empty());
  pulled("o/m", {"a/b/m.gguf"});
  EXPECT_TRUE(remove_pulled(root_.string(), parse_repo_reference("o/m").value()).ok());
  EXPECT_FALSE(fs::exists(root_ / "o/m")) << "empty folders go";
}

TEST_F(FolderTest, OneAtATime) {
  const std::string folder = (root_ / "o/n/main").string();
  {
    const Result<RepoLock> first = RepoLock::take(folder);
    ASSERT_TRUE(first.ok());
    const Status second = RepoLock::take(folder).status();
    EXPECT_EQ(second.code(), StatusCode::kUnavailable);
    EXPECT_EQ(second.message(), fmt::format("another process is changing {}: wait for its end", folder));
  }
  EXPECT_TRUE(RepoLock::take(folder).ok());
}

}  // namespace
}  // namespace loci
