// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/files/file_watch.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "loci/base/folder_testing.h"

namespace loci {
namespace {

// Counts calls, of which the first `failures` say that they failed.
class FileWatchTest : public testing::Test {
 protected:
  FileWatchTest() { write("one"); }

  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::function<bool()> counter(int failures) {
    return [this, failures] {
      const std::lock_guard lock(mutex_);
      ++calls_;
      called_.notify_all();
      return calls_ > failures;
    };
  }
  bool called(int times) {
    std::unique_lock lock(mutex_);
    return called_.wait_for(lock, std::chrono::minutes(1), [&] { return calls_ >= times; });
  }

  const TestFolder folder_;
  const std::string path_ = folder_.file("watched");
  std::mutex mutex_;
  std::condition_variable called_;
  int calls_ = 0;
};

TEST_F(FileWatchTest, TellsOfAChangeAndTriesAgainWhatFailed) {
  FileWatch watch;
  watch.look({path_});
  write("two, longer");
  watch.start(counter(2));
  EXPECT_TRUE(called(3)) << "twice in vain, then it is read";
}

TEST_F(FileWatchTest, AFileThatComesLaterIsAChange) {
  std::filesystem::remove(path_);
  FileWatch watch;
  watch.look({path_});
  watch.start(counter(0));
  write("it is there");
  EXPECT_TRUE(called(1));
}

}  // namespace
}  // namespace loci
