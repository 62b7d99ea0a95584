// SPDX-License-Identifier: Apache-2.0
// Sequences that have dropped a part of their history, as the core sees them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/memory/partial_block.h"

namespace loci {
namespace {

using Cuts = std::vector<TokenRange>;

Tokens without(const Tokens& history, std::uint32_t begin, std::uint32_t end) {
  Tokens tokens(history.begin(), history.begin() + begin);
  tokens.insert(tokens.end(), history.begin() + end, history.end());
  return tokens;
}

CoreConfig cut_config(std::uint32_t blocks, std::uint32_t host_blocks = 0) {
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = blocks, .host_blocks = host_blocks, .block_bytes = 1u << 20}};
  config.layers = 2;
  config.context_tokens = 16 * kBlockTokens;
  return config;
}

// What a slot holds of a token: which one, and the position that its key is of. Without a token: nothing.
struct Row {
  std::optional<TokenId> token;
  std::int64_t position = 0;
};
using Slot = std::array<Row, kBlockTokens>;

// Runs one request after another to its end, on slots that know what they hold: whatever a span reads must be
// its own tokens' state at their own positions.
class Runs {
 public:
  explicit Runs(const CoreConfig& config = cut_config(64), std::uint64_t fails_one_in = 0)
      : core_(Core::make(config).value()), fails_one_in_(fails_one_in) {
    slots_[0].resize(config.groups[0].block_count);
    slots_[1].resize(config.groups[0].host_blocks);
  }

  // Tokens of the prompt whose state was there.
  std::uint32_t cached(const Tokens& prompt, const Cuts& dropped = {}, const std::string& group = "a",
                       SharingScope scope = SharingScope::kTenant) {
    Arrival arrival{RequestId(++id_), group, prompt, 1, 0, {}, kNever};
    arrival.dropped = dropped;
    arrival.scope = scope;
    tokens_ = dropped.empty() ? prompt : without(prompt, dropped.front().begin, dropped.back().end);
    computed = rotated = 0;
    started.reset();
    step(arrival);
    while (in_flight_ || !moves_.empty()) {
      if (in_flight_ && (moves_.empty() || random_.below(2) == 0))
        end_pass();
      else
        end_moves();
    }
    return started ? started->cached_tokens : UINT32_MAX;
  }
  void withdraw(std::uint64_t prefix) { step(Withdraw{RequestId(prefix)}); }
  Status refusal(const Tokens& prompt, const Cuts& dropped, SharingScope scope = SharingScope::kTenant) {
    Arrival arrival{RequestId(++id_), "a", prompt, 1, 0, {}, kNever};
    arrival.dropped = dropped;
    arrival.scope = scope;
    const Plan plan = core_.step(++now_, arrival);
    const auto* rejected = plan.outputs.empty() ? nullptr : std::get_if<Rejected>(&plan.outputs.front());
    return rejected == nullptr ? Status() : rejected->status;
  }

  // Of the last request:
  std::uint32_t computed = 0;       // tokens, in spans that did not fail
  std::uint32_t rotated = 0;        // tokens
  std::uint32_t prompt_tokens = 0;  // as it was told
  std::optional<Started> started;

 private:
  void step(const Event& event) {
    Plan plan = core_.step(++now_, event);
    core_.check_invariants();
    for (const Output& output : plan.outputs) {
      if (const auto* o = std::get_if<Started>(&output)) started = *o;
      if (const auto* o = std::get_if<Finished>(&output)) prompt_tokens = o->usage.prompt_tokens;
    }
    for (const Move& move : plan.moves) begin(move);
    if (!plan.pass) return;
    pass_ = *plan.pass;
    spans_ = plan.spans;
    in_flight_ = true;
  }

  Slot& at(Tier tier, SlotId slot) { return slots_[static_cast<std::size_t>(tier)].at(slot.value); }

  void begin(const Move& move) {
    MoveOutcome outcome{move.id, MoveResult::kDone, 1};
    if (fails_one_in_ > 0 && random_.below(fails_one_in_) == 0) outcome.result = MoveResult::kFailed;
    for (const MovePart& part : move.parts) {
      Slot rows = at(move.from, part.from);
      std::uint32_t held = tokens_held(move.entry.tokens);  // of the end of a sequence, less than a block
      for (Row& row : rows) {
        if (held == 0) {
          row = {};
          continue;
        }
        --held;
        ASSERT_TRUE(row.token.has_value()) << "what is moved is there";
        row.position += move.rotate_by;
        if (outcome.result != MoveResult::kDone) row = {};
      }
      at(move.to, part.to) = rows;
      if (move.rotate_by != 0) rotated += kBlockTokens;
    }
    moves_.push_back(outcome);
  }

