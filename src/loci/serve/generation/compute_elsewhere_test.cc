// SPDX-License-Identifier: Apache-2.0
// Which prompts of a request another member is asked for, and what is told of it.
#include "loci/serve/generation/compute_elsewhere.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "loci/engine/testing/engine_testing.h"

namespace loci {
namespace {

namespace asio = boost::asio;

class StoppedClock final : public Clock {
 public:
  Nanos now() const override { return at; }
  Nanos at = 0;
};

class Sink final : public ReplySink {
 public:
  using ReplySink::ReplySink;
  int status() const override { return 0; }
  void set_header(const std::string& name, const std::string& value) override {
    headers += name + ": " + value + "\n";
  }
  asio::awaitable<bool> respond(std::string) override { co_return true; }
  asio::awaitable<bool> begin_stream() override {
    headers += "begun\n";
    co_return true;
  }
  asio::awaitable<bool> stream(std::string_view events) override {
    streamed += events;
    co_return true;
  }
  bool has_reader() const override { return is_read; }
  asio::awaitable<bool> end_stream() override { co_return true; }
  asio::awaitable<void> fail(ApiError) override { co_return; }
  bool gone() const override { return is_gone; }
  void watch(std::function<void()> on_gone) override { tell = std::move(on_gone); }
  void account(const GenerationSummary&) override {}

  std::string headers, streamed;
  bool is_gone = false, is_read = true;
  std::function<void()> tell;  // that it is
};

class ComputeElsewhereTest : public testing::Test {
 protected:
  ComputeElsewhereTest() {
    served_.engine = world_.engine.get();
    services_.served = &served_;
    services_.ask_for_prefill = [this](PrefillOrder order) { return answer(std::move(order)); };
    prepared_.prefill = PrefillPlace{.host = "there", .port = 5, .begin_limit = kNanosPerSecond};
  }
  asio::awaitable<PrefillOutcome> answer(PrefillOrder order) {
    orders_.push_back({.tokens = order.work.tokens, .limit = order.limit, .stops = order.stops()});
    order.watch([] {});
    EXPECT_EQ(order.place.host, "there");
    EXPECT_EQ(order.work.tenant, "acme");
    EXPECT_EQ(order.work.salt, "salt");
    EXPECT_EQ(services_.handed, 1u) << "a stop waits for it";
    clock_.at += kNanosPerSecond;
    if (meanwhile_) meanwhile_();
    for (int times = 0; times < waits_; ++times) {
      clock_.at += kNanosPerSecond;
      co_await order.waits();
    }
    co_return PrefillOutcome{.end = end_, .computed = 7, .why = {}};
  }
  std::optional<ComputedElsewhere> compute(std::vector<std::vector<TokenId>> prompts) {
    prepared_.dropped.resize(prompts.size());
    prepared_.prompts = std::move(prompts);
    prepared_.fields.cache_salt = "salt";
    orders_.clear();
    sink_.headers.clear();
    sink_.streamed.clear();
    std::future<std::optional<ComputedElsewhere>> done =
        asio::co_spawn(io_, compute_elsewhere(services_, sink_, prepared_), asio::use_future);
    io_.restart();
    io_.run();
    return done.get();
  }
  // The prompts that were asked for, by their first token.
  std::vector<std::uint32_t> asked() const {
    std::vector<std::uint32_t> out;
    for (const Order& order : orders_) out.push_back(order.tokens.front().value);
    return out;
  }
  // Of so many tokens, which begin with `first` and go on as others of the same `rest`.
  static std::vector<TokenId> prompt_of(std::uint32_t first, std::size_t tokens, std::uint32_t rest = 0) {
    std::vector<TokenId> out(tokens, TokenId(rest));
    out.front() = TokenId(first);
    return out;
  }

