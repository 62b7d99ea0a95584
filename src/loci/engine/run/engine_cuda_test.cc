// SPDX-License-Identifier: Apache-2.0
// The engine over the CUDA backend on the simulated device, with passes ahead, device sampling, a host tier
// and movers that copy by themselves: in pools too small for what comes, every reply has the tokens of a
// backend that holds all state and computes each prompt in one pass. When the device is lost every request
// ends with that.
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/compute/cuda/cuda_backend.h"
#include "loci/compute/cuda/simulated/faults.h"
#include "loci/compute/model_testing.h"
#include "loci/engine/run/engine.h"

namespace loci {
namespace {

constexpr std::uint32_t kVocabulary = 96;
constexpr std::uint32_t kContext = 256;

using Tokens = std::vector<TokenId>;

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Tokens text(std::uint64_t seed, std::size_t count) {
  Random random(seed);
  Tokens tokens;
  while (tokens.size() < count) tokens.emplace_back(static_cast<std::uint32_t>(random.below(kVocabulary)));
  return tokens;
}

std::unique_ptr<TestModel> make_model(const std::vector<std::uint32_t>& windows) {
  return TestModel::make({.type = TensorType::kF16, .vocabulary = kVocabulary}, windows);
}

std::unique_ptr<Backend> make_backend(const TestModel& model, const std::vector<CoreGroup>& groups) {
  CudaBackendOptions options;
  options.deterministic = true;
  options.max_batch_tokens = kContext;
  options.max_spans = 8;
  options.context_tokens = kContext;
  std::unique_ptr<Backend> backend = std::move(make_cuda_backend(model.spec, options)).value();
  for (std::uint32_t group = 0; group < groups.size(); ++group)
    EXPECT_TRUE(backend->allocate_blocks(group, groups[group].block_count).ok());
  return backend;
}

struct Case {
  const char* name;
  std::vector<std::uint32_t> windows;  // of the layers
  std::vector<CoreGroup> groups;
};

class Waiter {
 public:
  GenerationListener listener() {
    return [this](const GenerationEvent& event) {
      std::lock_guard lock(mutex_);
      if (const auto* token = std::get_if<GeneratedToken>(&event)) tokens_.push_back(token->token);
      if (const auto* ended = std::get_if<GenerationEnded>(&event)) ended_ = *ended;
      changed_.notify_all();
    };
  }
  GenerationEnded wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), [&] { return ended_.has_value(); }));
    return ended_.value_or(GenerationEnded{});
  }
  void wait_for_token() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), [&] { return !tokens_.empty(); }));
  }
  const Tokens& tokens() const { return tokens_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Tokens tokens_;
  std::optional<GenerationEnded> ended_;
};

class EngineCuda : public testing::TestWithParam<Case> {
 protected:
  EngineCuda() : model_(make_model(GetParam().windows)) {
    std::vector<CoreGroup> all = GetParam().groups;
    for (CoreGroup& group : all) group.block_count = kContext / kBlockTokens;
    reference_ = make_backend(*model_, all);
    backend_ = make_backend(*model_, GetParam().groups);
    EngineOptions options;
    options.core.groups = GetParam().groups;
    for (std::size_t i = 0; i < options.core.groups.size(); ++i) {
      options.core.groups[i].block_bytes = backend_->info().groups[i].block_bytes;
      options.mover.host_blocks.push_back(options.core.groups[i].host_blocks);
    }
    options.core.layers = model_->spec.layer_count();
    options.core.context_tokens = kContext;
    options.core.max_batch_tokens = 64;
    options.core.max_running = 6;
    options.core.passes_ahead = backend_->info().passes_ahead;
    options.core.costs.token = kNanosPerSecond;  // loading is worth it whatever it costs
    engine_ = std::move(Engine::start(std::move(options), *backend_, clock_)).value();
  }
  ~EngineCuda() override { cuda::simulated::set_options({}); }

  // Greedy.
  Tokens expected(const Tokens& prompt, std::size_t count) {
    Tokens tokens = prompt;
    std::vector<SpanResult> results;
    std::vector<SlotId> slots;
    for (std::uint32_t i = 0; i < kContext / kBlockTokens; ++i) slots.emplace_back(i);
    const BlockTable table{slots};
    for (std::uint32_t done = 0; tokens.size() < prompt.size() + count;) {
      Span span;
      span.tokens.assign(tokens.begin() + done, tokens.end());
      span.position = done;
      span.layers = {0, model_->spec.layer_count()};
      span.tables.assign(reference_->info().groups.size(), table);
      span.logits = LogitsWanted::kLast;
      done = static_cast<std::uint32_t>(tokens.size());
      Pass pass;
      pass.spans.push_back(std::move(span));
      run_pass(*reference_, pass, results);
      std::uint32_t best = 0;
      for (std::uint32_t i = 0; i < kVocabulary; ++i) {
        if (results[0].logits[i] > results[0].logits[best]) best = i;
      }
      tokens.emplace_back(best);
    }
    return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()};
  }
  void submit(const Tokens& prompt, std::uint32_t count, Waiter& waiter, bool logprobs) {
    GenerationRequest request;
    request.prompt = prompt;
    request.sampling.temperature = 0;
    request.sampling.logprobs = logprobs;  // then the host samples
    request.max_new_tokens = count;
    engine_->submit(std::move(request), waiter.listener());
  }
  Usage check(const Tokens& prompt, std::uint32_t count) {
    Waiter waiter;
    submit(prompt, count, waiter, false);
    const GenerationEnded ended = waiter.wait();
    EXPECT_TRUE(ended.status.ok()) << ended.status.to_string();
    EXPECT_EQ(waiter.tokens(), expected(prompt, count));
    last_ = waiter.tokens();
    return ended.usage;
  }

  SystemClock clock_;
  std::unique_ptr<TestModel> model_;
  std::unique_ptr<Backend> reference_, backend_;
  std::unique_ptr<Engine> engine_;
  Tokens last_;
};

