// The engine with both its threads, on a backend whose "state" is the hash of the prefix at each token:
// a token sampled from wrong or missing state is a wrong token.
#include "loci/engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "loci/base/random.h"
#include "loci/engine/event_log.h"

namespace loci {
namespace {

constexpr std::uint32_t kVocabulary = 97;
constexpr std::uint32_t kLayers = 2;

std::uint64_t extend(std::uint64_t prefix, TokenId token) { return mix64(prefix * 31 + token.value + 1); }
TokenId next_token(std::uint64_t prefix) { return TokenId(static_cast<std::uint32_t>(prefix % kVocabulary)); }

std::vector<TokenId> expected_reply(const std::vector<TokenId>& prompt, std::size_t count) {
  std::uint64_t prefix = 0;
  for (const TokenId token : prompt) prefix = extend(prefix, token);
  std::vector<TokenId> reply;
  while (reply.size() < count) {
    reply.push_back(next_token(prefix));
    prefix = extend(prefix, reply.back());
  }
  return reply;
}

class PrefixBackend final : public Backend {
 public:
  explicit PrefixBackend(std::chrono::microseconds pass_time = {}, std::uint32_t poison_one_in = 0)
      : pass_time_(pass_time), poison_one_in_(poison_one_in) {
    info_.name = "prefix";
    info_.layers = kLayers;
    info_.groups = {{.layers = {0, 1}}};
    info_.vocabulary = kVocabulary;
  }
  const BackendInfo& info() const override { return info_; }
  Status allocate_blocks(std::uint32_t, std::uint32_t count) override {
    state_.assign(std::size_t{count} * kBlockTokens, 0);
    return {};
  }
  void run(const Pass& pass, std::vector<SpanResult>& results) override {
    if (pass_time_.count() > 0) std::this_thread::sleep_for(pass_time_);
    for (const BlockCopy& copy : pass.copies) {
      for (std::uint32_t i = 0; i < copy.tokens; ++i) at(copy.to, i) = at(copy.from, i);
    }
    results.assign(pass.spans.size(), {});
    logits_.assign(pass.spans.size() * kVocabulary, 0.0f);
    for (std::size_t s = 0; s < pass.spans.size(); ++s) {
      const std::uint64_t prefix = write(pass.spans[s]);
      if (poison_one_in_ != 0 && random_.below(poison_one_in_) == 0) {
        results[s].status = data_loss("a block did not arrive");
        continue;
      }
      if (pass.spans[s].logits == LogitsWanted::kNone) continue;
      const auto row = std::span<float>(logits_).subspan(s * kVocabulary, kVocabulary);
      row[next_token(prefix).value] = 20.0f;
      results[s].logits = row;
    }
  }
  void begin_fill(std::uint32_t, SlotId) override {}
  void write_layer(SlotId, std::uint32_t, std::span<const std::byte>) override {}
  void read_layer(SlotId, std::uint32_t, std::span<std::byte>) const override {}
  void layer_arrived(SlotId, std::uint32_t) override {}
  void fill_failed(std::uint32_t, SlotId) override {}

 private:
  std::uint64_t& at(SlotId slot, std::uint32_t offset) {
    return state_.at(std::size_t{slot.value} * kBlockTokens + offset);
  }
  std::uint64_t write(const Span& span) {
    const auto place = [&](std::uint32_t position) -> std::uint64_t& {
      return at(span.tables.at(0).blocks.at(position / kBlockTokens), position % kBlockTokens);
    };
    std::uint64_t prefix = span.position == 0 ? 0 : place(span.position - 1);
    for (std::uint32_t i = 0; i < span.tokens.size(); ++i) {
      prefix = extend(prefix, span.tokens[i]);
      place(span.position + i) = prefix;
    }
    return prefix;
  }

