// SPDX-License-Identifier: Apache-2.0
// A member has another one compute a prompt, over a connection.
#include "loci/cluster/peers/prefill_calls.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "loci/cluster/peers/peer_testing.h"

namespace loci {
namespace {

namespace asio = boost::asio;

class PrefillCallsTest : public testing::Test {
 protected:
  PrefillCallsTest() {
    peers_->listen_to_notes([this](const PeerAddress& peer) { noted_ = peer.id; });
  }
  // What the caller hears of a prompt that `place` is to compute. `watch`: PrefillOrder's.
  bool ask(
      const PeerAddress& place, Nanos limit = kLong, const std::string& state = "same",
      std::function<void(std::function<void()>)> watch = [](auto) {}) {
    peers_->set({place});
    asio::io_context io;
    const AskForPrefill call = prefill_caller(make_peer_client_tls(secret_of(1)).value(), state, peers_);
    PrefillOrder order{.io = io,
                       .place = {.host = place.host, .port = place.port, .limit = limit},
                       .work = {.tenant = "acme", .tokens = {TokenId(5)}, .text = {}},
                       .watch = std::move(watch)};
    std::future<Status> done = asio::co_spawn(io, call(std::move(order)), asio::use_future);
    io.run();
    return done.get().ok();
  }

  const std::shared_ptr<PeerList> peers_ = std::make_shared<PeerList>();
  std::string noted_;
};

TEST_F(PrefillCallsTest, AMemberComputesThePromptAndIsNoted) {
  FakePeer peer({}, FakePeer::Ways::kComputes);
  EXPECT_TRUE(ask(peer.address("one")));
  ASSERT_EQ(peer.works().size(), 1u);
  EXPECT_EQ(peer.works()[0].tenant, "acme");
  EXPECT_EQ(peer.works()[0].tokens, std::vector<TokenId>{TokenId(5)});
  EXPECT_EQ(noted_, "one");
}

TEST_F(PrefillCallsTest, WhoRefusesOrIsSilentOrGoneIsAFailure) {
  FakePeer refuses({}), silent({}, FakePeer::Ways::kIsSilent), other({}, FakePeer::Ways::kComputes, 2);
  EXPECT_FALSE(ask(refuses.address("one")));
  EXPECT_FALSE(ask(silent.address("one"), 50 * kNanosPerMilli));
  EXPECT_TRUE(silent.has_left(1)) << "the prompt that nobody waits for is given up";
  EXPECT_FALSE(ask(other.address("one"))) << "a member of another cluster";
  FakePeer computes({}, FakePeer::Ways::kComputes);
  EXPECT_FALSE(ask(computes.address("one"), kLong, "another")) << "whose state is another";
  EXPECT_TRUE(computes.works().empty());
  const PeerAddress gone = computes.address("one");
  computes.stop();
  EXPECT_FALSE(ask(gone));
  EXPECT_EQ(noted_, "");
}

// (It takes longer than silence may.)
TEST_F(PrefillCallsTest, WhoGoesOnForLongIsWaitedForUntilTheLimit) {
  FakePeer endless({}, FakePeer::Ways::kIsSilent);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(ask(endless.address("one"), 3'600 * kNanosPerMilli));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(3'500));
}

TEST_F(PrefillCallsTest, AMemberThatStopsEndsTheWait) {
  FakePeer silent({}, FakePeer::Ways::kIsSilent);
  const PeerAddress place = silent.address("one");
  std::thread stops([&] {
    for (Nanos waited = 0; silent.works().empty() && waited < kLong; waited += kNanosPerMilli)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    silent.stop();
  });
  EXPECT_FALSE(ask(place));
  stops.join();
}

TEST_F(PrefillCallsTest, AClientThatLeavesEndsTheWait) {
  FakePeer silent({}, FakePeer::Ways::kIsSilent);
  EXPECT_FALSE(ask(silent.address("one"), kLong, "same", [&](std::function<void()> on_gone) {
    on_gone();  // at once: no connection is made
  }));
  EXPECT_TRUE(silent.works().empty());
}

}  // namespace
}  // namespace loci
