// SPDX-License-Identifier: Apache-2.0
// On which thread the end of a stream is written, what becomes of one whose prompt is computed elsewhere, and
// what a generation costs and counts.
#include "loci/serve/generation/run_generation.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/folder_testing.h"
#include "loci/engine/testing/engine_testing.h"
#include "loci/model/model.h"
#include "loci/model/random_model_testing.h"
#include "loci/model/text_testing.h"
#include "loci/serve/wire/sse.h"

namespace loci {
namespace {

namespace asio = boost::asio;

struct Written {
  bool gone = false;  // its client
  bool has_reader = true;
  std::uint64_t room = UINT64_MAX;  // for what is kept of the reply
  std::uint64_t held = 0;           // of it
  std::string stream;
  std::string code;    // of the error that it ended with
  std::string field;   // too
  std::string finish;  // as the access log has it
  // Where finish_choice() and end() were called.
  std::vector<std::thread::id> finished_on;
  std::thread::id ended_on;
};

class Format final : public ReplyFormat {
 public:
  explicit Format(Written& written) : written_(written) {}
  std::string begin(const ReplyUsage&) override { return "begin "; }
  std::string begin_choice(std::uint32_t) override { return {}; }
  std::string delta(std::uint32_t, const OutputDelta&) override { return {}; }
  std::string finish_choice(const FinishedChoice& choice) override {
    written_.finished_on.push_back(std::this_thread::get_id());
    return "finish" + std::to_string(choice.index) + " ";
  }
  std::string end(const std::vector<FinishedChoice>&, const ReplyUsage&) override {
    written_.ended_on = std::this_thread::get_id();
    return "end";
  }
  std::string stream_error(const ApiError& error) override {
    written_.code = error.code;
    written_.field = error.param;
    return error.message;
  }
  std::string whole(const std::vector<FinishedChoice>&, const ReplyUsage&) override { return {}; }

 private:
  Written& written_;
};

class Sink final : public ReplySink {
 public:
  Sink(ReplyOrigin origin, Written& written) : ReplySink(std::move(origin)), written_(written) {}
  int status() const override { return 200; }
  asio::awaitable<bool> respond(std::string) override { co_return true; }
  asio::awaitable<bool> begin_stream() override { co_return true; }
  asio::awaitable<bool> stream(std::string_view events) override {
    written_.stream += events;
    co_return true;
  }
  asio::awaitable<bool> end_stream() override { co_return true; }
  asio::awaitable<void> fail(ApiError error) override {
    written_.code = error.code;
    written_.field = error.param;
    written_.stream += error.message;
    co_return;
  }
  bool hold(std::uint64_t bytes) override {
    if (bytes > written_.room) return false;
    written_.held = bytes;
    return true;
  }
  bool gone() const override { return written_.gone; }
  bool has_reader() const override { return written_.has_reader; }
  void watch(std::function<void()>) override {}
  void account(const GenerationSummary& summary) override { written_.finish = summary.finish_reason; }

 private:
  Written& written_;
};

class GenerationTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = folder_.file("tiny.gguf");
    ASSERT_TRUE(make_random_model({}).value().write_file(path).ok());
    model_.emplace(load_model(path).value());
    served_.model = &*model_;
    served_.engine = world_.engine.get();
    served_.backend = world_.backend.info();
    served_.context_tokens = 2000;
    services_.served = &served_;
  }

