// SPDX-License-Identifier: Apache-2.0
// The HTTP server against raw sockets: limits, timeouts, keep-alive, streams, clients that leave.
#include "loci/serve/http/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/descriptor.h"
#include "loci/base/eventually_testing.h"
#include "loci/serve/http/crowd_testing.h"
#include "loci/serve/http/server_testing.h"

namespace loci {
namespace {

TEST_F(ServerTest, AnswersByTheHeaderBeforeTheBody) {
  start();
  Client client(server_->port());
  // The body never comes.
  client.send("POST /header HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n");
  const std::string answer = client.read_until("no");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 401")) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos) << "there is too much to skip";
  // A small one is skipped, and the connection goes on.
  Client small(server_->port());
  small.send("POST /header HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel");
  EXPECT_TRUE(small.read_until("no").starts_with("HTTP/1.1 401"));
  small.send("loGET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(small.read_until("</next:>").find("</next:>"), std::string::npos);
}

// While it lives this process can open nothing more.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlim_t highest = 0;
    for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd"))
      highest = std::max<rlim_t>(highest, std::stoul(one.path().filename()));
    const rlimit now{.rlim_cur = highest + 1, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &now);
    for (;;) {
      Descriptor one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!one.is_open()) break;
      filled_.push_back(std::move(one));
    }
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<Descriptor> filled_;
};

#ifndef LOCI_SANITIZED  // whose checks of objects need descriptors of their own
TEST_F(ServerTest, WhereDescriptorsRunOutWhoComesIsLetInForWhoWaitedLongest) {
  start();
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 3; ++i) {
    idle.push_back(std::make_unique<Client>(server_->port()));
    idle.back()->send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    ASSERT_NE(idle.back()->read_until("</next:>").find("</next:>"), std::string::npos);
  }
  const Descriptor late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::string answer(4096, '\0');
  {
    const NoDescriptors none;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(server_->port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(late.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    const timeval patience{.tv_sec = 60, .tv_usec = 0};  // less than idle ones may wait
    ::setsockopt(late.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const std::string_view request = "GET /next HTTP/1.1\r\nHost: x\r\n\r\n";
    ASSERT_EQ(::send(late.get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    answer.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::recv(late.get(), answer.data(), 4096, 0))));
  }
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
  EXPECT_TRUE(idle.front()->is_closed());
  idle.back()->send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(idle.back()->read_until("</next:>").find("</next:>"), std::string::npos);
}
#endif

// Who sends again as soon as it is refused is slowed down; more of them than are held are answered at once.
TEST_F(ServerTest, ARefusalByTheHeaderIsHeldForAWhile) {
  start();
  Client first(server_->port());
  const auto begin = std::chrono::steady_clock::now();
  first.send("GET /limit HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(first.read_until("no").starts_with("HTTP/1.1 429 "));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
  std::vector<std::unique_ptr<Client>> refused;
  for (int i = 0; i < 100; ++i) {
    refused.push_back(std::make_unique<Client>(server_->port()));
    refused.back()->send("POST /limit HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n");
  }
  Client other(server_->port());
  other.send("POST /header HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n");
  EXPECT_TRUE(other.read_all().starts_with("HTTP/1.1 401 "));
  for (const std::unique_ptr<Client>& client : refused)
    EXPECT_TRUE(client->read_until("no").starts_with("HTTP/1.1 429 "));
}

TEST_F(ServerTest, ABodyThatStallsFreesItsPlace) {
  start({.bodies_bytes_max = 100'000,
         .body_timeout = 60 * kNanosPerSecond,
         .body_stall_timeout = kNanosPerSecond / 5});
  const std::string header = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 150000\r\n\r\n";
  std::string answer;
  // Who is paused while it sends may lose the answer, and sends again.
  (void)in_one_try(20, [&] {
    Client stalled(server_->port());
    stalled.send(header + std::string(149'999, 'a'));
    answer = stalled.read_until("}");
    return !answer.empty();
  });
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 408")) << answer;
  // One that goes on, however slowly, is waited for; and there is room for it. On a busy machine a piece may
  // come too late all the same: then another one tries.
  (void)in_one_try(20, [&] {
    Client slow(server_->port());
    slow.send(header);
    for (int i = 0; i < 5; ++i) {
      slow.send(std::string(30'000, 'b'));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    answer = slow.read_until(">");
    return !answer.empty() && !answer.starts_with("HTTP/1.1 408");
  });
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer.substr(0, 1000);
}

// Its time may be up between two reads, of which neither is cut short, and with the last one.
TEST_F(ServerTest, ABodyThatTakesTooLongIsAnswered) {
  start({.body_bytes_max = 16 << 20, .body_timeout = kNanosPerMilli});
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n\r\n" + std::string(8 << 20, 'b');
  int late = 0;
  for (int i = 0; i < 50; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    Client client(server_->port());
    client.send(request);
    const std::string answer = client.read_until("\r\n");
    // The server reads on for two seconds behind its answer. Who is paused for longer may lose it.
    if (answer.empty() && std::chrono::steady_clock::now() - begin > std::chrono::seconds(2)) continue;
    const bool is_late = answer.starts_with("HTTP/1.1 408 ");
    EXPECT_TRUE(is_late || answer.starts_with("HTTP/1.1 200 ")) << i << ": '" << answer << "'";
    late += is_late;
  }
  EXPECT_GT(late, 0);
}

// Closing on what a client sent resets its connection, and the client may lose the answer.
TEST_F(ServerTest, EveryConnectionBeyondTheLimitReadsWhy) {
  constexpr int kGuests = 2'500;
  Crowd::allow_descriptors(kGuests + 1'000);
  start({.connections_max = 2,
         .idle_timeout = 600 * kNanosPerSecond,
         .turned_away_timeout = 600 * kNanosPerSecond});
  Client first(server_->port()), second(server_->port());
  for (Client* client : {&first, &second}) send_waiting(*client);
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n" + std::string(30'000, 'x');
  Crowd crowd(server_->port(), kGuests, request);
  const std::vector<Crowd::Guest> guests = crowd.until_all_ended(std::chrono::seconds(300));
  int told = 0, errors = 0;
  for (const Crowd::Guest& guest : guests) {
    told += guest.answer.starts_with("HTTP/1.1 503") && guest.answer.ends_with("}}") &&
            guest.answer.find("too_many_connections") != std::string::npos;
    errors += guest.error != 0;
  }
  EXPECT_EQ(guests.size(), kGuests);
  EXPECT_EQ(told, kGuests);
  EXPECT_EQ(errors, 0) << "resets";
}

TEST_F(ServerTest, BodiesAreBoundedTogether) {
  start({.bodies_bytes_max = 100'000});
  const std::string length = " HTTP/1.1\r\nHost: x\r\nContent-Length: 150000\r\n\r\n";
  Client holder(server_->port());
  holder.send("POST /wait" + length + std::string(150'000, 'a'));
  ASSERT_TRUE(eventually([&] { return waiting_.load(); }));  // its whole body is charged now
  // Refused while it arrives, before its end; the refused one, which stays, holds nothing.
  Client refused(server_->port());
  refused.send("POST /echo" + length + std::string(70'000, 'b'));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a part is charged before the rest comes
  refused.send(std::string(79'999, 'b'));
  const std::string answer = refused.read_until("}");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
  EXPECT_NE(answer.find("Retry-After: 1"), std::string::npos) << answer;
  EXPECT_NE(answer.find("too_many_bodies"), std::string::npos) << answer;
  EXPECT_NE(
      answer.find("the bodies of all requests together are larger than 100000 bytes (option max_bodies)"),
      std::string::npos)
      << answer;
  Client small(server_->port());
  small.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_TRUE(small.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
  // The first one's client leaves: all of the budget is free.
  holder.close();
  ASSERT_TRUE(eventually([&] { return saw_gone_.load(); }));
  Client next(server_->port());
  next.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 165536\r\n\r\n" + std::string(165'536, 'c'));
  EXPECT_TRUE(next.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
}

// Bodies that never end, of one client, and one of another's beside them.
TEST_F(ServerTest, OneClientsBodiesLeaveRoomForAnothers) {
  start({.bodies_bytes_max = 1'000'000});
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 150000\r\n\r\n";
  std::vector<std::unique_ptr<Client>> flood;
  for (int i = 0; i < 33; ++i) {
    flood.push_back(std::make_unique<Client>(server_->port()));
    flood.back()->send(head + std::string(149'999, 'a'));
  }
  int refused = 0;
  ASSERT_TRUE(eventually([&] {
    refused = 0;
    for (const auto& client : flood) refused += client->has_input();
    return refused >= 24;
  })) << "those for which there is no room are refused while they arrive: "
      << refused;
  Client other(server_->port(), "127.0.0.2");
  other.send(head + std::string(150'000, 'b'));
  EXPECT_TRUE(other.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
}

TEST_F(ServerTest, ADroppedBodyMakesRoomWhileItsRequestIsAnswered) {
  start({.bodies_bytes_max = 100'000});
  const std::string length = " HTTP/1.1\r\nHost: x\r\nContent-Length: 150000\r\n\r\n";
  Client holder(server_->port());
  holder.send("POST /drop" + length + std::string(150'000, 'a'));
  ASSERT_TRUE(eventually([&] { return waiting_.load(); }));
  Client next(server_->port());
  next.send("POST /echo" + length + std::string(150'000, 'b'));
  EXPECT_TRUE(next.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
}

// A byte now and then is no reading: whoever reads so would keep its answer, and its connection, for days.
TEST_F(ServerTest, AnAnswerIsTakenAtALeastRate) {
  start({.write_timeout = kNanosPerSecond / 2, .write_rate_min = 4 << 20});
  Client slow(server_->port());
  slow.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::string piece(16 << 10, '\0');
  boost::system::error_code error;
  while (!flood_ended_ && !error && std::chrono::steady_clock::now() < until) {
    slow.read_some(piece, error);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(flood_ended_ || eventually([&] { return flood_ended_.load(); }));
  EXPECT_LT(std::chrono::steady_clock::now(), until) << "it goes on at less than a megabyte a second";
}

TEST_F(ServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  Client client(server_->port());
  client.send(
      "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nxyz"
      "POST /work HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n<ab\r\n2\r\nc>\r\n0\r\n\r\n");
  const std::string got = client.read_until(">", 3);
  EXPECT_LT(got.find("</a:>"), got.find("</b:xyz>"));
  EXPECT_LT(got.find("</b:xyz>"), got.find("<abc>"));
  EXPECT_EQ(got.find("Connection: close"), std::string::npos);
}

TEST_F(ServerTest, KeepsWhatIsSentAheadWhileWatching) {
  start();
  Client client(server_->port());
  client.send("GET /watch HTTP/1.1\r\nHost: x\r\n\r\n");
  client.send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string got = client.read_until(">");
  EXPECT_NE(got.find("watched"), std::string::npos);
  EXPECT_NE(got.find("</next:>"), std::string::npos);
}

TEST_F(ServerTest, ClosesWhenAskedTo) {
  start();
  Client client(server_->port());
  client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string got = client.read_all();
  EXPECT_NE(got.find("Connection: close"), std::string::npos);
  EXPECT_NE(got.find("</a:>"), std::string::npos);
  Client old(server_->port());
  old.send("GET /a HTTP/1.0\r\n\r\n");
  EXPECT_NE(old.read_all().find("</a:>"), std::string::npos);
}

TEST_F(ServerTest, StreamsInChunksAndPlainlyToOldClients) {
  start();
  Client client(server_->port());
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string got = client.read_until("0\r\n\r\n");
  EXPECT_NE(got.find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_NE(got.find("\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"), std::string::npos) << got;
  client.send("GET /again HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.read_until(">").find("</again:>"), std::string::npos);
  Client old(server_->port());
  old.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string plain = old.read_all();
  EXPECT_TRUE(plain.ends_with("\r\n\r\none two")) << plain;
}

TEST_F(ServerTest, HeadHasNoBody) {
  start();
  Client client(server_->port());
  client.send("HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string got = client.read_all();
  EXPECT_NE(got.find("Content-Length: 5"), std::string::npos);
  EXPECT_TRUE(got.ends_with("\r\n\r\n"));
}

TEST_F(ServerTest, EchoesAcceptableRequestIdsOnly) {
  start();
  Client client(server_->port());
  client.send("GET /a HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\n\r\n");
  EXPECT_NE(client.read_until(">").find("X-Request-Id: mine-1\r\n"), std::string::npos);
  client.send("GET /a HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + std::string(200, 'x') + "\r\n\r\n");
  EXPECT_EQ(client.read_until(">").find(std::string(200, 'x')), std::string::npos);
}

TEST_F(ServerTest, RefusesWhatPassesTheLimits) {
  start({.body_bytes_max = 100, .header_bytes_max = 2048});
  Client big_body(server_->port());
  big_body.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'x'));
  const std::string too_big = big_body.read_all();
  EXPECT_NE(too_big.find("HTTP/1.1 413"), std::string::npos);
  EXPECT_NE(too_big.find("the body is larger than 100 bytes (option max_body)"), std::string::npos)
      << too_big;
  Client big_chunks(server_->port());
  big_chunks.send("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" +
                  std::string(101, 'x') + "\r\n0\r\n\r\n");
  EXPECT_NE(big_chunks.read_all().find("HTTP/1.1 413"), std::string::npos);
  Client big_header(server_->port());
  big_header.send("GET /a HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(4096, 'x') + "\r\n\r\n");
  const std::string too_long = big_header.read_all();
  EXPECT_NE(too_long.find("HTTP/1.1 431"), std::string::npos);
  EXPECT_NE(too_long.find("the header is larger than 2048 bytes (option max_header)"), std::string::npos)
      << too_long;
  Client many_headers(server_->port());
  std::string fields;
  for (int i = 0; i < 260; ++i) fields += "a:\r\n";
  many_headers.send("GET /a HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n");
  const std::string too_many = many_headers.read_all();
  EXPECT_NE(too_many.find("HTTP/1.1 431"), std::string::npos);
  EXPECT_NE(too_many.find("the request has more than 256 header fields"), std::string::npos) << too_many;
  Client garbage(server_->port());
  garbage.send("\x16\x03\x01 no HTTP at all\r\n\r\n");
  const std::string no_http = garbage.read_all();
  EXPECT_NE(no_http.find("HTTP/1.1 400"), std::string::npos);
  EXPECT_NE(no_http.find("this is not a valid HTTP request: "), std::string::npos) << no_http;
}

TEST_F(ServerTest, LetsAClientThatExpectsItContinue) {
  start({.body_bytes_max = 100});
  Client client(server_->port());
  client.send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("xyz");
  EXPECT_NE(client.read_until(">").find("</a:xyz>"), std::string::npos);
  client.send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 300\r\n\r\n");
  EXPECT_NE(client.read_until("\r\n\r\n").find("HTTP/1.1 413"), std::string::npos);
}

// Of each test below only the limit that it is about is short.
TEST_F(ServerTest, HasPatienceWithAHeader) {
  start({.header_timeout = 100 * kNanosPerMilli});
  Client silent(server_->port());
  EXPECT_EQ(silent.read_all(), "");
  // Who is paused before its first byte is a silent one, too, and comes again.
  std::string answer;
  (void)in_one_try(20, [&] {
    Client half_header(server_->port());
    half_header.send("GET /a HT");
    answer = half_header.read_all();
    return !answer.empty();
  });
  EXPECT_NE(answer.find("HTTP/1.1 408"), std::string::npos) << answer;
}

TEST_F(ServerTest, HasPatienceWithABody) {
  start({.header_timeout = 60 * kNanosPerSecond,
         .body_timeout = 100 * kNanosPerMilli,
         .body_stall_timeout = 60 * kNanosPerSecond});
  Client half_body(server_->port());
  half_body.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  const std::string answer = half_body.read_all();
  EXPECT_NE(answer.find("HTTP/1.1 408"), std::string::npos) << answer;
}

TEST_F(ServerTest, HasPatienceWithAConnectionThatIsKept) {
  start({.header_timeout = 60 * kNanosPerSecond, .idle_timeout = 100 * kNanosPerMilli});
  Client idle(server_->port());
  idle.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string answer = idle.read_all();  // and then the end
  EXPECT_TRUE(answer.ends_with("</a:>")) << answer;
}

TEST_F(ServerTest, NoticesAClientThatLeaves) {
  start();
  Client client(server_->port());
  client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return waiting_.load(); }));
  client.close();
  EXPECT_TRUE(eventually([&] { return saw_gone_.load(); }));
}

TEST_F(ServerTest, CutsOffAReaderThatTakesNothing) {
  start({.write_timeout = 200 * kNanosPerMilli});
  Client client(server_->port());
  client.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return flood_ended_.load(); }));
}

TEST_F(ServerTest, TurnsAwayConnectionsBeyondTheLimit) {
  start({.connections_max = 2});
  Client one(server_->port());
  Client two(server_->port());
  for (Client* client : {&one, &two}) send_waiting(*client);
  Client three(server_->port());
  const std::string told = three.read_all();
  EXPECT_NE(told.find("HTTP/1.1 503"), std::string::npos);
  EXPECT_NE(told.find("all 2 connections of this server are in use; try again later"), std::string::npos)
      << told;
  one.close();
  EXPECT_TRUE(eventually([&] {
    Client again(server_->port());
    again.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    return again.read_until(">").find("</a:>") != std::string::npos;
  }));
}

TEST_F(ServerTest, SaysWhyItCannotListen) {
  start();
  HttpServer second({.host = "127.0.0.1", .port = server_->port(), .limits = {}}, clock_, metrics_, nullptr);
  const Status status = second.listen([](Exchange&) -> boost::asio::awaitable<void> { co_return; });
  EXPECT_EQ(status.field(), "port");
  EXPECT_NE(status.message().find("in use"), std::string::npos);
  HttpServer elsewhere({.host = "192.0.2.1", .port = 0, .limits = {}}, clock_, metrics_, nullptr);
  const Status no_address = elsewhere.listen([](Exchange&) -> boost::asio::awaitable<void> { co_return; });
  EXPECT_EQ(no_address.field(), "host");
  EXPECT_NE(no_address.message().find("cannot listen on 192.0.2.1 port 0: "), std::string::npos)
      << no_address.message();
  // (Too long a name to be asked of a name server.)
  HttpServer nowhere({.host = std::string(300, 'x'), .port = 0, .limits = {}}, clock_, metrics_, nullptr);
  const Status unknown = nowhere.listen([](Exchange&) -> boost::asio::awaitable<void> { co_return; });
  EXPECT_EQ(unknown.field(), "host");
  EXPECT_NE(unknown.message().find("expected an address of this machine, found 'xxx"), std::string::npos)
      << unknown.message();
}

TEST_F(ServerTest, StopsWhileRequestsRun) {
  start();
  Client waiting(server_->port());
  waiting.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  Client idle(server_->port());
  Client flood(server_->port());
  flood.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return waiting_.load() && flood_began_.load(); }));
  server_->stop(50 * kNanosPerMilli);
  EXPECT_TRUE(saw_gone_.load());
  EXPECT_TRUE(flood_ended_.load());
  EXPECT_TRUE(waiting.is_closed());
  EXPECT_TRUE(idle.is_closed());
}

}  // namespace
}  // namespace loci
