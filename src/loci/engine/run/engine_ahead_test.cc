// SPDX-License-Identifier: Apache-2.0
// The engine with passes ahead and sampling on the device, over the backend of engine_testing.h: every reply
// is the one that a request gets alone, sampled on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/folder_testing.h"
#include "loci/base/random.h"
#include "loci/engine/log/event_log.h"
#include "loci/engine/testing/ahead_backend_testing.h"
#include "loci/engine/testing/engine_testing.h"

namespace loci {
namespace {

// The reply that the host's sampler gives.
std::vector<TokenId> reply_alone(const GenerationRequest& request) {
  std::uint64_t prefix = 0;
  for (const TokenId token : request.prompt) prefix = extend(prefix, token);
  Sampler sampler(request.sampling, request.prompt, request.stop_tokens, kVocabulary);
  std::vector<TokenId> reply;
  while (reply.size() < request.max_new_tokens) {
    std::vector<float> logits(kVocabulary, 0.0f);
    logits[next_token(prefix).value] = 20.0f;
    reply.push_back(sampler.sample(logits)->token);
    prefix = extend(prefix, reply.back());
    const bool stops = std::count(request.stop_tokens.begin(), request.stop_tokens.end(), reply.back()) > 0;
    if (stops && reply.size() >= request.sampling.min_tokens) break;
  }
  return reply;
}

EngineOptions ahead(EngineOptions options) {
  options.core.passes_ahead = 1;
  return options;
}

struct AheadWorld {
  explicit AheadWorld(EngineOptions engine_options, std::chrono::microseconds pass_time = {},
                      std::uint32_t poison_one_in = 0)
      : inner(pass_time, poison_one_in), backend(inner) {
    EXPECT_TRUE(backend.allocate_blocks(0, engine_options.core.groups[0].block_count).ok());
    engine = std::move(Engine::start(std::move(engine_options), backend, clock)).value();
  }
  SystemClock clock;
  PrefixBackend inner;
  AheadBackend backend;
  std::unique_ptr<Engine> engine;
};

// Temperatures at which the 96 others are as likely as the best, stop tokens, and what only the host can do.
GenerationRequest some_request(Random& random) {
  GenerationRequest request;
  request.prompt = some_prompt(random.below(3), 40 + random.below(60));
  for (const TokenId token : some_prompt(random.next(), random.below(200))) request.prompt.push_back(token);
  request.max_new_tokens = static_cast<std::uint32_t>(1 + random.below(100));
  SamplingParams& sampling = request.sampling;
  sampling.seed = random.next();
  sampling.temperature = random.below(2) == 0 ? 0.0f : 4.0f;
  if (random.below(3) == 0) sampling.top_k = static_cast<std::uint32_t>(1 + random.below(50));
  if (random.below(3) == 0) sampling.top_p = 0.8f;
  if (random.below(4) == 0) sampling.min_p = 0.01f;
  if (random.below(2) == 0) {
    for (int i = 0; i < 3; ++i)
      request.stop_tokens.emplace_back(static_cast<std::uint32_t>(random.below(kVocabulary)));
  }
  if (random.below(4) == 0) sampling.min_tokens = static_cast<std::uint32_t>(random.below(10));
  if (random.below(5) == 0) sampling.frequency_penalty = 1.0f;
  if (random.below(8) == 0) sampling.logprobs = true;
  return request;
}

TEST(EngineAhead, FollowsWhatIsStillOnTheDevice) {
  AheadWorld world(ahead(options(64)));
  const auto prompt = some_prompt(1, 100);
  Record record;
  world.engine->submit(greedy(prompt, 200), record.listener());
  const GenerationEnded ended = record.wait();
  EXPECT_EQ(ended.reason, FinishReason::kLength);
  EXPECT_EQ(record.tokens(), expected_reply(prompt, 200));
  EXPECT_EQ(world.backend.followed(), 199u) << "every token but the first";
  EXPECT_EQ(world.engine->stats().spans_wasted_total, 0u) << "a length is known ahead";
}

TEST(EngineAhead, WastesOneSpanWhereAReplyStops) {
  AheadWorld world(ahead(options(64)));
  GenerationRequest request = greedy(some_prompt(2, 70), 500);
  request.stop_tokens = {expected_reply(request.prompt, 40).back()};
  const std::vector<TokenId> expected = reply_alone(request);
  ASSERT_LE(expected.size(), 40u);
  const std::vector<TokenId> prompt = request.prompt;
  Record record;
  world.engine->submit(std::move(request), record.listener());
  EXPECT_EQ(record.wait().reason, FinishReason::kStop);
  EXPECT_EQ(record.tokens(), expected);
  world.engine->drain(kNever);
  ASSERT_TRUE(world.engine->wait_drained(60 * kNanosPerSecond));
  const CoreStats stats = world.engine->stats();
  EXPECT_EQ(stats.spans_wasted_total, 1u);
  EXPECT_EQ(stats.blocks_pinned, 0u);
}

// Many threads, shared prefixes, poisoned spans, cancels, a pool too small for all.
TEST(EngineAhead, ManyAtOnceAnswerAsIfAlone) {
  const TestFolder folder;
  const std::string log = folder.file("events");
  EngineOptions engine_options = ahead(options(14));
  engine_options.event_log_path = log;
  {
    AheadWorld world(std::move(engine_options), {}, 25);
    std::vector<std::thread> clients;
    for (std::uint64_t c = 0; c < 6; ++c) {
      clients.emplace_back([&, c] {
        Random random(c);
        for (int i = 0; i < 25; ++i) {
          const GenerationRequest request = some_request(random);
          const std::vector<TokenId> expected = reply_alone(request);
          Record record;
          const RequestId id = world.engine->submit(request, record.listener());
          const bool cancelled = random.below(6) == 0;
          if (cancelled) {
            record.wait_for_tokens(random.below(8));
            world.engine->cancel(id);
          }
          const GenerationEnded ended = record.wait();
          ASSERT_TRUE(ended.status.ok()) << ended.status.to_string();
          const std::vector<TokenId> tokens = record.tokens();
          if (cancelled) {
            ASSERT_LE(tokens.size(), expected.size());
            ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.begin()));
          } else {
            ASSERT_EQ(tokens, expected);
          }
        }
      });
    }
    for (std::thread& client : clients) client.join();
    // These cannot all stay: none ends before all are there, however slow this machine is.
    std::array<Record, 6> together;
    {
      const MutexLock held = together[0].hold_engine();
      for (std::uint64_t i = 0; i < together.size(); ++i)
        world.engine->submit(greedy(some_prompt(10 + i, 60), 100), together[i].listener());
    }
    for (std::uint64_t i = 0; i < together.size(); ++i) {
      ASSERT_TRUE(together[i].wait().status.ok());
      ASSERT_EQ(together[i].tokens(), expected_reply(some_prompt(10 + i, 60), 100));
    }
    world.engine->drain(kNever);
    ASSERT_TRUE(world.engine->wait_drained(60 * kNanosPerSecond));
    const CoreStats stats = world.engine->stats();
    EXPECT_EQ(stats.blocks_pinned, 0u);
    EXPECT_EQ(stats.running, 0u);
    EXPECT_GT(stats.suspensions_total, 0u);
    EXPECT_GT(stats.spans_wasted_total, 20u);
    EXPECT_GT(world.backend.followed(), 500u);
  }
  const Result<ReplayReport> replayed = replay(log);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
  EXPECT_GT(replayed->steps, 500u);
}

