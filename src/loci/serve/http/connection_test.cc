// SPDX-License-Identifier: Apache-2.0
// Which requests a connection takes, and when it is closed for another one.
#include "loci/serve/http/connection.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "loci/serve/http/server_testing.h"

namespace loci {
namespace {

// Each opens a connection and says nothing, or not all that it would have to.
TEST_F(ServerTest, WhoSaysNothingKeepsNobodyOut) {
  start(
      {.connections_max = 3, .header_timeout = 600 * kNanosPerSecond, .idle_timeout = 600 * kNanosPerSecond});
  Client busy(server_->port());
  send_waiting(busy);
  Client half(server_->port());
  half.send("GET /a HTTP/1.1\r\nHost: x\r\n");
  ASSERT_TRUE(eventually([&] { return metrics_say("loci_http_connections 2"); }));
  Client silent(server_->port());
  ASSERT_TRUE(eventually([&] { return metrics_say("loci_http_connections 3"); }));
  const auto is_served = [](Client& client) {
    client.send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    return client.read_until(">").ends_with("</next:>");
  };
  Client first(server_->port());
  EXPECT_TRUE(is_served(first));
  EXPECT_TRUE(half.is_closed()) << "it waited longest";
  Client second(server_->port());
  EXPECT_TRUE(is_served(second));
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(is_served(first)) << "it has waited for less long than the next one";
  Client third(server_->port());
  EXPECT_TRUE(is_served(third));
  EXPECT_TRUE(second.is_closed());
  EXPECT_TRUE(is_served(first));
  EXPECT_FALSE(saw_gone_) << "whoever has a request keeps its place";
}

// Its body never comes whole.
TEST_F(ServerTest, WhoGivesWayKeepsNobodyOut) {
  start({.connections_max = 3,
         .body_timeout = 600 * kNanosPerSecond,
         .body_stall_timeout = 600 * kNanosPerSecond});
  const std::string head = " HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf";
  const auto is_served = [](Client& client) {
    client.send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    return client.read_until(">").ends_with("</next:>");
  };
  Client known(server_->port());
  known.send("POST /stranger/known" + head);
  ASSERT_TRUE(eventually([&] { return strangers_ == 1; }));
  Client stranger(server_->port());
  stranger.send("POST /stranger" + head);
  ASSERT_TRUE(eventually([&] { return strangers_ == 2; }));
  Client idle(server_->port());
  ASSERT_TRUE(is_served(idle));
  Client late(server_->port());
  EXPECT_TRUE(is_served(late));
  EXPECT_TRUE(stranger.is_closed()) << "it has waited longest";
  EXPECT_TRUE(is_served(idle));
  known.send("whole");
  EXPECT_TRUE(
      known.read_until(">").ends_with("<"
                                      "/stranger/known:halfwhole>"))
      << "it has shown who it is";
}

// It reads nothing of what it asks for, and has sent more requests than the server has read.
TEST_F(ServerTest, WhoGivesWayAndDoesNotReadKeepsNobodyOut) {
  start({.connections_max = 1, .write_timeout = 600 * kNanosPerSecond});
  Client stranger(server_->port());
  std::string flood = "GET /stranger/flood HTTP/1.1\r\nHost: x\r\n\r\n";
  for (int doubled = 0; doubled < 13; ++doubled) flood += flood;
  std::thread sends([&] { stranger.send(flood); });
  ASSERT_TRUE(eventually([&] { return flood_began_.load(); }));
  Client late(server_->port());
  late.send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(late.read_until(">").ends_with("</next:>"));
  EXPECT_TRUE(eventually([&] { return flood_ended_.load(); }));
  sends.join();
}

// What it asked for was done: it may read the answer, as `nc -N` does.
TEST_F(ServerTest, WhoHasOnlyEndedWhatItSendsMayBeAnswered) {
  start();
  Client client(server_->port());
  send_waiting(client, "/half");
  client.end_sending();
  const std::string got = client.read_all();
  EXPECT_TRUE(got.ends_with("<late>")) << got;
  EXPECT_NE(got.find("Connection: close\r\n"), std::string::npos) << "nothing comes any more: " << got;
  EXPECT_TRUE(saw_gone_);
  Client other(server_->port());
  send_waiting(other, "/half");
  other.close();
  ASSERT_TRUE(eventually([&] { return metrics_say("loci_http_connections 0"); }));
}

// What it asked for has not begun: it may read on, so it keeps its turn for a while.
TEST_F(ServerTest, WhoHasOnlyEndedWhatItSendsIsWaitedForInItsTurn) {
  start();
  Client client(server_->port());
  send_waiting(client, "/patient");
  client.end_sending();
  Client other(server_->port());  // its request comes behind that end
  other.send("GET /let-go HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(other.read_all().ends_with("<let go>"));
  const std::string got = client.read_all();
  EXPECT_TRUE(got.ends_with("<late>")) << got;
  EXPECT_FALSE(saw_gone_);
}

// Whose connection breaks is gone at once, however long others are waited for.
TEST_F(ServerTest, WhoseConnectionBreaksIsNotWaitedFor) {
  start();
  Client client(server_->port());
  send_waiting(client, "/patient");
  client.reset();
  EXPECT_TRUE(eventually([&] { return saw_gone_.load(); }));
}

// Bytes that the client does not expect would be the beginning of its next answer.
TEST_F(ServerTest, HeadOfAStreamHasNoBody) {
  start();
  Client client(server_->port());
  client.send("HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string got = client.read_until(">");
  EXPECT_NE(got.find("Content-Type: text/plain\r\n"), std::string::npos) << got;
  const std::size_t end = got.find("\r\n\r\n");
  ASSERT_NE(end, std::string::npos);
  EXPECT_TRUE(got.substr(end + 4).starts_with("HTTP/1.1 200 ")) << got;
}

// What comes behind the header would be another request to one reader, and a body to another.
TEST_F(ServerTest, ABodysEndIsBeyondDoubt) {
  start();
  const std::string length = "Content-Length: 40\r\n", hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
  const auto refused = [&](const std::string& version, const std::string& fields) {
    Client client(server_->port());
    client.send("POST /a HTTP/" + version + "\r\nHost: x\r\n" + fields + "\r\n" + hidden);
    const std::string got = client.read_all();
    EXPECT_TRUE(got.starts_with("HTTP/1.1 400 ")) << fields << got;
    EXPECT_NE(got.find("\"code\":\"bad_http\""), std::string::npos) << fields << got;
    EXPECT_NE(got.find("Connection: close\r\n"), std::string::npos) << fields << got;
    EXPECT_EQ(got.find("hidden"), std::string::npos) << fields << got;
  };
  for (const char* value : {"gzip", "chunked, identity", "xchunked", "chunked, chunked", "gzip, chunked",
                            "identity", "", "chunked"}) {
    const std::string coding = std::string("Transfer-Encoding: ") + value + "\r\n";
    refused("1.1", coding + length);
    refused("1.1", length + coding);
    refused("1.0", coding);
    if (value != std::string("chunked")) refused("1.1", coding);
  }
  refused("1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n");
  refused("1.1", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n");
  Client client(server_->port());
  client.send("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
  EXPECT_NE(client.read_until(">").find("</a:abc>"), std::string::npos);
}

TEST_F(ServerTest, ARequestNamesOneHost) {
  start();
  const auto answer = [&](const std::string& request) {
    Client client(server_->port());
    client.send(request);
    return client.read_all();
  };
  for (const char* hosts : {"", "Host: x\r\nHost: x\r\n", "Host: x\r\nA: b\r\nhost: y\r\n"}) {
    const std::string got = answer(std::string("GET /a HTTP/1.1\r\n") + hosts + "Connection: close\r\n\r\n");
    EXPECT_TRUE(got.starts_with("HTTP/1.1 400 ")) << hosts << got;
    EXPECT_NE(got.find("expected one Host, found"), std::string::npos) << hosts << got;
  }
  EXPECT_NE(answer("GET /a HTTP/1.0\r\n\r\n").find("</a:>"), std::string::npos) << "none was asked for then";
}

// As some clients send it behind a body (RFC 9112, 2.2).
TEST_F(ServerTest, ARequestMayFollowAnEmptyLine) {
  start();
  Client client(server_->port());
  client.send("\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.read_until(">", 1).ends_with("</a:>"));
  client.send(
      "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nxyz\r\nGET /c HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.read_until(">", 2).ends_with("</c:>"));
  Client alone(server_->port());
  alone.send("\r\n");
  alone.send("GET /d HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(alone.read_until(">", 1).ends_with("</d:>"));
}

// It may come in pieces, and whoever sends no more than that is as idle as before.
TEST_F(ServerTest, AnEmptyLineBeginsNoRequest) {
  start({.header_timeout = 800 * kNanosPerMilli});
  // Who is paused for so long in a request that has begun is cut off: then another one tries.
  EXPECT_TRUE(in_one_try(10, [&] {
    Client client(server_->port());
    client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    if (!client.read_until(">", 1).ends_with("</a:>")) return false;
    client.send("\r\n\r");
    std::this_thread::sleep_for(std::chrono::milliseconds(1700));
    client.send("\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    return client.read_until(">", 1).ends_with("</b:>");
  }));
}

TEST_F(ServerTest, TakesTargetsAsAProxyWouldGetThem) {
  start();
  for (const auto& [target, path] :
       {std::pair("http://elsewhere:8080/a/b?c=/d", "</a/b:>"), std::pair("HTTPS://elsewhere/a", "</a:>"),
        std::pair("http://elsewhere", "</:>"), std::pair("http://elsewhere?a", "</:>"),
        std::pair("/http://elsewhere/a", "</http://elsewhere/a:>")}) {
    Client client(server_->port());
    client.send(std::string("GET ") + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(client.read_until(">").ends_with(path)) << target;
  }
  for (const char* target : {"http://", "http:///a", "http://stranger@localhost/a"}) {
    Client client(server_->port());
    client.send(std::string("GET ") + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 400 ")) << target;
  }
}

}  // namespace
}  // namespace loci
