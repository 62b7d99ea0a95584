// SPDX-License-Identifier: Apache-2.0
// Conversations of which a part is dropped while their state is on the disk, in either form: its blocks come
// back at their new positions with the bits of an engine that never gave them away.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/testing/engine_windows_testing.h"

namespace loci {
namespace {

class EngineTruncated : public EngineWindows {
 protected:
  EngineTruncated() {
    constexpr std::uint32_t kBlocks = 200;  // for all that is ever computed
    memory_ = make_backend(*model_, {.threads = 2}, {kBlocks});
    EngineOptions options;
    options.core.groups = {{.window = 0, .block_count = kBlocks}};
    options.core.layers = model_->spec.layer_count();
    options.core.context_tokens = kContext;
    options.core.max_batch_tokens = 80;
    resident_ = std::move(Engine::start(std::move(options), *memory_, clock_)).value();
  }

  struct Turn {
    Tokens prompt;
    std::vector<TokenRange> dropped;
  };
  static Usage run(Engine& engine, const Turn& turn, Waiter& waiter) {
    GenerationRequest request;
    request.prompt = turn.prompt;
    request.dropped = turn.dropped;
    request.sampling = greedy_with_logprobs();
    request.max_new_tokens = 12;
    engine.submit(std::move(request), waiter.listener());
    const GenerationEnded ended = waiter.wait();
    EXPECT_TRUE(ended.status.ok()) << ended.status.to_string();
    return ended.usage;
  }
  // Both engines' reply; of the one that has tiers what it has found.
  Usage check_turn(const Turn& turn) {
    Waiter expected, tested;
    run(*resident_, turn, expected);
    const Usage usage = run(*engine_, turn, tested);
    tested.expect(expected.reply());
    last_ = expected.reply();
    await_saves();
    return usage;
  }
  void take_memory(std::uint64_t first) {
    for (std::uint64_t seed = first; seed < first + 6; ++seed) {
      check(text(seed, 180), 4);
      await_saves();
    }
  }
  std::unique_ptr<Backend> memory_;
  std::unique_ptr<Engine> resident_;  // after its backend
};

TEST_P(EngineTruncated, TheBitsOfStateThatStayed) {
  Tokens history = text(1, 330);
  check_turn({history, {}});
  std::vector<TokenRange> dropped;
  for (std::uint32_t turn = 0; turn < 3; ++turn) {
    history = history + last_.tokens + text(2 + turn, 20);
    const std::uint32_t begin = turn == 0 ? kBlockTokens : dropped.back().end;
    dropped.push_back({begin, begin + 2 * kBlockTokens});
    take_memory(100 + 10 * turn);
    const CoreStats before = engine_->stats();
    const Usage usage = check_turn({history, dropped});
    EXPECT_GE(usage.cached_tokens, 190u) << turn;
    const CoreStats after = engine_->stats();
    EXPECT_EQ(after.hidden_loaded_total > before.hidden_loaded_total, GetParam().hidden_percent > 0) << turn;
  }
  engine_.reset();
  const Result<ReplayReport> replayed = replay(log_);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
}

// (Where a load fails, or a plan does without it, its block is computed at its new position, which is not the
// same as rotating it: so nothing fails, and all is loaded.)
INSTANTIATE_TEST_SUITE_P(
    Models, EngineTruncated,
    testing::Values(Case{"cut_disk", {0, 0}, {{0, 20, 0, 200}}, 0, 0, RestoreRule::kKv},
                    Case{"cut_hidden", {0, 0}, {{0, 20, 0, 200}}, 0, 0, RestoreRule::kHidden, false, 100},
                    Case{"cut_two_forms", {0, 0}, {{0, 20, 0, 200}}, 0, 0, RestoreRule::kHidden, false, 60}),
    name_of);

}  // namespace
}  // namespace loci
