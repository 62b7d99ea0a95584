// SPDX-License-Identifier: Apache-2.0
// Who may get requests, as lists of members come.
#include "loci/cluster/instances.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

TEST(Instances, ListsAfterATimeWithoutAnyAreBelievedWhenMembersHadTimeToComeBack) {
  constexpr Nanos kSecond = kNanosPerSecond;
  Instances instances({});
  const Member member{.id = "0000000000000001", .host = "a", .port = 1, .models = {"tiny"}};
  instances.update({member}, 0);
  const std::shared_ptr<Instance> one = instances.all().begin()->second;
  instances.update({}, kSecond);
  EXPECT_FALSE(instances.is_member(*one, kSecond));
  EXPECT_EQ(instances.choose({}, {}, kSecond).instance, nullptr);
  instances.update({member}, 2 * kSecond);
  EXPECT_TRUE(instances.is_member(*one, 2 * kSecond));
  // The database was away, and all rows are too old when it is back.
  instances.update({}, 20 * kSecond);
  EXPECT_EQ(instances.choose({}, {}, 20 * kSecond).instance, one);
  instances.update({}, 21 * kSecond);
  EXPECT_TRUE(instances.is_member(*one, 24 * kSecond));
  EXPECT_FALSE(instances.is_member(*one, 25 * kSecond));
}

}  // namespace
}  // namespace loci