  BackendInfo info_;
  std::vector<std::uint64_t> state_;
  std::vector<float> logits_;
  std::chrono::microseconds pass_time_;
  std::uint32_t poison_one_in_;
  Random random_{1};
};

// What one request was told. Thread-safe.
class Record {
 public:
  GenerationListener listener() {
    return [this](const GenerationEvent& event) {
      std::lock_guard lock(mutex_);
      ASSERT_FALSE(ended_) << "nothing follows the end";
      if (const auto* token = std::get_if<GeneratedToken>(&event)) tokens_.push_back(token->token);
      if (const auto* started = std::get_if<GenerationStarted>(&event)) cached_ = started->cached_tokens;
      if (const auto* ended = std::get_if<GenerationEnded>(&event)) ended_ = *ended;
      changed_.notify_all();
    };
  }
  GenerationEnded wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ended_.has_value(); }));
    return ended_.value_or(GenerationEnded{});
  }
  void wait_for_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60),
                                  [&] { return ended_.has_value() || tokens_.size() >= count; }));
  }
  bool ended() {
    std::lock_guard lock(mutex_);
    return ended_.has_value();
  }
  std::vector<TokenId> tokens() {
    std::lock_guard lock(mutex_);
    return tokens_;
  }
  std::uint32_t cached() {
    std::lock_guard lock(mutex_);
    return cached_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_;
  std::uint32_t cached_ = 0;
  std::optional<GenerationEnded> ended_;
};

EngineOptions options(std::uint32_t blocks) {
  EngineOptions result;
  result.core.groups = {{.window = 0, .block_count = blocks}};
  result.core.layers = kLayers;
  result.core.context_tokens = 2000;
  result.core.max_batch_tokens = 128;
  result.core.max_running = 8;
  result.core.max_queued = 64;
  return result;
}

struct World {
  explicit World(EngineOptions engine_options, std::chrono::microseconds pass_time = {},
                 std::uint32_t poison_one_in = 0)
      : backend(pass_time, poison_one_in) {
    EXPECT_TRUE(backend.allocate_blocks(0, engine_options.core.groups[0].block_count).ok());
    engine = std::move(Engine::start(engine_options, backend, clock)).value();
  }
  SystemClock clock;
  PrefixBackend backend;
  std::unique_ptr<Engine> engine;
};

std::vector<TokenId> some_prompt(std::uint64_t seed, std::size_t length) {
  Random random(seed);
  std::vector<TokenId> prompt;
  while (prompt.size() < length)
    prompt.push_back(TokenId(static_cast<std::uint32_t>(random.below(kVocabulary))));
  return prompt;
}

GenerationRequest greedy(std::vector<TokenId> prompt, std::uint32_t count) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0f;
  request.max_new_tokens = count;
  return request;
}

TEST(Engine, AnswersAndRemembers) {
  World world(options(64));
  const auto prompt = some_prompt(1, 100);
  Record first;
  world.engine->submit(greedy(prompt, 20), first.listener());
  const GenerationEnded ended = first.wait();
  ASSERT_TRUE(ended.status.ok()) << ended.status.to_string();
  EXPECT_EQ(ended.reason, FinishReason::kLength);
  EXPECT_EQ(ended.usage.prompt_tokens, 100u);
  EXPECT_EQ(ended.usage.completion_tokens, 20u);
  EXPECT_EQ(first.tokens(), expected_reply(prompt, 20));
  EXPECT_EQ(first.cached(), 0u);

  auto continued = prompt;
  for (const TokenId token : first.tokens()) continued.push_back(token);
  for (const TokenId token : some_prompt(2, 10)) continued.push_back(token);
  Record second;
  world.engine->submit(greedy(continued, 20), second.listener());
  second.wait();
  EXPECT_EQ(second.tokens(), expected_reply(continued, 20));
  EXPECT_EQ(second.cached(), 119u);  // all but the last sampled token, which was never computed on
}

// Many threads, shared prefixes, a pool too small for all (so that requests are suspended and state is
// evicted), poisoned spans: every reply is the one that it would be alone.
TEST(Engine, ManyAtOnceAnswerAsIfAlone) {
  const std::string log = testing::TempDir() + "engine_test_events";
  EngineOptions engine_options = options(40);
  engine_options.event_log_path = log;
  {
    World world(engine_options, {}, 20);
    std::vector<std::thread> clients;
    for (std::uint64_t c = 0; c < 4; ++c) {
      clients.emplace_back([&, c] {
        Random random(c);
        for (int i = 0; i < 12; ++i) {
          auto prompt = some_prompt(random.below(3), 40 + random.below(60));
          for (const TokenId token : some_prompt(random.next(), random.below(200))) prompt.push_back(token);
          const auto count = static_cast<std::uint32_t>(1 + random.below(60));
          Record record;
          world.engine->submit(greedy(prompt, count), record.listener());
          const GenerationEnded ended = record.wait();
          ASSERT_TRUE(ended.status.ok()) << ended.status.to_string();
          ASSERT_EQ(record.tokens(), expected_reply(prompt, count));
        }
      });
    }
    for (std::thread& client : clients) client.join();
    world.engine->drain(kNever);
    ASSERT_TRUE(world.engine->wait_drained(60 * kNanosPerSecond));
    EXPECT_EQ(world.engine->stats().blocks_pinned, 0u);
    EXPECT_EQ(world.engine->stats().running, 0u);
  }
  const Result<ReplayReport> replayed = replay(log);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
  EXPECT_GT(replayed->steps, 48u);
  std::filesystem::remove(log);
}

