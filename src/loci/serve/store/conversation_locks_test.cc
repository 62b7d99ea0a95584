// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/conversation_locks.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

TEST(ConversationLocks, OneTurnAtATime) {
  ConversationLocks locks;
  {
    std::optional<ConversationLock> first = locks.take("a", "c");
    ASSERT_TRUE(first.has_value());
    EXPECT_FALSE(locks.take("a", "c").has_value());
    EXPECT_TRUE(locks.take("b", "c").has_value()) << "another tenant's conversation of the same name";
    EXPECT_TRUE(locks.take("a", "d").has_value());
    ConversationLock moved = std::move(*first);
    first.reset();
    EXPECT_FALSE(locks.take("a", "c").has_value()) << "moving it holds on";
    moved = ConversationLock();
    EXPECT_TRUE(locks.take("a", "c").has_value());
  }
  EXPECT_TRUE(locks.take("a", "c").has_value());
}

TEST(ConversationLocks, MayOutliveWhoGaveThem) {
  ConversationLock lock;
  {
    ConversationLocks locks;
    lock = *locks.take("a", "c");
  }
  lock = ConversationLock();
}

}  // namespace
}  // namespace loci
