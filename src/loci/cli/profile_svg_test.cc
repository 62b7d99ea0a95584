// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/profile_svg.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace loci {
namespace {

CostProfile some_profile() {
  CostProfile profile;
  profile.machine = {"Some CPU @ 3 GHz", 8, "AVX2, 4 threads"};
  profile.model = "model.gguf";
  profile.model_fingerprint = fingerprint_text({1, 2, 0xab});
  profile.measured_at = "2026-01-02T03:04:05Z";
  profile.disk_directory = "/somewhere";
  profile.curves.token = 123'456;
  profile.curves.attention = {1, 2, 5, 5, 90};
  profile.curves.pass = 7;
  profile.curves.host_load = {0, 5'000'000'000};
  profile.curves.host_save = {12, 4'000'000'000};
  profile.curves.disk_read = {90'000, 2'000'000'000};
  profile.curves.disk_write = {91'000, 1};
  profile.curves.host_charge = 1'111;
  profile.curves.disk_charge = 2'222;
  profile.disk_reads = {{4096, 100}, {65536, 200}};
  return profile;
}

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
