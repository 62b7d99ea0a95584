// SPDX-License-Identifier: Apache-2.0
// What a front asks instances itself, and how long it leaves those alone that it can't reach.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "loci/cluster/front_testing.h"

namespace loci {
namespace {

std::string id_of(std::size_t number) { return fmt::format("{:016x}", number); }

// Takes connections and says nothing on them; the test's key is known to none of the others.
std::unique_ptr<FakeInstance> silent() {
  return std::make_unique<FakeInstance>([](const std::string&) { return std::string(); });
}
std::unique_ptr<FakeInstance> strict() {
  return std::make_unique<FakeInstance>([](const std::string&) { return whole("{}"); },
                                        FakeWays{.key = "right"});
}

class FrontQuestionsTest : public FrontTest {
 protected:
  void TearDown() override { update({}); }
  // Nothing of the body is sent, or waited for.
  std::string send_large(const char* key = "wrong") {
    return send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n"
                    "Content-Length: 500000\r\n\r\n",
                    key));
  }
};

TEST_F(FrontQuestionsTest, QuestionsGoToAllInstancesInTurn) {
  std::vector<std::unique_ptr<FakeInstance>> instances;
  std::vector<Member> members;
  for (std::size_t i = 0; i < 3; ++i) {
    instances.push_back(strict());
    members.push_back(instances.back()->member(id_of(i)));
  }
  update(members);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(send_large().starts_with("HTTP/1.1 401"));
  for (const auto& one : instances) EXPECT_EQ(one->questions(), 2);
}

TEST_F(FrontQuestionsTest, WhoGivesNoAnswerIsAskedNoMoreThoughManyDo) {
  std::vector<std::unique_ptr<FakeInstance>> instances;
  std::vector<Member> members;
  for (std::size_t i = 0; i < kTriesMax; ++i) {
    instances.push_back(silent());
    members.push_back(instances.back()->member(id_of(i)));
  }
  const std::unique_ptr<FakeInstance> good = strict();
  members.push_back(good->member(id_of(kTriesMax)));
  update(members);
  send_large();
  for (int i = 0; i < 4; ++i) {
    const std::string answer = send_large();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 401")) << answer;
  }
  for (const auto& one : instances) EXPECT_EQ(one->requests(), 1);
}

TEST_F(FrontQuestionsTest, WhoDrainsIsAskedLast) {
  const std::unique_ptr<FakeInstance> draining = strict(), serving = strict();
  Member first = draining->member(id_of(1));
  first.draining = true;
  update({first, serving->member(id_of(2))});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(send_large().starts_with("HTTP/1.1 401"));
  EXPECT_EQ(draining->questions(), 0);
  EXPECT_EQ(serving->questions(), 4);
  update({first});
  EXPECT_TRUE(send_large().starts_with("HTTP/1.1 401")) << "it is better than none";
}

