// SPDX-License-Identifier: Apache-2.0
// The store that asks peers and the server that answers them, connected on this machine.
#include "loci/cluster/peers/peer_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/cluster/peers/peer_testing.h"

namespace loci {
namespace asio = boost::asio;
namespace {

// A proxy between a peer and its reader. A test can have it change one byte of the peer's answer.
class FlippingProxy {
 public:
  explicit FlippingProxy(std::uint16_t to) : acceptor_(io_, {asio::ip::address_v4::loopback(), 0}) {
    thread_ = std::thread([this, to] { run(to); });
  }
  ~FlippingProxy() {
    is_stopping_ = true;
    asio::ip::tcp::socket wake(io_);
    boost::system::error_code ignored;
    wake.connect({asio::ip::address_v4::loopback(), port()}, ignored);
    thread_.join();
    for (std::thread& one : carriers_) one.join();
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  void flip() { flips_ = true; }

 private:
  using Socket = std::shared_ptr<asio::ip::tcp::socket>;
  void run(std::uint16_t to) {
    while (true) {
      const auto near = std::make_shared<asio::ip::tcp::socket>(io_);
      const auto far = std::make_shared<asio::ip::tcp::socket>(io_);
      acceptor_.accept(*near);
      if (is_stopping_) return;
      far->connect({asio::ip::address_v4::loopback(), to});
      carriers_.emplace_back([this, near, far] { carry(near, far, false); });
      carriers_.emplace_back([this, near, far] { carry(far, near, true); });
    }
  }
  void carry(const Socket& from, const Socket& to, bool answers) {
    std::array<char, 4096> bytes{};
    boost::system::error_code error, ignored;
    while (!error) {
      const std::size_t count = from->read_some(asio::buffer(bytes), error);
      if (count > 100 && answers && flips_.exchange(false)) bytes[50] = static_cast<char>(bytes[50] ^ 1);
      if (count > 0) asio::write(*to, asio::buffer(bytes.data(), count), error);
    }
    to->shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    from->shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  }

  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_;
  std::atomic<bool> flips_{false}, is_stopping_{false};
  std::thread thread_;
  std::vector<std::thread> carriers_;  // the thread's, until it has ended
};

using Codes = std::vector<StatusCode>;
using Groups = std::vector<std::uint8_t>;

class PeerStoreTest : public testing::Test {
 protected:
  void open(std::vector<PeerAddress> peers, std::unique_ptr<SharedStore> behind = nullptr,
            std::uint8_t secret = 1) {
    PeerStoreOptions options{.peers = list_,
                             .tls = make_peer_client_tls(secret_of(secret)).value(),
                             .state = "same",
                             .groups = kGroups,
                             .store = std::move(behind),
                             .rounds = rounds_,
                             .rounds_bytes = 5'000,
                             .silence_limit = silence_limit_,
                             .transfer_limit = transfer_limit_};
    // (Of a try before: a list has one listener, and its peers have ended.)
    store_.reset();
    list_->set({});
    store_ = make_peer_store(std::move(options), clock_);
    list_->set(std::move(peers));
  }
  // By key: the groups that can be read.
  std::vector<std::uint8_t> ask(std::vector<ChainKey> keys, Nanos limit = kLong) {
    std::vector<std::uint8_t> groups = ask_all(std::move(keys), limit);
    for (std::uint8_t& of_key : groups)
      of_key = static_cast<std::uint8_t>(of_key & ((1u << kLayerGroupsMax) - 1));
    return groups;
  }
  // With who gives them.
  std::vector<std::uint8_t> ask_all(std::vector<ChainKey> keys, Nanos limit = kLong) {
    std::promise<std::vector<std::uint8_t>> answer;
    store_->ask(std::move(keys), limit, [&](std::vector<std::uint8_t> groups) { answer.set_value(groups); });
    return answer.get_future().get();
  }
  std::vector<StatusCode> read(const std::vector<std::pair<ChainKey, std::uint32_t>>& wanted) {
    std::vector<BlockRead> items;
    for (const auto& [key, group] : wanted) items.push_back({.group = group, .key = key});
    auto sink = std::make_shared<Collector>(items);
    store_->read(items, 0, sink);
    return sink->wait();
  }
  // How two blocks end of which a peer gives the first, and the first round of the other. On a busy machine
  // the first one may come after the limit, too: then another peer is read from.
  Codes read_of_one_that_stops(StatusCode second) {
    Codes ends;
    (void)in_one_try(10, [&] {
      FakePeer one({key_of(1), key_of(2)}, FakePeer::Ways::kStopsLater);
      open({one.address("one")});
      if (ask({key_of(1), key_of(2)}) != Groups{3, 3}) return false;
      ends = read({{key_of(1), 0}, {key_of(2), 0}});
      return ends == Codes{StatusCode::kOk, second};
    });
    return ends;
  }
  std::uint8_t rounds_ = 1;
  // What comes takes far less. Tests in which nothing comes have shorter limits.
  Nanos silence_limit_ = kLong;
  Nanos transfer_limit_ = kLong;
  PeerStats peer_stats() const { return store_->stats().peers.value(); }

