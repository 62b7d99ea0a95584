// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/stop_matcher.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "loci/base/random.h"

namespace loci {
namespace {

// The definition: the match that ends first, and of those the longest; searched in the whole text.
std::optional<std::size_t> find_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (!stop.empty() && std::string_view(text).substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    }
    if (longest > 0) return end - longest;
  }
  return std::nullopt;
}

std::string random_text(Random& random, std::size_t length) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random.below(2));
  return text;
}

TEST(StopMatcher, AnySplitGivesWhatSearchingTheWholeGives) {
  Random random(7);
  for (int round = 0; round < 20'000; ++round) {
    const std::string text = random_text(random, random.below(24));
    std::vector<std::string> stops;
    for (std::uint64_t i = random.below(4); i > 0; --i) stops.push_back(random_text(random, random.below(6)));
    StopMatcher matcher(stops);
    std::string shown;
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t length = random.below(5);
      shown += matcher.push(std::string_view(text).substr(at, length));
      at += length;
      // What is shown is text before any stop string, in order.
      ASSERT_EQ(shown, text.substr(0, shown.size()));
      ASSERT_EQ(matcher.released(), shown.size());
    }
    shown += matcher.finish();
    const std::optional<std::size_t> found = find_stop(text, stops);
    ASSERT_EQ(matcher.matched(), found.has_value()) << text;
    ASSERT_EQ(shown, text.substr(0, found.value_or(text.size()))) << text;
    ASSERT_EQ(text.substr(found.value_or(0), matcher.match().size()), matcher.match());
    ASSERT_EQ(matcher.match().empty(), !found);
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopMatcher matcher({"\nUser:"});
  EXPECT_EQ(matcher.push("Hello"), "Hello");
  EXPECT_EQ(matcher.push(" there\nUs"), " there");
  EXPECT_EQ(matcher.push("ual"), "\nUsual");
  EXPECT_EQ(matcher.push("\nUser"), "");
  EXPECT_FALSE(matcher.matched());
  EXPECT_EQ(matcher.push(": hi"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, ShowsAtTheEndWhatWasHeldBack) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("the EN"), "the ");
  EXPECT_EQ(matcher.finish(), "EN");
}

TEST(StopMatcher, WithoutStopStringsNothingWaits) {
  StopMatcher matcher({"", ""});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, NeverPartsACharacter) {
  StopMatcher matcher({"é!"});
  EXPECT_EQ(matcher.push("caf"), "caf");
  EXPECT_EQ(matcher.push("é"), "");
  EXPECT_EQ(matcher.push("è"), "éè");
}

}  // namespace
}  // namespace loci
