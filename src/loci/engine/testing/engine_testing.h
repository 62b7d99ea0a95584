// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the engine. They run it with both its threads on a backend whose "state" is the hash
// of the prefix at each token, so wrong or missing state gives a wrong token.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/random.h"
#include "loci/compute/backend_testing.h"
#include "loci/engine/run/engine.h"

namespace loci {

inline constexpr std::uint32_t kVocabulary = 97;
inline constexpr std::uint32_t kLayers = 2;

inline std::uint64_t extend(std::uint64_t prefix, TokenId token) {
  return mix64(prefix * 31 + token.value + 1);
}
inline TokenId next_token(std::uint64_t prefix) {
  return TokenId(static_cast<std::uint32_t>(prefix % kVocabulary));
}

inline std::vector<TokenId> expected_reply(const std::vector<TokenId>& prompt, std::size_t count) {
  std::uint64_t prefix = 0;
  for (const TokenId token : prompt) prefix = extend(prefix, token);
  std::vector<TokenId> reply;
  while (reply.size() < count) {
    reply.push_back(next_token(prefix));
    prefix = extend(prefix, reply.back());
  }
  return reply;
}

class PrefixBackend final : public EmptyBackend {
 public:
  explicit PrefixBackend(std::chrono::microseconds pass_time = {}, std::uint32_t poison_one_in = 0)
      : EmptyBackend(prefix_info()), pass_time_(pass_time), poison_one_in_(poison_one_in) {}
  Status allocate_blocks(std::uint32_t, std::uint32_t count) override {
    state_.assign(std::size_t{count} * kBlockTokens, 0);
    return {};
  }
  void begin(Pass pass) override { begun_ = std::move(pass); }
  void finish(std::vector<SpanResult>& results) override {
    const Pass pass = std::move(begun_);
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

 private:
  static BackendInfo prefix_info() {
    BackendInfo info;
    info.name = "prefix";
    info.layers = kLayers;
    info.groups = {{.layers = {0, 1}}};
    info.vocabulary = kVocabulary;
    return info;
  }
  std::uint64_t& at(SlotId slot, std::uint32_t offset) {
    return state_.at(std::size_t{slot.value} * kBlockTokens + offset);
  }
  std::uint64_t write(const Span& span) {
    const auto place = [&](std::uint32_t position) -> std::uint64_t& {
      return at(span.tables.at(0).blocks[position / kBlockTokens], position % kBlockTokens);
    };
    std::uint64_t prefix = span.position == 0 ? 0 : place(span.position - 1);
    for (std::uint32_t i = 0; i < span.tokens.size(); ++i) {
      prefix = extend(prefix, span.tokens[i]);
      place(span.position + i) = prefix;
    }
    return prefix;
  }

  Pass begun_;
  std::vector<std::uint64_t> state_;
  std::vector<float> logits_;
  std::chrono::microseconds pass_time_;
  std::uint32_t poison_one_in_;
  Random random_{1};
};

// The events of one request. Thread-safe.
class Record {
 public:
  GenerationListener listener() {
    return [this](const GenerationEvent& event) {
      const MutexLock lock(mutex_);
      ASSERT_FALSE(ended_) << "nothing follows the end";
      if (const auto* token = std::get_if<GeneratedToken>(&event)) tokens_.push_back(token->token);
      if (const auto* started = std::get_if<GenerationStarted>(&event)) cached_ = started->cached_tokens;
      if (const auto* ended = std::get_if<GenerationEnded>(&event)) ended_ = *ended;
      changed_.notify_all();
    };
  }
  GenerationEnded wait() {
    MutexLock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60),
                                  [&]() REQUIRES(mutex_) { return ended_.has_value(); }));
    return ended_.value_or(GenerationEnded{});
  }
  void wait_for_tokens(std::size_t count) {
    MutexLock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&]() REQUIRES(mutex_) {
      return ended_.has_value() || tokens_.size() >= count;
    }));
  }
  // While the lock is held, the engine's core waits at this request's next event.
  MutexLock hold_engine() LOCI_THREAD_ANNOTATION(no_thread_safety_analysis)
      LOCI_THREAD_ANNOTATION(acquire_capability(mutex_)) {
    return MutexLock(mutex_);
  }
  bool ended() {
    const MutexLock lock(mutex_);
    return ended_.has_value();
  }
  std::vector<TokenId> tokens() {
    const MutexLock lock(mutex_);
    return tokens_;
  }
  std::uint32_t cached() {
    const MutexLock lock(mutex_);
    return cached_;
  }

 private:
  Mutex mutex_{LockOrder::kOuter};  // kOuter because tests call the engine while they hold_engine()
  Condition changed_;
  std::vector<TokenId> tokens_ GUARDED_BY(mutex_);
  std::uint32_t cached_ GUARDED_BY(mutex_) = 0;
  std::optional<GenerationEnded> ended_ GUARDED_BY(mutex_);
};

inline EngineOptions options(std::uint32_t blocks) {
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
    engine = std::move(Engine::start(std::move(engine_options), backend, clock)).value();
  }
  SystemClock clock;
  PrefixBackend backend;
  std::unique_ptr<Engine> engine;
};

inline std::vector<TokenId> some_prompt(std::uint64_t seed, std::size_t length) {
  Random random(seed);
  std::vector<TokenId> prompt;
  while (prompt.size() < length)
    prompt.push_back(TokenId(static_cast<std::uint32_t>(random.below(kVocabulary))));
  return prompt;
}

inline GenerationRequest greedy(std::vector<TokenId> prompt, std::uint32_t count) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0f;
  request.max_new_tokens = count;
  return request;
}

}  // namespace loci
