// Sequences that have dropped a part of their history, as the core sees them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/engine/core.h"

namespace loci {
namespace {

using Tokens = std::vector<TokenId>;
using Cuts = std::vector<TokenRange>;

Tokens run_of(std::uint32_t first, std::size_t count) {
  Tokens tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(TokenId(first + static_cast<std::uint32_t>(i)));
  return tokens;
}

Tokens without(const Tokens& history, std::uint32_t begin, std::uint32_t end) {
  Tokens tokens(history.begin(), history.begin() + begin);
  tokens.insert(tokens.end(), history.begin() + end, history.end());
  return tokens;
}

CoreConfig config_of(std::uint32_t blocks) {
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = blocks}};
  config.layers = 2;
  config.context_tokens = 16 * kBlockTokens;
  return config;
}

// Runs one request after another to its end.
class Runs {
 public:
  explicit Runs(const CoreConfig& config = config_of(64)) : core_(Core::make(config).value()) {}

  // Tokens of the prompt whose state was there.
  std::uint32_t cached(const Tokens& prompt, const Cuts& dropped = {}, const std::string& group = "a",
                       SharingScope scope = SharingScope::kTenant) {
    Arrival arrival{RequestId(++id_), group, prompt, 1, 0, {}, kNever};
    arrival.dropped = dropped;
    arrival.scope = scope;
    std::optional<std::uint32_t> cached;
    Plan plan = step(arrival, cached);
    computed = 0;
    while (plan.pass) {
      PassDone done{plan.pass->id, {}};
      for (std::size_t i = 0; i < plan.spans.size(); ++i) {
        computed += static_cast<std::uint32_t>(plan.pass->spans[i].tokens.size());
        done.spans.push_back({});
        if (plan.spans[i].sample) done.spans.back().sample = TokenId(1);
      }
      plan = step(done, cached);
    }
    return cached.value_or(UINT32_MAX);
  }
  Status refusal(const Tokens& prompt, const Cuts& dropped, SharingScope scope = SharingScope::kTenant) {
    Arrival arrival{RequestId(++id_), "a", prompt, 1, 0, {}, kNever};
    arrival.dropped = dropped;
    arrival.scope = scope;
    std::optional<std::uint32_t> cached;
    const Plan plan = step(arrival, cached);
    const auto* rejected = plan.outputs.empty() ? nullptr : std::get_if<Rejected>(&plan.outputs.front());
    return rejected == nullptr ? Status() : rejected->status;
  }

  std::uint32_t computed = 0;  // tokens, by the last request

 private:
  Plan step(const Event& event, std::optional<std::uint32_t>& cached) {
    Plan plan = core_.step(++now_, event);
    core_.check_invariants();
    for (const Output& output : plan.outputs) {
      if (const auto* started = std::get_if<Started>(&output)) cached = started->cached_tokens;
      if (const auto* finished = std::get_if<Finished>(&output))
        prompt_tokens = finished->usage.prompt_tokens;
    }
    return plan;
  }

  Core core_;
  Nanos now_ = 0;
  std::uint64_t id_ = 0;

 public:
  std::uint32_t prompt_tokens = 0;  // of the last request that ended
};

const Cuts kOneCut = {{64, 192}};

TEST(CoreTruncateTest, ComputesWhatIsLeft) {
  Runs runs;
  EXPECT_EQ(runs.cached(run_of(0, 400), kOneCut), 0u);
  EXPECT_EQ(runs.computed, 272u);
  EXPECT_EQ(runs.prompt_tokens, 272u);
}

TEST(CoreTruncateTest, AGrowingHistoryFindsItsLineage) {
  Runs runs;
  EXPECT_EQ(runs.cached(run_of(0, 300), kOneCut), 0u);
  EXPECT_EQ(runs.cached(run_of(0, 300), kOneCut), 171u);  // all but the last token
  EXPECT_EQ(runs.cached(run_of(0, 400), kOneCut), 172u);
  EXPECT_EQ(runs.cached(run_of(0, 420), kOneCut), 272u);
  EXPECT_EQ(runs.computed, 20u);
}

