// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/run/engine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/base/folder_testing.h"
#include "loci/base/mutex.h"
#include "loci/base/random.h"
#include "loci/base/thread_limit_testing.h"
#include "loci/engine/log/event_log.h"
#include "loci/engine/testing/engine_testing.h"

namespace loci {
namespace {

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

TEST(Engine, GoesOnWithAReplyThatAnotherServerBegan) {
  const auto prompt = some_prompt(1, 40);
  const auto request = [&](const std::vector<TokenId>& said) {
    GenerationRequest out = greedy(prompt, 50);
    out.sampling.temperature = 8;  // flat enough that draws differ
    out.sampling.frequency_penalty = 0.5f;
    out.sampling.repetition_penalty = 1.5f;
    out.sampling.seed = 9;
    out.prompt.insert(out.prompt.end(), said.begin(), said.end());
    out.said_tokens = static_cast<std::uint32_t>(said.size());
    return out;
  };
  Record whole;
  World first(options(64));
  first.engine->submit(request({}), whole.listener());
  whole.wait();
  const std::vector<TokenId> wanted = whole.tokens();
  ASSERT_EQ(wanted.size(), 50u);
  for (const std::ptrdiff_t said : {1, 17, 49}) {
    Record rest;
    World world(options(64));
    world.engine->submit(request({wanted.begin(), wanted.begin() + said}), rest.listener());
    const GenerationEnded ended = rest.wait();
    EXPECT_EQ(ended.reason, FinishReason::kLength);
    EXPECT_EQ(ended.usage.completion_tokens, 50u - static_cast<std::uint32_t>(said));
    EXPECT_EQ(rest.tokens(), std::vector<TokenId>(wanted.begin() + said, wanted.end())) << said;
  }
}

// Its tokens behind the first one are sampled, as forced ones.
TEST(Engine, CountsTheTokensOfAScoredPromptAsAPrompts) {
  World world(options(64));
  const auto prompt = some_prompt(1, 40);
  GenerationRequest request = greedy({prompt.front()}, 39 + 5);
  request.sampling.logprobs = true;
  request.sampling.forced.assign(prompt.begin() + 1, prompt.end());
  Record scored;
  world.engine->submit(std::move(request), scored.listener());
  scored.wait();
  EXPECT_EQ(scored.tokens().size(), 39u + 5);
  const CoreStats stats = world.engine->stats();
  EXPECT_EQ(stats.tokens_prompt_total, 40u);
  EXPECT_EQ(stats.tokens_missed_total[static_cast<std::size_t>(MissReason::kNeverSeen)], 40u);
  EXPECT_EQ(stats.tokens_generated_total, 5u);
}

TEST(Engine, CountsAPromptOnceHoweverManyRepliesItGets) {
  World world(options(64));
  const auto prompt = some_prompt(1, 100);
  std::vector<Record> records(3);
  for (std::size_t i = 0; i < records.size(); ++i) {
    GenerationRequest request = greedy(prompt, 5);
    request.repeats_prompt = i > 0;
    world.engine->submit(std::move(request), records[i].listener());
    records[i].wait();
  }
  EXPECT_EQ(records[2].cached(), 99u);
  const CoreStats stats = world.engine->stats();
  EXPECT_EQ(stats.tokens_prompt_total, 100u);
  EXPECT_EQ(stats.tokens_cached_total, 0u);
  EXPECT_EQ(stats.tokens_from_total[static_cast<std::size_t>(Tier::kDevice)], 0u);
  EXPECT_EQ(stats.tokens_missed_total[static_cast<std::size_t>(MissReason::kNeverSeen)], 100u);
  EXPECT_EQ(stats.tokens_generated_total, 15u);
}

TEST(Engine, WithoutThreadsItDoesNotStart) {
  const SystemClock clock;
  std::size_t left = 0;
  for (;; ++left) {
    PrefixBackend backend;
    ASSERT_TRUE(backend.allocate_blocks(0, 64).ok());
    const ThreadLimit limit(left);
    const auto engine = Engine::start(options(64), backend, clock);
    if (engine.ok()) break;
    EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted) << left;
    ASSERT_LT(left, 10u) << engine.status().to_string();
  }
  EXPECT_GE(left, 3u) << "the core's, the compute thread and the mover";
}

// What a listener is told.
class PlacesHeard final : public BlockListener {
 public:
  void prompt(const PromptNames& text, std::span<const ChainKey> keys, std::size_t tokens) override {
    const MutexLock lock(mutex_);
    prompts_.push_back(std::to_string(text.chunks.size()) + " chunks, " + std::to_string(tokens) + " tokens");
    keys_.assign(keys.begin(), keys.end());
  }
  void moved(std::span<const BlockPlace> places) override {
    const MutexLock lock(mutex_);
    for (const BlockPlace& place : places) {
      if (place.tier)
        held_[place.key] = *place.tier;
      else
        held_.erase(place.key);
    }
  }
  void costs(const CostCurves& curves) override {
    const MutexLock lock(mutex_);
    token_cost_ = curves.token;
  }
  std::vector<std::string> prompts() const {
    const MutexLock lock(mutex_);
    return prompts_;
  }
  // Of the latest prompt's whole blocks, those on the device.
  std::size_t on_device() const {
    const MutexLock lock(mutex_);
    std::size_t count = 0;
    for (const ChainKey& key : keys_) {
      const auto at = held_.find(key);
      count += at != held_.end() && at->second == Tier::kDevice ? 1 : 0;
    }
    return count;
  }
  Nanos token_cost() const {
    const MutexLock lock(mutex_);
    return token_cost_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> prompts_ GUARDED_BY(mutex_);
  std::vector<ChainKey> keys_ GUARDED_BY(mutex_);
  std::map<ChainKey, Tier> held_ GUARDED_BY(mutex_);
  Nanos token_cost_ GUARDED_BY(mutex_) = 0;
};

TEST(Engine, TellsWhichPromptsBlocksAreWhere) {
  const auto heard = std::make_shared<PlacesHeard>();
  EngineOptions engine_options = options(64);
  engine_options.listener = heard;
  engine_options.core.costs.token = 1'234;
  World world(std::move(engine_options));
  EXPECT_EQ(heard->token_cost(), 1'234);
  const auto prompt = some_prompt(1, 100);
  GenerationRequest request = greedy(prompt, 2);
  request.text = std::make_shared<const PromptNames>(
      PromptNames{.chunks = {4, 8}, .chunk_bytes = 200, .bytes = 450, .ends = {}});
  Forget forget{.tenant = request.tenant, .salt = {}, .tokens = prompt};
  Record first;
  world.engine->submit(std::move(request), first.listener());
  first.wait();
  EXPECT_EQ(heard->prompts(), std::vector<std::string>{"2 chunks, 100 tokens"});
  EXPECT_EQ(heard->on_device(), 3u) << "told before the reply ended";
  Record unnamed;
  world.engine->submit(greedy(some_prompt(2, 100), 2), unnamed.listener());
  unnamed.wait();
  EXPECT_EQ(heard->prompts().size(), 1u) << "nobody named that one's text";
  CostCurves costs;
  costs.token = 777;
  world.engine->set_costs(costs);
  world.engine->forget(std::move(forget));
  EXPECT_TRUE(eventually([&] { return heard->on_device() == 0; }));
  EXPECT_EQ(heard->token_cost(), 777);
}

// Many threads, shared prefixes, a pool too small for all (so that requests are suspended and state is
// evicted), poisoned spans: every reply is the one that it would be alone.
TEST(Engine, ManyAtOnceAnswerAsIfAlone) {
  const TestFolder folder;
  const std::string log = folder.file("events");
  EngineOptions engine_options = options(40);
  engine_options.event_log_path = log;
  {
    World world(std::move(engine_options), {}, 20);
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
    ASSERT_TRUE(world.engine->wait_drained(120 * kNanosPerSecond));
    EXPECT_EQ(world.engine->stats().blocks_pinned, 0u);
    EXPECT_EQ(world.engine->stats().running, 0u);
  }
  const Result<ReplayReport> replayed = replay(log);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
  EXPECT_GT(replayed->steps, 48u);
}

// Work for idle times waits for the last reply, is told to stop when somebody comes, and is called again.
TEST(Engine, IdleWorkStopsForARequestAndGoesOn) {
  const TestFolder folder;
  const std::string log = folder.file("events");
  EngineOptions engine_options = options(64);
  engine_options.event_log_path = log;
  {
    World world(std::move(engine_options));
    std::mutex mutex;
    std::condition_variable changed;
    int calls = 0, stopped = 0;
    bool over = false;
    const auto wait_for = [&](const std::function<bool()>& what) {
      std::unique_lock lock(mutex);
      return changed.wait_for(lock, std::chrono::seconds(60), what);
    };
    world.engine->when_idle(kNanosPerMilli, [&](const IdleStop& stop) {
      std::unique_lock lock(mutex);
      ++calls;
      changed.notify_all();
      if (calls > 1) {
        over = true;
        return true;
      }
      while (!stop()) changed.wait_for(lock, std::chrono::milliseconds(1));
      ++stopped;
      return false;
    });
    ASSERT_TRUE(wait_for([&] { return calls == 1; }));
    const auto prompt = some_prompt(1, 50);
    Record record;
    world.engine->submit(greedy(prompt, 5), record.listener());
    EXPECT_TRUE(record.wait().status.ok());
    EXPECT_EQ(record.tokens(), expected_reply(prompt, 5));
    ASSERT_TRUE(wait_for([&] { return over; }));
    EXPECT_EQ(stopped, 1);
    CostCurves measured;
    measured.token = 12'345;
    world.engine->set_costs(measured);
    Record after;
    world.engine->submit(greedy(prompt, 5), after.listener());
    EXPECT_TRUE(after.wait().status.ok());
    EXPECT_EQ(calls, 2) << "what is done is not called again";
  }
  const Result<ReplayReport> report = replay(log);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->compared, report->steps);
}

// The event log is a pipe that nobody reads: a step waits in the middle, for as long as the test likes.
TEST(Engine, FiguresAreToldWhileAStepWaits) {
  const TestFolder folder;
  const std::string log = folder.file("pipe");
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  const int pipe = ::open(log.c_str(), O_RDWR | O_CLOEXEC);  // both ends, so that nobody waits for the other
  ASSERT_GE(pipe, 0);
  ASSERT_GE(::fcntl(pipe, F_SETPIPE_SZ, 4096), 4096);
  const auto waiting = [&] {
    int bytes = 0;
    ::ioctl(pipe, FIONREAD, &bytes);
    return bytes;
  };
  std::atomic<bool> over = false;
  std::optional<std::thread> reader;
  {
    EngineOptions engine_options = options(64);
    engine_options.event_log_path = log;
    World world(std::move(engine_options));
    Record record;
    const auto prompt = some_prompt(1, 1500);  // more than the pipe holds
    world.engine->submit(greedy(prompt, 3), record.listener());
    // The event does not fit, so the step that logs it cannot end. It has begun when the pipe stands still.
    // On a busy machine the pipe may do so before: then the figures are asked for again.
    std::future<bool> told;
    bool still_waits = false;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!still_waits && std::chrono::steady_clock::now() < end) {
      for (int same = 0, last = 0; same < 100 || last == 0; same = last == waiting() ? same + 1 : 0) {
        last = waiting();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      const int written = waiting();
      told = std::async(std::launch::async, [&] {
        return world.engine->health().ok() && world.engine->stats().running == 0 &&
               world.engine->mover_stats().queued == 0 && world.engine->disk_stats().reads_total == 0 &&
               world.engine->shared_stats().asks_total == 0 && world.engine->capture_stats().places == 0;
      });
      if (told.wait_for(std::chrono::seconds(60)) != std::future_status::ready) break;
      still_waits = waiting() == written;
    }
    EXPECT_TRUE(still_waits) << "the figures were told while the step waited";
    reader.emplace([&] {
      std::array<char, 4096> bytes{};
      while (!over) {
        if (waiting() == 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        else if (::read(pipe, bytes.data(), bytes.size()) <= 0)
          return;
      }
    });
    EXPECT_TRUE(record.wait().status.ok());
    EXPECT_EQ(record.tokens(), expected_reply(prompt, 3));
    EXPECT_TRUE(told.get());
  }
  over = true;
  reader->join();
  ::close(pipe);
}

// A backend whose passes do not end while it is held, as on a device that hangs.
class HangingBackend final : public WrappedBackend {
 public:
  using WrappedBackend::WrappedBackend;
  void finish(std::vector<SpanResult>& results) override {
    {
      MutexLock lock(mutex_);
      changed_.wait(lock, [&]() REQUIRES(mutex_) { return !hangs_; });
    }
    WrappedBackend::finish(results);
  }
  void hang(bool hangs) {
    {
      const MutexLock lock(mutex_);
      hangs_ = hangs;
    }
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool hangs_ GUARDED_BY(mutex_) = false;
};

TEST(Engine, SaysThatItsDeviceStandsStillUntilItGoesOn) {
  SystemClock clock;
  PrefixBackend inner;
  HangingBackend backend(inner);
  EngineOptions engine_options = options(64);
  engine_options.stall_limit = 40 * kNanosPerMilli;
  ASSERT_TRUE(backend.allocate_blocks(0, 64).ok());
  const auto health_is = [](const Engine& engine, StatusCode wanted) {
    for (int i = 0; i < 12'000 && engine.health().code() != wanted; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return engine.health().code() == wanted;
  };
  const std::vector<TokenId> prompt = some_prompt(5, 40);
  const auto engine = std::move(Engine::start(std::move(engine_options), backend, clock)).value();
  EXPECT_TRUE(engine->health().ok());
  backend.hang(true);
  Record record;
  engine->submit(greedy(prompt, 3), record.listener());
  EXPECT_TRUE(health_is(*engine, StatusCode::kDeadlineExceeded)) << "nobody else asked it for anything";
  EXPECT_FALSE(record.ended());
  backend.hang(false);
  EXPECT_TRUE(record.wait().status.ok());
  EXPECT_EQ(record.tokens(), expected_reply(prompt, 3)) << "what waited has lost nothing";
  EXPECT_TRUE(health_is(*engine, StatusCode::kOk));
}

TEST(Engine, AStandstillOfIdleWorkIsOneOfThePassThatWaitsForIt) {
  EngineOptions engine_options = options(64);
  engine_options.stall_limit = 40 * kNanosPerMilli;
  World world(std::move(engine_options));
  std::promise<void> begun, released;
  world.engine->when_idle(0, [&](const IdleStop&) {
    begun.set_value();
    released.get_future().wait();
    return true;
  });
  begun.get_future().wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(world.engine->health().ok()) << "nobody waits for it";
  Record record;
  world.engine->submit(greedy(some_prompt(5, 40), 3), record.listener());
  while (world.engine->health().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(world.engine->health().code(), StatusCode::kDeadlineExceeded);
  released.set_value();
  EXPECT_TRUE(record.wait().status.ok());
}

TEST(Engine, CancelEndsOnceAndFreesItsBlocks) {
  World world(options(64), std::chrono::milliseconds(20));  // the reply would take half a minute
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
  World world(std::move(engine_options), std::chrono::milliseconds(20));
  std::vector<std::unique_ptr<Record>> records;
  std::vector<RequestId> ids;
  // Replies that take half a minute: no place becomes free until all have come. Then they are cancelled.
  for (std::uint64_t i = 0; i < 10; ++i) {
    records.push_back(std::make_unique<Record>());
    ids.push_back(world.engine->submit(greedy(some_prompt(i, 10), 1500), records.back()->listener()));
  }
  for (const RequestId id : ids) world.engine->cancel(id);
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
  const auto heard = std::make_shared<PlacesHeard>();
  EngineOptions engine_options = options(64);
  engine_options.listener = heard;
  World world(std::move(engine_options));
  Record record;
  GenerationRequest request = greedy(some_prompt(1, 2001), 1);
  request.text = std::make_shared<const PromptNames>(
      PromptNames{.chunks = {4, 8}, .chunk_bytes = 200, .bytes = 450, .ends = {}});
  world.engine->submit(std::move(request), record.listener());
  EXPECT_EQ(record.wait().status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(heard->prompts().empty()) << "what is refused names nothing";
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
  EXPECT_TRUE(world.engine->wait_drained(120 * kNanosPerSecond));
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
