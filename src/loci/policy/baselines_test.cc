// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/baselines.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

TEST(Baselines, EachIsASetThatCanBe) {
  for (const std::string_view name : kBaselines) {
    const Result<Baseline> baseline = find_baseline(name);
    ASSERT_TRUE(baseline.ok()) << name;
    EXPECT_TRUE(check_policies(baseline->policies).ok()) << name;
    EXPECT_FALSE(baseline->policies == PolicySet()) << name;
    for (const std::string_view other : kBaselines) {
      EXPECT_EQ(find_baseline(other)->policies == baseline->policies, other == name) << name << other;
    }
  }
}

TEST(Baselines, AnUnknownOneIsRefusedWithTheList) {
  const Status status = find_baseline("vllm").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "baseline");
  EXPECT_EQ(status.message(),
            "expected one of pensieve, attentionstore, berkeley-lru, stateless, found 'vllm'");
}

TEST(Baselines, ARefusedPolicyIsNamed) {
  const auto field = [](auto change) {
    PolicySet policies;
    change(policies);
    return check_policies(policies).field();
  };
  EXPECT_EQ(field([](PolicySet&) {}), "");
  EXPECT_EQ(field([](PolicySet& p) { p.eviction = "best"; }), "eviction");
  EXPECT_EQ(field([](PolicySet& p) { p.admission = "last"; }), "admission");
  EXPECT_EQ(field([](PolicySet& p) { p.admission_looks = 0; }), "admission_looks");
  EXPECT_EQ(field([](PolicySet& p) { p.restore = "soon"; }), "restore");
  EXPECT_EQ(field([](PolicySet& p) { p.save = "later"; }), "save");
  EXPECT_EQ(field([](PolicySet& p) { p.preload = "on"; }), "preload");
  EXPECT_EQ(field([](PolicySet& p) { p.batch = "both"; }), "batch");
  EXPECT_EQ(field([](PolicySet& p) { p.swap_out_percent = 101; }), "swap_out_percent");
  EXPECT_EQ(field([](PolicySet& p) { p.decode_reserve_percent = 91; }), "decode_reserve_percent");
  EXPECT_EQ(field([](PolicySet& p) { p.prefetch_percent = 101; }), "prefetch_percent");
  EXPECT_EQ(field([](PolicySet& p) { p.preload_retries = 33; }), "preload_retries");
  for (const std::uint32_t chunk : {0u, 31u, 33u, kSwapChunkTokensMax + kBlockTokens})
    EXPECT_EQ(field([&](PolicySet& p) { p.swap_chunk_tokens = chunk; }), "swap_chunk_tokens") << chunk;
}

}  // namespace
}  // namespace loci
