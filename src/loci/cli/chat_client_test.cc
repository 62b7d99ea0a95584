// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/chat_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "loci/serve/http/hanging_resolver_testing.h"

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
  EXPECT_EQ(url("localhost:65535"), "localhost|65535");
  EXPECT_EQ(url("http://[::1]:82"), "::1|82");
  EXPECT_EQ(url("[::1]"), "::1|8080");
  EXPECT_EQ(url("https://chat.example/"), "chat.example|443|tls");
  EXPECT_EQ(url("https://[::1]:82"), "::1|82|tls");
}

TEST(ServerUrl, RefusesOthers) {
  for (const char* text :
       {"", "http://", "https://", "ftp://x", "http://x:port", "https://x:port", "http://x:", "http://x/v1",
        "http://[::1", "x:123456", "x:65536", "x:83646", "x:0", "x:-1", "x:+1", "http://[::1]x"}) {
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

TEST(ChatStream, TakesAContentOfNull) {
  ChatStream chat([](std::string_view) {});
  chat.push(
      "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n"
      "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\n");
  EXPECT_EQ(chat.error(), "");
  EXPECT_EQ(chat.text(), "Hello");
}

// As SGLang's, among others.
TEST(ChatStream, TakesANullWhereNothingIsSaid) {
  for (const char* details : {"null", "{}", R"({"cached_tokens":null})"}) {
    ChatStream chat([](std::string_view) {});
    chat.push("data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}],\"error\":null}\n\n");
    chat.push(
        fmt::format("data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":3,"
                    "\"prompt_tokens_details\":{}}}}}\n\n",
                    details));
    EXPECT_EQ(chat.error(), "") << details;
    EXPECT_EQ(chat.text(), "Hello");
    EXPECT_EQ(chat.completion_tokens(), 3u);
    EXPECT_EQ(chat.cached_tokens(), 0u);
  }
}

TEST(ChatStream, TellsOfEverySourceOfThePrompt) {
  ChatStream chat([](std::string_view) {});
  chat.push(
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1161,\"completion_tokens\":3},\"loci\":{\"tokens\":"
      "{\"device\":1024,\"host\":0,\"disk\":32,\"shared\":64,\"computed\":41}}}\n\n");
  std::uint64_t tokens = 0;
  for (const auto& [source, count] : chat.sources()) tokens += count;
  EXPECT_EQ(tokens, chat.prompt_tokens());
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
  EXPECT_EQ(error_of(R"({"choices":5})"), R"(the server sent an event of another shape: {"choices":5})");
  EXPECT_NE(error_of(R"({"no":"choices"})"), "");
}

TEST(ChatStream, ReportsAnEventThatIsTooLong) {
  ChatStream chat([](std::string_view) {});
  const std::string piece(std::size_t{1} << 20, 'x');
  for (int i = 0; i < 64; ++i) chat.push(piece);
  EXPECT_EQ(chat.error(), "");
  chat.push("x");
  EXPECT_EQ(chat.error(), "the server sent an event of more than 67108864 bytes");
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

enum class ThenServer : std::uint8_t { kCloses, kWaits };

// Answers one request, of the body "{}", with these bytes; then it closes, or waits until the client does.
class OneAnswer {
 public:
  OneAnswer(std::string answer, ThenServer then) {
    sockaddr_in any{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof any;
    auto* address = reinterpret_cast<sockaddr*>(&any);
    EXPECT_EQ(bind(listener_, address, size) + listen(listener_, 1) + getsockname(listener_, address, &size),
              0);
    port_ = ntohs(any.sin_port);
    thread_ = std::thread([this, then, text = std::move(answer)] {
      const int client = accept(listener_, nullptr, nullptr);
      std::string request;
      char byte = 0;
      while (!request.ends_with("\r\n\r\n{}") && read(client, &byte, 1) == 1) request += byte;
      EXPECT_EQ(write(client, text.data(), text.size()), static_cast<ssize_t>(text.size()));
      while (then == ThenServer::kWaits && read(client, &byte, 1) == 1) continue;
      close(client);
    });
  }
  ~OneAnswer() {
    thread_.join();
    close(listener_);
  }
  OneAnswer(const OneAnswer&) = delete;
  OneAnswer& operator=(const OneAnswer&) = delete;

  ChatClient client() const {
    return ChatClient({.host = "127.0.0.1", .port = std::to_string(port_), .key = {}, .tls = {}});
  }

 private:
  int listener_ = socket(AF_INET, SOCK_STREAM, 0);
  std::uint16_t port_ = 0;
  std::thread thread_;
};

constexpr const char* kStreamHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string chunk(const std::string& data) {
  const std::string event = "data: " + data + "\n\n";
  return fmt::format("{:x}\r\n{}\r\n", event.size(), event);
}

const std::string kHello = chunk(R"({"choices":[{"delta":{"content":"Hello"}}]})");

TEST(ChatClient, StreamsAReply) {
  const OneAnswer server(kStreamHead + kHello + chunk("[DONE]") + "0\r\n\r\n", ThenServer::kWaits);
  std::string heard;
  ChatStream stream([&](std::string_view text) { heard += text; });
  const ChatClient::Outcome outcome = server.client().chat("{}", stream);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  EXPECT_FALSE(outcome.interrupted);
  EXPECT_TRUE(outcome.first_text && *outcome.first_text <= outcome.duration);
  EXPECT_EQ(heard, "Hello");
}

TEST(ChatClient, SaysWhyThereIsNoReply) {
  const auto status_of = [](const std::string& answer) {
    const OneAnswer server(answer, ThenServer::kCloses);
    ChatStream stream([](std::string_view) {});
    return server.client().chat("{}", stream).status;
  };
  const std::string body = R"({"error":{"message":"too long"}})";
  const std::string length = fmt::format("Content-Length: {}\r\n\r\n{}", body.size(), body);
  const Status refused = status_of("HTTP/1.1 400 Bad Request\r\n" + length);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), "too long");
  EXPECT_EQ(status_of("HTTP/1.1 503 Service Unavailable\r\n" + length).code(), StatusCode::kUnavailable);
  const Status cut = status_of("HTTP/1.1 413 Payload Too Large\r\nContent-Length: 99\r\n\r\n" + body);
  EXPECT_EQ(cut.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cut.message(), "too long") << "though the answer breaks off";
  const Status broken = status_of(kStreamHead + kHello);
  EXPECT_EQ(broken.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(broken.message().starts_with("the reply has no end: ")) << broken.message();
  const Status unfinished = status_of(kStreamHead + kHello + "0\r\n\r\n");
  EXPECT_EQ(unfinished.code(), StatusCode::kUnavailable);
  EXPECT_EQ(unfinished.message(), "the reply has no end: the server closed the connection before it");
  const std::string last = chunk(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})");
  EXPECT_TRUE(status_of(kStreamHead + kHello + last + "0\r\n\r\n").ok()) << "others end without [DONE]";
  const Status silent = status_of("");
  EXPECT_TRUE(silent.message().starts_with("no server answers at 127.0.0.1:")) << silent.message();
}

TEST(ChatClient, WaitsForNoEndOfAnError) {
  const auto status_of = [](const std::string& answer) {
    const OneAnswer server(answer, ThenServer::kWaits);
    ChatStream stream([](std::string_view) {});
    return server.client().chat("{}", stream).status;
  };
  EXPECT_EQ(status_of(kStreamHead + kHello + chunk(R"({"error":{"message":"out of time"}})")).message(),
            "out of time");
  const std::string rest(std::size_t{16} << 20, ' ');
  EXPECT_EQ(status_of("HTTP/1.1 500 Internal Server Error\r\n\r\n" + rest).message().substr(0, 22),
            "the server answered 50");
}

TEST(ChatClient, AnInterruptEndsTheReplyAndTheConnection) {
  const OneAnswer server(kStreamHead + kHello, ThenServer::kWaits);  // until the connection is closed
  ChatStream stream([](std::string_view) { std::raise(SIGINT); });
  const ChatClient::Outcome outcome = server.client().chat("{}", stream);
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  EXPECT_EQ(stream.text(), "Hello");
}

TEST(ChatClient, AnInterruptWaitsForNoResolver) {
  const ChatClient client({.host = std::string(kHangingName), .port = "80", .key = {}, .tls = {}});
  ChatStream stream([](std::string_view) {});
  resolver_may_go_on = false;
  resolver_raises = SIGINT;
  EXPECT_TRUE(client.chat("{}", stream).interrupted);
  EXPECT_FALSE(resolver_may_go_on) << "it waited for the resolver";
  resolver_may_go_on = true;
}

}  // namespace
}  // namespace loci
