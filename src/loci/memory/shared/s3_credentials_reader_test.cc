// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_credentials_reader.h"

#include <gtest/gtest.h>

#include <optional>

#include "loci/base/eventually_testing.h"
#include "loci/base/thread_limit_testing.h"

namespace loci {
namespace {

TEST(S3CredentialsReader, WithoutAThreadForAReadingTheNextOneTriesAgain) {
  S3CredentialsReader reader(
      []() -> Result<S3Credentials> { return S3Credentials{.key_id = "k", .secret = "s", .token = {}}; });
  std::optional<Result<S3Credentials>> found;
  {
    const ThreadLimit limit(0);
    reader.begin();
    found = reader.take();
  }
  ASSERT_TRUE(found);
  EXPECT_EQ(found->status().code(), StatusCode::kResourceExhausted) << found->status().message();
  reader.begin();
  ASSERT_TRUE(eventually([&] { return (found = reader.take()).has_value(); }));
  ASSERT_TRUE(found->ok()) << found->status().message();
  EXPECT_EQ((*found)->key_id, "k");
}

}  // namespace
}  // namespace loci