  // A stream of so many tokens in each of its choices.
  Written stream(std::uint32_t tokens, bool logprobs, std::uint32_t choices = 1) {
    Written written{.gone = client_leaves_,
                    .has_reader = has_reader_,
                    .room = room_,
                    .stream = {},
                    .code = {},
                    .field = {},
                    .finish = {},
                    .finished_on = {},
                    .ended_on = {}};
    asio::co_spawn(io_, answer(written, tokens, logprobs, choices), asio::detached);
    io_.restart();
    io_.run();
    return written;
  }
  asio::awaitable<void> answer(Written& written, std::uint32_t tokens, bool logprobs, std::uint32_t choices) {
    PreparedGeneration prepared;
    prepared.fields.stream = streams_;
    prepared.fields.max_tokens = tokens;
    prepared.fields.choices = choices;
    prepared.fields.sampling.logprobs = logprobs;
    prepared.fields.constraint = constraint_;
    prepared.grammar = grammar_;
    prepared.prompts = {prompt_};
    prepared.commit = commit_;
    prepared.dropped = {{}};
    prepared.prefill = prefill_;
    prepared.resumed = resumed_;
    prepared.format = std::make_unique<Format>(written);
    TenantLimiter::Admission admission = co_await limiter_.begin(*tenant_);
    prepared.ticket = std::get<TenantTicket>(std::move(admission.result));
    ReplyOrigin origin{.io = io_, .tenant = tenant_, .request_id = "r", .path = "/"};
    leave_ = [&written] { written.gone = true; };
    Sink sink(std::move(origin), written);
    co_await run_generation(services_, sink, std::move(prepared));
  }

  // What the tenant may still use in this minute.
  std::int64_t tokens_left() {
    std::int64_t left = -1;
    const auto ask = [&]() -> asio::awaitable<void> {
      const TenantLimiter::Admission admission = co_await limiter_.begin(*tenant_);
      for (const auto& [name, value] : admission.headers) {
        if (name == "x-ratelimit-remaining-tokens") left = std::stoll(value);
      }
    };
    asio::co_spawn(io_, ask(), asio::detached);
    io_.restart();
    io_.run();
    return left;
  }
  std::string scraped() { return metrics_.scrape(std::nullopt, 0); }

  bool streams_ = true;
  bool client_leaves_ = false;  // before its prompt's turn comes
  bool has_reader_ = true;
  std::uint64_t room_ = UINT64_MAX;
  std::function<void()> leave_;  // has the client of the stream leave; on io_ alone
  std::vector<TokenId> prompt_ = some_prompt(1, 20);
  std::optional<ConstraintSpec> constraint_;
  std::shared_ptr<const Grammar> grammar_;
  decltype(PreparedGeneration::commit) commit_;
  std::optional<PrefillPlace> prefill_;
  std::optional<ResumedReply> resumed_;
  TestFolder folder_;
  std::optional<Model> model_;
  World world_{options(512)};
  ServedModel served_;
  ServeMetrics metrics_{"test"};
  TenantLimiter limiter_{world_.clock};
  TokenHistory history_;
  std::shared_ptr<const Tenant> tenant_ = std::make_shared<const Tenant>();
  asio::io_context io_;
  WorkerPool workers_{1};
  GenerationServices services_{
      .workers = workers_,
      .store_thread = workers_,
      .limiter = limiter_,
      .history = history_,
      .metrics = metrics_,
      .clock = world_.clock,
      .log = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>())};
};

// A format may write the log-probabilities of all tokens several times: megabytes of JSON.
TEST_F(GenerationTest, ManyLogprobsAreWrittenByAWorker) {
  const Written written = stream(1500, true);
  EXPECT_EQ(written.stream, "begin finish0 end");
  ASSERT_EQ(written.finished_on.size(), 1u);
  EXPECT_NE(written.finished_on[0], std::this_thread::get_id());
  EXPECT_NE(written.ended_on, std::this_thread::get_id());
}

// They are most of what a reply takes of memory, and there may be 256 replies of one request.
TEST_F(GenerationTest, LogprobsThatAreKeptHaveABound) {
  EXPECT_EQ(stream(1500, true).held, 0u) << "a stream has told them, and keeps none";
  streams_ = false;
  EXPECT_EQ(stream(1500, false).held, 0u);
  const Written whole = stream(1500, true);
  EXPECT_EQ(whole.code, "");
  EXPECT_GE(whole.held, 1500 * sizeof(LogprobEntry));
  room_ = whole.held;
  EXPECT_EQ(stream(1500, true).code, "");
  const Written two = stream(1500, true, 2);
  EXPECT_EQ(two.code, "reply_too_large");
  EXPECT_LE(two.held, room_);
  room_ = 0;
  EXPECT_EQ(stream(1500, true).code, "reply_too_large");
  streams_ = true;
  commit_ = [](const auto&, const auto&) { return Status(); };
  const Written stored = stream(1500, true);
  EXPECT_EQ(stored.code, "reply_too_large") << "what is stored is kept";
}

