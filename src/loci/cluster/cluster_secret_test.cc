// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/cluster_secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "loci/base/folder_testing.h"

namespace loci {
namespace {

class ClusterSecretTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  static void expect_refused(const std::string& path, StatusCode code, const std::string& message) {
    const Result<ClusterSecret> secret = read_cluster_secret(path);
    ASSERT_FALSE(secret.ok()) << path;
    EXPECT_EQ(secret.status().code(), code) << path;
    EXPECT_EQ(secret.status().field(), "cluster_secret");
    EXPECT_NE(secret.status().message().find(path), std::string::npos) << secret.status().message();
    EXPECT_NE(secret.status().message().find(message), std::string::npos) << secret.status().message();
  }

  const TestFolder test_folder_;
  const std::string folder_ = test_folder_.path();
};

TEST_F(ClusterSecretTest, IsMadeOnceForItsOwnerAlone) {
  const std::string path = folder_ + "/secret";
  ASSERT_TRUE(make_cluster_secret(path).ok());
  struct stat facts{};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  EXPECT_EQ(facts.st_size, 32);
  const Result<ClusterSecret> secret = read_cluster_secret(path);
  ASSERT_TRUE(secret.ok()) << secret.status().to_string();
  EXPECT_NE(secret.value(), ClusterSecret{});
  // What is there stays, whatever it is.
  const Status there = make_cluster_secret(path);
  EXPECT_EQ(there.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(there.message(), path + " is there already, and is not replaced");
  EXPECT_EQ(read_cluster_secret(path).value(), secret.value());
  EXPECT_EQ(make_cluster_secret(write("other", "mine")).code(), StatusCode::kInvalidArgument);
  const Status nowhere = make_cluster_secret(folder_ + "/none/secret");
  EXPECT_EQ(nowhere.code(), StatusCode::kUnavailable);
  EXPECT_EQ(nowhere.message(), folder_ + "/none/secret can't be made: No such file or directory");
  // No two are alike.
  ASSERT_TRUE(make_cluster_secret(folder_ + "/second").ok());
  EXPECT_NE(read_cluster_secret(folder_ + "/second").value(), secret.value());
}

TEST_F(ClusterSecretTest, RefusesAllButA32ByteFileOfItsOwner) {
  const std::string good(32, 's');
  EXPECT_TRUE(read_cluster_secret(write("good", good)).ok());
  EXPECT_TRUE(read_cluster_secret(write("only-read", good, 0400)).ok());
  expect_refused(folder_ + "/none", StatusCode::kNotFound, "loci keys cluster");
  expect_refused(write("empty", ""), StatusCode::kInvalidArgument, "found 0 bytes");
  expect_refused(write("short", good.substr(1)), StatusCode::kInvalidArgument, "found 31 bytes");
  expect_refused(write("long", good + "\n"), StatusCode::kInvalidArgument, "found 33 bytes");
  for (const mode_t mode : {0644u, 0640u, 0620u, 0601u})
    expect_refused(write("open", good, mode), StatusCode::kInvalidArgument, "expected mode 0600");
  expect_refused(folder_, StatusCode::kInvalidArgument, "no regular file");
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_refused(pipe, StatusCode::kInvalidArgument, "no regular file");
}

TEST_F(ClusterSecretTest, KeysFollowFromSecretAndFingerprintAlone) {
  const ClusterSecret one{1}, two{2};
  const std::array<std::uint8_t, 16> model{3}, other{4};
  EXPECT_EQ(cluster_chain_secret(one, model), cluster_chain_secret(one, model));
  EXPECT_EQ(cluster_state_id(one, model), cluster_state_id(one, model));
  EXPECT_EQ(std::set({cluster_chain_secret(one, model), cluster_chain_secret(one, other),
                      cluster_chain_secret(two, model), cluster_chain_secret(two, other)})
                .size(),
            4u);
  EXPECT_EQ(std::set({cluster_state_id(one, model), cluster_state_id(one, other),
                      cluster_state_id(two, model), cluster_state_id(two, other)})
                .size(),
            4u);
  EXPECT_NE(cluster_prompt_key(one), cluster_prompt_key(two));
  EXPECT_EQ(cluster_prompt_key(one), cluster_prompt_key(ClusterSecret{1}));
}

}  // namespace
}  // namespace loci