  void end_moves() {
    MovesEnded ended{std::exchange(moves_, {})};
    step(ended);
  }

  bool run(const Span& span) {
    const auto& table = span.tables[0].blocks;
    for (std::uint32_t i = 0; i < span.tokens.size(); ++i) {
      const std::uint32_t p = span.position + i;
      at(Tier::kDevice, table[p / kBlockTokens])[p % kBlockTokens] = {span.tokens[i], p};
    }
    bool there = true;
    for (std::uint32_t p = 0; p < span.position; ++p) {
      const Row& row = at(Tier::kDevice, table[p / kBlockTokens])[p % kBlockTokens];
      there = there && row.token.has_value();
      if (!row.token) continue;
      EXPECT_EQ(row.token->value, tokens_.at(p).value) << "at " << p;
      EXPECT_EQ(row.position, p);
    }
    return there;
  }

  void end_pass() {
    in_flight_ = false;
    now_ += CostModel(CostCurves()).pass(1, 0) * 50;  // about what was believed
    for (const BlockCopy& copy : pass_.copies) {
      std::copy_n(at(Tier::kDevice, copy.from).begin(), copy.tokens, at(Tier::kDevice, copy.to).begin());
    }
    PassDone done{pass_.id, {}};
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      const bool ok = run(pass_.spans[i]);
      EXPECT_TRUE(ok || fails_one_in_ > 0);
      if (ok) computed += static_cast<std::uint32_t>(pass_.spans[i].tokens.size());
      done.spans.push_back({.ok = ok});
      if (ok && spans_[i].sample) {
        done.spans.back().sample = TokenId(1);
        tokens_.emplace_back(1);
      }
    }
    step(done);
  }

  Core core_;
  Random random_{1};
  const std::uint64_t fails_one_in_;
  Nanos now_ = 0;
  std::uint64_t id_ = 0;
  Tokens tokens_;
  std::array<std::vector<Slot>, 2> slots_;  // of device and host
  Pass pass_;                               // of the last plan that had one
  std::vector<SpanPlan> spans_;
  bool in_flight_ = false;
  std::vector<MoveOutcome> moves_;
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

// The state of the turn before, which was not cut, serves at its new positions: whole blocks of what is kept.
TEST(CoreTruncateTest, KeptStateIsRotated) {
  Runs runs;
  EXPECT_EQ(runs.cached(run_of(0, 400)), 0u);
  EXPECT_EQ(runs.cached(run_of(0, 420), kOneCut), 64u + 192u);  // blocks 6 to 11 of 12
  EXPECT_EQ(runs.rotated, 192u);
  EXPECT_EQ(runs.started->sources.device, 256u);
  EXPECT_EQ(runs.computed, 420u - 128 - 256);
  EXPECT_EQ(runs.cached(run_of(0, 420), kOneCut), 420u - 128 - 1) << "from here on it is there";
  EXPECT_EQ(runs.rotated, 0u);
  EXPECT_EQ(runs.cached(run_of(0, 400)), 399u) << "the originals stay";
}

// After a second cut blocks come from the lineage that computed them.
TEST(CoreTruncateTest, EachLineageServesTheNext) {
  Runs runs;
  const Tokens history = run_of(0, 700);
  const auto first = [&](std::size_t n) { return Tokens(history.begin(), history.begin() + n); };
  runs.cached(first(480));
  EXPECT_EQ(runs.cached(first(490), {{32, 256}}), 32u + 224u);
  EXPECT_EQ(runs.cached(first(690), {{32, 256}}), 266u);
  // Blocks 12 to 14 are the first lineage's, 15 to 20 the second's.
  EXPECT_EQ(runs.cached(first(700), {{32, 256}, {256, 384}}), 32u + 288u);
  EXPECT_EQ(runs.rotated, 288u);
}

// With small cuts a turn may make more of them at once than lineages are looked at.
TEST(CoreTruncateTest, TheTurnBeforeServesHoweverManyCutsThereWereSince) {
  const auto cuts_of_a_block = [](std::uint32_t count) {
    Cuts cuts;
    for (std::uint32_t end = kBlockTokens; cuts.size() < count; end += kBlockTokens)
      cuts.push_back({end, end + kBlockTokens});
    return cuts;
  };
  Runs runs;
  const std::uint32_t before = 19 * kBlockTokens, now = 20 * kBlockTokens + 5;
  EXPECT_EQ(runs.cached(run_of(0, before), cuts_of_a_block(5)), 0u);
  EXPECT_EQ(runs.cached(run_of(0, now), cuts_of_a_block(15)), 4 * kBlockTokens) << "the front, 16, 17 and 18";
  EXPECT_EQ(runs.rotated, 3 * kBlockTokens);
}

