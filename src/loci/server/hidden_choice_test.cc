// SPDX-License-Identifier: Apache-2.0
#include "loci/server/hidden_choice.h"

#include <gtest/gtest.h>

#include <string>

namespace loci {
namespace {

// Hidden states of `hidden` bytes a token and layer beside 1,000 of keys and values.
BackendInfo info_with(std::uint64_t hidden) {
  BackendInfo info;
  info.name = "cpu";
  info.layers = 2;
  info.groups = {{.layers = {0, 1}, .layer_slice_bytes = 1000 * kBlockTokens}};
  info.block_bytes = 2000 * kBlockTokens;
  info.hidden_row_bytes = hidden;
  info.projects = true;
  return info;
}

// A slow disk, of which hidden states take less than keys and values; `projection`: of a token.
CostCurves curves_with(Nanos projection) {
  CostCurves curves;
  curves.token = 10 * kNanosPerMilli;
  curves.disk_read = {0, 1'000'000};
  curves.projection = projection;
  return curves;
}

Result<HiddenChoice> choose(const std::string& wanted, std::uint64_t hidden, Nanos projection) {
  return choose_hidden({.wanted = wanted, .save = "through"}, info_with(hidden), curves_with(projection));
}

TEST(HiddenChoice, WithoutAPriceOfProjectingAutoChoosesNoneAndOnAll) {
  const HiddenChoice measured = choose("auto", 300, 1000).value();
  EXPECT_GT(measured.share.percent, 0u);
  EXPECT_TRUE(measured.follows);
  const HiddenChoice unmeasured = choose("auto", 300, 0).value();
  EXPECT_EQ(unmeasured.share, HiddenShare{});
  EXPECT_TRUE(unmeasured.follows) << "it may be measured while the server runs";
  EXPECT_NE(unmeasured.reason.find("nobody measured"), std::string::npos) << unmeasured.reason;
  for (const Nanos projection : {0, 1000}) {
    const HiddenChoice all = choose("on", 300, projection).value();
    EXPECT_EQ(all.share, HiddenShare{.percent = 100});
    EXPECT_FALSE(all.follows);
    EXPECT_EQ(all.reason.find("nobody measured") != std::string::npos, projection == 0) << all.reason;
  }
}

TEST(HiddenChoice, WhereTheyAreNotSmallerOnIsRefusedWithBothSizes) {
  const Status refused = choose("on", 1200, 1000).status();
  EXPECT_EQ(refused.field(), "hidden");
  EXPECT_NE(refused.message().find("1200 bytes"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("keys and values 1000"), std::string::npos) << refused.message();
  const HiddenChoice none = choose("auto", 1200, 1000).value();
  EXPECT_EQ(none.slice_bytes, 0u);
}

}  // namespace
}  // namespace loci
