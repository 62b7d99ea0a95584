// SPDX-License-Identifier: Apache-2.0
// A member has another one compute a prompt, over a connection.
#include "loci/cluster/peers/prefill_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/cluster/peers/peer_testing.h"

namespace loci {
namespace {

namespace asio = boost::asio;

class PrefillCallsTest : public testing::Test {
 protected:
  PrefillCallsTest() {
    peers_->listen_to_notes([this](const PeerAddress& peer) { noted_ = peer.id; });
  }
  struct Ask {
    // Longer than a front waits for a silent member, since a busy machine may be silent for so long.
    Nanos begins = kLong, limit = kLong, progresses = kLong, silent = kLong;
    std::string state = "same";
    std::function<void(std::function<void()>)> watch = [](auto) {};
    std::function<bool()> stops = nullptr;
    std::function<asio::awaitable<void>()> waits = nullptr;
    std::function<asio::awaitable<void>(std::uint32_t)> ready = nullptr;
  };
  // What the caller hears of a prompt that `place` is to compute.
  PrefillOutcome ask(const PeerAddress& place, Ask asked) {
    peers_->set({place});
    asio::io_context io;
    const AskForPrefill call =
        prefill_caller(make_peer_client_tls(secret_of(1)).value(), asked.state, peers_);
    PrefillOrder order{.io = io,
                       .place = {.host = place.host,
                                 .port = place.port,
                                 .begin_limit = asked.begins,
                                 .silence_limit = asked.silent},
                       .work = {.tenant = "acme", .tokens = {TokenId(5)}, .text = {}},
                       .limit = asked.limit,
                       .progress_limit = asked.progresses,
                       .watch = std::move(asked.watch),
                       .stops = std::move(asked.stops),
                       .waits = std::move(asked.waits),
                       .ready = std::move(asked.ready)};
    std::future<PrefillOutcome> done = asio::co_spawn(io, call(std::move(order)), asio::use_future);
    io.run();
    return done.get();
  }
  PrefillEnd end_of(const PeerAddress& place) { return ask(place, {}).end; }
  PrefillEnd end_of(const PeerAddress& place, Ask asked) { return ask(place, std::move(asked)).end; }

