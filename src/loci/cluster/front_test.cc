// SPDX-License-Identifier: Apache-2.0
// A front before fake instances that answer as the test decides, also with garbage; without a database or a
// model.
#include "loci/cluster/front_testing.h"

namespace loci {
namespace {

TEST_F(FrontTest, PassesRequestAndAnswerOn) {
  std::string seen;
  FakeInstance instance([&](const std::string& request) {
    seen = request;
    return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-RateLimit-Limit-Requests: 7\r\nServer: "
           "x\r\n"
           "Content-Length: 2\r\n\r\n{}";
  });
  update({instance.member("0000000000000001")});
  const std::string answer =
      post("/v1/chat/completions?a=b", kChat,
           "Authorization: Bearer k\r\nX-Request-Id: id7\r\nX-Hop: 1\r\nUpgrade: h2c\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n{}")) << answer;
  EXPECT_NE(answer.find("X-RateLimit-Limit-Requests: 7"), std::string::npos);
  EXPECT_NE(answer.find("X-Loci-Member: 0000000000000001"), std::string::npos);
  EXPECT_TRUE(seen.starts_with("POST /v1/chat/completions?a=b HTTP/1.1\r\n")) << seen;
  for (const char* part : {"Authorization: Bearer k", "X-Request-Id: id7", "X-Hop: 1"})
    EXPECT_NE(seen.find(part), std::string::npos) << seen;
  EXPECT_EQ(seen.find("Upgrade"), std::string::npos) << "it is between the client and the front";
  EXPECT_NE(seen.find(fmt::format("Host: 127.0.0.1:{}", instance.port())), std::string::npos);
  EXPECT_TRUE(seen.ends_with(kChat));
}

TEST_F(FrontTest, WithoutInstancesItSaysSo) {
  EXPECT_NE(post("/v1/chat/completions", kChat).find("no_instance"), std::string::npos);
  EXPECT_TRUE(get("/health").starts_with("HTTP/1.1 503"));
  const std::string members_own = post("/v1/loci/warm", "{}");
  EXPECT_TRUE(members_own.starts_with("HTTP/1.1 404"));
  EXPECT_NE(members_own.find("send the request to a member itself"), std::string::npos) << members_own;
  const std::string unknown = post("/chat/completions", "{}");
  EXPECT_TRUE(unknown.starts_with("HTTP/1.1 404"));
  EXPECT_NE(unknown.find("the API's paths begin with /v1"), std::string::npos) << unknown;
}

TEST_F(FrontTest, ItsOwnPathsAreRead) {
  for (const char* path : {"/health", "/live", "/metrics"}) {
    const std::string refused = post(path, "{}");
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 405")) << refused;
    EXPECT_NE(refused.find("Allow: GET, HEAD, OPTIONS"), std::string::npos) << refused;
    const std::string options =
        send(fmt::format("OPTIONS {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path));
    EXPECT_TRUE(options.starts_with("HTTP/1.1 204")) << options;
  }
}

TEST_F(FrontTest, HasThePageItself) {
  const std::string page = get("/");
  EXPECT_TRUE(page.starts_with("HTTP/1.1 200")) << page;
  EXPECT_NE(page.find("<title>Loci</title>"), std::string::npos);
  EXPECT_TRUE(get("/page/none.js").starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(post("/", "{}").starts_with("HTTP/1.1 405"));
}

TEST_F(FrontTest, GarbageOfAnInstanceIsAnotherInstancesChance) {
  for (const std::string& garbage :
       {std::string("garbage\r\n\r\n"), std::string(), std::string("HTTP/1.1 999999 x\r\n\r\n"),
        std::string("HTTP/1.1 100 Continue\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}"),
        "HTTP/1.1 200 OK\r\nA: " + std::string(100'000, 'a') + "\r\n\r\n",
        std::string("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n")}) {
    FakeInstance bad([&](const std::string&) { return garbage; });
    FakeInstance good([](const std::string&) { return whole("{\"ok\":1}"); });
    update({bad.member("0000000000000001"), good.member("0000000000000002")});
    // Among equals a prompt's hash decides.
    for (int i = 0; i < 64 && bad.requests() == 0; ++i) {
      const std::string answer = post("/v1/chat/completions",
                                      fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}]}})", i));
      ASSERT_TRUE(answer.ends_with("{\"ok\":1}")) << answer << " after " << garbage.substr(0, 60);
    }
    EXPECT_GT(bad.requests(), 0) << "nobody asked it";
    update({good.member("0000000000000002")});
  }
}

TEST_F(FrontTest, WhatMayBeStoredAndHasNoNameIsSentOnce) {
  FakeInstance dying([](const std::string&) { return std::string(); });
  FakeInstance other([](const std::string&) { return std::string(); });
  update({dying.member("0000000000000001"), other.member("0000000000000002")});
  EXPECT_NE(post("/v1/conversations", R"({"model":"tiny"})").find("502"), std::string::npos);
  EXPECT_EQ(dying.requests() + other.requests(), 1);
  EXPECT_NE(post("/v1/responses", R"({"input":"x","background":true})").find("502"), std::string::npos);
  EXPECT_EQ(dying.requests() + other.requests(), 2);
  // What is not stored, or under a name, may be computed twice.
  for (const char* body : {R"({"input":"x","store":false})", R"({"input":"x","model":"tiny"})"}) {
    const int before = dying.requests() + other.requests();
    const std::string answer = post("/v1/responses", body);
    EXPECT_NE(answer.find("instance_lost"), std::string::npos) << answer;
    EXPECT_EQ(dying.requests() + other.requests(), before + 2);
  }
}

// Whoever sends it again under no name could have it stored twice.
TEST_F(FrontTest, ATurnThatNobodyEndsMayBeStored) {
  FakeInstance dying([](const std::string&) { return std::string(); });
  update({dying.member("0000000000000001")});
  const std::string answer = post("/v1/responses", R"({"input":"x","conversation":"conv_1"})");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 502")) << answer;
  EXPECT_NE(answer.find("it may have stored the turn: GET the conversation"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("Retry-After"), std::string::npos);
}

// Else a front that many of them pass has as many idle connections as its pool takes.
TEST_F(FrontTest, TheConnectionOfWhatMayBeStoredIsNotKept) {
  std::counting_semaphore<8> closed(0);
  FakeInstance instance([](const std::string&) { return whole("{}"); },
                        {.keeps_alive = true, .closed = [&] { closed.release(); }});
  update({instance.member("1111111111111111")});
  EXPECT_NE(post("/v1/conversations", R"({"model":"tiny"})").find("200 OK"), std::string::npos);
  EXPECT_TRUE(closed.try_acquire_for(std::chrono::minutes(1)));
}

TEST_F(FrontTest, ARequestThatEndsWhoeverReadsItIsSentTwiceAtMost) {
  for (const bool keeps_alive : {false, true}) {
    const auto script = [](const std::string& request) {
      return request.find("death") != std::string::npos ? std::string() : whole("{}");
    };
    std::vector<std::unique_ptr<FakeInstance>> instances;
    std::vector<Member> members;
    for (const char* id : {"1", "2", "3", "4"}) {
      instances.push_back(std::make_unique<FakeInstance>(script, FakeWays{.keeps_alive = keeps_alive}));
      members.push_back(instances.back()->member(std::string(15, '0') + id));
    }
    update(members);
    const auto requests = [&] {
      int sum = 0;
      for (const auto& one : instances) sum += one->requests();
      return sum;
    };
    // So that connections are there which are used again.
    for (int i = 0; i < 32; ++i)
      post("/v1/completions", fmt::format(R"({{"model":"tiny","prompt":"{}"}})", i));
    EXPECT_EQ(requests(), 32);
    const std::string answer = post("/v1/completions", R"({"model":"tiny","prompt":"death"})");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 502")) << answer;
    EXPECT_NE(answer.find("instance_lost"), std::string::npos) << answer;
    EXPECT_EQ(requests(), 34);
    update({});
  }
}

class FrontByPrompt : public FrontTest {
 protected:
  FrontByPrompt() : FrontTest(RoutingPolicy::kPromptTree) {}
};

// A process that is being killed closes its connections before its port: the request is lost on a connection
// of the pool, then on one that nobody read, and two losses would be too many.
TEST_F(FrontByPrompt, AnInstanceThatEndsIsOneLoss) {
  const auto script = [](const std::string& request) {
    return request.find("death") != std::string::npos ? std::string() : whole("{}");
  };
  FakeInstance dying(script, {.keeps_alive = true, .requests_max = 3});
  update({dying.member("0000000000000001")});
  const std::string begins(1024, 'x');
  EXPECT_NE(
      post("/v1/completions", fmt::format(R"({{"model":"tiny","prompt":"{}"}})", begins)).find("200 OK"),
      std::string::npos);
  FakeInstance other([](const std::string&) { return whole("{}"); });
  // It has computed the prompt's beginning, so it comes first.
  update({dying.member("0000000000000001"), other.member("0000000000000002")});
  const std::string answer =
      post("/v1/completions", fmt::format(R"({{"model":"tiny","prompt":"{} death"}})", begins));
  EXPECT_NE(answer.find("200 OK"), std::string::npos) << answer;
  EXPECT_EQ(dying.requests(), 3);
  EXPECT_EQ(other.requests(), 1);
}

TEST_F(FrontTest, ABodyIsNotHeldForAsLongAsItsReplyGoesOn) {
  std::promise<void> over;
  FakeInstance slow([](const std::string&) { return events("data: 1\n\n"); },
                    {.before_end = [&, is_over = over.get_future().share()] { is_over.wait(); }, .key = "k"});
  FakeInstance quick([](const std::string&) { return whole("{\"ok\":1}"); }, {.key = "k"});
  Member member = slow.member("0000000000000001");
  member.models = {"slow"};
  update({member, quick.member("0000000000000002")});
  const auto request = [](const char* model) {
    return fmt::format(R"({{"model":"{}","prompt":"{}"}})", model, std::string(600 << 10, 'x'));
  };
  asio::io_context io;
  tcp::socket client(io);
  client.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
  const std::string body = request("slow");
  asio::write(client,
              asio::buffer(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: "
                                       "close\r\nAuthorization: Bearer k\r\nContent-Length: {}\r\n\r\n{}",
                                       body.size(), body)));
  std::string answer;
  asio::read_until(client, asio::dynamic_buffer(answer), "data: 1\n\n");
  const std::string another = post("/v1/completions", request("tiny"), "Authorization: Bearer k\r\n");
  EXPECT_TRUE(another.ends_with("{\"ok\":1}")) << another;
  over.set_value();
  error_code end;
  asio::read(client, asio::dynamic_buffer(answer), end);
}

TEST_F(FrontTest, ALargeBodyIsReadOfWhoAnInstanceLetsIn) {
  FakeInstance instance([](const std::string&) { return whole("{\"ok\":1}"); }, {.key = "right"});
  update({instance.member("0000000000000001")});
  const std::string body = R"({"model":"tiny","prompt":")" + std::string(100 << 10, 'x') + "\"}";
  const auto head = [&](const char* path, const char* length, const char* key) {
    return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\n{}Authorization: Bearer {}\r\n\r\n", path, length,
                       key);
  };
  // Nothing of the body is sent, or waited for.
  for (const char* length : {"Content-Length: 500000\r\n", "Transfer-Encoding: chunked\r\n"}) {
    const std::string refused = send(head("/v1/completions", length, "wrong"));
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 401")) << refused;
    EXPECT_NE(refused.find("\"code\":\"invalid_api_key\""), std::string::npos) << refused;
  }
  const std::string other = send(head("/v1/messages", "Content-Length: 500000\r\n", "wrong"));
  EXPECT_NE(other.find(R"({"type":"error","error":{"type":"authentication_error","message":"no such key")"),
            std::string::npos)
      << other;
  EXPECT_EQ(instance.questions(), 3);
  EXPECT_EQ(instance.requests(), 0);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(post("/v1/completions", body, "Authorization: Bearer right\r\n").ends_with("{\"ok\":1}"));
  EXPECT_EQ(instance.questions(), 4) << "who was let in is known";
  EXPECT_EQ(instance.requests(), 3);
  EXPECT_TRUE(post("/v1/completions", R"({"prompt":"small"})").ends_with("{\"ok\":1}"));
  EXPECT_EQ(instance.questions(), 4) << "what is small is the instance's to judge";
  // What is too large is refused by its length, in the form of the API.
  const std::string too_large = send(head("/v1/messages", "Content-Length: 500000000\r\n", "right"));
  EXPECT_TRUE(too_large.starts_with("HTTP/1.1 413")) << too_large;
  EXPECT_NE(too_large.find(R"({"type":"error","error":{"type":"request_too_large")"), std::string::npos)
      << too_large;
  EXPECT_TRUE(
      send(head("/v1/messages", "Content-Length: 500000000\r\n", "wrong")).starts_with("HTTP/1.1 401"));
}

