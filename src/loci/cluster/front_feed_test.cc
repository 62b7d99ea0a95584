// SPDX-License-Identifier: Apache-2.0
// A front before instances that publish what they hold: which one gets a request, and why.
#include <atomic>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "loci/cluster/front_feed_testing.h"
#include "loci/serve/telemetry/metrics.h"

namespace loci {
namespace {

// A member whose answers about its state a test writes. It answers requests at once.
class ScriptedFeed {
 public:
  using Script = std::function<std::string(bool is_page, const std::string& question)>;

  ScriptedFeed(std::string id, Script script)
      : id_(std::move(id)),
        script_(std::move(script)),
        http_([](const std::string&) { return whole(R"({"status":"ok"})"); }),
        server_({.host = "127.0.0.1",
                 .port = 0,
                 .tls = {},
                 .tls_context = make_peer_server_tls(secret_of(1)).value(),
                 .limits = {}},
                clock_, metrics_, quiet()) {
    EXPECT_TRUE(server_.listen([this](Exchange& exchange) { return answer(exchange); }).ok());
  }
  ~ScriptedFeed() {
    holds_pages = false;
    server_.stop(0);
  }
  Member member() const {
    Member out = http_.member(id_);
    out.peer_port = server_.port();
    return out;
  }
  int pages() const { return pages_; }  // that it was asked for

  std::atomic<bool> holds_pages = false;  // until then questions for pages wait

 private:
  asio::awaitable<void> answer(Exchange& exchange) {
    if (co_await exchange.read_body()) co_return;
    const bool is_page = exchange.path() == kFeedPagePath;
    if (is_page) ++pages_;
    asio::steady_timer timer(exchange.io());
    while (is_page && holds_pages) {
      timer.expires_after(std::chrono::milliseconds(2));
      co_await timer.async_wait(asio::use_awaitable);
    }
    HttpResponse response{.content_type = "application/octet-stream",
                          .body = script_(is_page, exchange.request().body),
                          .headers = {}};
    co_await exchange.respond(std::move(response));
  }

