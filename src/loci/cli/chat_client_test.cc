// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/chat_client.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace loci {
namespace {

std::string url(std::string_view text) {
  const Result<ServerAddress> address = parse_server_url(text, "");
  if (!address.ok()) return "refused";
  return address.value().host + "|" + address.value().port + (address.value().tls ? "|tls" : "");
}

TEST(ServerUrl, TakesTheUsualForms) {
  EXPECT_EQ(url("http://127.0.0.1:9000"), "127.0.0.1|9000");
  EXPECT_EQ(url("http://localhost/"), "localhost|8080");
  EXPECT_EQ(url("localhost:81"), "localhost|81");
  EXPECT_EQ(url("http://[::1]:82"), "::1|82");
  EXPECT_EQ(url("[::1]"), "::1|8080");
  EXPECT_EQ(url("https://chat.example/"), "chat.example|443|tls");
  EXPECT_EQ(url("https://[::1]:82"), "::1|82|tls");
}

TEST(ServerUrl, RefusesOthers) {
  for (const char* text : {"", "http://", "https://", "ftp://x", "http://x:port", "https://x:port",
                           "http://x:", "http://x/v1", "http://[::1", "x:123456", "http://[::1]x"}) {
    EXPECT_EQ(url(text), "refused") << text;
  }
}

TEST(ServerUrl, SaysWhatItExpects) {
  EXPECT_EQ(parse_server_url("http://x/v1", "").status().message(),
            "expected http://HOST:PORT or https://HOST:PORT; got 'http://x/v1'");
  EXPECT_EQ(parse_server_url("http://[::1", "").status().message(),
            "'http://[::1': expected a ']' after the address of IPv6, found none");
}

constexpr const char* kStream =
    "data: "
    "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],"
    "\"usage\":null}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"},\"finish_reason\":null}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo é\"},\"finish_reason\":null}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: "
    "{\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,\"prompt_tokens_details\":{"
    "\"cached_tokens\":9}}}\n\n"
    "data: [DONE]\n\n";

TEST(ChatStream, ReadsAReplyInPiecesOfAnySize) {
  const std::string stream = kStream;
  for (std::size_t piece = 1; piece < stream.size(); ++piece) {
    std::string shown;
    ChatStream chat([&](std::string_view text) { shown += text; });
    for (std::size_t at = 0; at < stream.size(); at += piece)
      chat.push(std::string_view(stream).substr(at, piece));
    ASSERT_EQ(shown, "Hello é");
    ASSERT_EQ(chat.text(), shown);
    ASSERT_TRUE(chat.done());
    ASSERT_EQ(chat.finish_reason(), "stop");
    ASSERT_EQ(chat.prompt_tokens(), 12u);
    ASSERT_EQ(chat.cached_tokens(), 9u);
    ASSERT_EQ(chat.completion_tokens(), 3u);
    ASSERT_EQ(chat.error(), "");
  }
}

TEST(ChatStream, ReportsErrorsAndOtherShapes) {
  const auto error_of = [](const std::string& data) {
    ChatStream chat([](std::string_view) {});
    chat.push("data: " + data + "\n\n");
    return chat.error();
  };
  EXPECT_EQ(error_of(R"({"error":{"message":"out of time"}})"), "out of time");
  EXPECT_NE(error_of("not JSON"), "");
  EXPECT_NE(error_of("[1]"), "");
  EXPECT_NE(error_of(R"({"choices":[{"delta":{"content":5}}]})"), "");
  EXPECT_NE(error_of(R"({"choices":5})"), "");
  EXPECT_NE(error_of(R"({"no":"choices"})"), "");
}

TEST(ServerHealth, OfARefusalIsByItsCode) {
  const auto of_code = [](const std::string& code) {
    return health_of_refusal(R"({"error":{"message":"device_lost, or draining","code":")" + code + R"("}})");
  };
  EXPECT_EQ(of_code("loading"), ServerHealth::kLoading);
  EXPECT_EQ(of_code("draining"), ServerHealth::kDraining);
  EXPECT_EQ(of_code("device_lost"), ServerHealth::kFailed);
  EXPECT_EQ(of_code("device_stalled"), ServerHealth::kBusy);
  EXPECT_EQ(of_code("no_instance"), ServerHealth::kBusy);
  for (const char* body :
       {"", "Service Unavailable", "[]", R"({"error":"draining"})", R"({"error":{"code":3}})"})
    EXPECT_EQ(health_of_refusal(body), ServerHealth::kBusy) << body;
}

TEST(ErrorMessage, IsTheServersOwnWhereThereIsOne) {
  EXPECT_EQ(error_message(400, R"({"error":{"message":"too long"}})"), "too long");
  EXPECT_EQ(error_message(502, "<html>"), "the server answered 502: <html>");
}

}  // namespace
}  // namespace loci