  struct Order {
    std::vector<TokenId> tokens;
    Nanos limit = 0;
    bool stops = false;
  };
  std::vector<Order> orders_;
  PrefillEnd end_ = PrefillEnd::kDone;
  std::function<void()> meanwhile_;
  int waits_ = 0;  // how often the member says that it computes, a second each
  StoppedClock clock_;
  World world_{options(512)};
  ServedModel served_;
  ServeMetrics metrics_{"test"};
  TenantLimiter limiter_{clock_};
  TokenHistory history_;
  std::shared_ptr<const Tenant> tenant_ = std::make_shared<const Tenant>(Tenant{.id = "acme", .limits = {}});
  asio::io_context io_;
  WorkerPool workers_{1};
  GenerationServices services_{
      .workers = workers_,
      .store_thread = workers_,
      .limiter = limiter_,
      .history = history_,
      .metrics = metrics_,
      .clock = clock_,
      .log = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>())};
  Sink sink_{{.io = io_, .tenant = tenant_, .request_id = "r", .path = "/"}};
  PreparedGeneration prepared_;
};

TEST_F(ComputeElsewhereTest, ThePromptIsAskedForAndItsEndIsTold) {
  services_.time_limit = 9 * kNanosPerSecond;
  std::optional<ComputedElsewhere> out = compute({prompt_of(1, 100)});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->end, PrefillEnd::kDone);
  EXPECT_EQ(out->waited, kNanosPerSecond);
  ASSERT_EQ(out->prompts.size(), 1u);
  EXPECT_EQ(out->prompts[0].computed, 7u);
  EXPECT_NE(out->prompts[0].early, nullptr);
  ASSERT_EQ(orders_.size(), 1u);
  EXPECT_EQ(orders_[0].tokens, prompt_of(1, 100)) << "however short it is: a front has chosen";
  EXPECT_EQ(orders_[0].limit, 9 * kNanosPerSecond);
  EXPECT_FALSE(orders_[0].stops);
  EXPECT_EQ(sink_.headers, "Loci-Prefill: done\n");
  EXPECT_EQ(services_.handed, 1u) << "the engine does not have it yet";
  out.reset();
  EXPECT_EQ(services_.handed, 0u);
}

TEST_F(ComputeElsewhereTest, NobodyIsAskedWhereNobodyIsNamedOrTheStateIsOfAnotherKind) {
  prepared_.scores_prompt = true;
  EXPECT_FALSE(compute({prompt_of(1, 100)}));
  prepared_.scores_prompt = false;
  prepared_.dropped = {{{.begin = 32, .end = 64}}};
  EXPECT_FALSE(compute({prompt_of(1, 100)})) << "it was cut";
  prepared_.dropped.clear();
  prepared_.prefill.reset();
  EXPECT_FALSE(compute({prompt_of(1, 100)}));
  EXPECT_TRUE(orders_.empty());
  EXPECT_EQ(sink_.headers, "");
  EXPECT_EQ(services_.handed, 0u);
}