TEST_P(EngineCuda, ResidentEvictedLoadedAndInBatch) {
  const Tokens prompt = text(1, 70);
  EXPECT_EQ(check(prompt, 12).cached_tokens, 0u);
  const Tokens second = prompt + last_ + text(2, 20);
  EXPECT_EQ(check(second, 8).cached_tokens, prompt.size() + 11) << "all that was computed is there";
  const Tokens third = second + last_ + text(3, 10);
  // Conversations that take the memory: what was there goes to host memory, and comes back.
  for (std::uint64_t seed = 10; seed < 13; ++seed) check(text(seed, 90), 4);
  EXPECT_GT(check(third, 8).cached_tokens, 0u);
  EXPECT_GT(engine_->mover_stats().host_load.bytes_total, 0u);
  // Together, sharing a prefix; some are sampled by the host.
  std::vector<Tokens> prompts;
  std::vector<std::unique_ptr<Waiter>> waiters;
  for (std::uint64_t i = 0; i < 4; ++i) {
    prompts.push_back(Tokens(third.begin(), third.begin() + 40 * (i % 3)) + text(20 + i, 30));
    waiters.push_back(std::make_unique<Waiter>());
    submit(prompts.back(), 16, *waiters.back(), i == 1);
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const GenerationEnded ended = waiters[i]->wait();
    ASSERT_TRUE(ended.status.ok()) << ended.status.to_string();
    EXPECT_EQ(waiters[i]->tokens(), expected(prompts[i], 16)) << i;
  }
  EXPECT_GT(engine_->stats().evictions_total, 0u);
  EXPECT_GT(cuda::simulated::counters().graphs, 0u);
}

TEST_P(EngineCuda, TheDeviceDrawsWhatTheHostDraws) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Tokens drawn[2];
    for (const bool logprobs : {false, true}) {  // with log-probabilities the host samples
      Waiter waiter;
      GenerationRequest request;
      request.prompt = text(30, 20);
      request.sampling.temperature = 0.5f * static_cast<float>(seed);
      request.sampling.top_k = seed % 2 == 0 ? 0 : 24;
      request.sampling.top_p = seed < 3 ? 1.0f : 0.8f;
      request.sampling.min_p = seed == 4 ? 0.05f : 0.0f;
      request.sampling.seed = seed;
      request.sampling.logprobs = logprobs;
      request.max_new_tokens = 12;
      engine_->submit(std::move(request), waiter.listener());
      ASSERT_TRUE(waiter.wait().status.ok());
      drawn[logprobs ? 1 : 0] = waiter.tokens();
    }
    EXPECT_EQ(drawn[0], drawn[1]) << seed;
    EXPECT_EQ(drawn[0].size(), 12u);
  }
}

// The number of a draw is its place in the reply, wherever the reply began.
TEST_P(EngineCuda, TheDeviceGoesOnWithAReplyThatWasBegun) {
  const Tokens prompt = text(31, 20);
  const auto reply = [&](const Tokens& said) {
    Waiter waiter;
    GenerationRequest request;
    request.prompt = prompt + said;
    request.said_tokens = static_cast<std::uint32_t>(said.size());
    request.sampling.seed = 3;
    request.max_new_tokens = 40;
    engine_->submit(std::move(request), waiter.listener());
    EXPECT_TRUE(waiter.wait().status.ok());
    return waiter.tokens();
  };
  const Tokens wanted = reply({});
  ASSERT_EQ(wanted.size(), 40u);
  for (const std::ptrdiff_t said : {1, 13, 39}) {
    const Tokens begun(wanted.begin(), wanted.begin() + said);
    EXPECT_EQ(begun + reply(begun), wanted) << said;
  }
}

TEST_P(EngineCuda, ALostDeviceEndsEveryRequest) {
  Waiter a, b, late;
  submit(text(1, 40), 150, a, false);
  submit(text(2, 40), 150, b, true);
  a.wait_for_token();
  cuda::simulated::set_options({.lost_after = 3});
  for (Waiter* waiter : {&a, &b}) EXPECT_EQ(waiter->wait().status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(engine_->health().code(), StatusCode::kUnavailable);
  submit(text(3, 40), 4, late, false);
  EXPECT_EQ(late.wait().status.code(), StatusCode::kUnavailable);
  engine_.reset();
}

INSTANTIATE_TEST_SUITE_P(Models, EngineCuda,
                         testing::Values(Case{"full", {0, 0}, {{0, 10, 40}}},
                                         Case{"windows", {48, 0}, {{0, 10, 40}, {48, 10, 40}}}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace loci
