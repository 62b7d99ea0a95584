// SPDX-License-Identifier: Apache-2.0
// Public prefixes: what tenants share, and what they never do.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"

namespace loci {
namespace {

// Serves one request after another; every token is 7.
class Server {
 public:
  explicit Server(const std::vector<CoreGroup>& groups)
      : config_(config(groups)), core_(Core::make(config_).value()) {}

  // The cached tokens; absent: it was refused.
  std::optional<std::uint32_t> ask(const std::string& tenant, const Tokens& prompt,
                                   std::uint32_t new_tokens = 1) {
    return run(Arrival{RequestId(++last_), tenant, prompt, new_tokens, 0, {}, kNever});
  }
  std::optional<std::uint32_t> ask_salted(const std::string& tenant, const std::string& salt,
                                          const Tokens& prompt) {
    Arrival arrival{RequestId(++last_), tenant, prompt, 1, 0, {}, kNever};
    arrival.salt = salt;
    return run(arrival);
  }
  // The same of a prompt that comes with the names of its blocks.
  std::optional<std::uint32_t> ask_named(const std::string& tenant, const Tokens& prompt,
                                         const std::string& salt = {}) {
    Arrival arrival{RequestId(++last_), tenant, prompt, 1, 0, {}, kNever};
    arrival.salt = salt;
    arrival.keys = arrival_keys(config_, ChainKeyHasher(config_.chain_secret, config_.model_fingerprint),
                                *core_.public_chains(), arrival);
    return run(arrival);
  }
  // Whether the prefix is public now.
  bool warm(const Tokens& prompt) {
    Arrival arrival{RequestId(++last_), "operator", prompt, 1, 0, {}, kNever};
    arrival.scope = SharingScope::kPublic;
    return run(arrival).has_value();
  }
  std::uint64_t last() const { return last_; }
  void release(std::uint64_t prefix) { step(Withdraw{RequestId(prefix)}); }
  const Core& core() const { return core_; }
  FinishReason reason() const { return reason_; }
  std::uint32_t sampled() const { return sampled_; }

 private:
  static CoreConfig config(const std::vector<CoreGroup>& groups) {
    CoreConfig config;
    config.groups = groups;
    config.layers = 2;
    config.context_tokens = groups.front().block_count * kBlockTokens;
    config.max_batch_tokens = 100;
    return config;
  }
  std::optional<std::uint32_t> run(const Arrival& arrival) {
    cached_.reset();
    sampled_ = 0;
    step(arrival);
    while (pass_) {
      PassDone done{pass_->id, {}};
      for (const SpanPlan& span : spans_) {
        SpanOutcome outcome;
        if (span.sample) outcome.sample = TokenId(7);
        done.spans.push_back(outcome);
      }
      pass_.reset();
      step(done);
    }
    return cached_;
  }
  void step(const Event& event) {
    Plan plan = core_.step(++now_, event);
    core_.check_invariants();
    for (const Output& output : plan.outputs) {
      if (const auto* started = std::get_if<Started>(&output)) cached_ = started->cached_tokens;
      if (const auto* finished = std::get_if<Finished>(&output)) reason_ = finished->reason;
      sampled_ += std::holds_alternative<TokenSampled>(output);
    }
    if (!plan.pass) return;
    pass_ = std::move(plan.pass);
    spans_ = std::move(plan.spans);
  }