TEST_F(ComputeElsewhereTest, OfSeveralPromptsThoseWithMuchThatIsNewAreAskedForInTurn) {
  services_.time_limit = 9 * kNanosPerSecond;
  std::vector<TokenId> alike = prompt_of(1, 3'000), longer = alike;
  alike.resize(3'020, TokenId(9));
  longer.resize(4'024, TokenId(9));
  const std::optional<ComputedElsewhere> out =
      compute({prompt_of(1, 3'000), alike, prompt_of(2, 1'023), prompt_of(3, 1'024), longer});
  ASSERT_TRUE(out);
  EXPECT_EQ(asked(), (std::vector<std::uint32_t>{1, 3, 1}));
  EXPECT_EQ(orders_.back().tokens.size(), 4'024u);
  EXPECT_EQ(orders_.back().limit, 7 * kNanosPerSecond) << "the others took two of them";
  EXPECT_EQ(out->waited, 3 * kNanosPerSecond);
  std::vector<std::uint32_t> computed;
  for (const ComputedElsewhere::Prompt& prompt : out->prompts) computed.push_back(prompt.computed);
  EXPECT_EQ(computed, (std::vector<std::uint32_t>{7, 0, 0, 7, 7}));
  EXPECT_EQ(out->prompts[1].early, nullptr);
  EXPECT_EQ(sink_.headers, "Loci-Prefill: done\n") << "once";
  EXPECT_FALSE(compute({prompt_of(1, 600), prompt_of(2, 600)})) << "all are short";
}

TEST_F(ComputeElsewhereTest, AfterAFailureNobodyIsAskedForTheOthers) {
  meanwhile_ = [this] {
    if (orders_.size() == 2) end_ = PrefillEnd::kLate;
  };
  const std::optional<ComputedElsewhere> out =
      compute({prompt_of(1, 2'000), prompt_of(2, 2'000), prompt_of(3, 2'000)});
  ASSERT_TRUE(out);
  EXPECT_EQ(asked(), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(out->end, PrefillEnd::kLate);
  EXPECT_EQ(out->prompts[0].computed, 7u);
  EXPECT_EQ(out->prompts[1].computed, 0u) << "nothing was read";
  EXPECT_EQ(sink_.headers, "Loci-Prefill: late\n");
}

// All prompts of a request share its time: a member that had too little of it left is not to blame.
TEST_F(ComputeElsewhereTest, WhereTheTimeIsUpNobodyIsLate) {
  services_.time_limit = 2 * kNanosPerSecond;
  meanwhile_ = [this] { end_ = orders_.size() < 2 ? PrefillEnd::kDone : PrefillEnd::kLate; };
  const std::vector<std::vector<TokenId>> prompts = {prompt_of(1, 2'000), prompt_of(2, 2'000),
                                                     prompt_of(3, 2'000)};
  std::optional<ComputedElsewhere> out = compute(prompts);
  ASSERT_TRUE(out);
  EXPECT_EQ(asked(), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(out->end, PrefillEnd::kDone);
  EXPECT_EQ(sink_.headers, "Loci-Prefill: done\n");
  out.reset();
  services_.time_limit = kNanosPerSecond;
  end_ = PrefillEnd::kDone;
  compute(prompts);
  EXPECT_EQ(asked(), std::vector<std::uint32_t>{1}) << "no time was left for a second one";
}

TEST_F(ComputeElsewhereTest, WhoHasGoneIsToldNothingAndAsksForNothingMore) {
  meanwhile_ = [this] {
    ASSERT_TRUE(sink_.tell) << "what ends the wait";
    sink_.is_gone = true;
  };
  EXPECT_TRUE(compute({prompt_of(1, 2'000), prompt_of(2, 2'000)}));
  EXPECT_EQ(asked(), std::vector<std::uint32_t>{1});
  EXPECT_EQ(sink_.headers, "");
}

// Clients and proxies give up what says nothing for long; the stream's header is sent before the end is
// known.
TEST_F(ComputeElsewhereTest, AStreamSaysMeanwhileThatItLives) {
  waits_ = 25;  // and one before
  end_ = PrefillEnd::kLate;
  prepared_.fields.stream = true;
  prepared_.resumed.emplace();
  std::optional<ComputedElsewhere> out = compute({prompt_of(1, 100)});
  ASSERT_TRUE(out);
  EXPECT_TRUE(out->is_streaming);
  EXPECT_EQ(sink_.headers, "Loci-Prefill: later\nbegun\n");
  EXPECT_EQ(sink_.streamed, ":\n\n:\n\n: loci-prefill late\n\n") << "each ten seconds, and how it ended";
  // Nor is anybody told who reads no stream, or whose front reads no marks.
  const auto is_told = [&] {
    out.reset();
    out = compute({prompt_of(1, 100)});
    EXPECT_EQ(sink_.streamed, "");
    EXPECT_EQ(sink_.headers, "Loci-Prefill: late\n");
    return out->is_streaming;
  };
  prepared_.resumed.reset();
  EXPECT_FALSE(is_told());
  prepared_.resumed.emplace();
  sink_.is_read = false;
  EXPECT_FALSE(is_told());
  sink_.is_read = true;
  prepared_.fields.stream = false;
  EXPECT_FALSE(is_told());
}

TEST_F(ComputeElsewhereTest, AServerThatStopsEndsTheWait) {
  services_.draining = true;
  end_ = PrefillEnd::kNone;
  EXPECT_TRUE(compute({prompt_of(1, 2'000), prompt_of(2, 2'000)}));
  ASSERT_EQ(orders_.size(), 1u);
  EXPECT_TRUE(orders_[0].stops);
  EXPECT_EQ(sink_.headers, "");
}

}  // namespace
}  // namespace loci