TEST(EngineAhead, TheDeviceSamplesWithoutPassesAheadToo) {
  AheadWorld world(options(64));
  Random random(5);
  for (int i = 0; i < 10; ++i) {
    const GenerationRequest request = some_request(random);
    Record record;
    world.engine->submit(request, record.listener());
    record.wait();
    EXPECT_EQ(record.tokens(), reply_alone(request));
  }
  EXPECT_EQ(world.backend.followed(), 0u);
}

TEST(EngineAhead, RefusesMorePassesThanTheBackendTakes) {
  SystemClock clock;
  PrefixBackend backend;
  const auto engine = Engine::start(ahead(options(8)), backend, clock);
  EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.status().field(), "passes_ahead");
}

// --- a lost device ---

void lose(EngineOptions engine_options) {
  AheadWorld world(std::move(engine_options), std::chrono::microseconds(200));
  world.backend.lose_after(20);
  EXPECT_TRUE(world.engine->health().ok());
  std::vector<std::unique_ptr<Record>> records;
  for (std::uint64_t i = 0; i < 30; ++i) {  // more than run at once
    records.push_back(std::make_unique<Record>());
    world.engine->submit(greedy(some_prompt(i, 30), 1000), records.back()->listener());
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    const GenerationEnded ended = records[i]->wait();
    EXPECT_EQ(ended.status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(ended.status.message(), "the device fell off the bus");
    const std::vector<TokenId> tokens = records[i]->tokens();
    EXPECT_EQ(tokens, expected_reply(some_prompt(i, 30), tokens.size()));
  }
  EXPECT_EQ(world.engine->health().message(), "the device fell off the bus");
  Record late;
  world.engine->submit(greedy(some_prompt(1, 10), 2), late.listener());
  EXPECT_EQ(late.wait().status.message(), "the device fell off the bus");
  EXPECT_TRUE(late.tokens().empty());
  world.engine->drain(kNever);
  EXPECT_TRUE(world.engine->wait_drained(10 * kNanosPerSecond));
}

TEST(EngineAhead, ALostDeviceEndsEveryRequestAndRefusesNewOnes) { lose(ahead(options(64))); }
TEST(EngineAhead, ALostDeviceEndsEveryRequestWithoutPassesAheadToo) { lose(options(64)); }

TEST(EngineAhead, StopsWithALostDevice) {
  Record record;
  {
    AheadWorld world(ahead(options(64)), std::chrono::microseconds(500));
    world.backend.lose_after(3);
    world.engine->submit(greedy(some_prompt(3, 30), 1000), record.listener());
    record.wait_for_tokens(1);
  }
  EXPECT_TRUE(record.ended());
}

}  // namespace
}  // namespace loci