TEST(CoreTruncateTest, StateInHostMemoryIsRotatedOnItsWay) {
  Runs runs(cut_config(16, 64));
  runs.cached(run_of(0, 400));
  runs.cached(run_of(5000, 480));  // the device is full of another
  EXPECT_EQ(runs.cached(run_of(0, 420), kOneCut), 64u + 192u);
  EXPECT_GT(runs.started->sources.host, 150u);
  EXPECT_EQ(runs.started->sources.host + runs.started->sources.device, 256u);
}

TEST(CoreTruncateTest, AFailedRotationIsComputed) {
  Runs runs(cut_config(64), 1);
  runs.cached(run_of(0, 400));
  runs.cached(run_of(0, 420), kOneCut);
  EXPECT_GE(runs.computed, 420u - 128 - 64);
}

// New blocks and their originals do not both fit beside what a batch needs.
TEST(CoreTruncateTest, ASmallPoolRotatesWhatFits) {
  Runs runs(cut_config(17));
  runs.cached(run_of(0, 480));
  const std::uint32_t cached = runs.cached(run_of(0, 490), kOneCut);
  EXPECT_EQ(cached + runs.computed, 362u);
  EXPECT_GT(cached, 64u);
  EXPECT_LT(cached, 64u + 288u);
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
  Runs runs(cut_config(128));
  runs.cached(Tokens(history.begin(), history.begin() + 256), {}, "a", SharingScope::kPublic);
  EXPECT_EQ(runs.cached(history, kOneCut, "a"), 64u) << "the public front";
  EXPECT_EQ(runs.cached(history, kOneCut, "b"), 64u);
  EXPECT_EQ(runs.cached(history, kOneCut, "b"), 271u);
}

// Its gate stays where it was made: below the front that was public then, or was not.
TEST(CoreTruncateTest, ALineageIsFoundWhateverIsPublicOfItsFront) {
  const Tokens history = run_of(0, 400), front(history.begin(), history.begin() + 256);
  Runs runs(cut_config(128));
  runs.cached(front, {}, "a", SharingScope::kPublic);
  EXPECT_EQ(runs.cached(history, kOneCut), 64u) << "the public front";
  runs.withdraw(1);
  EXPECT_EQ(runs.cached(history, kOneCut), 207u) << "its own front is computed";
  EXPECT_EQ(runs.cached(history, kOneCut), 271u);
  runs.cached(front, {}, "a", SharingScope::kPublic);
  EXPECT_EQ(runs.cached(history, kOneCut), 271u);
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

// Histories that grow, part and are cut, in too little memory, with moves that fail: invariants hold after
// every step, and what is read is the tokens' own, at their own positions (Runs).
TEST(CoreTruncateTest, RandomHistoriesKeepTheInvariants) {
  std::uint64_t rotated = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    Runs runs(cut_config(17 + static_cast<std::uint32_t>(random.below(40)),
                         seed % 2 == 0 ? 0 : 20 + static_cast<std::uint32_t>(random.below(60))),
              seed % 3 == 0 ? 5 : 0);
    std::map<int, Tokens> histories;
    for (int i = 0; i < 60; ++i) {
      Tokens& history = histories[static_cast<int>(random.below(3))];
      if (history.size() > 1500 || random.below(12) == 0)
        history = Tokens(histories[static_cast<int>(random.below(3))]);
      const Tokens more = run_of(static_cast<std::uint32_t>(random.below(2)), 1 + random.below(120));
      history.insert(history.end(), more.begin(), more.end());
      if (history.size() > 1800) history.resize(300);
      Cuts cuts;
      std::uint32_t dropped = 0;
      for (std::uint32_t end = 64; history.size() - dropped > 400; end += 160) {
        cuts.push_back({end, end + 160});
        dropped += 160;
      }
      const std::uint32_t kept = static_cast<std::uint32_t>(history.size()) - dropped;
      const std::uint32_t cached = runs.cached(history, cuts);
      ASSERT_LE(cached, kept) << "seed " << seed;
      ASSERT_GE(cached + runs.computed, kept) << "seed " << seed;
      rotated += runs.rotated;
    }
  }
  EXPECT_GT(rotated, 10'000u);
}

}  // namespace
}  // namespace loci