TEST_F(FrontTest, WhoStopsOrLoadsIsLeftForAnother) {
  const auto refusing = [](const char* code) {
    return whole(fmt::format(R"({{"error":{{"code":"{}"}}}})", code), "503 Service Unavailable");
  };
  FakeInstance good([](const std::string&) { return whole("{\"ok\":1}"); });
  // One after the other, each in a place of its own: who has lost its device is avoided for a while.
  for (const auto& [id, code] :
       {std::pair("0000000000000004", "draining"), std::pair("0000000000000005", "device_lost"),
        std::pair("0000000000000006", "device_stalled")}) {
    FakeInstance other([&](const std::string&) { return refusing(code); });
    update({other.member(id), good.member("0000000000000002")});
    // Among equals a prompt's hash decides.
    for (int i = 0; i < 64 && other.requests() == 0; ++i)
      EXPECT_TRUE(post("/v1/responses", fmt::format(R"({{"input":"{}"}})", i)).ends_with("{\"ok\":1}"));
    EXPECT_GT(other.requests(), 0) << "nobody asked it: " << code;
  }
  // Errors of Anthropic's API have their code elsewhere.
  const std::string loading =
      to_json(unavailable_error("the model is still loading", std::string(error_codes::kLoading), 1),
              ErrorStyle::kAnthropic);
  FakeInstance loads([&](const std::string&) { return whole(loading, "503 Service Unavailable"); });
  update({loads.member("0000000000000007"), good.member("0000000000000002")});
  for (int i = 0; i < 64 && loads.requests() == 0; ++i)
    EXPECT_TRUE(post("/v1/messages", fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}]}})", i))
                    .ends_with("{\"ok\":1}"));
  EXPECT_GT(loads.requests(), 0);
  // Another 503 is the client's to know: the turn may have been stored.
  FakeInstance full([&](const std::string&) { return refusing("unavailable"); });
  Member member = full.member("0000000000000003");
  member.models = {"full"};
  update({member, good.member("0000000000000002")});
  const std::string answer = post("/v1/responses", R"({"input":"x","model":"full"})");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
  EXPECT_EQ(full.requests(), 1);
}

