// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/profile_svg.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "loci/server/profile/profile_testing.h"

namespace loci {
namespace {

std::size_t count_of(const std::string& text, std::string_view what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(ProfileSvg, DrawsWhatWasMeasured) {
  CostProfile profile = some_profile();
  profile.model = "<a & b>";
  profile.disk_directory = "/disk";
  const std::string with_disk = profile_svg(profile, 1 << 20);
  EXPECT_TRUE(with_disk.starts_with("<svg ") && with_disk.ends_with("</svg>\n"));
  EXPECT_EQ(count_of(with_disk, "<polyline"), 8u);
  EXPECT_NE(with_disk.find("&lt;a &amp; b&gt; on Some CPU"), std::string::npos);
  EXPECT_EQ(with_disk.find("nan"), std::string::npos);
  EXPECT_EQ(with_disk.find("inf"), std::string::npos);
  profile.disk_directory.clear();
  const std::string without = profile_svg(profile, 1 << 20);
  EXPECT_EQ(count_of(without, "<polyline"), 4u);
  EXPECT_EQ(without.find("disk"), std::string::npos);
}

TEST(ProfileSvg, StandsCostsOfNothing) {
  CostProfile profile;
  profile.curves = {
      .token = 0, .attention = {0}, .pass = 0, .host_load = {0, UINT64_MAX}, .host_save = {0, 1}};
  const std::string svg = profile_svg(profile, 0);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace loci
