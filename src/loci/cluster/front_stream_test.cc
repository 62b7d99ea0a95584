// SPDX-License-Identifier: Apache-2.0
// Streams whose instance ends in the middle: another one goes on.
#include <chrono>
#include <latch>
#include <mutex>
#include <thread>

#include "loci/cluster/front_testing.h"
#include "loci/serve/wire/sse.h"

namespace loci {
namespace {

std::string chunk(const std::string& text) {
  return fmt::format("data: {{\"choices\":[{{\"index\":0,\"text\":\"{}\"}}]}}\n\n", text);
}
std::string token(std::uint32_t value) { return mark_event({.number = value}); }
const std::string kDone = "data: [DONE]\n\n";
const std::string kStreamed = R"({"model":"tiny","prompt":"hi","stream":true})";

// The body of an answer in chunks.
std::string dechunked(const std::string& answer) {
  std::string out;
  for (std::size_t at = answer.find("\r\n\r\n") + 4; at < answer.size();) {
    const std::size_t size = std::stoul(answer.substr(at), nullptr, 16);
    at = answer.find("\r\n", at) + 2;
    out += answer.substr(at, size);
    at += size + 2;
  }
  return out;
}

// Instances of which each breaks off after so many events, and one that does not; which of them is asked
// first is chance.
class MovedStreamTest : public FrontTest {
 protected:
  static constexpr std::size_t kWhole = 100;

  void begin(const std::vector<std::size_t>& events_of, const std::string& other_text = "") {
    for (std::size_t i = 0; i < events_of.size(); ++i) {
      instances_.push_back(std::make_unique<FakeInstance>(
          [this, i, events_of, other_text](const std::string& request) {
            const std::lock_guard lock(mutex_);
            HttpRequest message{.method_text = "POST",
                                .target = request.substr(5, request.find(" HTTP/") - 5)};
            const std::size_t at = request.find("Loci-Reply: ");
            if (at != std::string::npos) {
              const std::string header = request.substr(at + 12, request.find("\r\n", at) - at - 12);
              message.headers.emplace_back("Loci-Reply", header);
            }
            if (request.find("Authorization: Bearer k\r\n") != std::string::npos)
              message.headers.emplace_back("Authorization", "Bearer k");
            message.body = request.substr(request.find("\r\n\r\n") + 4);
            resumed_.push_back(take_resumed_reply(ReplyKey{}, message));
            bodies_.push_back(message.body);
            // The first that is asked breaks off as the first of the list.
            const std::size_t count = events_of[std::min(bodies_.size(), events_of.size()) - 1];
            const std::vector<std::string> words = {"It", " was",
                                                    bodies_.size() > 1 ? " a" + other_text : " a", " day"};
            std::string text;
            for (std::size_t word = 0; word < std::min(count, words.size()); ++word)
              text += token(static_cast<std::uint32_t>(word)) + chunk(words[word]);
            const std::string name = mark_event({.kind = ReplyMark::Kind::kPrompts, .number = 5});
            text = name + text;
            if (count == kWhole) return events(text + kDone) + "0\r\n\r\n";
            if (count == 0) return whole(refusal_, "503 Service Unavailable");
            if (!are_drained_) return events(text + "data: {\"half");
            const std::string error = "data: {\"error\":{\"code\":\"draining\"}}\n\n";
            return events(text + mark_event({.kind = ReplyMark::Kind::kDrained}) + error) + "0\r\n\r\n";
          },
          FakeWays{.key = "k"}));
      members_.push_back(instances_.back()->member(std::string(15, '0') + std::to_string(i + 1)));
    }
    update(members_);
  }
  void TearDown() override { update({}); }
  int moved() {
    const std::string metrics = get("/metrics");
    const std::string name = "\nloci_front_streams_moved_total ";
    return std::stoi(metrics.substr(metrics.find(name) + name.size()));
  }