  const SystemClock clock_;
  const std::shared_ptr<PeerList> list_ = std::make_shared<PeerList>();
  std::unique_ptr<SharedStore> store_;
};

TEST_F(PeerStoreTest, BringsWhatPeersHave) {
  FakePeer one({key_of(1), key_of(2)}), other({key_of(2), key_of(3)});
  open({one.address("one"), other.address("other")});
  EXPECT_EQ(ask({key_of(1), key_of(2), key_of(3), key_of(4)}), (Groups{3, 3, 3, 0}));
  EXPECT_EQ(read({{key_of(1), 0}, {key_of(1), 1}, {key_of(2), 0}, {key_of(3), 1}}),
            Codes(4, StatusCode::kOk));
  EXPECT_EQ(read({{key_of(4), 0}}), Codes{StatusCode::kNotFound}) << "nobody said that it has it";
  const PeerStats stats = peer_stats();
  EXPECT_EQ(stats.known, 2u);
  EXPECT_EQ(stats.up, 2u);
  EXPECT_EQ(stats.asks_total, 2u);
  EXPECT_EQ(stats.parts_found_total, 6u);
  EXPECT_EQ(stats.parts_read_total, 4u);
  EXPECT_EQ(stats.parts_gone_total, 1u);
  EXPECT_EQ(stats.failures_total, 0u);
  EXPECT_FALSE(store_->stats().is_there) << "there is no store";
  store_.reset();
  one.stop();
  other.stop();
  EXPECT_EQ(one.given() + other.given(), 4);
  EXPECT_EQ(one.taken() + other.taken(), 4) << "what is given is let go";
}

TEST_F(PeerStoreTest, FirstLayersOfAllBlocksComeFirst) {
  FakePeer one({key_of(1), key_of(2)});
  rounds_ = 5;
  open({one.address("one")});
  EXPECT_EQ(ask({key_of(1), key_of(2)}), (Groups{3, 3}));
  const std::vector<BlockRead> items{
      {.group = 0, .key = key_of(1)}, {.group = 1, .key = key_of(1)}, {.group = 0, .key = key_of(2)}};
  auto sink = std::make_shared<Collector>(items);
  store_->read(items, 0, sink);
  EXPECT_EQ(sink->wait(), Codes(3, StatusCode::kOk));
  using Order = std::vector<std::pair<std::size_t, std::uint32_t>>;
  EXPECT_EQ(sink->order(), (Order{{0, 0}, {2, 0}, {0, 1}, {2, 1}, {0, 2}, {2, 2}, {1, 0}, {1, 1}}));
  EXPECT_EQ(one.rounds(), 5);
  EXPECT_EQ(peer_stats().parts_read_total, 3u);
  // Who has no use for first layers alone, and a read that is over soon, have one round.
  sink = std::make_shared<Collector>(items);
  store_->read(items, 3, sink);
  EXPECT_EQ(sink->wait(), Codes(3, StatusCode::kOk));
  EXPECT_EQ(one.rounds(), 1);
  EXPECT_EQ(sink->order(), (Order{{0, 0}, {1, 0}, {2, 0}}));
  EXPECT_EQ(read({{key_of(1), 1}}), Codes{StatusCode::kOk});
  EXPECT_EQ(one.rounds(), 1);
}

// Seven layers of 100 KiB, which its source gives all at once.
class LargePeer final : public PeerSource {
 public:
  static constexpr std::uint64_t kLayerBytes = 100 << 10;
  static constexpr std::uint32_t kLayers = 7;
  LargePeer()
      : server_({.tls = make_peer_server_tls(secret_of(1)).value(), .state = "same"}, clock_, quiet()) {
    for (std::size_t i = 0; i < state.size(); ++i) state[i] = static_cast<std::byte>(i * 31 >> 8);
    EXPECT_TRUE(server_.listen().ok());
    server_.start(*this);
  }
  ~LargePeer() override { server_.stop(); }
  PeerAddress address() const { return {.id = "large", .host = "127.0.0.1", .port = server_.port()}; }
  void ask(PeerQuestion question) override { server_.answered({.id = question.id, .groups = {1}}); }
  void read(PeerRead read, Nanos) override {
    server_.give(
        {.place = {read.id, 0, {}}, .group = 0, .first = 0, .layer_bytes = kLayerBytes, .is_last = true},
        std::make_unique<Lent>(*this));
  }
  void leave(PeerReadId) override {}
  RequestId prefill(PrefillWork, std::function<void(PrefillNews)>) override { return RequestId(1); }
  void leave_prefill(RequestId) override {}