TEST_F(FrontTest, AStreamThatBreaksOffEndsWithAnErrorAfterWholeEvents) {
  const std::string part = "data: {\"a\":1}\n\ndata: {\"b\":";
  FakeInstance instance([&](const std::string&) { return events(part); });
  update({instance.member("0000000000000001")});
  const std::string chat = post("/v1/chat/completions", kChat);
  EXPECT_NE(chat.find("data: {\"a\":1}\n\n"), std::string::npos) << chat;
  EXPECT_EQ(chat.find("\"b\""), std::string::npos) << "half an event is none";
  EXPECT_NE(chat.find("instance_lost"), std::string::npos);
  EXPECT_NE(chat.find("data: [DONE]"), std::string::npos);
  EXPECT_TRUE(chat.ends_with("0\r\n\r\n")) << chat;
  EXPECT_NE(post("/v1/messages", kChat).find("event: error\ndata: {\"type\":\"error\""), std::string::npos);
  const std::string of_responses =
      "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":\"instance_lost\"";
  EXPECT_NE(post("/v1/responses", R"({"input":"x"})").find(of_responses), std::string::npos);
  EXPECT_NE(get("/v1/responses/resp_1?stream=true").find(of_responses), std::string::npos);
}

TEST_F(FrontTest, PagesAreTheInstancesToJudgeAndNamesTheFronts) {
  std::string seen;
  FakeInstance instance([&](const std::string& request) {
    seen = request;
    const bool is_preflight = request.starts_with("OPTIONS");
    return (is_preflight ? "HTTP/1.1 204 No Content\r\n" : "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n") +
           std::string("Vary: Origin\r\nAccess-Control-Allow-Origin: https://chat.example\r\n\r\n") +
           (is_preflight ? "" : R"({"object":"list","data":[{"id":"tiny"}]})");
  });
  update({instance.member("0000000000000001")});
  const std::string origin = "Origin: https://chat.example\r\n";
  const std::string allowed = "Access-Control-Allow-Origin: https://chat.example\r\n";
  const std::string preflight =
      send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: public.example\r\nConnection: close\r\n" + origin +
           "Access-Control-Request-Method: POST\r\n\r\n");
  EXPECT_TRUE(preflight.starts_with("HTTP/1.1 204")) << preflight;
  EXPECT_NE(preflight.find(allowed), std::string::npos) << preflight;
  EXPECT_NE(seen.find("Access-Control-Request-Method: POST"), std::string::npos) << seen;
  EXPECT_NE(post("/v1/chat/completions", kChat, origin).find(allowed), std::string::npos);
  EXPECT_NE(seen.find(origin), std::string::npos) << "the instance judges it";
  // The front's own page, which an instance would take for a stranger's.
  const std::string whole =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:7\r\nConnection: close\r\nOrigin: ";
  for (const auto& [own, is_told] :
       {std::pair("http://127.0.0.1:7", false), std::pair("http://127.0.0.1:8", true)}) {
    seen.clear();
    send(whole + own +
         fmt::format("\r\nContent-Length: {}\r\n\r\n{}", std::string_view(kChat).size(), kChat));
    EXPECT_EQ(seen.find("Origin: ") != std::string::npos, is_told) << seen;
  }
  EXPECT_NE(get("/v1/models", origin).find(allowed), std::string::npos);
  // The instance sees a Host that the front wrote, so of that the front is the judge, whatever key is there.
  const int before = instance.requests();
  const std::string of_stranger =
      "GET /v1/models HTTP/1.1\r\nHost: stranger.example\r\nConnection: close\r\n";
  const std::string refused = send(of_stranger + "\r\n");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 403")) << refused;
  EXPECT_NE(refused.find("allowed_host stranger.example\""), std::string::npos) << refused;
  EXPECT_EQ(instance.requests(), before);
  for (const char* key : {"Authorization: Bearer k\r\n", "X-Api-Key: k\r\n"})
    EXPECT_TRUE(send(of_stranger + key + "\r\n").starts_with("HTTP/1.1 403")) << key;
  for (const char* path : {"/health", "/v1/health", "/live", "/metrics"}) {
    const std::string get_it = fmt::format("GET {} HTTP/1.1\r\nConnection: close\r\nHost: ", path);
    EXPECT_TRUE(send(get_it + "stranger.example\r\n\r\n").starts_with("HTTP/1.1 403")) << path;
    EXPECT_FALSE(send(get_it + "127.0.0.1\r\n\r\n").starts_with("HTTP/1.1 403")) << path;
  }
  EXPECT_EQ(instance.requests(), before);
}