  bool are_drained_ = false;  // those that break off
  std::string refusal_;       // of one that writes no events
  std::mutex mutex_;
  // What came, the bodies as the client's; guarded by mutex_ until the answer is there.
  std::vector<std::string> bodies_;
  std::vector<std::optional<ResumedReply>> resumed_;
  std::vector<std::unique_ptr<FakeInstance>> instances_;
  std::vector<Member> members_;
};

TEST_F(MovedStreamTest, AStreamGoesOnWhereItBrokeOff) {
  begin({3, kWhole});
  const std::string answer = post("/v1/completions", kStreamed);
  EXPECT_EQ(dechunked(answer), chunk("It") + chunk(" was") + chunk(" a") + chunk(" day") + kDone);
  EXPECT_EQ(moved(), 1);
  EXPECT_EQ(bodies_, (std::vector<std::string>{kStreamed, kStreamed}));
  ASSERT_TRUE(resumed_[0] && resumed_[1]);
  EXPECT_FALSE(resumed_[0]->is_again);
  EXPECT_TRUE(resumed_[0]->said.empty());
  EXPECT_EQ(resumed_[1]->name, resumed_[0]->name);
  EXPECT_EQ(resumed_[1]->created_at, resumed_[0]->created_at);
  EXPECT_TRUE(resumed_[1]->is_again && resumed_[1]->was_lost);
  EXPECT_FALSE(resumed_[0]->was_lost);
  EXPECT_EQ(resumed_[1]->prompts, 5u);
  EXPECT_EQ(resumed_[1]->said, (std::vector<std::vector<TokenId>>{{TokenId(0), TokenId(1), TokenId(2)}}));
}

class QuietStreamTest : public FrontTest {
 protected:
  QuietStreamTest() : FrontTest(RoutingPolicy::kLeastLoad, kNanosPerMilli) {}
  void TearDown() override { update({}); }
  // A stream's client, which has read so far that the answer has `text`.
  std::string read_until(tcp::socket& socket, const std::string& text) {
    const std::string request = fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
        kStreamed.size(), kStreamed);
    socket.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
    asio::write(socket, asio::buffer(request));
    std::string answer;
    error_code error;
    asio::read_until(socket, asio::dynamic_buffer(answer), text, error);
    return answer;
  }
};

// An instance may take long until it goes on with a stream; clients and proxies give up what says nothing.
TEST_F(QuietStreamTest, AStreamThatWaitsForAnotherInstanceSaysThatItLives) {
  std::atomic<int> asked = 0;
  std::atomic<bool> has_seen = false;
  const auto script = [&](const std::string&) {
    const std::string text = mark_event({.kind = ReplyMark::Kind::kPrompts, .number = 5}) + token(0);
    if (++asked == 1) return events(text + chunk("It"));
    for (int i = 0; i < 20'000 && !has_seen; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return events(text + chunk("It") + chunk(" was") + kDone) + "0\r\n\r\n";
  };
  FakeInstance first(script), second(script);
  update({first.member(std::string(15, '0') + "1"), second.member(std::string(15, '0') + "2")});
  asio::io_context io;
  tcp::socket socket(io);
  std::string answer = read_until(socket, std::string(kSseComment));
  has_seen = true;
  error_code error;
  asio::read(socket, asio::dynamic_buffer(answer), error);
  std::string said = dechunked(answer);
  EXPECT_NE(said.find(kSseComment), std::string::npos) << said;
  for (std::size_t at = 0; (at = said.find(kSseComment)) != std::string::npos;)
    said.erase(at, kSseComment.size());
  EXPECT_EQ(said, chunk("It") + chunk(" was") + kDone);
}

// The time that the front's stop leaves to replies is over.
TEST_F(MovedStreamTest, WhatAStopCutsOffEndsWithAnError) {
  const std::string beginning =
      mark_event({.kind = ReplyMark::Kind::kPrompts, .number = 5}) + token(0) + chunk("It");
  FakeInstance first([&](const std::string&) { return events(beginning); }, FakeWays{.keeps_alive = true});
  FakeInstance second([&](const std::string&) { return events(beginning); }, FakeWays{.keeps_alive = true});
  update({first.member(std::string(15, '0') + "1"), second.member(std::string(15, '0') + "2")});
  asio::io_context io;
  tcp::socket socket(io);
  socket.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
  asio::write(socket,
              asio::buffer(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                       "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                                       kStreamed.size(), kStreamed)));
  std::string answer;
  error_code error;
  asio::read_until(socket, asio::dynamic_buffer(answer), chunk("It"), error);
  ASSERT_FALSE(error);
  asio::post(server_->io(), [&] { front_.cut_off(); });
  asio::read(socket, asio::dynamic_buffer(answer), error);
  EXPECT_EQ(error, asio::error::eof);
  EXPECT_NE(answer.find("the front was stopped before the reply had ended"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n0\r\n\r\n")) << "whole events, and the stream's end: " << answer;
  EXPECT_EQ(metric("loci_front_retries_total"), 0) << "it goes on nowhere";
}

// What the client is told whose response was being made when the front stopped.
class CutOffTest : public FrontTest {
 protected:
  std::string cut_off(const std::string& body) {
    std::latch asked(1), is_cut(1);
    FakeInstance instance([&](const std::string&) -> std::string {
      asked.count_down();
      is_cut.wait();
      return {};
    });
    update({instance.member(std::string(15, '0') + "1")});
    const std::jthread stops([&] {
      asked.wait();
      asio::post(server_->io(), [&] {
        front_.cut_off();
        is_cut.count_down();
      });
    });
    return post("/v1/responses", body);
  }
};

// What may have been done is not to be done twice.
TEST_F(CutOffTest, ATurnOfAConversationMayBeStored) {
  const std::string answer = cut_off(R"({"model":"tiny","input":"x","conversation":"conv_1"})");
  EXPECT_NE(answer.find("it may have stored the turn"), std::string::npos) << answer;
}

TEST_F(CutOffTest, ABackgroundResponseMayHaveBegun) {
  const std::string answer = cut_off(R"({"model":"tiny","input":"x","background":true})");
  EXPECT_NE(answer.find("look whether it did what was asked for"), std::string::npos) << answer;
}

TEST_F(CutOffTest, WhatOnlyComputesIsSentAgain) {
  const std::string answer = cut_off(R"({"model":"tiny","input":"x"})");
  EXPECT_NE(answer.find("stopped before the reply had ended; send the request again"), std::string::npos)
      << answer;
}

TEST_F(MovedStreamTest, NoClientSaysWhatAFrontDoes) {
  begin({kWhole});
  const std::string more = reply_header(ReplyKey{}, {.method_text = "POST", .target = "/v1/completions"},
                                        {.name = "client", .created_at = 1}, "");
  const std::string answer = dechunked(post("/v1/completions", kStreamed, more));
  EXPECT_EQ(answer.find("loci-"), std::string::npos) << answer;
  ASSERT_TRUE(resumed_[0]);
  EXPECT_NE(resumed_[0]->name, "client");
}

TEST_F(MovedStreamTest, WhatHadABodyLargerThanIsKeptEndsWithItsInstance) {
  begin({3, kWhole});
  const std::string large =
      R"({"model":"tiny","stream":true,"prompt":")" + std::string(900 << 10, 'x') + "\"}";
  const std::string answer = dechunked(post("/v1/completions", large, "Authorization: Bearer k\r\n"));
  EXPECT_NE(answer.find("instance_lost"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("loci-"), std::string::npos) << answer;
  EXPECT_EQ(bodies_.size(), 1u);
}

TEST_F(MovedStreamTest, WhoseReplyIsAnotherIsNotPassedOn) {
  begin({3, kWhole}, "n");
  const std::string answer = dechunked(post("/v1/completions", kStreamed));
  EXPECT_TRUE(answer.starts_with(chunk("It") + chunk(" was") + chunk(" a") + "data: {\"error\":")) << answer;
  EXPECT_NE(answer.find("instance_lost"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("day"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with(kDone)) << answer;
}

TEST_F(MovedStreamTest, WhatEndsTwoInstancesIsNotSentToAThird) {
  begin({2, 3, kWhole, kWhole});
  const std::string answer = dechunked(post("/v1/completions", kStreamed));
  EXPECT_TRUE(answer.starts_with(chunk("It") + chunk(" was") + chunk(" a") + "data: {\"error\":")) << answer;
  EXPECT_NE(answer.find("two instances ended while they answered this request"), std::string::npos) << answer;
  EXPECT_EQ(bodies_.size(), 2u);
}

TEST_F(MovedStreamTest, AStreamOutlivesARollingRestart) {
  are_drained_ = true;
  begin({1, 2, 3, 3, kWhole});
  EXPECT_EQ(dechunked(post("/v1/completions", kStreamed)),
            chunk("It") + chunk(" was") + chunk(" a") + chunk(" day") + kDone);
  EXPECT_EQ(moved(), 4);
  ASSERT_EQ(resumed_.size(), 5u);
  EXPECT_TRUE(resumed_[1]->was_lost) << "limits do not refuse what an instance had admitted";
}

// Else each instance in turn would wait for the database that all of them share.
TEST_F(MovedStreamTest, WhereTheStoreIsAwayNoThirdInstanceIsAsked) {
  refusal_ = R"({"error":{"code":"unavailable","message":"the store is away"}})";
  begin({2, 0, kWhole});
  const std::string answer = dechunked(post("/v1/completions", kStreamed));
  EXPECT_NE(answer.find("\"unavailable\""), std::string::npos) << answer;
  EXPECT_EQ(answer.find("instance_lost"), std::string::npos) << "nothing has ended";
  EXPECT_EQ(bodies_.size(), 2u);
}

TEST_F(MovedStreamTest, OneThatIsAloneEndsWithAnError) {
  begin({3});
  const std::string answer = dechunked(post("/v1/completions", kStreamed));
  EXPECT_NE(answer.find("instance_lost"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with(kDone)) << answer;
}

TEST_F(MovedStreamTest, AStoredResponseIsSentAgainUnderItsName) {
  begin({2, kWhole});
  const std::string answer = dechunked(post("/v1/responses", R"({"input":"x","stream":true})"));
  EXPECT_EQ(answer, chunk("It") + chunk(" was") + chunk(" a") + chunk(" day") + kDone);
  ASSERT_EQ(bodies_.size(), 2u);
  ASSERT_TRUE(resumed_[0] && resumed_[1]);
  EXPECT_EQ(resumed_[1]->name, resumed_[0]->name);
  EXPECT_EQ((std::vector{resumed_[0]->is_again, resumed_[1]->is_again}), (std::vector{false, true}));
}

TEST_F(MovedStreamTest, WhatRunsInTheBackgroundIsNotSentAgain) {
  begin({3, kWhole});
  const std::string answer =
      dechunked(post("/v1/responses", R"({"input":"x","stream":true,"background":true})"));
  EXPECT_NE(answer.find("instance_lost"), std::string::npos) << answer;
  EXPECT_EQ(bodies_.size(), 1u);
  EXPECT_FALSE(resumed_[0]);
}

TEST_F(FrontTest, AnErrorOfTheResponsesApiHasTheNextNumber) {
  FakeInstance instance([](const std::string&) {
    return events(
        "event: a\ndata: {\"sequence_number\":0}\n\nevent: b\ndata: {\"sequence_number\":1,\"t\":1}\n\n");
  });
  update({instance.member("0000000000000001")});
  const std::string answer = dechunked(post("/v1/responses", R"({"input":"x","stream":true})"));
  EXPECT_NE(answer.find(R"({"type":"error","sequence_number":2,"code":"instance_lost")"), std::string::npos)
      << answer;
}

class SessionFrontTest : public FrontTest {
 protected:
  SessionFrontTest() : FrontTest(RoutingPolicy::kSession) {}
};

// A stream begins with comments while its prompt is computed, so its id comes in a later piece.
TEST_F(SessionFrontTest, TheNextTurnFindsAResponseThatBeganWithComments) {
  const auto answer = [](const std::string&) {
    const std::string created = "event: response.created\ndata: {\"response\":{\"id\":\"resp_1\"}}\n\n";
    return events(std::string(kSseComment)) + fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", created.size(), created);
  };
  FakeInstance one(answer), two(answer);
  update({one.member("0000000000000001"), two.member("0000000000000002")});
  const std::string begun = dechunked(post("/v1/responses", R"({"input":"x","stream":true})"));
  EXPECT_TRUE(begun.starts_with(kSseComment)) << begun;
  EXPECT_NE(begun.find("resp_1"), std::string::npos) << begun;
  constexpr int kTurns = 16;
  for (int turn = 0; turn < kTurns; ++turn)
    post("/v1/responses", fmt::format(R"({{"input":"{}","previous_response_id":"resp_1"}})", turn));
  EXPECT_TRUE((one.requests() == 0) != (two.requests() == 0)) << one.requests() << " " << two.requests();
}

TEST_F(FrontTest, WhoHasLostItsDeviceIsAskedTwiceAtMostByARequest) {
  const auto lost = [](const std::string&) {
    return whole(R"({"error":{"code":"device_lost"}})", "503 Service Unavailable");
  };
  std::vector<std::unique_ptr<FakeInstance>> instances;
  std::vector<Member> members;
  for (int i = 1; i <= 4; ++i) {
    instances.push_back(std::make_unique<FakeInstance>(lost));
    members.push_back(instances.back()->member(std::string(15, '0') + std::to_string(i)));
  }
  update(members);
  const std::string answer = post("/v1/completions", kStreamed);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
  EXPECT_NE(answer.find("device_lost"), std::string::npos) << answer;
  int requests = 0;
  for (const auto& one : instances) requests += one->requests();
  EXPECT_EQ(requests, 2);
  update({});
}

TEST(RoutedRequest, WhatMayGoOn) {
  namespace http = boost::beast::http;
  const auto read = [](const std::string& body, const char* path = "/v1/chat/completions") {
    return read_prompt(http::verb::post, path, body, PromptKey{1});
  };
  EXPECT_TRUE(read(R"({"stream":true})").may_go_on());
  EXPECT_FALSE(read(R"({"stream":false})").may_go_on());
  EXPECT_TRUE(read(R"({"stream":false})").is_named());
  EXPECT_TRUE(read(R"({"stream":true,"store":false})", "/v1/responses").may_go_on());
  EXPECT_TRUE(read(R"({"stream":true})", "/v1/responses").may_go_on());
  EXPECT_TRUE(read(R"({"stream":true,"background":null})", "/v1/responses").may_go_on());
  EXPECT_FALSE(read(R"({"stream":true,"background":true})", "/v1/responses").is_named());
  EXPECT_FALSE(read("{}", "/v1/conversations").is_named());
}

}  // namespace
}  // namespace loci