TEST(Engine, CancelEndsOnceAndFreesItsBlocks) {
  World world(options(64), std::chrono::microseconds(500));
  Record record;
  const RequestId id = world.engine->submit(greedy(some_prompt(3, 50), 1500), record.listener());
  record.wait_for_tokens(3);
  world.engine->cancel(id);
  EXPECT_EQ(record.wait().reason, FinishReason::kCancelled);
  world.engine->cancel(id);  // late: ignored
  Record after;
  world.engine->submit(greedy(some_prompt(4, 10), 2), after.listener());
  EXPECT_TRUE(after.wait().status.ok());
  EXPECT_EQ(world.engine->stats().blocks_pinned, 0u);
}

TEST(Engine, DeadlineCutsOff) {
  World world(options(64), std::chrono::milliseconds(2));
  GenerationRequest request = greedy(some_prompt(5, 10), 1500);
  request.time_limit = 30 * kNanosPerMilli;
  Record record;
  world.engine->submit(std::move(request), record.listener());
  EXPECT_EQ(record.wait().reason, FinishReason::kDeadline);
  EXPECT_EQ(record.tokens(), expected_reply(some_prompt(5, 10), record.tokens().size()));
}

TEST(Engine, RefusesBeyondItsQueueAndSaysWhenToComeBack) {
  EngineOptions engine_options = options(64);
  engine_options.core.max_running = 1;
  engine_options.core.max_queued = 2;
  World world(engine_options, std::chrono::milliseconds(1));
  std::vector<std::unique_ptr<Record>> records;
  for (std::uint64_t i = 0; i < 10; ++i) {
    records.push_back(std::make_unique<Record>());
    world.engine->submit(greedy(some_prompt(i, 10), 30), records.back()->listener());
  }
  int refused = 0;
  for (auto& record : records) {
    const GenerationEnded ended = record->wait();
    if (ended.status.ok()) continue;
    ++refused;
    EXPECT_EQ(ended.status.code(), StatusCode::kResourceExhausted);
    EXPECT_GT(ended.retry_after, 0);
  }
  EXPECT_GE(refused, 6);
  EXPECT_LE(refused, 8);
}

TEST(Engine, RefusesWhatCanNeverFitAndNamesTheLimit) {
  World world(options(64));
  Record record;
  world.engine->submit(greedy(some_prompt(1, 2001), 1), record.listener());
  EXPECT_EQ(record.wait().status.code(), StatusCode::kInvalidArgument);
}

TEST(Engine, DrainsAndRefusesWhileDraining) {
  World world(options(64), std::chrono::milliseconds(1));
  Record running, late;
  world.engine->submit(greedy(some_prompt(1, 10), 50), running.listener());
  running.wait_for_tokens(1);
  world.engine->drain(kNever);
  world.engine->submit(greedy(some_prompt(2, 10), 5), late.listener());
  EXPECT_EQ(late.wait().status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(running.wait().reason, FinishReason::kLength);
  EXPECT_EQ(running.tokens().size(), 50u);
  EXPECT_TRUE(world.engine->wait_drained(10 * kNanosPerSecond));
}

TEST(Engine, StoppingWhileBusyEndsEveryListener) {
  std::vector<std::unique_ptr<Record>> records;
  {
    World world(options(64), std::chrono::milliseconds(1));
    for (std::uint64_t i = 0; i < 20; ++i) {
      records.push_back(std::make_unique<Record>());
      world.engine->submit(greedy(some_prompt(i, 30), 1000), records.back()->listener());
    }
    records[0]->wait_for_tokens(2);
  }
  for (auto& record : records) EXPECT_TRUE(record->ended());
}

}  // namespace
}  // namespace loci
