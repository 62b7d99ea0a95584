// SPDX-License-Identifier: Apache-2.0
// A front before a prefill and a decode member: what it says to the latter, and what it makes of the answers.
#include <mutex>

#include "loci/cluster/front_feed_testing.h"

namespace loci {
namespace {

constexpr std::uint64_t kFast = std::uint64_t{1} << 30;  // bytes a second from peers

std::string long_talk() {
  return R"({"model":"tiny","messages":[{"role":"user","content":")" + std::string(48 << 10, 'a') + "\"}]}";
}

class FrontPrefillTest : public FrontFeedTest {
 protected:
  FrontPrefillTest()
      : prefill_(
            kOne, 1, [](const std::string&) { return whole("{\"by\":\"prefill\"}"); }, curves(kFast)),
        decode_(kTwo, 101, [this](const std::string& request) { return answer(request); }, curves(kFast)) {
    Member one = prefill_.member(), two = decode_.member();
    one.role = MemberRole::kPrefill;
    two.role = MemberRole::kDecode;
    update({one, two});
    wait_until([&] { return metric("loci_front_feeds{state=\"read\"}") == 2; });
    peer_port_ = one.peer_port;
  }
  void TearDown() override { update({}); }
  std::string answer(const std::string& request) {
    const std::lock_guard lock(mutex_);
    const std::size_t target = request.find(' ') + 1;
    HttpRequest message{.method_text = "POST",
                        .target = request.substr(target, request.find(' ', target) - target)};
    for (const char* name : {"Loci-Reply", "Loci-Prefill"}) {
      const std::size_t at = request.find(std::string(name) + ": ");
      if (at == std::string::npos) continue;
      const std::size_t value = at + std::string_view(name).size() + 2;
      message.headers.emplace_back(name, request.substr(value, request.find("\r\n", at) - value));
    }
    places_.push_back(read_prefill_header(PrefillKey{}, message));
    return answer_;
  }
  void answers(const std::string& prefill) {
    const std::lock_guard lock(mutex_);
    answer_ = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + prefill + "\r\n{}";
  }
  // A stream that had begun before it was known how the prompt's computation ended.
  void streams(const std::string& body) {
    const std::lock_guard lock(mutex_);
    answer_ =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nLoci-Prefill: later\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  // A third instance, and the members with it.
  Publisher another() {
    return {"00000000000000000000000000000003", 201,
            [this](const std::string& request) { return answer(request); }, curves(kFast)};
  }
  std::vector<Member> with(const Publisher& third) const {
    std::vector<Member> all = {prefill_.member(), decode_.member(), third.member()};
    all[0].role = MemberRole::kPrefill;
    all[1].role = all[2].role = MemberRole::kDecode;
    return all;
  }
  std::vector<std::optional<PrefillPlace>> places() {
    const std::lock_guard lock(mutex_);
    return places_;
  }
  int prefills(const char* result) {
    return metric(fmt::format("loci_front_prefills_total{{result=\"{}\"}}", result));
  }

  std::mutex mutex_;
  std::vector<std::optional<PrefillPlace>> places_;  // that each request named
  std::string answer_ = whole("{}");
  std::uint16_t peer_port_ = 0;
  Publisher prefill_, decode_;
};

TEST_F(FrontPrefillTest, ALongPromptNamesThePrefillMember) {
  answers("Loci-Prefill: done\r\n");
  const std::string reply = post("/v1/chat/completions", long_talk());
  EXPECT_NE(reply.find("X-Loci-Member: " + kTwo), std::string::npos) << reply;
  EXPECT_EQ(reply.find("Loci-Prefill"), std::string::npos) << "that is between instance and front";
  ASSERT_EQ(places().size(), 1u);
  ASSERT_TRUE(places()[0]);
  EXPECT_EQ(places()[0]->host, "127.0.0.1");
  EXPECT_EQ(places()[0]->port, peer_port_);
  // A chunk counts as 64 tokens of a millisecond each: 12 s; twice that, and a second.
  EXPECT_GE(places()[0]->begin_limit, 25 * kNanosPerSecond);
  EXPECT_LT(places()[0]->begin_limit, 26 * kNanosPerSecond);
  EXPECT_EQ(places()[0]->silence_limit, kPrefillSilenceMax);
  EXPECT_EQ(prefill_.requests(), 0);
  EXPECT_EQ(prefills("done"), 1);
}

TEST_F(FrontPrefillTest, ShortPromptsAndWhatIsNotGeneratedNameNobody) {
  post("/v1/chat/completions", kChat);
  post("/tokenize", long_talk());
  ASSERT_EQ(places().size(), 2u);
  EXPECT_FALSE(places()[0] || places()[1]);
  EXPECT_EQ(prefills("done") + prefills("none"), 0);
}

// (The front's clock stands still, so who is avoided is avoided for good.)
TEST_F(FrontPrefillTest, AMemberThatRefusesIsAskedAgainAndOneThatCannotBeReachedIsNot) {
  for (const char* end : {"refused", "late", "unreached"}) {
    answers(fmt::format("Loci-Prefill: {}\r\n", end));
    std::string talk = long_talk();
    talk.replace(talk.find("aaa"), 3, std::string(end).substr(0, 3));
    EXPECT_TRUE(post("/v1/chat/completions", talk).starts_with("HTTP/1.1 200"));
    EXPECT_EQ(prefills(end), 1);
    EXPECT_TRUE(places().back()) << end;
  }
  std::string other = long_talk();
  other.replace(other.find("aaa"), 3, "bbb");
  EXPECT_TRUE(post("/v1/chat/completions", other).starts_with("HTTP/1.1 200"));
  EXPECT_FALSE(places().back()) << "it could not be reached";
}

TEST_F(FrontPrefillTest, AMemberThatIsLateOrQuietThreeTimesInARowIsNamedToNobody) {
  int talks = 0;
  // Whether the prefill member was named for another prompt, which ended like that.
  const auto is_named = [&](const char* end) {
    answers(fmt::format("Loci-Prefill: {}\r\n", end));
    std::string talk = long_talk();
    talk.replace(talk.find("aaa"), 3, fmt::format("{:03}", ++talks));
    EXPECT_TRUE(post("/v1/chat/completions", talk).starts_with("HTTP/1.1 200"));
    return places().back().has_value();
  };
  for (const char* end : {"late", "quiet", "refused", "done", "quiet", "refused", "late", "quiet"})
    EXPECT_TRUE(is_named(end)) << talks;
  EXPECT_FALSE(is_named("late"));
  front_clock_.set(kAvoided);
  EXPECT_TRUE(is_named("late")) << "after a second it is tried again";
  front_clock_.set(2 * kAvoided);
  EXPECT_FALSE(is_named("late")) << "and then left alone for two";
  front_clock_.set(3 * kAvoided);
  EXPECT_TRUE(is_named("done"));
  EXPECT_TRUE(is_named("late")) << "it works again";
}

TEST_F(FrontPrefillTest, ScoresAndSeveralShortPromptsNameNobody) {
  const std::string text(24 << 10, 'a');
  std::string tokens = "[1";
  for (int token = 0; token < 6'000; ++token) tokens += ",2345";
  tokens += "]";
  const auto handed = [&](const std::string& fields) {
    post("/v1/completions", "{\"model\":\"tiny\"," + fields + "}");
    return places().back().has_value();
  };
  std::string several = "\"prompt\":[\"a\"";
  for (int prompt = 0; prompt < 12; ++prompt) several += ",\"" + std::string(2 << 10, 'a') + "\"";
  EXPECT_FALSE(handed(several + "]"));
  EXPECT_TRUE(handed(several + ",\"b" + text + "\"]")) << "one of them is long";
  EXPECT_FALSE(handed("\"prompt\":\"c" + text + "\",\"echo\":true,\"logprobs\":1"));
  EXPECT_TRUE(handed("\"prompt\":\"d" + text + "\",\"echo\":true"));
  EXPECT_TRUE(handed("\"prompt\":[\"e" + text + "\"]"));
  EXPECT_TRUE(handed("\"prompt\":" + tokens)) << "one prompt of tokens";
}

// A prompt with which its prefill member and its instance end is not given to further ones.
TEST_F(FrontPrefillTest, APromptThatEndsTwoServersIsGivenToNoThird) {
  Publisher third = another();
  const std::vector<Member> all = with(third);
  answer_ =
      "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nLoci-Prefill: lost\r\n\r\n{}";  // and the connection ends
  update(all);
  await("loci_front_feeds{state=\"read\"}", 3);
  const std::string reply = post("/v1/chat/completions", long_talk());
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 502")) << reply;
  EXPECT_NE(reply.find("instance_lost"), std::string::npos) << reply;
  EXPECT_EQ(prefills("lost"), 1);
  EXPECT_EQ(decode_.requests() + third.requests(), 1);
  update({});
}

// So it counts there for as long as it is predicted to take.
TEST_F(FrontPrefillTest, OfAResponseInTheBackgroundNoEndIsTold) {
  answers("Loci-Prefill: untold\r\n");
  const std::string text(12 << 10, 'a');
  post("/v1/responses", R"({"model":"tiny","background":true,"input":")" + text + "\"}");
  ASSERT_TRUE(places().at(0)) << "though the reply has no name";
  EXPECT_EQ(prefills("untold"), 1);
  await("loci_front_requests_running", 1);
  answers("Loci-Prefill: done\r\n");
  post("/v1/chat/completions", long_talk());
  ASSERT_TRUE(places().at(1)) << "nobody was at fault";
  EXPECT_GE(places()[1]->begin_limit, 31 * kNanosPerSecond) << "twice 3 s and 12, and a second";
}

TEST_F(FrontPrefillTest, AStreamThatHasBegunTellsItsEndInItself) {
  const std::string event = "data: {\"choices\":[]}\n\n";
  int talks = 0;
  const auto reply = [&](const std::string& end) {
    streams(":\n\n" + end + event);
    std::string talk = long_talk();
    talk.insert(1, "\"stream\":true,");
    talk.replace(talk.find("aaa"), 3, fmt::format("{:03}", ++talks));
    return post("/v1/chat/completions", talk);
  };
  const std::string told = reply(": loci-prefill unreached\n\n");
  EXPECT_NE(told.find(":\n\n"), std::string::npos) << told;
  EXPECT_NE(told.find(event), std::string::npos) << told;
  EXPECT_EQ(told.find("loci-prefill"), std::string::npos) << "that is between instance and front";
  ASSERT_TRUE(places().at(0));
  EXPECT_EQ(prefills("unreached"), 1);
  EXPECT_EQ(prefills("none"), 0);
  reply("");
  EXPECT_FALSE(places().at(1)) << "it could not be reached";
  front_clock_.set(kAvoided);
  reply("");
  ASSERT_TRUE(places().at(2));
  EXPECT_EQ(prefills("none"), 1) << "it did not tell";
}

// Until its end is told, nobody knows that the prefill member has the prompt.
TEST_F(FrontPrefillTest, OfAStreamThePrefillMemberIsRememberedWhereItIsDone) {
  Publisher third = another();
  const std::vector<Member> all = with(third);
  const auto ask = [&](const std::string& end) {
    std::string talk = long_talk();
    talk.insert(1, "\"stream\":true,");
    talk.replace(talk.find("aaa"), 3, end.substr(0, 3));
    post("/v1/chat/completions", talk);
    return places().back().has_value();
  };
  const std::vector<std::string> ends = {"late", "refused", "done"};
  for (const std::string& end : ends) {
    streams(fmt::format(":\n\n: loci-prefill {}\n\ndata: {{\"choices\":[]}}\n\n", end));
    EXPECT_TRUE(ask(end)) << end;
    EXPECT_EQ(prefills(end.c_str()), 1);
  }
  // A member that has nothing of them.
  update(all);
  await("loci_front_feeds{state=\"read\"}", 3);
  update({all[0], all[2]});
  answers("Loci-Prefill: done\r\n");
  for (const std::string& end : ends)
    EXPECT_EQ(ask(end), end != "done") << "who has all of it gives it to whoever asks: " << end;
  EXPECT_EQ(third.requests(), 3);
  update({});
}

TEST_F(FrontPrefillTest, AClientNamesNobody) {
  post("/v1/chat/completions", kChat, "Loci-Prefill: 127.0.0.1 1 1000 abc\r\n");
  ASSERT_EQ(places().size(), 1u);
  EXPECT_FALSE(places()[0]);
}

TEST_F(FrontPrefillTest, WhereTheDecodeMemberIsGoneThePrefillMemberAnswers) {
  Member one = prefill_.member();
  one.role = MemberRole::kPrefill;
  update({one});
  const std::string reply = post("/v1/chat/completions", long_talk());
  EXPECT_NE(reply.find("X-Loci-Member: " + kOne), std::string::npos) << reply;
}

}  // namespace
}  // namespace loci
