// SPDX-License-Identifier: Apache-2.0
#include "loci/server/conversations.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <boost/asio/post.hpp>
#include <future>
#include <memory>
#include <sstream>

#include "loci/base/thread_limit_testing.h"
#include "loci/serve/store/naive_store_testing.h"

namespace loci {
namespace {

// Its call under way ends when it is given up.
class StillStore : public NaiveStore {
 public:
  void abandon() override { given_up.set_value(); }

  std::promise<void> given_up;
};

TEST(Conversations, WithoutAThreadToWatchThemCallsAreGivenUpAtOnce) {
  StillStore store;
  auto threads = std::make_unique<WorkerPool>(1);
  std::promise<void> begun;
  boost::asio::post(threads->executor(), [&] {
    begun.set_value();
    store.given_up.get_future().wait_for(std::chrono::minutes(1));
  });
  begun.get_future().wait();
  std::ostringstream said;
  spdlog::logger log("loci", std::make_shared<spdlog::sinks::ostream_sink_st>(said));
  {
    const ThreadLimit limit(0);
    end_conversations(threads, &store, log);
  }
  EXPECT_EQ(threads, nullptr);
  EXPECT_NE(said.str().find("no thread to watch the store's last calls"), std::string::npos) << said.str();
}

}  // namespace
}  // namespace loci