  CoreConfig config_;
  Core core_;
  Nanos now_ = 0;
  std::uint64_t last_ = 0;
  std::optional<Pass> pass_;
  std::vector<SpanPlan> spans_;
  std::optional<std::uint32_t> cached_;
  FinishReason reason_ = FinishReason::kFailed;
  std::uint32_t sampled_ = 0;
};

const std::vector<CoreGroup> kPlain = {{.window = 0, .block_count = 64}};
const std::vector<CoreGroup> kWindows = {{.window = 0, .block_count = 64}, {.window = 48, .block_count = 40}};

class PublicPrefixes : public testing::TestWithParam<std::vector<CoreGroup>> {};

TEST_P(PublicPrefixes, AreSharedByAllButWhatFollowsOnlyWithinASalt) {
  Server server(GetParam());
  const Tokens prefix = run_of(1000, 64), own = prefix + run_of(1, 64);
  ASSERT_TRUE(server.warm(prefix));
  EXPECT_EQ(server.ask_salted("a", "s", own), 64u);
  EXPECT_EQ(server.ask_salted("a", "s", own), 127u);
  EXPECT_EQ(server.ask_salted("a", "t", own), 64u);
  EXPECT_EQ(server.ask("a", own), 64u);
  EXPECT_EQ(server.ask_salted("a", "s", run_of(7000, 64)), 0u);
  EXPECT_EQ(server.ask("a", run_of(7000, 64)), 0u) << "without public blocks too";
}

TEST_P(PublicPrefixes, AreSharedByAll) {
  Server server(GetParam());
  const Tokens prefix = run_of(1000, 150);
  ASSERT_TRUE(server.warm(prefix));
  EXPECT_EQ(server.reason(), FinishReason::kStop);
  EXPECT_EQ(server.sampled(), 0u) << "a prefix says nothing";
  ASSERT_EQ(server.core().public_prefixes().size(), 1u);
  EXPECT_EQ(server.core().public_prefixes()[0].tokens, 150u);
  EXPECT_EQ(server.core().public_prefixes()[0].blocks, 5u);
  EXPECT_EQ(server.ask("a", prefix + run_of(1, 50)), 150u);  // the last block of it as a copy
  EXPECT_EQ(server.ask("b", prefix + run_of(2000, 50)), 150u);
  EXPECT_EQ(server.ask("c", run_of(1000, 140)), 139u);  // but its last token
  EXPECT_EQ(server.ask("d", run_of(1000, 100) + run_of(1, 50)), 100u);
  EXPECT_EQ(server.ask("e", run_of(1000, 20) + run_of(1, 50)), 20u);  // inside its first block
  EXPECT_EQ(server.ask("f", run_of(1001, 100)), 0u);
}

TEST_P(PublicPrefixes, LetNobodySeeWhatFollowsThem) {
  Server server(GetParam());
  const Tokens prefix = run_of(1000, 96), partial = run_of(1000, 110);
  ASSERT_TRUE(server.warm(prefix));
  const Tokens secret = run_of(3000, 100);
  EXPECT_EQ(server.ask("a", prefix + secret, 40), 96u);
  EXPECT_EQ(server.ask("b", prefix + secret), 96u);
  EXPECT_EQ(server.ask("c", prefix + run_of(3000, 10)), 96u) << "no copy of another's block either";
  EXPECT_EQ(server.ask("a", prefix + secret), 195u) << "its own it finds";
  EXPECT_EQ(server.ask("a", prefix + run_of(3000, 10)), 105u);
  // Inside the prefix's own last block, too.
  ASSERT_TRUE(server.warm(partial));
  EXPECT_EQ(server.ask("d", run_of(1000, 105) + secret), 105u);
  EXPECT_EQ(server.ask("e", run_of(1000, 105) + secret), 105u);
  EXPECT_EQ(server.ask("f", partial + secret), 110u);
}

TEST_P(PublicPrefixes, DoNotMakePublicWhatATenantHasSentBefore) {
  Server server(GetParam());
  const Tokens text = run_of(1000, 200);
  EXPECT_EQ(server.ask("a", text + run_of(1, 60)), 0u);
  ASSERT_TRUE(server.warm(run_of(1000, 64)));
  EXPECT_EQ(server.ask("b", text), 64u);
}

TEST_P(PublicPrefixes, StayUnderPressureAndEndWhenReleased) {
  Server server(GetParam());
  const Tokens prefix = run_of(1000, 128);
  ASSERT_TRUE(server.warm(prefix));
  const std::uint64_t id = server.last();
  for (std::uint32_t i = 0; i < 12; ++i) server.ask("a", run_of(10'000 * (i + 1), 700));
  EXPECT_EQ(server.core().stats().blocks_public, 4u);
  EXPECT_EQ(server.ask("b", prefix + run_of(1, 5)), 128u);
  server.release(id + 100);  // not there
  server.release(id);
  EXPECT_TRUE(server.core().public_prefixes().empty());
  EXPECT_EQ(server.core().stats().blocks_pinned, 0u);
  EXPECT_EQ(server.ask("c", prefix + run_of(1, 5)), 0u) << "what is no longer public is nobody's";
  ASSERT_TRUE(server.warm(prefix));
  EXPECT_EQ(server.ask("c", prefix + run_of(1, 5)), 128u);
}

TEST_P(PublicPrefixes, MayOverlap) {
  Server server(GetParam());
  ASSERT_TRUE(server.warm(run_of(1000, 64)));
  const std::uint64_t shorter = server.last();
  ASSERT_TRUE(server.warm(run_of(1000, 128)));
  EXPECT_EQ(server.core().stats().blocks_public, 4u) << "what they have in common is held once";
  server.release(shorter);
  EXPECT_EQ(server.core().stats().blocks_public, 4u);
  EXPECT_EQ(server.ask("a", run_of(1000, 128) + run_of(1, 5)), 128u);
}

INSTANTIATE_TEST_SUITE_P(Groups, PublicPrefixes, testing::Values(kPlain, kWindows),
                         [](const auto& instance) { return instance.index == 0 ? "Plain" : "Windows"; });

TEST(PublicPrefix, HoldsAtMostHalfOfThePool) {
  Server server({{.window = 0, .block_count = 10}});
  EXPECT_FALSE(server.warm(run_of(1000, 161)));
  EXPECT_TRUE(server.warm(run_of(1000, 160)));
  EXPECT_FALSE(server.warm(run_of(5000, 1)));
  EXPECT_EQ(server.core().stats().blocks_public, 5u);
}

// What would have fitted the pool does not fit beside a prefix: it ends, and others go on.
TEST(PublicPrefix, EndsWhatNoLongerFits) {
  Server server({{.window = 0, .block_count = 10}});
  ASSERT_TRUE(server.warm(run_of(1000, 160)));
  EXPECT_FALSE(server.ask("a", run_of(1, 200)).has_value());
  EXPECT_EQ(server.ask("a", run_of(1000, 160) + run_of(1, 100)), 160u) << "but what shares it fits";
  EXPECT_EQ(server.ask("a", run_of(1, 100), 200), 0u);
  EXPECT_EQ(server.reason(), FinishReason::kLength);
  EXPECT_EQ(server.sampled(), 61u) << "up to the end of the fifth block, and one that has no place";
}

// Whoever submits a prompt may name its blocks: the names are those that the core makes, but where the prompt
// begins with a public prefix.
TEST(PublicPrefix, NamesThatComeWithAPromptAreThoseOfTheCore) {
  Server server({{.window = 0, .block_count = 64}});
  EXPECT_EQ(server.ask_named("a", run_of(0, 110)), 0u);
  EXPECT_EQ(server.ask("a", run_of(0, 110)), 109u);
  EXPECT_EQ(server.ask_named("a", run_of(0, 110)), 109u);
  EXPECT_EQ(server.ask_named("a", run_of(0, 110), "salt"), 0u);
  EXPECT_EQ(server.ask_salted("a", "salt", run_of(0, 110)), 109u);
  EXPECT_EQ(server.ask_named("b", run_of(0, 110)), 0u);
  ASSERT_TRUE(server.warm(run_of(5000, 64)));
  EXPECT_EQ(server.ask_named("a", run_of(5000, 110)), 64u);
  EXPECT_EQ(server.ask("a", run_of(5000, 110)), 109u);
  EXPECT_EQ(server.ask_named("b", run_of(5000, 110)), 64u);
}

}  // namespace
}  // namespace loci
