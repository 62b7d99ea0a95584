// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/child_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"

namespace loci {
namespace {

// Children by their values; looked for by a value, too.
using Values = std::vector<std::uint32_t>;
class ByValue {
 public:
  using is_transparent = void;
  explicit ByValue(const Values* values) : values_(values) {}
  bool operator()(BlockId a, BlockId b) const { return value(a) < value(b); }
  bool operator()(BlockId a, std::uint32_t b) const { return value(a) < b; }
  bool operator()(std::uint32_t a, BlockId b) const { return a < value(b); }

 private:
  std::uint32_t value(BlockId id) const { return (*values_)[id.value]; }
  const Values* values_;
};
using Children = ChildSet<ByValue, Values>;
using Tree = std::set<BlockId, ByValue>;

void expect_same(const Children& children, const Tree& plain, std::uint32_t sought) {
  ASSERT_TRUE(std::equal(children.begin(), children.end(), plain.begin(), plain.end()));
  ASSERT_EQ(children.size(), plain.size());
  ASSERT_EQ(children.empty(), plain.empty());
  const auto from_begin = [&](auto at) { return std::distance(children.begin(), at); };
  const auto plain_from_begin = [&](auto at) { return std::distance(plain.begin(), at); };
  ASSERT_EQ(from_begin(children.lower_bound(sought)), plain_from_begin(plain.lower_bound(sought)));
  ASSERT_EQ(from_begin(children.upper_bound(sought)), plain_from_begin(plain.upper_bound(sought)));
  ASSERT_EQ(from_begin(children.find(sought)), plain_from_begin(plain.find(sought)));
  if (plain.empty()) return;
  ASSERT_EQ(*std::prev(children.end()), *std::prev(plain.end()));
}

TEST(ChildSet, IsAPlainSet) {
  for (std::uint64_t seed = 0; seed < test_rounds(50); ++seed) {
    Random random(seed);
    Values values(8);
    for (std::uint32_t& value : values) value = static_cast<std::uint32_t>(random.below(6));
    Children children(&values);
    Tree plain{ByValue(&values)};
    const std::uint64_t most = 1 + random.below(values.size());  // so that some have one child or none
    for (int step = 0; step < 200; ++step) {
      const BlockId child(static_cast<std::uint32_t>(random.below(most)));
      const auto equal = plain.find(child);
      if (random.below(2) == 0) {
        ASSERT_EQ(children.insert(child), plain.insert(child).second);
      } else if (equal == plain.end() || *equal == child) {
        ASSERT_EQ(children.erase(child), plain.erase(child) > 0);
      }
      ASSERT_EQ(children.contains(child), plain.contains(child));
      ASSERT_NO_FATAL_FAILURE(expect_same(children, plain, static_cast<std::uint32_t>(random.below(7))))
          << "seed " << seed << ", step " << step;
    }
  }
}

// The tokens of an only child's state grow while it is in the set.
TEST(ChildSet, LetsAnOnlyChildChange) {
  Values values = {5, 3};
  Children children(&values);
  EXPECT_TRUE(children.insert(BlockId(0)));
  values[0] = 1;
  EXPECT_EQ(*children.lower_bound(1u), BlockId(0));
  EXPECT_TRUE(children.insert(BlockId(1)));
  EXPECT_EQ(*children.begin(), BlockId(0));
  EXPECT_TRUE(children.erase(BlockId(0)));
  EXPECT_EQ(*children.begin(), BlockId(1));
}

}  // namespace
}  // namespace loci
