// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/store_claim.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace loci {
namespace {

TEST(StoreClaim, IsHeldByOneAtATime) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("loci-claim-" + std::to_string(::getpid()));
  const std::string path = (folder / "conversations.db").string();
  {
    Result<StoreClaim> first = StoreClaim::take(path);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    // Under another name too.
    std::filesystem::create_directory_symlink(folder, folder.string() + ".link");
    for (const std::string& name : {path, folder.string() + ".link/conversations.db"}) {
      const Status status = StoreClaim::take(name).status();
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_NE(status.message().find("(process " + std::to_string(::getpid()) + ")"), std::string::npos)
          << status.message();
    }
    EXPECT_TRUE(StoreClaim::take(path + ".other").ok());
  }
  EXPECT_TRUE(StoreClaim::take(path).ok()) << "it goes with its holder";
  std::filesystem::remove(folder.string() + ".link");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(StoreClaim::take("/proc/none/conversations.db").status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace loci