  const std::shared_ptr<PeerList> peers_ = std::make_shared<PeerList>();
  std::string noted_;
};

TEST_F(PrefillCallsTest, AMemberComputesThePromptAndIsNoted) {
  FakePeer peer({}, FakePeer::Ways::kComputes);
  const PrefillOutcome outcome = ask(peer.address("one"), {});
  EXPECT_EQ(outcome.end, PrefillEnd::kDone);
  EXPECT_EQ(outcome.computed, 1u);
  ASSERT_EQ(peer.works().size(), 1u);
  EXPECT_EQ(peer.works()[0].tenant, "acme");
  EXPECT_EQ(peer.works()[0].tokens, std::vector<TokenId>{TokenId(5)});
  EXPECT_EQ(noted_, "one");
}

// And the member is noted before: it is asked for them at once.
TEST_F(PrefillCallsTest, WhatCanBeReadIsToldWhileTheRestIsComputed) {
  FakePeer peer({});
  const auto computes = [](std::uint32_t tokens) {
    return PrefillNews{.says = PrefillNews::Says::kComputes, .tokens = tokens};
  };
  peer.says({{}, computes(0), computes(512)});
  std::vector<std::uint32_t> told;
  const Ask asked{.stops = [&] { return !told.empty(); },
                  .ready = [&](std::uint32_t tokens) -> asio::awaitable<void> {
                    EXPECT_EQ(noted_, "one");
                    told.push_back(tokens);
                    co_return;
                  }};
  const PrefillEnd end = end_of(peer.address("one"), asked);
  EXPECT_EQ(end, PrefillEnd::kNone) << prefill_end_name(end);
  EXPECT_EQ(told, std::vector<std::uint32_t>{512}) << "of no tokens nobody is told";
}

TEST_F(PrefillCallsTest, ARefusalIsToldFromWhatBroke) {
  FakePeer refuses({}), breaks({}), other({}, FakePeer::Ways::kComputes, 2);
  EXPECT_EQ(end_of(refuses.address("one")), PrefillEnd::kRefused);
  breaks.says({{.says = PrefillNews::Says::kComputes}, {.says = PrefillNews::Says::kBroke}});
  EXPECT_EQ(end_of(breaks.address("one")), PrefillEnd::kLost);
  FakePeer unable({});
  unable.says({{.says = PrefillNews::Says::kUnable}});
  EXPECT_EQ(end_of(unable.address("one")), PrefillEnd::kUnreached);
  EXPECT_EQ(end_of(other.address("one")), PrefillEnd::kUnreached) << "a member of another cluster";
  FakePeer computes({}, FakePeer::Ways::kComputes);
  EXPECT_EQ(end_of(computes.address("one"), {.state = "another"}), PrefillEnd::kRefused);
  EXPECT_TRUE(computes.works().empty());
  const PeerAddress gone = computes.address("one");
  computes.stop();
  EXPECT_EQ(end_of(gone), PrefillEnd::kUnreached);
  EXPECT_EQ(noted_, "");
}

TEST_F(PrefillCallsTest, WhoDoesNotBeginInTimeIsLeft) {
  FakePeer waits({}, FakePeer::Ways::kIsSilent);
  const PrefillEnd end = end_of(waits.address("one"), {.begins = 50 * kNanosPerMilli});
  EXPECT_EQ(end, PrefillEnd::kLate) << prefill_end_name(end);
  EXPECT_TRUE(waits.has_left(1)) << "the prompt that nobody waits for is given up";
}

// (It takes longer than silence may.)
TEST_F(PrefillCallsTest, WhoHasBegunIsWaitedForUntilTheWholeLimit) {
  using std::chrono::steady_clock;
  const Ask asked{
      .begins = 500 * kNanosPerMilli, .limit = 3'600 * kNanosPerMilli, .silent = kPrefillSilenceMax};
  PrefillEnd end = PrefillEnd::kNone;
  steady_clock::duration took{};
  // On a busy machine it may seem not to have begun in time, or to be silent: then another one is asked.
  const auto is_waited_for = [&] {
    FakePeer endless({}, FakePeer::Ways::kIsSilent);
    endless.says({{.says = PrefillNews::Says::kComputes}});
    const auto begin = steady_clock::now();
    end = end_of(endless.address("one"), asked);
    took = steady_clock::now() - begin;
    return end == PrefillEnd::kLate && took >= std::chrono::milliseconds(3'500);
  };
  EXPECT_TRUE(in_one_try(10, is_waited_for)) << prefill_end_name(end) << " after " << took.count() << " ns";
}

// Its pulse is as fast as it has to be.
TEST_F(PrefillCallsTest, WhoWaitsIsNotQuiet) {
  FakePeer waits({}, FakePeer::Ways::kIsSilent);
  PrefillEnd end = PrefillEnd::kQuiet;
  // (A busy machine may be quiet for so long.)
  (void)in_one_try(10, [&] {
    end = end_of(waits.address("one"), {.limit = 1'600 * kNanosPerMilli, .silent = kPrefillSilenceMin});
    return end != PrefillEnd::kQuiet;
  });
  EXPECT_EQ(end, PrefillEnd::kLate) << prefill_end_name(end);
}

// The system of a process that stands still takes connections and bytes, and nobody answers.
TEST_F(PrefillCallsTest, WhoStandsStillIsQuietAndNotWaitedFor) {
  using std::chrono::steady_clock;
  asio::io_context io;
  asio::ip::tcp::acceptor still(io, {asio::ip::make_address("127.0.0.1"), 0});
  const auto begin = steady_clock::now();
  const PrefillEnd end = end_of({.id = "one", .host = "127.0.0.1", .port = still.local_endpoint().port()},
                                {.silent = kPrefillSilenceMin});
  EXPECT_EQ(end, PrefillEnd::kQuiet) << prefill_end_name(end);
  EXPECT_GE(steady_clock::now() - begin, std::chrono::nanoseconds(kPrefillSilenceMin));
}

// A member that takes the prompt and says nothing.
TEST_F(PrefillCallsTest, WhoTakesThePromptAndSaysNothingIsQuiet) {
  using std::chrono::steady_clock;
  FakePeer still({}, FakePeer::Ways::kIsSilent);
  still.stands_still(1'200 * kNanosPerMilli);
  PrefillEnd end = PrefillEnd::kNone;
  steady_clock::duration took{};
  const auto is_left = [&] {
    const auto begin = steady_clock::now();
    end = end_of(still.address("one"), {.silent = kPrefillSilenceMin});
    took = steady_clock::now() - begin;
    return end == PrefillEnd::kQuiet && took <= std::chrono::milliseconds(900);
  };
  EXPECT_TRUE(in_one_try(10, is_left)) << prefill_end_name(end) << " after " << took.count() << " ns";
}

// What was told is read by a worker, which may be busy with other things for longer than silence may last.
TEST_F(PrefillCallsTest, WhoSpeaksInTimeIsNotLostAsItsCallerIsBusy) {
  bool was_told = false;
  const Ask asked{.limit = 4'500 * kNanosPerMilli,
                  .silent = kPrefillSilenceMax,
                  .ready = [&](std::uint32_t) -> asio::awaitable<void> {
                    was_told = true;
                    asio::steady_timer busy(co_await asio::this_coro::executor,
                                            std::chrono::milliseconds(3'300));
                    co_await busy.async_wait(asio::use_awaitable);
                  }};
  PrefillEnd end = PrefillEnd::kNone;
  // (On a busy machine it may not speak in time.)
  EXPECT_TRUE(in_one_try(10, [&] {
    FakePeer peer({}, FakePeer::Ways::kIsSilent);
    peer.says({{.says = PrefillNews::Says::kComputes, .tokens = 512}});
    end = end_of(peer.address("one"), asked);
    return end == PrefillEnd::kLate && was_told;
  })) << prefill_end_name(end);
}

// Its network thread answers, and its device computes no more.
TEST_F(PrefillCallsTest, WhoDoesNotGoOnIsLeft) {
  FakePeer hangs({}, FakePeer::Ways::kIsSilent);
  hangs.says({{.says = PrefillNews::Says::kComputes}, {.says = PrefillNews::Says::kComputes, .tokens = 512}});
  const PrefillEnd end = end_of(hangs.address("one"), {.progresses = 1'200 * kNanosPerMilli});
  EXPECT_EQ(end, PrefillEnd::kLate) << prefill_end_name(end);
  EXPECT_TRUE(hangs.has_left(1));
}

TEST_F(PrefillCallsTest, AMemberThatStopsEndsTheWait) {
  FakePeer silent({}, FakePeer::Ways::kIsSilent);
  const PeerAddress place = silent.address("one");
  std::thread stops([&] {
    for (Nanos waited = 0; silent.works().empty() && waited < kLong; waited += kNanosPerMilli)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    silent.stop();
  });
  const PrefillEnd end = end_of(place);
  EXPECT_TRUE(end == PrefillEnd::kLost || end == PrefillEnd::kRefused) << prefill_end_name(end);
  stops.join();
}

TEST_F(PrefillCallsTest, WhoWaitsIsToldSoAtEachLine) {
  FakePeer peer({});
  peer.says({{.says = PrefillNews::Says::kComputes}, {.says = PrefillNews::Says::kDone, .tokens = 1}});
  int told = 0;
  EXPECT_EQ(end_of(peer.address("one"), {.waits = [&]() -> asio::awaitable<void> {
                     ++told;
                     co_return;
                   }}),
            PrefillEnd::kDone);
  FakePeer silent({}, FakePeer::Ways::kIsSilent);
  int lines = 0;
  const Ask asked{.stops = [&] { return lines > 2; },
                  .waits = [&]() -> asio::awaitable<void> {
                    ++lines;
                    co_return;
                  }};
  EXPECT_EQ(end_of(silent.address("one"), asked), PrefillEnd::kNone);
  EXPECT_EQ(lines, 3);
}

TEST_F(PrefillCallsTest, WhereThisServerStopsNobodyWaits) {
  FakePeer silent({}, FakePeer::Ways::kIsSilent);
  EXPECT_EQ(end_of(silent.address("one"), {.stops = [] { return true; }}), PrefillEnd::kNone);
  EXPECT_TRUE(silent.has_left(1));
}

TEST_F(PrefillCallsTest, AClientThatLeavesEndsTheWait) {
  FakePeer silent({}, FakePeer::Ways::kIsSilent);
  // At once: no connection is made.
  EXPECT_NE(end_of(silent.address("one"), {.watch = [](std::function<void()> gone) { gone(); }}),
            PrefillEnd::kDone);
  EXPECT_TRUE(silent.works().empty());
  // While the prompt is computed. (Each second somebody asks whether it stops: on the caller's thread.)
  std::function<void()> leaves;
  const Ask asked{.watch = [&](std::function<void()> gone) { leaves = std::move(gone); },
                  .stops =
                      [&] {
                        leaves();
                        return false;
                      }};
  EXPECT_NE(end_of(silent.address("one"), asked), PrefillEnd::kDone);
  EXPECT_EQ(silent.works().size(), 1u);
  EXPECT_TRUE(silent.has_left(1));
}

// Of the 64 places, as many for a tenant as are left to others.
TEST_F(PrefillCallsTest, ATenantLeavesPlacesToOthers) {
  FakePeer silent({}, FakePeer::Ways::kIsSilent);
  const PeerAddress place = silent.address("one");
  peers_->set({place});
  asio::io_context io;
  const AskForPrefill call = prefill_caller(make_peer_client_tls(secret_of(1)).value(), "same", peers_);
  std::vector<std::future<PrefillOutcome>> waits;
  bool stop = false;
  const auto ask_for = [&](const std::string& tenant) {
    waits.push_back(asio::co_spawn(
        io,
        call({.io = io,
              .place = {.host = place.host, .port = place.port, .begin_limit = kLong, .silence_limit = kLong},
              .work = {.tenant = tenant, .tokens = {TokenId(5)}, .text = {}},
              .limit = kLong,
              .watch = [](auto) {},
              .stops = [&stop] { return stop; }}),
        asio::use_future));
  };
  for (std::size_t i = 0; i < kPrefillsMax; ++i) ask_for("one");
  const auto run_until = [&](std::size_t works) {
    for (int i = 0; i < 60'000 && silent.works().size() < works; ++i)
      io.run_for(std::chrono::milliseconds(1));
    EXPECT_EQ(silent.works().size(), works);
  };
  run_until(kPrefillsMax / 2);
  ask_for("two");
  run_until(kPrefillsMax / 2 + 1);
  stop = true;
  io.run();
  std::size_t refused = 0;
  for (auto& wait : waits) refused += wait.get().end == PrefillEnd::kRefused;
  EXPECT_EQ(refused, kPrefillsMax / 2);
  EXPECT_TRUE(silent.has_left(kPrefillsMax / 2 + 1)) << "and gives the places back";
}

}  // namespace
}  // namespace loci
