// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tenants/tenants.h"

#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "loci/base/durable_file.h"
#include "loci/base/eventually_testing.h"
#include "loci/base/folder_testing.h"

namespace loci {
namespace {

HttpRequest with_header(const std::string& name, const std::string& value) {
  HttpRequest request;
  request.headers.emplace_back(name, value);
  return request;
}

// The tenant's id, or "401".
std::string who(const Tenants& tenants, const HttpRequest& request) {
  const auto found = tenants.authenticate(request);
  if (const auto* error = std::get_if<ApiError>(&found)) return std::to_string(error->http_status);
  return std::get<0>(found)->id;
}

std::string who(const Tenants& tenants, const std::string& key) {
  return who(tenants, with_header("Authorization", "Bearer " + key));
}

class TenantsOfAFile : public testing::Test {
 protected:
  void write(const std::string& text) { ASSERT_TRUE(replace_file(path_, text).ok()); }
  static std::string key(const std::string& name, const std::string& tenant, const std::string& more = "") {
    return "[[keys]]\nname = \"" + name + "\"\ntenant = \"" + tenant + "\"\nhash = \"" +
           to_text(hash_api_key("key-of-" + name)) + "\"\n" + more;
  }

  // All lines of the log, of whatever thread.
  std::string said() const {
    std::string all;
    for (const std::string& line : lines_->last_formatted()) all += line;
    return all;
  }
  // How often the log says that a file was not taken.
  int refusals() const {
    const std::string all = said(), refusal = "stay as they were";
    int count = 0;
    for (std::size_t at = 0; (at = all.find(refusal, at)) != std::string::npos; at += refusal.size()) ++count;
    return count;
  }

