// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/help.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "loci/cli/options/option_table.h"

namespace loci {
namespace {

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::size_t options_in(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(option_table().begin(), option_table().end(), [&](const Option& option) {
        return text.find("\n  " + option.flag + " ") != std::string::npos ||
               text.find("\n  " + option.flag + "\n") != std::string::npos;
      }));
}

void expect_narrow(const std::string& text) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(ServeHelp, ShowsWhatPeopleSetOnOneScreenAndAllWhenAsked) {
  const std::string often = serve_help(HelpDepth::kOften);
  EXPECT_EQ(options_in(often), 10u) << often;
  EXPECT_LE(lines_of(often), 60u);
  EXPECT_NE(often.find("--help-all"), std::string::npos);
  const std::string all = serve_help(HelpDepth::kAll);
  EXPECT_EQ(options_in(all), option_table().size()) << all;
  for (const std::string& text : {often, all}) {
    expect_narrow(text);
    EXPECT_NE(text.find("Examples:\n"), std::string::npos);
    EXPECT_NE(text.find("--config FILE"), std::string::npos);
  }
}

}  // namespace
}  // namespace loci