TEST_F(FrontQuestionsTest, WhoIsGoneIsAskedAboutNoMore) {
  std::binary_semaphore asked(0);
  std::promise<void> over;
  FakeInstance slow([&, is_over = over.get_future().share()](const std::string&) {
    asked.release();
    is_over.wait();
    return std::string();
  });
  const std::unique_ptr<FakeInstance> other = strict();
  update({slow.member(id_of(1)), other->member(id_of(2))});
  asio::io_context io;
  tcp::socket client(io);
  client.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
  asio::write(client, asio::buffer(std::string("POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                                               "Content-Length: 500000\r\n\r\n")));
  asked.acquire();
  error_code error;
  client.shutdown(tcp::socket::shutdown_send, error);
  std::string answer;
  bool has_ended = false;
  asio::async_read(client, asio::dynamic_buffer(answer), [&](error_code, std::size_t) { has_ended = true; });
  io.run_for(std::chrono::minutes(1));
  EXPECT_TRUE(has_ended) << "the front asks for nobody";
  EXPECT_EQ(answer, "");
  EXPECT_EQ(other->questions(), 0);
  over.set_value();
  send_large();
  send_large();
  EXPECT_EQ(slow.requests(), 2) << "it did not fail, so it is asked again in its turn";
}

TEST_F(FrontQuestionsTest, AListOfModelsAsksWhoAnswers) {
  const std::unique_ptr<FakeInstance> first = silent(), last = silent();
  FakeInstance good([](const std::string&) { return whole(R"({"object":"list","data":[{"id":"tiny"}]})"); });
  update({first->member(id_of(1)), good.member(id_of(2)), last->member(id_of(3))});
  for (int i = 0; i < 6; ++i) EXPECT_NE(get("/v1/models").find("\"tiny\""), std::string::npos);
  EXPECT_LE(first->requests(), 1);
  EXPECT_LE(last->requests(), 1);
  EXPECT_EQ(good.requests(), 6);
}

// It can be reached: other requests go on to it.
TEST_F(FrontQuestionsTest, WhoseListIsTooLongIsNotLeftAlone) {
  FakeInstance wordy([](const std::string&) { return whole(std::string(300 << 10, ' ')); });
  FakeInstance good([](const std::string&) { return whole(R"({"object":"list","data":[{"id":"tiny"}]})"); });
  update({wordy.member(id_of(1)), good.member(id_of(2))});
  for (int i = 0; i < 6; ++i) EXPECT_NE(get("/v1/models").find("\"tiny\""), std::string::npos);
  EXPECT_EQ(wordy.requests(), 3);
  EXPECT_EQ(good.requests(), 6);
}

// Or a list would miss the models of its kind, and clients that look into it refuse them.
TEST_F(FrontQuestionsTest, AListOfModelsAsksAnotherWhereOneCannotSay) {
  FakeInstance full([](const std::string&) {
    return whole(R"({"error":{"code":"too_many_connections"}})", "503 Service Unavailable");
  });
  FakeInstance good([](const std::string&) { return whole(R"({"object":"list","data":[{"id":"tiny"}]})"); });
  update({full.member(id_of(1)), good.member(id_of(2))});
  for (int i = 0; i < 4; ++i) EXPECT_NE(get("/v1/models").find("\"tiny\""), std::string::npos);
  EXPECT_GE(full.requests(), 1);
  update({full.member(id_of(1))});
  EXPECT_NE(get("/v1/models").find("too_many_connections"), std::string::npos);
}

// Nor is a list passed on that would make a large tree of values, or a deep one.
TEST_F(FrontQuestionsTest, AListOfModelsIsReadWithinBounds) {
  FakeInstance deep([](const std::string&) {
    return whole(fmt::format(R"({{"object":"list","data":[{{"id":"deep","more":{}{}}}]}})",
                             std::string(100, '['), std::string(100, ']')));
  });
  FakeInstance good([](const std::string&) { return whole(R"({"object":"list","data":[{"id":"tiny"}]})"); });
  Member first = deep.member(id_of(1)), second = good.member(id_of(2));
  first.models = {"deep"};
  second.models = {"tiny"};
  update({first, second});
  const std::string list = get("/v1/models");
  EXPECT_NE(list.find("\"tiny\""), std::string::npos) << list;
  EXPECT_EQ(list.find("\"deep\""), std::string::npos) << list;
}

// A list must not begin with another model each time: some clients take the first.
TEST_F(FrontQuestionsTest, AListOfModelsIsTheSameEachTime) {
  const auto script = [](const char* id) {
    return [id](const std::string&) {
      return whole(fmt::format(R"({{"object":"list","data":[{{"id":"{}"}}]}})", id));
    };
  };
  FakeInstance one(script("b")), two(script("a")), three(script("c"));
  std::vector<Member> members = {one.member(id_of(1)), two.member(id_of(2)), three.member(id_of(3))};
  members[0].models = {"b"};
  members[1].models = {"a"};
  members[2].models = {"c"};
  update(members);
  const auto data = [&] {
    const std::string answer = get("/v1/models");
    return answer.substr(answer.find("\r\n\r\n"));
  };
  const std::string list = data();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(data(), list);
}

TEST_F(FrontQuestionsTest, WhoCannotBeReachedIsLeftAloneForLongerEachTime) {
  std::optional<FakeInstance> away(std::in_place, [](const std::string&) { return whole("{}"); });
  FakeInstance busy([](const std::string&) { return whole("{}"); });
  // Whoever has least to do is chosen, unless it is left alone.
  Member members[] = {away->member(id_of(1)), busy.member(id_of(2))};
  members[1].queued = 100;
  update({members[0], members[1]});
  update({members[0], members[1]});  // what others sent counts from the second list on
  away.reset();
  int talks = 0;
  const auto tries = [&](double seconds) {
    front_clock_.set(static_cast<Nanos>(seconds * kNanosPerSecond));
    EXPECT_TRUE(
        post("/v1/completions", fmt::format(R"({{"model":"tiny","prompt":"{}"}})", ++talks)).ends_with("{}"));
    return metric("loci_front_retries_total");
  };
  EXPECT_EQ(tries(0), 1);
  EXPECT_EQ(tries(0.5), 1);
  EXPECT_EQ(tries(1.5), 2);
  EXPECT_EQ(tries(3), 2) << "two seconds";
  EXPECT_EQ(tries(4), 3);
  EXPECT_EQ(tries(7.5), 3) << "four seconds";
  for (int i = 1; i <= 20; ++i) tries(100 * i);
  EXPECT_EQ(metric("loci_front_retries_total"), 23);
  EXPECT_EQ(tries(2'031), 23) << "32 seconds at most";
  EXPECT_EQ(tries(2'033), 24);
}

// A small body is read of everybody, as an instance is to judge its key.
TEST_F(FrontQuestionsTest, WhoSendsABodySlowlyKeepsNobodyOut) {
  FakeInstance instance([](const std::string&) { return whole("{}"); });
  update({instance.member(id_of(1))});
  asio::io_context io;
  std::vector<tcp::socket> strangers;
  for (std::size_t i = 0; i < kConnectionsMax; ++i) {
    tcp::socket& one = strangers.emplace_back(io);
    one.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
    const std::string head =
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
    asio::write(one, asio::buffer(head));
    std::string goes_on;
    asio::read_until(one, asio::dynamic_buffer(goes_on), "100 Continue\r\n\r\n");
  }
  const std::string answer = post("/v1/completions", kChat);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n{}")) << answer;
}

}  // namespace
}  // namespace loci