  const TestFolder folder_;
  const std::string path_ = folder_.file("keys.toml");
  const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> lines_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  const std::shared_ptr<spdlog::logger> log_ = std::make_shared<spdlog::logger>("test", lines_);
};

TEST(Tenants, AreOneWithoutKeys) {
  Tenants tenants;
  ASSERT_TRUE(tenants.open({}, nullptr).ok());
  EXPECT_FALSE(tenants.has_keys());
  EXPECT_EQ(who(tenants, HttpRequest()), "default");
  EXPECT_EQ(who(tenants, "anything"), "default");
}

TEST(Tenants, TakeKeysOfTheEnvironment) {
  Tenants tenants;
  ASSERT_TRUE(tenants.open({.file = {}, .keys = {"a", "b"}, .operator_keys = {"op"}}, nullptr).ok());
  EXPECT_TRUE(tenants.has_keys());
  EXPECT_EQ(who(tenants, "a"), "default");
  EXPECT_EQ(who(tenants, "b"), "default");
  EXPECT_EQ(who(tenants, "c"), "401");
  const auto found = tenants.authenticate(with_header("x-api-key", "op"));
  EXPECT_TRUE(std::get<0>(found)->is_operator);
  EXPECT_FALSE(std::get<0>(tenants.authenticate(with_header("x-api-key", "a")))->is_operator);
}

TEST_F(TenantsOfAFile, HaveLimitsWithoutAKeyToo) {
  write("[limits]\nstored_conversations = 5\n[tenants.bob]\nstored_bytes = 77\n" + key("bob", "bob"));
  Tenants tenants;
  EXPECT_FALSE(tenants.limits_of("bob").has_value()) << "nothing is known yet";
  ASSERT_TRUE(tenants.open({.file = path_}, log_).ok());
  EXPECT_EQ(tenants.limits_of("bob")->stored_bytes, 77u);
  EXPECT_EQ(tenants.limits_of("bob")->stored_conversations, 5u);
  EXPECT_EQ(tenants.limits_of("whose key was removed")->stored_conversations, 5u);
  Tenants without_file;
  ASSERT_TRUE(without_file.open({.file = {}, .keys = {"a"}, .operator_keys = {}}, nullptr).ok());
  EXPECT_FALSE(without_file.limits_of("default").has_value()) << "one tenant has the whole store";
}

TEST_F(TenantsOfAFile, AreFoundByEitherHeader) {
  write(key("phone", "alice") + key("laptop", "alice") + key("bob", "bob", "operator = true\n"));
  Tenants tenants;
  ASSERT_TRUE(tenants.open({.file = path_}, log_).ok());
  EXPECT_EQ(who(tenants, "key-of-phone"), "alice");
  EXPECT_EQ(who(tenants, "key-of-laptop"), "alice");
  EXPECT_EQ(who(tenants, with_header("x-api-key", "key-of-bob")), "bob");
  EXPECT_EQ(who(tenants, with_header("X-Api-Key", "key-of-bob")), "bob");
  EXPECT_EQ(who(tenants, with_header("Authorization", "bearer  key-of-bob")), "bob");
  for (const char* wrong : {"", "key-of-alice", "key-of-bo", "key-of-bobb"})
    EXPECT_EQ(who(tenants, wrong), "401") << wrong;
  EXPECT_EQ(who(tenants, HttpRequest()), "401");
  EXPECT_EQ(who(tenants, with_header("Authorization", "Basic key-of-bob")), "401");
  EXPECT_EQ(who(tenants, with_header("Authorization", "key-of-bob")), "401");
  const auto error = std::get<ApiError>(tenants.authenticate(with_header("x-api-key", "key-of-bobb")));
  EXPECT_EQ(error.message.find("bob"), std::string::npos);
}

TEST_F(TenantsOfAFile, AreReadAgainWhenTheFileChanges) {
  write(key("old", "t"));
  Tenants tenants;
  ASSERT_TRUE(tenants.open({.file = path_}, log_).ok());
  write(key("new", "t"));
  EXPECT_TRUE(eventually([&] { return who(tenants, "key-of-new") == "t"; }));
  EXPECT_EQ(who(tenants, "key-of-old"), "401");
}

TEST_F(TenantsOfAFile, StayWhenTheFileIsBrokenOrGone) {
  write(key("a", "t"));
  {
    Tenants tenants;
    ASSERT_TRUE(tenants.open({.file = path_}, log_).ok());
    write("[[keys]]\nname = 3\n");
    EXPECT_TRUE(eventually([&] { return refusals() == 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // it is looked at twice more
    EXPECT_EQ(who(tenants, "key-of-a"), "t");
    std::filesystem::remove(path_);
    EXPECT_TRUE(eventually([&] { return refusals() == 2; }));
    EXPECT_EQ(who(tenants, "key-of-a"), "t");
    write(key("b", "t"));
    EXPECT_TRUE(eventually([&] { return who(tenants, "key-of-b") == "t"; }));
    write("");  // no key is no key, and does not open the server
    EXPECT_TRUE(eventually([&] { return who(tenants, "key-of-b") == "401"; }));
    EXPECT_EQ(who(tenants, HttpRequest()), "401");
  }
  EXPECT_EQ(refusals(), 2) << said();  // the broken file once, the absent one once
}

TEST_F(TenantsOfAFile, StayWhenAPipeTakesTheFilesPlace) {
  write(key("a", "t"));
  Tenants tenants;
  ASSERT_TRUE(tenants.open({.file = path_}, log_).ok());
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(eventually([&] { return said().find("an ordinary file") != std::string::npos; })) << said();
  EXPECT_EQ(who(tenants, "key-of-a"), "t");
  std::filesystem::remove(path_);
  write(key("b", "t"));
  EXPECT_TRUE(eventually([&] { return who(tenants, "key-of-b") == "t"; }));
}

TEST_F(TenantsOfAFile, WarnOfOthersWhoMayWriteToTheFile) {
  write(key("a", "t"));
  std::filesystem::permissions(path_, std::filesystem::perms(0644));
  Tenants closed, open;
  ASSERT_TRUE(closed.open({.file = path_}, log_).ok());
  EXPECT_EQ(said().find("may write to it"), std::string::npos) << said();
  std::filesystem::permissions(path_, std::filesystem::perms(0664));
  ASSERT_TRUE(open.open({.file = path_}, log_).ok());
  EXPECT_NE(said().find("may write to it (mode 0664)"), std::string::npos) << said();
}

TEST_F(TenantsOfAFile, AreRefusedAtTheStartWhenTheFileIsWrong) {
  Tenants absent, broken;
  EXPECT_EQ(absent.open({.file = path_}, log_).code(), StatusCode::kNotFound);
  write("nonsense");
  EXPECT_EQ(broken.open({.file = path_}, log_).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace loci