  std::vector<std::byte> state = std::vector<std::byte>(kLayers * kLayerBytes);
  std::atomic<int> returned = 0;

 private:
  struct Lent final : PeerBytes {
    explicit Lent(LargePeer& p) : peer(p) {}
    ~Lent() override { ++peer.returned; }
    std::span<const std::byte> bytes() const override { return peer.state; }
    LargePeer& peer;
  };
  const SystemClock clock_;
  PeerServer server_;
};

// Puts a block together, and notes with which layers its slices begin.
class OneBlock final : public BlockReadSink {
 public:
  void slices(std::size_t, std::uint32_t first, std::uint32_t, std::span<const std::byte> bytes) override {
    firsts.push_back(first);
    state.insert(state.end(), bytes.begin(), bytes.end());
  }
  void done(std::size_t, Status status) override { end.set_value(status.code()); }

  std::vector<std::uint32_t> firsts;
  std::vector<std::byte> state;
  std::promise<StatusCode> end;
};

// Of what has not verified a reader holds little, whatever a block has.
TEST_F(PeerStoreTest, LargePartsComeInPieces) {
  LargePeer peer;
  PeerStoreOptions options{
      .peers = list_,
      .tls = make_peer_client_tls(secret_of(1)).value(),
      .state = "same",
      .groups = {{.layers = LargePeer::kLayers, .layer_slice_bytes = LargePeer::kLayerBytes}},
      .store = nullptr,
      .silence_limit = kLong,
      .transfer_limit = kLong};
  store_ = make_peer_store(std::move(options), clock_);
  list_->set({peer.address()});
  ASSERT_EQ(ask({key_of(1)}), Groups{1});
  const auto block = std::make_shared<OneBlock>();
  store_->read({{.group = 0, .key = key_of(1)}}, 0, block);
  EXPECT_EQ(block->end.get_future().get(), StatusCode::kOk);
  EXPECT_EQ(block->firsts, (std::vector<std::uint32_t>{0, 2, 4, 6}));
  EXPECT_TRUE(block->state == peer.state);
  EXPECT_TRUE(eventually([&] { return peer.returned == 1; })) << "once, when the last piece was sent";
}

TEST_F(PeerStoreTest, WhatIsGoneBehindItsFirstLayersIsSaidToBe) {
  FakePeer one({key_of(1), key_of(2)}, FakePeer::Ways::kForgetsLater);
  rounds_ = 5;
  open({one.address("one")});
  EXPECT_EQ(ask({key_of(1), key_of(2)}), (Groups{3, 3}));
  EXPECT_EQ(read({{key_of(1), 0}, {key_of(2), 1}}), Codes(2, StatusCode::kNotFound));
  EXPECT_EQ(peer_stats().parts_gone_total, 2u);
  EXPECT_EQ(peer_stats().parts_read_total, 0u);
  store_.reset();
  one.stop();
  EXPECT_EQ(one.taken(), one.given()) << "what was given in vain is let go, too";
}

// It works: under pressure it evicts between two rounds.
TEST_F(PeerStoreTest, FirstLayersDoNotSpeakAgainstAPeer) {
  FakePeer one({key_of(1), key_of(2)}, FakePeer::Ways::kForgetsLater);
  rounds_ = 5;
  open({one.address("one")});
  for (int i = 1; i <= 4; ++i) {
    EXPECT_EQ(ask({key_of(1), key_of(2)}), (Groups{3, 3}));
    EXPECT_EQ(read({{key_of(1), 0}, {key_of(2), 0}}), Codes(2, StatusCode::kNotFound));
    EXPECT_EQ(one.reads(), i);
    EXPECT_TRUE(one.has_left(i)) << "later rounds of what is gone are not copied in vain";
  }
  EXPECT_EQ(peer_stats().up, 1u);
}

// Whether it evicts all the time or lies: each request would wait for it, and compute after all.
TEST_F(PeerStoreTest, APeerThatNeverGivesABlockWholeIsLeftAlone) {
  FakePeer one({key_of(1), key_of(2)}, FakePeer::Ways::kForgetsLater);
  rounds_ = 5;
  open({one.address("one")});
  // The fifth of them in a row is the first failure of three. (A read is noted just after its blocks.)
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(ask({key_of(1), key_of(2)}), (Groups{3, 3})) << i;
    EXPECT_EQ(read({{key_of(1), 0}, {key_of(2), 0}}), Codes(2, StatusCode::kNotFound));
  }
  EXPECT_TRUE(eventually([this] { return peer_stats().up == 0; }));
  EXPECT_EQ(ask({key_of(1)}), Groups{0});
}

// The rate of the link is learnt by it, which what is gone does not tell.
TEST_F(PeerStoreTest, WhatTheTimeLimitCutsOffIsTooSlow) {
  rounds_ = 5;
  transfer_limit_ = kNanosPerSecond;  // silence ends it later
  EXPECT_EQ(read_of_one_that_stops(StatusCode::kDeadlineExceeded),
            (Codes{StatusCode::kOk, StatusCode::kDeadlineExceeded}));
  EXPECT_EQ(peer_stats().up, 1u);
}

TEST_F(PeerStoreTest, ASilentPeerIsGoneThoughBlocksCame) {
  rounds_ = 5;
  silence_limit_ = kNanosPerSecond;
  EXPECT_EQ(read_of_one_that_stops(StatusCode::kNotFound), (Codes{StatusCode::kOk, StatusCode::kNotFound}));
}

TEST_F(PeerStoreTest, WhatPeersLackTheStoreBehindThemHas) {
  FakePeer one({key_of(1)});
  open({one.address("one")}, std::make_unique<FakeStore>(std::set{key_of(1), key_of(2)}));
  EXPECT_EQ(ask({key_of(1), key_of(2), key_of(3)}), (Groups{3, 3, 0}));
  EXPECT_EQ(read({{key_of(2), 1}, {key_of(1), 0}, {key_of(3), 0}}),
            (Codes{StatusCode::kOk, StatusCode::kOk, StatusCode::kNotFound}));
  EXPECT_EQ(store_->stats().parts_read_total, 1u) << "the peer goes before the store";
  EXPECT_EQ(peer_stats().parts_read_total, 1u);
  EXPECT_TRUE(store_->stats().is_there);
}

// Each has a rate of its own, so the engine must know who gives a block.
TEST_F(PeerStoreTest, AnAnswerSaysWhatComesFromAPeer) {
  FakePeer one({key_of(1)});
  open({one.address("one")}, std::make_unique<FakeStore>(std::set{key_of(1), key_of(2)}));
  EXPECT_EQ(ask_all({key_of(1), key_of(2), key_of(3)}), (Groups{3 + (3 << kLayerGroupsMax), 3, 0}));
  list_->set({});
  EXPECT_EQ(ask_all({key_of(1), key_of(2)}), (Groups{3, 3})) << "nor does who is off the list give it";
}

TEST_F(PeerStoreTest, WhatIsGoneIsSaidToBe) {
  FakePeer one({key_of(1), key_of(2)}, FakePeer::Ways::kForgets);
  open({one.address("one")});
  EXPECT_EQ(ask({key_of(1), key_of(2)}), (Groups{3, 3}));
  EXPECT_EQ(read({{key_of(1), 0}, {key_of(2), 1}}), Codes(2, StatusCode::kNotFound));
  EXPECT_EQ(peer_stats().parts_gone_total, 2u);
  EXPECT_EQ(peer_stats().failures_total, 0u) << "which is no failure";
}

TEST_F(PeerStoreTest, WhoLacksTheSecretGetsNothing) {
  FakePeer one({key_of(1)});
  open({one.address("one")}, nullptr, 2);
  EXPECT_EQ(ask({key_of(1)}), Groups{0});
  EXPECT_EQ(one.questions(), 0);
  EXPECT_GE(peer_stats().failures_total, 1u);
  // Nor does a server with another secret that says it is a peer.
  FakePeer stranger({key_of(1)}, FakePeer::Ways::kGives, 3);
  list_->set({stranger.address("stranger")});
  EXPECT_EQ(ask({key_of(1)}), Groups{0});
  EXPECT_EQ(stranger.questions(), 0);
}

// More connections than the port takes, whose other side never greets, keep no member out.
TEST_F(PeerStoreTest, StrangersWhoHoldConnectionsKeepNoMemberOut) {
  const auto gets_in = [this] {
    FakePeer one({key_of(1)});
    asio::io_context io;
    std::vector<asio::ip::tcp::socket> strangers;
    for (int i = 0; i < 300; ++i) {
      strangers.emplace_back(io);
      strangers.back().connect({asio::ip::address_v4::loopback(), one.address("one").port});
      // Most say something, and are told that it is the wrong thing.
      boost::system::error_code ignored;
      if (i % 8 != 0) asio::write(strangers.back(), asio::buffer("GET / HTTP/1.1\r\n\r\n", 18), ignored);
    }
    open({one.address("one")});
    const bool is_known = ask({key_of(1)}, 4 * kNanosPerSecond) == Groups{3};  // strangers have five seconds
    return is_known && read({{key_of(1), 0}}) == Codes{StatusCode::kOk};
  };
  EXPECT_TRUE(in_one_try(5, gets_in)) << "in less time than the strangers have";
}

// A peer that works does not speak for a store that fails.
TEST_F(PeerStoreTest, AStoreThatFailsIsLeftAloneThoughPeersGive) {
  FakePeer one({key_of(1)});
  std::atomic<int> failed{0};
  open({one.address("one")}, std::make_unique<FakeStore>(std::set{key_of(2)}, nullptr, &failed));
  EXPECT_EQ(ask({key_of(1), key_of(2)}), (Groups{3, 3}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(read({{key_of(2), 0}}), Codes{StatusCode::kUnavailable});
    EXPECT_EQ(read({{key_of(1), 0}}), Codes{StatusCode::kOk});
  }
  EXPECT_EQ(read({{key_of(2), 0}}), Codes{StatusCode::kNotFound}) << "it is computed";
  EXPECT_EQ(ask({key_of(1), key_of(2)}), (Groups{3, 0}));
  EXPECT_EQ(failed, 3);
}

TEST_F(PeerStoreTest, AnotherStateIsRefusedWithBothNames) {
  FakePeer unlike({key_of(1)}, FakePeer::Ways::kGives, 1, "another");
  std::mutex mutex;
  std::string said;
  PeerStoreOptions options{.peers = list_,
                           .tls = make_peer_client_tls(secret_of(1)).value(),
                           .state = "same",
                           .groups = kGroups,
                           .store = nullptr,
                           .warn = [&](const std::string& line) {
                             const std::lock_guard lock(mutex);
                             said += line;
                           }};
  store_ = make_peer_store(std::move(options), clock_);
  list_->set({unlike.address("unlike")});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask({key_of(1)}), Groups{0});
  EXPECT_EQ(unlike.questions(), 0);
  EXPECT_EQ(peer_stats().up, 0u) << "it is left alone";
  const std::lock_guard lock(mutex);
  EXPECT_NE(said.find("'another'"), std::string::npos) << said;
  EXPECT_NE(said.find("'same'"), std::string::npos) << said;
}

TEST_F(PeerStoreTest, ASilentPeerEndsItsReads) {
  silence_limit_ = kNanosPerSecond;
  // (On a busy machine the question may come to it only after the reader has given it up.)
  EXPECT_TRUE(in_one_try(10, [&] {
    FakePeer silent({key_of(1), key_of(2)}, FakePeer::Ways::kIsSilent);
    open({silent.address("silent")});
    if (ask({key_of(1), key_of(2)}) != Groups{3, 3}) return false;
    EXPECT_EQ(read({{key_of(1), 0}, {key_of(2), 0}}), Codes(2, StatusCode::kNotFound))
        << "to the engine it is gone";
    EXPECT_EQ(peer_stats().parts_failed_total, 2u);
    return silent.reads() == 1 && silent.has_left(1);
  })) << "and what was to be given is let go";
}

// It goes on answering, which speaks for nothing.
TEST_F(PeerStoreTest, APeerThatGivesNothingIsLeftAlone) {
  silence_limit_ = kNanosPerSecond;
  std::string step;
  // On a busy machine an answer may come too late, or the two seconds for which it is left alone may be over.
  EXPECT_TRUE(in_one_try(10, [&] {
    FakePeer silent({key_of(1), key_of(2)}, FakePeer::Ways::kIsSilent);
    FakePeer good({key_of(2)});
    open({silent.address("silent")});
    step = "it says that it has a block, and gives nothing";
    for (int i = 0; i < 3; ++i) {
      if (ask({key_of(1)}) != Groups{3} || read({{key_of(1), 0}}) != Codes{StatusCode::kNotFound})
        return false;
    }
    step = "each of three reads is a failure, and then it is left alone";
    if (peer_stats().up != 0 || peer_stats().failures_total != 3) return false;
    const int reads = silent.reads();
    list_->set({silent.address("silent"), good.address("good")});
    step = "the others go on";
    if (ask({key_of(1), key_of(2)}) != Groups{0, 3}) return false;
    if (read({{key_of(1), 0}, {key_of(2), 0}}) != Codes{StatusCode::kNotFound, StatusCode::kOk}) return false;
    step = "nor is it read from";
    return reads == 3 && silent.reads() == reads;
  })) << step;
}

// One of two questions ends before anybody has answered it.
TEST_F(PeerStoreTest, AQuestionWithoutAnAnswerLeavesWhatIsKnown) {
  FakePeer one({key_of(1)});
  open({one.address("one")});
  EXPECT_EQ(ask({key_of(1)}), Groups{3});
  ask({key_of(1)}, 0);
  EXPECT_EQ(read({{key_of(1), 0}}), Codes{StatusCode::kOk});
}

TEST_F(PeerStoreTest, APeerThatEndsIsComputedInstead) {
  auto one = std::make_unique<FakePeer>(std::set{key_of(1)}, FakePeer::Ways::kIsSilent);
  PeerStoreOptions options{.peers = list_,
                           .tls = make_peer_client_tls(secret_of(1)).value(),
                           .state = "same",
                           .groups = kGroups,
                           .store = nullptr};
  store_ = make_peer_store(std::move(options), clock_);
  list_->set({one->address("one")});
  EXPECT_EQ(ask({key_of(1)}), Groups{3});
  std::vector<BlockRead> items{{.group = 0, .key = key_of(1)}};
  auto sink = std::make_shared<Collector>(items);
  store_->read(items, 0, sink);
  while (one->reads() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  one->stop();
  EXPECT_EQ(sink->wait(), Codes{StatusCode::kNotFound});
  EXPECT_EQ(ask({key_of(1)}), Groups{0}) << "nobody is there";
}

TEST_F(PeerStoreTest, BytesThatWereChangedOnTheWayAreNotTaken) {
  FakePeer one({key_of(1), key_of(2)});
  FlippingProxy proxy(one.address("one").port);
  open({{.id = "one", .host = "127.0.0.1", .port = proxy.port()}});
  EXPECT_EQ(ask({key_of(1), key_of(2)}), (Groups{3, 3}));
  proxy.flip();
  const Codes codes = read({{key_of(1), 0}, {key_of(2), 0}});
  EXPECT_EQ(std::count(codes.begin(), codes.end(), StatusCode::kOk), 0) << "the record was its first";
  EXPECT_EQ(peer_stats().parts_read_total, 0u);
  EXPECT_GE(peer_stats().parts_failed_total, 1u);
  list_->set({});
  store_.reset();
}

TEST_F(PeerStoreTest, WhoIsOffTheListIsAskedNoMore) {
  FakePeer one({key_of(1)});
  open({one.address("one")});
  EXPECT_EQ(ask({key_of(1)}), Groups{3});
  list_->set({});
  EXPECT_EQ(ask({key_of(1)}), Groups{0});
  EXPECT_EQ(read({{key_of(1), 0}}), Codes{StatusCode::kNotFound});
  EXPECT_EQ(peer_stats().known, 0u);
}

// Where nobody uses it at the same time.
TEST_F(PeerStoreTest, TheStoreBehindEndsOnThePeersThread) {
  std::thread::id ended_on;
  open({}, std::make_unique<FakeStore>(std::set{key_of(1)}, &ended_on));
  std::atomic<int> answers{0};
  for (int i = 0; i < 50; ++i) store_->ask({key_of(1)}, kLong, [&](Groups) { ++answers; });
  store_.reset();
  EXPECT_EQ(answers, 50);
  EXPECT_NE(ended_on, std::thread::id());
  EXPECT_NE(ended_on, std::this_thread::get_id());
}

TEST_F(PeerStoreTest, ItsEndCallsBackForAll) {
  FakePeer silent({key_of(1)}, FakePeer::Ways::kIsSilent);
  open({silent.address("silent")});
  EXPECT_EQ(ask({key_of(1)}), Groups{3});
  std::vector<BlockRead> items{{.group = 0, .key = key_of(1)}};
  auto sink = std::make_shared<Collector>(items);
  std::atomic<int> answers{0};
  for (int i = 0; i < 50; ++i) store_->ask({key_of(1)}, kLong, [&](Groups) { ++answers; });
  store_->read(items, 0, sink);
  store_.reset();
  EXPECT_EQ(answers, 50);
  EXPECT_NE(sink->wait().front(), StatusCode::kOk);
}

}  // namespace
}  // namespace loci