TEST_F(GenerationTest, WhatAClientMakesFailForWantOfRoomIsPaid) {
  tenant_ = std::make_shared<const Tenant>(Tenant{.id = "a", .limits = {.tokens_per_minute = 2'000}});
  streams_ = false;
  room_ = 0;
  ASSERT_EQ(stream(1500, true).code, "reply_too_large");
  // The prompt's 20 at the least; some come again meanwhile.
  EXPECT_LT(tokens_left(), 2'000 - 10);
}

TEST_F(GenerationTest, EveryChoiceIsFinishedOnce) {
  EXPECT_EQ(stream(1500, true, 2).stream, "begin finish0 finish1 end");
}

TEST_F(GenerationTest, WhatIsShortIsWrittenAtOnce) {
  for (const Written& written : {stream(100, true), stream(1500, false)}) {
    EXPECT_EQ(written.stream, "begin finish0 end");
    ASSERT_EQ(written.finished_on.size(), 1u);
    EXPECT_EQ(written.finished_on[0], std::this_thread::get_id());
    EXPECT_EQ(written.ended_on, std::this_thread::get_id());
  }
}

// A prompt may take minutes, and clients and proxies give up what says nothing for one.
TEST_F(GenerationTest, AStreamThatHasNothingToSaySaysThatItLives) {
  services_.quiet_limit = 1;
  const Written written = stream(1500, false);
  EXPECT_NE(written.stream.find(kSseComment), std::string::npos) << written.stream.substr(0, 100);
  std::string events = written.stream;
  for (std::size_t at = 0; (at = events.find(kSseComment)) != std::string::npos;)
    events.erase(at, kSseComment.size());
  EXPECT_EQ(events, "begin finish0 end");
  has_reader_ = false;
  EXPECT_EQ(stream(1500, false).stream, "begin finish0 end") << "its events are kept and numbered";
  streams_ = false;
  EXPECT_EQ(stream(1500, false).stream, "");
}

// What has begun so is refused by an event.
TEST_F(GenerationTest, AStreamThatLivedIsRefusedByAnEvent) {
  services_.quiet_limit = 1;
  prompt_ = some_prompt(1, 2500);  // more than the context
  const Written written = stream(10, false);
  EXPECT_NE(written.stream.find("shorten it"), std::string::npos) << written.stream;
}

// A front gives a reply that was cut off to another server, but not what runs in the background.
TEST_F(GenerationTest, AServerThatStopsComputesWhatNobodyElseTakes) {
  prefill_.emplace();
  services_.ask_for_prefill = [this](PrefillOrder) -> asio::awaitable<PrefillOutcome> {
    services_.draining = true;
    co_return PrefillOutcome{};
  };
  EXPECT_EQ(stream(10, false).stream, "begin finish0 end");
  resumed_.emplace();
  EXPECT_TRUE(stream(10, false).stream.starts_with("the server is stopping"));
  EXPECT_EQ(services_.handed, 0u);
  // A stream that has begun while its prompt was computed says so in itself.
  services_.draining = false;
  services_.quiet_limit = 0;
  services_.ask_for_prefill = [this](PrefillOrder order) -> asio::awaitable<PrefillOutcome> {
    co_await order.waits();
    services_.draining = true;
    co_return PrefillOutcome{};
  };
  const std::string begun = stream(10, false).stream, stopped = ": loci-stopped\n: drained\n\n";
  EXPECT_TRUE(begun.starts_with(std::string(kSseComment) + stopped + "the server is stopping")) << begun;
}

// By the code a front knows that another server may answer: nothing was stored.
TEST_F(GenerationTest, WhatAStoppingServerCutsOffIsToldAsSuch) {
  services_.time_limit = 1;  // it is over at once
  services_.draining = true;
  const Written cut = stream(1500, false);
  EXPECT_EQ(cut.code, "draining");
  EXPECT_NE(cut.stream.find("the reply was cut off"), std::string::npos) << cut.stream;
  services_.draining = false;
  EXPECT_EQ(stream(1500, false).code, "deadline_exceeded");
}

// Else a tenant would read for nothing: it may delete the response that the turn continues meanwhile.
TEST_F(GenerationTest, AReplyThatWasSentIsPaidForThoughItsTurnIsNotStored) {
  constexpr std::uint32_t kLimit = 2000, kReply = 1500;  // a second gives 33 tokens back
  Tenant limited;
  limited.limits.tokens_per_minute = kLimit;
  tenant_ = std::make_shared<const Tenant>(limited);
  ASSERT_EQ(tokens_left(), kLimit);
  commit_ = [](auto&&...) { return not_found("deleted"); };
  EXPECT_EQ(stream(kReply, false).stream, "begin finish0 deleted");
  EXPECT_LT(tokens_left(), kLimit - 200);
  // Nor is a whole reply free where the client has seen to it that it cannot be stored.
  limited.id = "another";
  tenant_ = std::make_shared<const Tenant>(limited);
  streams_ = false;
  EXPECT_EQ(stream(kReply, false).stream, "deleted");
  EXPECT_LT(tokens_left(), kLimit - 200);
  // What was not sent by the server's fault costs nothing.
  limited.id = "a third";
  tenant_ = std::make_shared<const Tenant>(limited);
  commit_ = [](auto&&...) { return Status(StatusCode::kUnavailable, "away"); };
  EXPECT_EQ(stream(kReply, false).stream, "the conversation store cannot do this now; try again later");
  EXPECT_EQ(tokens_left(), kLimit);
  // Nor what another's arrival took the place of, after it was accepted.
  commit_ = [](auto&&...) { return Status(StatusCode::kResourceExhausted, "displaced"); };
  EXPECT_EQ(stream(kReply, false).stream, "displaced");
  EXPECT_EQ(tokens_left(), kLimit);
  // Nor what another server goes on with: it is paid for there.
  streams_ = true;
  resumed_.emplace();
  commit_ = [](auto&&...) { return Status(StatusCode::kUnavailable, "away"); };
  EXPECT_NE(stream(kReply, false).stream.find("cannot do this now"), std::string::npos);
  EXPECT_EQ(tokens_left(), kLimit);
}

// A response in the background: its client comes for it when the store has it.
TEST_F(GenerationTest, ATurnForWhichNobodyWaitsIsStoredOnceTheStoreTakesIt) {
  const Status away(StatusCode::kUnavailable, "the disk is full");
  int attempts = 0;
  commit_ = [&](auto&&...) { return ++attempts < 3 ? away : Status(); };
  EXPECT_EQ(stream(10, false).stream,
            "begin finish0 the conversation store cannot do this now; try again later");
  EXPECT_EQ(attempts, 1) << "its client is told at once";
  has_reader_ = false;
  attempts = 0;
  EXPECT_EQ(stream(10, false).stream, "begin finish0 end");
  EXPECT_EQ(attempts, 3);
  // Meanwhile it is none of the requests that its tenant may have at once.
  Tenant limited;
  limited.limits.concurrent_requests = 1;
  tenant_ = std::make_shared<const Tenant>(limited);
  bool is_free = false;
  attempts = 0;
  const auto look = [&]() -> asio::awaitable<void> {
    const TenantLimiter::Admission admission = co_await limiter_.begin(*tenant_);
    is_free = std::holds_alternative<TenantTicket>(admission.result);
  };
  commit_ = [&](auto&&...) {
    if (++attempts == 2) asio::co_spawn(io_, look(), asio::detached);
    return attempts < 3 ? away : Status();
  };
  EXPECT_EQ(stream(10, false).stream, "begin finish0 end");
  EXPECT_TRUE(is_free);
  // What is refused for good is asked once.
  attempts = 0;
  commit_ = [&](auto&&...) { return ++attempts, not_found("deleted"); };
  EXPECT_EQ(stream(10, false).stream, "begin finish0 deleted");
  EXPECT_EQ(attempts, 1);
  // And it can be cancelled meanwhile.
  commit_ = [&](auto&&...) {
    asio::post(io_, leave_);
    return away;
  };
  EXPECT_EQ(stream(10, false).stream, "begin finish0 ");
  // A server that stops does not wait for ever.
  services_.draining = true;
  commit_ = [&](auto&&...) { return away; };
  EXPECT_EQ(stream(10, false).stream,
            "begin finish0 the conversation store cannot do this now; try again later");
}

TEST_F(GenerationTest, APromptThatNobodyComputedIsNotPaidFor) {
  constexpr std::uint32_t kLimit = 2000;
  Tenant limited;
  limited.limits.tokens_per_minute = kLimit;
  tenant_ = std::make_shared<const Tenant>(limited);
  prompt_ = some_prompt(1, 1500);
  client_leaves_ = true;
  EXPECT_EQ(stream(10, false).stream, "");
  EXPECT_EQ(tokens_left(), kLimit);
  client_leaves_ = false;
  EXPECT_EQ(stream(10, false).stream, "begin finish0 end");
  EXPECT_LT(tokens_left(), kLimit - 200);
}

// The backend's vocabulary, the first tokens of a byte-level one, can't go on behind "AB".
TEST_F(GenerationTest, AGrammarThatFailsNamesTheFieldThatItIsMadeOf) {
  const Tokenizer tokenizer = tokenizer_from(byte_level_writer({}, {})).value();
  GrammarCompiler compiler(tokenizer);
  grammar_ = compiler.compile({.kind = GrammarKind::kChoice, .text = R"(["ABé"])"}).value();
  for (const bool streams : {false, true}) {
    streams_ = streams;
    constraint_.reset();
    const Written of_tools = stream(10, false);
    EXPECT_NE(of_tools.stream.find("tools: the reply can't go on"), std::string::npos) << of_tools.stream;
    EXPECT_EQ(of_tools.field, "tools");
    // What has failed before the first of the stream was sent is answered with an error's status.
    const bool has_begun = of_tools.stream.starts_with("begin");
    EXPECT_TRUE(streams || !has_begun) << of_tools.stream;
    EXPECT_EQ(of_tools.finish, has_begun ? "failed" : "") << "a stream has no status of its own for it";
    constraint_ = {.source = {}, .field = "response_format.json_schema.schema"};
    EXPECT_EQ(stream(10, false).field, constraint_->field);
  }
}

TEST_F(GenerationTest, WhatWasRefusedIsInNoHistogramAndUsedNoTokens) {
  metrics_.tell_tenants_apart();
  prompt_ = some_prompt(1, 2500);  // more than the context
  EXPECT_NE(stream(10, false).stream.find("shorten it"), std::string::npos);
  EXPECT_NE(scraped().find("loci_generation_seconds_count 0\n"), std::string::npos) << scraped();
  EXPECT_NE(scraped().find("loci_request_generated_tokens_count 0\n"), std::string::npos);
  const std::string prompt = "loci_tenant_tokens_total{kind=\"prompt\",tenant=\"default\"} ";
  EXPECT_NE(scraped().find(prompt + "0\n"), std::string::npos) << scraped();
  prompt_ = some_prompt(1, 20);
  EXPECT_EQ(stream(10, false).stream, "begin finish0 end");
  EXPECT_NE(scraped().find("loci_generation_seconds_count 1\n"), std::string::npos);
  EXPECT_NE(scraped().find(prompt + "20\n"), std::string::npos);
}

}  // namespace
}  // namespace loci
