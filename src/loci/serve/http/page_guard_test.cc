// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/page_guard.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

HttpRequest request_of(const std::string& host, const std::string& origin = {}) {
  HttpRequest request;
  if (!host.empty()) request.headers.emplace_back("Host", host);
  if (!origin.empty()) request.headers.emplace_back("Origin", origin);
  return request;
}

std::string code_of(const PageGuard& guard, const std::string& host, const std::string& origin = {}) {
  const std::optional<ApiError> error = guard.check(request_of(host, origin));
  return error ? error->code : "";
}

TEST(PageGuard, TakesOnlyHostsThatNoStrangerCanName) {
  const PageGuard guard({.origins = {}, .host_names = {"Gpu.example.org"}});
  for (const char* own : {"", "localhost", "LocalHost:8080", "127.0.0.1:8080", "192.168.1.7", "[::1]:8080",
                          "[fe80::1]", "gpu.example.org:80", "GPU.example.org.", "loci:8080",
                          "host.docker.internal:8080", "desk.local", "api.localhost"}) {
    EXPECT_EQ(code_of(guard, own), "") << own;
  }
  for (const char* foreign : {"stranger.example", "stranger.example:8080", "127.0.0.1.stranger.example",
                              "localhost.stranger.example", "gpu.example.org.stranger.example",
                              "xgpu.example.org", "stranger.example.", "[stranger.example]"}) {
    EXPECT_EQ(code_of(guard, foreign), "host_not_allowed") << foreign;
  }
}

// The target says whom a request is for, whatever Host says.
TEST(PageGuard, AnAbsoluteTargetNamesTheHost) {
  const PageGuard guard;
  const auto code = [&](const std::string& target, const std::string& host, const std::string& origin = {}) {
    HttpRequest request = request_of(host, origin);
    request.target = target;
    take_authority(request);
    EXPECT_EQ(request.target, "/v1/models?a");
    const std::optional<ApiError> error = guard.check(request);
    return error ? error->code : "";
  };
  EXPECT_EQ(code("http://stranger.example/v1/models?a", "localhost"), "host_not_allowed");
  EXPECT_EQ(code("http://localhost:8080/v1/models?a", "stranger.example"), "");
  EXPECT_EQ(code("http://localhost:8080/v1/models?a", "localhost", "http://localhost:8080"), "");
  EXPECT_EQ(code("http://localhost:8080/v1/models?a", "localhost:3000", "http://localhost:3000"),
            "origin_not_allowed");
  EXPECT_EQ(code("/v1/models?a", "stranger.example"), "host_not_allowed");
}

TEST(PageGuard, RefusesPagesOfOthers) {
  const PageGuard guard;
  EXPECT_EQ(code_of(guard, "localhost:8080", "http://localhost:8080"), "") << "the server's own page";
  for (const char* foreign :
       {"https://stranger.example", "null", "http://localhost:3000", "http://127.0.0.1:8080",
        "localhost:8080", "file://", "chrome-extension://abc"}) {
    EXPECT_EQ(code_of(guard, "localhost:8080", foreign), "origin_not_allowed") << foreign;
    EXPECT_EQ(guard.permission(request_of("localhost:8080", foreign)), "") << foreign;
  }
  const std::string message = guard.check(request_of("localhost", "https://stranger.example"))->message;
  EXPECT_NE(message.find("cors_origin https://stranger.example, or with keys (option api_keys)"),
            std::string::npos)
      << message;
  const std::string host = guard.check(request_of("stranger.example"))->message;
  EXPECT_NE(host.find("allowed_host stranger.example, or with keys (option api_keys)"), std::string::npos)
      << host;
}

TEST(PageGuard, OpensByName) {
  const PageGuard guard({.origins = {"https://chat.example", "http://localhost:3000"}, .host_names = {}});
  EXPECT_EQ(code_of(guard, "localhost", "https://chat.example"), "");
  EXPECT_EQ(guard.permission(request_of("localhost", "https://Chat.example")), "https://chat.example");
  EXPECT_EQ(guard.permission(request_of("localhost", "http://localhost:3000")), "http://localhost:3000");
  EXPECT_TRUE(guard.depends_on_origin());
  for (const char* other :
       {"http://chat.example", "https://chat.example:8443", "https://chat.example.org", ""}) {
    EXPECT_EQ(guard.permission(request_of("localhost", other)), "") << other;
  }
  EXPECT_EQ(code_of(guard, "chat.example", "https://chat.example"), "host_not_allowed");

  const PageGuard everyone({.origins = {"*"}, .host_names = {}});
  EXPECT_EQ(code_of(everyone, "stranger.example", "https://stranger.example"), "");
  EXPECT_EQ(everyone.permission(request_of("stranger.example")), "*");
  EXPECT_FALSE(everyone.depends_on_origin());
}

}  // namespace
}  // namespace loci