TEST_F(FrontTest, AWholeStreamIsPassedOnAsItIs) {
  const std::string body = "data: {\"a\":1}\n\n: comment\n\ndata: [DONE]\n\n";
  FakeInstance instance([&](const std::string&) { return events(body) + "0\r\n\r\n"; });
  update({instance.member("0000000000000001")});
  const std::string answer = post("/v1/chat/completions", kChat);
  EXPECT_NE(answer.find(body), std::string::npos) << answer;
  EXPECT_EQ(answer.find("instance_lost"), std::string::npos);
}

TEST_F(FrontTest, RoutesByModelAndListsAll) {
  const auto models = [](const char* id) {
    return whole(fmt::format(R"({{"object":"list","data":[{{"id":"{}"}}]}})", id));
  };
  FakeInstance one([&](const std::string&) { return models("tiny"); });
  FakeInstance other([&](const std::string&) { return models("large"); });
  Member large = other.member("0000000000000002");
  large.models = {"large"};
  update({one.member("0000000000000001"), large});
  const std::string list = get("/v1/models");
  EXPECT_NE(list.find("\"tiny\""), std::string::npos) << list;
  EXPECT_NE(list.find("\"large\""), std::string::npos) << list;
  const int before = other.requests();
  for (int i = 0; i < 5; ++i) post("/v1/chat/completions", R"({"model":"large","messages":[]})");
  for (int i = 0; i < 5; ++i) get("/v1/models/large");
  EXPECT_EQ(other.requests(), before + 10);
}

