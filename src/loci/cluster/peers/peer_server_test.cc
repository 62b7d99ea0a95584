// SPDX-License-Identifier: Apache-2.0
// The server for peers, as seen by clients that do not behave like peers.
#include "loci/cluster/peers/peer_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/base/mutex.h"
#include "loci/cluster/peers/peer_testing.h"
#include "loci/cluster/peers/prefill_wire.h"
#include "loci/serve/generation/generation_services.h"

namespace loci {
namespace asio = boost::asio;
namespace {

// TLS without the key, and none at all.
TEST(PeerServerTest, AConnectionWithoutTheKeyEnds) {
  FakePeer one({key_of(1)});
  asio::io_context io;
  const asio::ip::tcp::endpoint at(asio::ip::make_address("127.0.0.1"), one.address("one").port);
  asio::ssl::context plain(asio::ssl::context::tls_client);
  asio::ssl::stream<asio::ip::tcp::socket> stream(io, plain);
  stream.next_layer().connect(at);
  boost::system::error_code error;
  stream.handshake(asio::ssl::stream_base::client, error);
  EXPECT_TRUE(error) << "a handshake without the key";
  asio::ip::tcp::socket socket(io);
  socket.connect(at);
  const std::vector<ChainKey> keys{key_of(1)};
  const std::string question = write_peer_question(keys);
  ASSERT_EQ(question.size(), 20u);
  asio::write(socket,
              asio::buffer("POST /peers/3/ask HTTP/1.1\r\nHost: x\r\nLoci-State: same\r\n"
                           "Content-Length: 20\r\n\r\n" +
                           question),
              error);
  std::string got(4096, '\0');
  const std::size_t bytes = socket.read_some(asio::buffer(got), error);
  EXPECT_EQ(got.substr(0, bytes).find("200 OK"), std::string::npos) << got.substr(0, bytes);
  EXPECT_EQ(one.questions(), 0);
}

// OpenSSL would take some 70 KiB for half of a hello. (With a sanitizer's allocator no memory is counted.)
TEST(PeerServerTest, AStrangerCosts16KiBAtMost) {
  constexpr std::size_t kStrangers = 60;
  FakePeer one({key_of(1)});
  const asio::ip::tcp::endpoint at(asio::ip::address_v4::loopback(), one.address("one").port);
  const std::string half = std::string("\x16\x03\x01\x08\x00\x01\x00\x07\xfc", 9) + std::string(2'000, 'x');
  // A member greets and is answered when what came before was read.
  const auto greet = [&] {
    asio::io_context io;
    const TlsContext tls = make_peer_client_tls(secret_of(1)).value();
    asio::ssl::stream<asio::ip::tcp::socket> stream(io, *tls);
    stream.next_layer().connect(at);
    boost::system::error_code error;
    stream.handshake(asio::ssl::stream_base::client, error);
    EXPECT_FALSE(error) << error.message();
  };
  greet();
  asio::io_context io;
  std::vector<asio::ip::tcp::socket> strangers;
  const std::size_t before = mallinfo2().uordblks;
  for (std::size_t i = 0; i < kStrangers; ++i) strangers.emplace_back(io).connect(at);
  for (asio::ip::tcp::socket& stranger : strangers) asio::write(stranger, asio::buffer(half));
  for (int times = 0; times < 2; ++times) greet();
  const std::size_t after = mallinfo2().uordblks;
  EXPECT_LT(after, before + kStrangers * (16 << 10));
}

// (It takes kPeerPatience.)
TEST(PeerServerTest, AReadEndsAtItsTimeLimitThoughItsReaderWaits) {
  FakePeer silent({key_of(1)}, FakePeer::Ways::kIsSilent);
  asio::io_context io;
  const TlsContext tls = make_peer_client_tls(secret_of(1)).value();
  asio::ssl::stream<asio::ip::tcp::socket> stream(io, *tls);
  stream.next_layer().connect({asio::ip::address_v4::loopback(), silent.address("silent").port});
  stream.handshake(asio::ssl::stream_base::client);
  const std::string wants = write_peer_wants({.time_limit = kNanosPerMilli, .wants = {{key_of(1), 1}}});
  asio::write(stream,
              asio::buffer(fmt::format("POST /peers/3/read HTTP/1.1\r\nHost: x\r\nLoci-State: same\r\n"
                                       "Content-Length: {}\r\n\r\n{}",
                                       wants.size(), wants)));
  EXPECT_TRUE(silent.has_left(1));
  EXPECT_EQ(silent.reads(), 1);
}

// Answers questions with nothing, and submits a prompt once a test lets it.
class HeldSource final : public PeerSource {
 public:
  explicit HeldSource(std::size_t connections_max = 256)
      : server_({.tls = make_peer_server_tls(secret_of(1)).value(),
                 .state = "same",
                 .connections_max = connections_max},
                clock_, quiet()) {
    EXPECT_TRUE(server_.listen().ok());
    server_.start(*this);
  }
  ~HeldSource() override {
    release();
    server_.stop();
  }
  void ask(PeerQuestion question) override {
    server_.answered({.id = question.id, .groups = std::vector<std::uint8_t>(question.keys.size())});
  }
  void read(PeerRead, Nanos) override {}
  void leave(PeerReadId) override {}
  RequestId prefill(PrefillWork work, std::function<void(PrefillNews)> tell) override {
    ++begun_;
    while (!is_released_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const RequestId id(work.tokens.size());
    const MutexLock lock(mutex_);
    open_.insert(id);
    tells_.push_back(std::move(tell));
    return id;
  }
  void leave_prefill(RequestId id) override {
    const MutexLock lock(mutex_);
    open_.erase(id);
  }
  void release() { is_released_ = true; }
  int begun() const { return begun_; }  // submissions
  std::set<RequestId> open() {
    const MutexLock lock(mutex_);
    return open_;
  }
  std::uint16_t port() const { return server_.port(); }

 private:
  const SystemClock clock_;
  std::atomic<bool> is_released_ = false;
  std::atomic<int> begun_ = 0;
  Mutex mutex_;
  std::set<RequestId> open_ GUARDED_BY(mutex_);
  std::vector<std::function<void(PrefillNews)>> tells_ GUARDED_BY(mutex_);
  PeerServer server_;
};

// A peer's connection.
class Caller {
 public:
  explicit Caller(std::uint16_t port)
      : tls_(make_peer_client_tls(secret_of(1)).value()), stream_(io_, *tls_) {
    stream_.next_layer().connect({asio::ip::address_v4::loopback(), port});
    boost::system::error_code error;
    stream_.handshake(asio::ssl::stream_base::client, error);
  }
  void send(std::string_view path, const std::string& body) {
    boost::system::error_code error;
    asio::write(stream_,
                asio::buffer(fmt::format(
                    "POST {} HTTP/1.1\r\nHost: x\r\nLoci-State: same\r\nContent-Length: {}\r\n\r\n{}", path,
                    body.size(), body)),
                error);
  }
  void send_prefill(std::uint32_t tokens) {
    PrefillWork work{.tenant = "acme", .text = {}};
    work.tokens.assign(tokens, TokenId(5));
    send(kPrefillPath, write_prefill(work));
  }
  // True: an answer came, of a byte for the key.
  bool ask() {
    const std::vector<ChainKey> keys{key_of(1)};
    send(kPeerAskPath, write_peer_question(keys));
    return head().starts_with("HTTP/1.1 200") && read(1);
  }
  // Of an answer; empty: the connection has ended.
  std::string head() {
    std::string out;
    while (!out.ends_with("\r\n\r\n") && read(1)) out += last_;
    return out.ends_with("\r\n\r\n") ? out : "";
  }
  bool has_ended() { return !read(1); }

 private:
  // False: the connection has ended, or nothing comes.
  bool read(std::size_t bytes) {
    last_.resize(bytes);
    std::optional<boost::system::error_code> result;
    asio::async_read(stream_, asio::buffer(last_),
                     [&](const boost::system::error_code& error, std::size_t) { result = error; });
    io_.restart();
    io_.run_for(std::chrono::nanoseconds(kLong));
    if (result) return !*result;
    stream_.next_layer().close();
    io_.restart();
    io_.run();
    return false;
  }

  asio::io_context io_;
  const TlsContext tls_;
  asio::ssl::stream<asio::ip::tcp::socket> stream_;
  std::string last_;
};

TEST(PeerServerTest, WhoComesTakesThePlaceOfTheConnectionThatIsIdleLongest) {
  HeldSource source(2);
  source.release();
  Caller first(source.port()), second(source.port());
  EXPECT_TRUE(second.ask());
  EXPECT_TRUE(first.ask());
  Caller third(source.port());
  EXPECT_TRUE(third.ask());
  EXPECT_TRUE(second.has_ended()) << "it was idle for longest";
  EXPECT_TRUE(first.ask());
  // Who has a request keeps its place.
  first.send_prefill(5);
  EXPECT_TRUE(first.head().starts_with("HTTP/1.1 200"));
  Caller fourth(source.port());
  EXPECT_TRUE(fourth.ask());
  EXPECT_TRUE(third.has_ended());
  fourth.send_prefill(6);
  EXPECT_TRUE(fourth.head().starts_with("HTTP/1.1 200"));
  Caller fifth(source.port());
  EXPECT_FALSE(fifth.ask()) << "all have requests";
  EXPECT_EQ(source.open().size(), 2u);
}

TEST(PeerServerTest, ALongPromptIsSubmittedBesideOtherAnswers) {
  HeldSource source;
  Caller caller(source.port());
  caller.send_prefill(kTokensSubmittedHere + 1);
  EXPECT_TRUE(eventually([&] { return source.begun() == 1; }));
  auto answered = std::async(std::launch::async, [&] { return Caller(source.port()).ask(); });
  EXPECT_EQ(answered.wait_for(std::chrono::nanoseconds(kLong)), std::future_status::ready);
  EXPECT_TRUE(source.open().empty()) << "its keys are still computed";
  source.release();
  EXPECT_TRUE(answered.get());
  EXPECT_TRUE(caller.head().starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(eventually([&] { return source.open().size() == 1; }));
}

TEST(PeerServerTest, APromptThatNobodyWaitsForWhenItIsSubmittedIsLeft) {
  HeldSource source;
  std::optional<Caller> waiting(std::in_place, source.port()), leaves(std::in_place, source.port()),
      leaves_early(std::in_place, source.port());
  leaves->send_prefill(kTokensSubmittedHere + 1);
  EXPECT_TRUE(eventually([&] { return source.begun() == 1; }));
  EXPECT_TRUE(leaves->head().starts_with("HTTP/1.1 200")) << "while it is submitted";
  leaves_early->send_prefill(kTokensSubmittedHere + 2);
  EXPECT_TRUE(leaves_early->head().starts_with("HTTP/1.1 200"));
  waiting->send_prefill(kTokensSubmittedHere + 3);
  EXPECT_TRUE(waiting->head().starts_with("HTTP/1.1 200"));
  leaves.reset();
  leaves_early.reset();
  source.release();
  EXPECT_TRUE(
      eventually([&] { return source.open() == std::set<RequestId>{RequestId(kTokensSubmittedHere + 3)}; }));
}

}  // namespace
}  // namespace loci