TEST(CoreTruncateTest, KeptStateIsNeverTakenForThatOfTheBareTokens) {
  const Tokens history = run_of(0, 400), bare = without(history, 64, 192);
  Runs runs;
  EXPECT_EQ(runs.cached(bare), 0u);
  EXPECT_EQ(runs.cached(history, kOneCut), 64u);  // the front alone, which nothing was dropped before
  EXPECT_EQ(runs.cached(bare), 271u);
  Runs other;
  EXPECT_EQ(other.cached(history, kOneCut), 0u);
  EXPECT_EQ(other.cached(bare), 64u);
}

TEST(CoreTruncateTest, KeptStateOfOneHistoryIsNeverTakenForAnothers) {
  Tokens history = run_of(0, 400), other = history;
  other[100] = TokenId(99'999);  // dropped, but the kept tokens have seen it
  Runs runs;
  EXPECT_EQ(runs.cached(history, kOneCut), 0u);
  EXPECT_EQ(runs.cached(other, kOneCut), 64u);
  EXPECT_EQ(runs.cached(history, {{64, 128}, {128, 192}}), 64u) << "cut twice";
  EXPECT_EQ(runs.cached(history, kOneCut, "b"), 0u) << "another tenant";
}

TEST(CoreTruncateTest, TenantsStayApartBehindPublicPrefixes) {
  const Tokens history = run_of(0, 400);
  Runs runs(config_of(128));
  runs.cached(Tokens(history.begin(), history.begin() + 256), {}, "a", SharingScope::kPublic);
  EXPECT_EQ(runs.cached(history, kOneCut, "a"), 64u) << "the public front";
  EXPECT_EQ(runs.cached(history, kOneCut, "b"), 64u);
  EXPECT_EQ(runs.cached(history, kOneCut, "b"), 271u);
}

// The front ends where the request's last block begins, so its tail is the lineage's first block.
TEST(CoreTruncateTest, ATailAloneMayBeBehindTheCut) {
  Runs runs;
  EXPECT_EQ(runs.cached(run_of(0, 210), kOneCut), 0u);
  EXPECT_EQ(runs.cached(run_of(0, 215), kOneCut), 82u);
  EXPECT_EQ(runs.cached(without(run_of(0, 215), 64, 192)), 64u);
}

TEST(CoreTruncateTest, RefusesCutsThatCannotBe) {
  Runs runs;
  const Tokens history = run_of(0, 600);
  const auto refused = [&](const Cuts& cuts, const char* why) {
    const Status status = runs.refusal(history, cuts);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << why;
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  };
  refused({{0, 128}}, "after the first block");
  refused({{32, 100}}, "whole blocks");
  refused({{32, 128}, {160, 192}}, "begins at 128");
  refused({{128, 128}}, "begins at 128");
  refused({{32, 608}}, "leave a token");
  refused({{32, 64}}, "at most 511");  // 568 are left
  EXPECT_FALSE(runs.refusal(run_of(0, 200), {{32, 64}}, SharingScope::kPublic).ok());
}

// Histories that grow, part and are cut, in too little memory: invariants hold after every step (Runs), and
// the tokens of a request are those that it was admitted with (invariant 5).
TEST(CoreTruncateTest, RandomHistoriesKeepTheInvariants) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    Runs runs(config_of(20 + static_cast<std::uint32_t>(random.below(40))));
    std::map<int, Tokens> histories;
    for (int i = 0; i < 60; ++i) {
      const int which = static_cast<int>(random.below(3));
      Tokens& history = histories[which];
      if (history.size() > 1500 || random.below(12) == 0)
        history = histories[static_cast<int>(random.below(3))];
      const Tokens more = run_of(static_cast<std::uint32_t>(random.below(2)), 1 + random.below(120));
      history.insert(history.end(), more.begin(), more.end());
      Cuts cuts;
      std::uint32_t dropped = 0;
      for (std::uint32_t end = 64; history.size() - dropped > 400; end += 160) {
        cuts.push_back({end, end + 160});
        dropped += 160;
      }
      const std::uint32_t kept = static_cast<std::uint32_t>(history.size()) - dropped;
      const std::uint32_t cached = runs.cached(history, cuts);
      EXPECT_EQ(cached + runs.computed, kept) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace loci
