// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/store_claim.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "loci/base/folder_testing.h"

namespace loci {
namespace {

TEST(StoreClaim, IsHeldByOneAtATime) {
  const TestFolder test_folder;
  const std::string folder = test_folder.file("store"), link = test_folder.file("link");
  const std::string path = folder + "/conversations.db";
  {
    Result<StoreClaim> first = StoreClaim::take(path);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    // Under another name too.
    std::filesystem::create_directory_symlink(folder, link);
    for (const std::string& name : {path, link + "/conversations.db"}) {
      const Status status = StoreClaim::take(name).status();
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_NE(status.message().find("(process " + std::to_string(::getpid()) + ")"), std::string::npos)
          << status.message();
    }
    EXPECT_TRUE(StoreClaim::take(path + ".other").ok());
  }
  EXPECT_TRUE(StoreClaim::take(path).ok()) << "it goes with its holder";
}

TEST(StoreClaim, SaysWhichFolderCannotBeMade) {
  const Status status = StoreClaim::take("/proc/none/conversations.db").status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(status.message().starts_with("the folder /proc/none cannot be made: ")) << status.message();
}

}  // namespace
}  // namespace loci