TEST_F(FrontTest, ADrainingInstanceGetsNothingNew) {
  FakeInstance one([](const std::string&) { return whole("{}"); });
  Member member = one.member("0000000000000001");
  member.draining = true;
  update({member});
  const std::string answer = post("/v1/chat/completions", kChat);
  EXPECT_NE(answer.find("no_instance"), std::string::npos);
  EXPECT_NE(answer.find("all members of the cluster drain"), std::string::npos) << answer;
  EXPECT_EQ(one.requests(), 0);
  FakeInstance other([](const std::string&) { return whole("{}"); });
  Member large = other.member("0000000000000002");
  large.models = {"large"};
  update({member, large});
  const std::string of_model = post("/v1/chat/completions", R"({"model":"tiny","messages":[]})");
  EXPECT_NE(of_model.find("that serves this model"), std::string::npos) << of_model;
}

TEST_F(FrontTest, WhoIsListedNoMoreAndDoesNotAnswerIsForgotten) {
  auto instance =
      std::make_unique<FakeInstance>([](const std::string&) { return whole(R"({"status":"ok"})"); });
  update({instance->member("0000000000000001")});
  update({});
  EXPECT_EQ(count("unlisted"), 1) << "it lives";
  EXPECT_NE(post("/v1/chat/completions", kChat).find("no_instance"), std::string::npos);
  const std::string models = send("GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(models.find("no_instance"), std::string::npos) << models;
  EXPECT_EQ(instance->requests(), 0) << "who listens there may be another now";
  update({instance->member("0000000000000001")});
  EXPECT_TRUE(post("/v1/chat/completions", kChat).starts_with("HTTP/1.1 200"));
  instance.reset();
  update({});
  for (int i = 0; i < 6'000 && count("unlisted") > 0; ++i) {
    update({});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(count("unlisted"), 0);
}

// Another program listens at its address by now.
TEST_F(FrontTest, WhoIsListedNoMoreAndAnswersAsNoServerDoesIsForgotten) {
  for (const char* answer : {R"({"status":"fine"})", "<html>ok</html>", ""}) {
    for (const char* status : {"200 OK", "404 Not Found", "503 Service Unavailable"}) {
      FakeInstance other([&](const std::string&) { return whole(answer, status); });
      update({other.member("0000000000000001")});
      for (int i = 0; i < 6'000 && count("unlisted") + count("serving") > 0; ++i) {
        update({});
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      EXPECT_EQ(count("unlisted"), 0) << status << " " << answer;
    }
  }
}

TEST_F(FrontTest, AnAnswerToHeadSaysHowLongItWouldBe) {
  FakeInstance one([](const std::string&) {
    return std::string(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n");
  });
  update({one.member("0000000000000001")});
  const std::string answer =
      send("HEAD /v1/responses/resp_1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  EXPECT_NE(answer.find("Content-Length: 1000000\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Content-Type: application/json\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << "and no more";
}

TEST_F(FrontTest, WhatWaitsForADeviceThatStandsStillWaitsForNothing) {
  std::atomic<bool> stalls = false;
  std::atomic<int> looks = 0;
  FakeInstance instance([&](const std::string& request) {
    looks += request.starts_with("GET /live") ? 1 : 0;
    if (!request.starts_with("GET /live") || !stalls)
      return whole(R"({"error":{"code":"loading"}})", "503 Service Unavailable");
    return whole(R"({"error":{"code":"device_stalled"}})", "503 Service Unavailable");
  });
  const auto list_nobody = [&] {
    update({});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  update({instance.member("0000000000000001")});
  for (int i = 0; i < 6'000 && looks < 3; ++i) list_nobody();
  EXPECT_GE(looks, 3);
  EXPECT_EQ(count("unlisted"), 1) << "it is not ready, and lives";
  stalls = true;
  for (int i = 0; i < 6'000 && count("unlisted") > 0; ++i) list_nobody();
  EXPECT_EQ(count("unlisted"), 0);
}

TEST_F(FrontTest, AnInstanceThatIsBornAgainAtItsAddressTakesItsOwnPlace) {
  FakeInstance instance([](const std::string&) { return whole("{}"); });
  update({instance.member("0000000000000001")});
  Member again = instance.member("0000000000000002");
  again.draining = true;
  update({again});
  EXPECT_EQ(count("unlisted"), 0);
  EXPECT_EQ(count("draining"), 1);
  EXPECT_NE(post("/v1/chat/completions", kChat).find("no_instance"), std::string::npos);
  EXPECT_EQ(instance.requests(), 0);
}

TEST(RoutedRequest, OnlyWhatIsGeneratedIsWorthRemembering) {
  namespace http = boost::beast::http;
  const std::string body = R"({"model":"m","prompt":")" + std::string(10'000, 'x') + "\"}";
  for (const char* path : {"/tokenize", "/detokenize", "/v1/messages/count_tokens", "/v1/conversations"}) {
    const RoutedPrompt prompt = read_prompt(http::verb::post, path, body, PromptKey{1});
    EXPECT_FALSE(prompt.is_generated) << path;
    EXPECT_TRUE(prompt.keys.empty()) << path;
    EXPECT_TRUE(prompt.is_new_work()) << path;
  }
  // Each endpoint's own field; what stands in another's is ignored there, and names nothing.
  const std::vector<std::pair<const char*, std::string>> fields = {{"/v1/chat/completions", "messages"},
                                                                   {"/v1/completions", "prompt"},
                                                                   {"/v1/messages", "messages"},
                                                                   {"/v1/responses", "input"}};
  for (const auto& [path, field] : fields) {
    for (const std::string name : {"messages", "prompt", "input"}) {
      const std::string given = "{\"" + name + "\":\"" + std::string(10'000, 'x') + "\"}";
      const RoutedPrompt prompt = read_prompt(http::verb::post, path, given, PromptKey{1});
      EXPECT_TRUE(prompt.is_generated) << path;
      EXPECT_EQ(prompt.keys.size(), name == field ? 10'000 / kPromptChunkBytes : 0) << path << " " << name;
    }
  }
}

TEST(RoutedRequest, AnInputIsCountedWhereWhatItContinuesIs) {
  namespace http = boost::beast::http;
  const auto read = [](const std::string& fields) {
    return read_prompt(http::verb::post, "/v1/responses/input_tokens", "{" + fields + R"("input":"Hi"})",
                       PromptKey{1});
  };
  const RoutedPrompt next = read(R"("previous_response_id":"resp_1",)");
  EXPECT_EQ(next.continues, continued_key("resp_1", PromptKey{1}));
  EXPECT_TRUE(next.may_be_repeated && next.is_new_work());
  EXPECT_FALSE(next.is_generated || next.begins_response || next.is_conversation);
  const RoutedPrompt turn = read(R"("conversation":{"id":"conv_1"},"background":true,)");
  EXPECT_EQ(turn.continues, continued_key("conv_1", PromptKey{1}));
  EXPECT_TRUE(turn.may_be_repeated && turn.is_conversation);
  EXPECT_EQ(read("").continues, std::nullopt) << "the path names no response";
}

TEST(RoutedRequest, ALaterTurnsKeysBeginWithAnEarlierOnes) {
  namespace http = boost::beast::http;
  const auto keys = [](const std::string& messages, PromptKey key = PromptKey{1}) {
    return read_prompt(http::verb::post, "/v1/chat/completions",
                       R"({"temperature":1,"messages":[)" + messages + R"(],"model":"m"})", key);
  };
  const std::string first = R"({"role":"system","content":")" + std::string(700, 's') +
                            R"("},{"role":"user","content":")" + std::string(700, 'u') + "\"}";
  const RoutedPrompt one = keys(first), two = keys(first + R"(,{"role":"assistant","content":")" +
                                                   std::string(400, 'a') + "\"}");
  ASSERT_GE(one.keys.size(), 5u);
  ASSERT_GT(two.keys.size(), one.keys.size());
  EXPECT_TRUE(std::equal(one.keys.begin(), one.keys.end(), two.keys.begin()));
  EXPECT_EQ(one.beginning, two.beginning);
  EXPECT_NE(keys(first, PromptKey{2}).keys[0], one.keys[0]) << "another tenant's";
  EXPECT_TRUE(one.may_be_repeated);
  EXPECT_EQ(one.model, "m");
}

TEST(RoutedRequest, OfALongPromptEveryEighthChunkIsNamed) {
  namespace http = boost::beast::http;
  const auto keys = [](std::size_t chunks) {
    const std::string body = R"({"prompt":")" + std::string(chunks * kPromptChunkBytes, 'x') + "\"}";
    return read_prompt(http::verb::post, "/v1/completions", body, PromptKey{1}).keys;
  };
  const std::vector<std::uint64_t> all = keys(2'048);
  EXPECT_EQ(all.size(), 64 + (2'048 - 64) / 8u);
  for (const auto& [chunks, names] : {std::pair(1, 1), {63, 63}, {64, 64}, {71, 64}, {72, 65}, {80, 66}}) {
    const std::vector<std::uint64_t> some = keys(static_cast<std::size_t>(chunks));
    EXPECT_EQ(some.size(), static_cast<std::size_t>(names)) << chunks;
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << chunks;
  }
  EXPECT_EQ(keys(10'000).size(), 64 + (kPromptChunksMax - 64) / 8);
}

// Fronts and instances must agree on names, and nobody else can make them.
TEST(RoutedRequest, NamesFollowFromTheClustersKeyAndTheTenantAlone) {
  namespace http = boost::beast::http;
  const auto key_of = [](const char* header, const char* value, const PromptKey& cluster = PromptKey{7}) {
    HttpRequest request;
    if (*value != '\0') request.headers.emplace_back(header, value);
    return prompt_key_of(request, cluster);
  };
  EXPECT_EQ(key_of("Authorization", "Bearer a"), key_of("authorization", "Bearer a"));
  EXPECT_NE(key_of("Authorization", "Bearer a"), key_of("Authorization", "Bearer b"));
  EXPECT_NE(key_of("Authorization", "a"), key_of("X-Api-Key", "a"));
  EXPECT_EQ(key_of("Authorization", "bearer   a"), key_of("X-Api-Key", "a"))
      << "one key, however it is borne";
  EXPECT_NE(key_of("", ""), key_of("", "", PromptKey{8}));
  const auto read = [](const std::string& fields) {
    return read_prompt(http::verb::post, "/v1/responses",
                       R"({"input":")" + std::string(600, 'x') + "\"" + fields + "}", PromptKey{1});
  };
  EXPECT_EQ(read("").keys, read(R"(,"seed":5)").keys) << "a front adds a seed";
  EXPECT_NE(read("").keys[0], read(R"(,"model":"m")").keys[0]);
  EXPECT_NE(read(R"(,"conversation":"a")").keys[0], read(R"(,"conversation":"b")").keys[0])
      << "the same words behind other ones";
  for (const std::uint64_t name : read("").keys) EXPECT_EQ(name & 3, 0u);
}

TEST(RoutedRequest, KnowsWhatGoesOnFromWhatAndWhatIsStored) {
  namespace http = boost::beast::http;
  const auto read = [](const std::string& body) {
    return read_prompt(http::verb::post, "/v1/responses", body, PromptKey{1});
  };
  EXPECT_TRUE(read(R"({"input":"x"})").may_be_repeated) << "under the name that the front gives it";
  EXPECT_FALSE(read(R"({"input":"x","background":true})").may_be_repeated);
  EXPECT_EQ(read(R"({"conversation":"c"})").continues, continued_key("c", PromptKey{1}));
  EXPECT_EQ(read(R"({"conversation":{"id":"c"}})").continues, continued_key("c", PromptKey{1}));
  EXPECT_EQ(read(R"({"previous_response_id":"r"})").continues, continued_key("r", PromptKey{1}));
  EXPECT_EQ(read_prompt(http::verb::post, "/v1/responses/r/cancel", "", PromptKey{1}).continues,
            continued_key("r", PromptKey{1}));
  EXPECT_TRUE(read_prompt(http::verb::post, "/v1/responses/r/cancel", "", PromptKey{1}).may_be_repeated);
  EXPECT_FALSE(read_prompt(http::verb::delete_, "/v1/responses/r", "", PromptKey{1}).may_be_repeated);
  EXPECT_EQ(read_prompt(http::verb::get, "/v1/models/a/b%20c", "", PromptKey{1}).model, "a/b c");
  for (const char* garbage :
       {"", "{", "[]", "5", R"({"messages":5,"model":7,"conversation":[],"input":{"a":[1]}})"})
    read(garbage);
  EXPECT_EQ(response_id_of(R"({"id":"resp_12","object":"response"})"), "resp_12");
  EXPECT_EQ(response_id_of("event: response.created\ndata: {\"response\":{\"id\":\"resp_12\"}}"), "resp_12");
  EXPECT_EQ(response_id_of("{\"id\":\"resp_" + std::string(200, 'x')), "");
  EXPECT_EQ(response_id_of("{}"), "");
}

}  // namespace
}  // namespace loci