  const SystemClock clock_;
  ServeMetrics metrics_{"test"};
  const std::string id_;
  const Script script_;
  FakeInstance http_;
  std::atomic<int> pages_ = 0;
  HttpServer server_;
};

// What a member says that has had nothing new since its epoch began.
std::string changes_of(std::uint64_t epoch, const std::string& question) {
  const FeedQuestion asked = read_feed_question(question).value();
  const bool is_gap = asked.epoch != epoch;
  return write_feed_changes(
      {.epoch = epoch,
       .last = is_gap ? 0 : asked.after,
       .is_gap = is_gap,
       .costs = {.compute_us = 64'000, .host_us = 1'000, .disk_us = 10'000, .peer_us = 64'000},
       .changes = {}});
}
// All that it has, the first chunks of a prompt.
std::string page_of(std::uint64_t epoch, const RoutedPrompt& prompt, std::size_t chunks) {
  FeedPage page{.epoch = epoch, .last = 0, .next = 0, .entries = {}};
  for (std::size_t i = 0; i < chunks; ++i)
    page.entries.push_back(FeedEntry::of(prompt.keys[i], Tier::kDevice));
  return write_feed_page(page);
}

TEST_F(FrontFeedTest, AConversationGoesToWhoHasItOnTheDevice) {
  Publisher one(kOne, 1), two(kTwo, 101);
  one.hold(talk(0), 0, Tier::kDisk);
  two.hold(talk(0), 0, Tier::kDevice);
  update({one.member(5), two.member()});
  knows(2 * kChunks);
  update({one.member(5), two.member()});  // what others sent there counts from the second list on
  EXPECT_EQ(ask(talk(0)), kTwo) << "the other has it on its disk, behind a queue";
  EXPECT_EQ(chosen("device"), 1);
  update({one.member(), two.member(50)});
  EXPECT_EQ(ask(talk(0)), kOne) << "the queue is longer than the disk takes";
  // Of what has moved since the front hears.
  two.hold(talk(0), 0, std::nullopt);
  knows(kChunks);
  update({one.member(1), two.member()});
  EXPECT_EQ(ask(talk(0)), kOne);
  EXPECT_EQ(chosen("disk"), 2);
  one.hold(talk(0), 0, Tier::kHost);
  await("loci_front_feed_changes_total", 2 * kChunks);
  EXPECT_EQ(ask(talk(0)), kOne);
  EXPECT_EQ(chosen("host"), 1);
}

TEST_F(FrontFeedTest, WhoComesLaterReadsAllThatThereIs) {
  Publisher one(kOne, 1), two(kTwo, 101);
  for (int i = 0; i < 10; ++i) (i % 2 == 0 ? one : two).hold(talk(i), i, Tier::kDevice);
  update({one.member(), two.member()});
  knows(10 * kChunks);
  EXPECT_EQ(metric("loci_front_feed_snapshots_total"), 2);
  EXPECT_EQ(metric("loci_front_feeds{state=\"read\"}"), 2);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ask(talk(i)), i % 2 == 0 ? kOne : kTwo) << i;
  // (A prompt beside the conversations has nobody's state.)
  ask(talk(20));
  EXPECT_EQ(chosen("device"), 10);
  EXPECT_EQ(chosen("nothing"), 1);
  EXPECT_EQ(chosen("disk"), 0);
  // Everybody may read the counts, and learns of no member from them.
  EXPECT_EQ(get("/metrics").find(kOne), std::string::npos);
  update({one.member()});
  await("loci_front_instances{state=\"unlisted\"}", 1);
  EXPECT_EQ(chosen("device"), 10) << "a counter does not fall when a member goes";
}

TEST_F(FrontFeedTest, WhatWasSentIsComingUntilItIsSaidToBeGone) {
  Publisher one(kOne, 1), two(kTwo, 101);
  update({one.member(), two.member()});
  await("loci_front_feeds{state=\"read\"}", 2);
  const std::string first = ask(talk(0));
  Publisher& home = first == kOne ? one : two;
  EXPECT_EQ(ask(talk(0)), first) << "it was sent there";
  EXPECT_EQ(chosen("sent"), 1);
  // Computed, and evicted.
  home.hold(talk(0), 0, Tier::kDevice);
  knows(kChunks);
  home.hold(talk(0), 0, std::nullopt);
  knows(0);
  EXPECT_EQ(ask(talk(0)), first) << "nobody has it, and the prompt's hash decides as before";
  EXPECT_EQ(chosen("nothing"), 2);
}

TEST_F(FrontFeedTest, AnInstanceThatDoesNotTellIsGuessed) {
  Publisher one(kOne, 1);
  FakeInstance silent([](const std::string&) { return whole("{\"ok\":1}"); });
  Member other = silent.member(kTwo);
  other.peer_port = 1;  // where nobody listens
  one.hold(talk(0), 0, Tier::kHost);
  update({one.member(), other});
  knows(kChunks);
  await("loci_front_feeds{state=\"guessed\"}", 1);
  EXPECT_EQ(ask(talk(0)), kOne);
  update({one.member(10), other});
  EXPECT_EQ(ask(talk(1)), kTwo);
  EXPECT_EQ(ask(talk(1)), kTwo);
  EXPECT_EQ(chosen("sent"), 1);
}

TEST_F(FrontFeedTest, BehindAGapTheEarlierPictureCountsUntilAllIsRead) {
  const RoutedPrompt prompt = prompt_of(talk(0));
  std::atomic<std::uint64_t> epoch = 1;
  ScriptedFeed one(kOne, [&](bool is_page, const std::string& question) {
    return is_page ? page_of(epoch, prompt, epoch == 1 ? kChunks : 5) : changes_of(epoch, question);
  });
  Publisher two(kTwo, 101);
  update({one.member(), two.member()});
  knows(kChunks);
  await("loci_front_feeds{state=\"read\"}", 2);
  EXPECT_EQ(ask(talk(0)), kOne);
  EXPECT_EQ(chosen("device"), 1);
  one.holds_pages = true;
  epoch = 2;
  await("loci_front_feed_snapshots_total", 3);
  knows(kChunks);
  EXPECT_EQ(ask(talk(0)), kOne);
  EXPECT_EQ(chosen("device"), 2);
  one.holds_pages = false;
  knows(5);
  EXPECT_EQ(metric("loci_front_feeds{state=\"read\"}"), 2);
  EXPECT_EQ(ask(talk(0)), kOne) << "what it was sent is not forgotten";
}

TEST_F(FrontFeedTest, WhosePagesFailBehindAGapIsGuessed) {
  const RoutedPrompt prompt = prompt_of(talk(0));
  std::atomic<std::uint64_t> epoch = 1;
  ScriptedFeed one(kOne, [&](bool is_page, const std::string& question) {
    if (is_page) return epoch == 1 ? page_of(epoch, prompt, kChunks) : std::string("broken");
    return changes_of(epoch, question);
  });
  update({one.member()});
  knows(kChunks);
  epoch = 2;
  await("loci_front_feeds{state=\"guessed\"}", 1);
  knows(0);
  EXPECT_GE(metric("loci_front_feed_failures_total"), 1);
}

TEST_F(FrontFeedTest, WhoAlwaysHasAGapIsLeftAloneForLonger) {
  using Time = std::chrono::steady_clock;
  const RoutedPrompt prompt = prompt_of(talk(0));
  std::atomic<std::uint64_t> epoch = 1;
  ScriptedFeed one(kOne, [&](bool is_page, const std::string& question) {
    return is_page ? page_of(epoch, prompt, 1) : changes_of(++epoch, question);
  });
  const Time::time_point began = Time::now();
  update({one.member()});
  wait_until([&] { return one.pages() >= 2; });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const int pages = one.pages();
  // The first two at once, then a second between two.
  EXPECT_LE(pages, 2 + std::chrono::floor<std::chrono::seconds>(Time::now() - began).count());
}

TEST_F(FrontFeedTest, PagesOfFewInstancesAreReadAtATime) {
  const RoutedPrompt prompt = prompt_of(talk(0));
  std::vector<std::unique_ptr<ScriptedFeed>> all;
  std::vector<Member> members;
  for (int i = 1; i <= FeedReader::kSnapshotsMax + 2; ++i) {
    const auto script = [&](bool is_page, const std::string& question) {
      return is_page ? page_of(1, prompt, 1) : changes_of(1, question);
    };
    all.push_back(std::make_unique<ScriptedFeed>(fmt::format("{:016x}", i), script));
    all.back()->holds_pages = true;
    members.push_back(all.back()->member());
  }
  const auto pages = [&] {
    int sum = 0;
    for (const auto& one : all) sum += one->pages();
    return sum;
  };
  update(members);
  wait_until([&] { return pages() >= FeedReader::kSnapshotsMax; });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(pages(), FeedReader::kSnapshotsMax);
  for (const auto& one : all) one->holds_pages = false;
  knows(FeedReader::kSnapshotsMax + 2);
}

TEST_F(FrontFeedTest, PagesWithoutAnEndAreNotRead) {
  ScriptedFeed one(kOne, [&](bool is_page, const std::string& question) {
    if (!is_page) return changes_of(1, question);
    const std::uint32_t place = read_feed_page_question(question).value().place;
    return write_feed_page({.epoch = 1, .last = 0, .next = place + 1, .entries = {}});
  });
  update({one.member()});
  await("loci_front_feed_failures_total", 1);
  EXPECT_EQ(one.pages(), FeedReader::kPagesMax);
}

// A connection that was idle is closed with the front, and not later.
TEST_F(FrontFeedTest, AClosedFrontHasNoConnections) {
  std::atomic<bool> is_closed = false;
  FakeInstance instance([](const std::string&) { return whole("{\"ok\":1}"); },
                        {.keeps_alive = true, .closed = [&] { is_closed = true; }});
  Publisher one(kOne, 1);
  one.hold(talk(0), 0, Tier::kDevice);
  update({instance.member(kTwo), one.member(50)});
  update({instance.member(kTwo), one.member(50)});
  knows(kChunks);
  EXPECT_EQ(ask(talk(1)), kTwo);
  EXPECT_FALSE(is_closed);
  server_->stop(0);
  front_.close();
  wait_until([&] { return is_closed.load(); });
}

TEST(FeedPauses, AreLongerEachTimeUntilNothingHasHappenedForAWhile) {
  FeedPauses pauses;
  Nanos now = 0;
  for (const Nanos seconds : {1, 2, 4, 8, 8}) {
    EXPECT_EQ(pauses.next(now), seconds * kNanosPerSecond);
    now += seconds * kNanosPerSecond + kNanosPerSecond;  // a good answer, and a bad one
  }
  now += FeedPauses::kCalm + 1;
  EXPECT_EQ(pauses.next(now), kNanosPerSecond);
}

TEST(PeerServerFeed, WrongQuestionsAreRefusedAndNamed) {
  Publisher one(kOne, 1);
  asio::io_context io;
  const TlsContext tls = make_peer_client_tls(secret_of(1)).value();
  const auto ask = [&](const std::string& path, const std::string& body) {
    asio::ssl::stream<tcp::socket> stream(io, *tls);
    stream.next_layer().connect({asio::ip::address_v4::loopback(), one.member().peer_port});
    stream.handshake(asio::ssl::stream_base::client);
    asio::write(stream, asio::buffer(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                                 "Content-Length: {}\r\n\r\n{}",
                                                 path, body.size(), body)));
    std::string out;
    error_code error;
    asio::read(stream, asio::dynamic_buffer(out), error);
    return out;
  };
  const std::string short_one = ask("/peers/1/feed", "x");
  EXPECT_TRUE(short_one.starts_with("HTTP/1.1 400")) << short_one;
  EXPECT_NE(short_one.find("length: expected 20 bytes, found 1"), std::string::npos) << short_one;
  EXPECT_NE(ask("/peers/1/held", "x").find("length: "), std::string::npos);
  const std::string late = ask("/peers/1/feed", write_feed_question({.wait = 11 * kNanosPerSecond}));
  EXPECT_NE(late.find("wait: expected at most 10000 ms"), std::string::npos) << late;
}

}  // namespace
}  // namespace loci
