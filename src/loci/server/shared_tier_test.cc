// SPDX-License-Identifier: Apache-2.0
#include "loci/server/shared_tier.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace loci {
namespace {

TEST(SharedTier, WhatNeedsNoModelIsChecked) {
  ::unsetenv("AWS_ACCESS_KEY_ID");
  ::unsetenv("AWS_SECRET_ACCESS_KEY");
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/credentials", 1);
  const std::string place = "s3://bucket?endpoint=http://127.0.0.1:1";
  EXPECT_TRUE(check_shared_options("", false).ok());
  EXPECT_TRUE(check_shared_options("redis://h", true).ok());
  EXPECT_EQ(check_shared_options("redis://h", false).field(), "cluster_secret");
  for (const char* const wrong : {"http://h", "s3:/bucket", "s3://bucket/a//b?region=x", "redis://h:0"}) {
    const Status status = check_shared_options(wrong, true);
    EXPECT_EQ(status.field(), "shared") << wrong;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << wrong;
  }
  const Status none = check_shared_options(place, true);
  EXPECT_EQ(none.field(), "shared");
  EXPECT_NE(none.message().find("/nowhere/credentials"), std::string::npos) << none.message();
  ::setenv("AWS_ACCESS_KEY_ID", "id", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  EXPECT_TRUE(check_shared_options(place, true).ok());
  EXPECT_EQ(check_shared_options(place, false).field(), "cluster_secret");
  ::unsetenv("AWS_ACCESS_KEY_ID");
  ::unsetenv("AWS_SECRET_ACCESS_KEY");
  ::unsetenv("AWS_SHARED_CREDENTIALS_FILE");
}

TEST(SharedTier, NoPasswordIsShown) {
  EXPECT_EQ(describe_shared(""), "");
  EXPECT_EQ(describe_shared("redis://h:7000/3"), "redis://h:7000/3");
  EXPECT_EQ(describe_shared("s3://bucket/a?region=x"), "s3://bucket/a?region=x");
  EXPECT_EQ(describe_shared("redis://ann:secret@h:7000/3"), "redis://ann:***@h:7000/3");
  EXPECT_EQ(describe_shared("rediss://:secret@[::1]"), "rediss://:***@[::1]");
  // Mistyped, and not refused yet.
  EXPECT_EQ(describe_shared("redis://:sec/r@et@h"), "redis://:***@h");
  EXPECT_EQ(describe_shared("redis://secret@h"), "redis://***@h");
  EXPECT_EQ(describe_shared("redis:/:secret@h"), "redis:***@h");
  EXPECT_EQ(describe_shared("s3://id:secret@bucket"), "s3://id:***@bucket");
}

}  // namespace
}  // namespace loci
