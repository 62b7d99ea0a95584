// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/event_mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <thread>

namespace loci {
namespace {

// A server that is stopped at once destroys the network while the engine still tells what it computes.
TEST(EventMailbox, NothingIsPostedOnceItIsClosed) {
  const SystemClock clock;
  int late = 0;
  for (int i = 0; i < 500; ++i) {
    boost::asio::io_context io{1};
    const auto mailbox = std::make_shared<EventMailbox>(io, clock);
    std::atomic<bool> is_over = false;
    std::thread core([&, listener = mailbox->listener(0)] {
      while (!is_over) {
        listener(GeneratedToken{});
        mailbox->take();  // so the next one is posted too
      }
    });
    while (io.poll() == 0) io.restart();
    mailbox->close();
    io.restart();
    io.poll();  // what was posted before
    is_over = true;
    core.join();
    io.restart();
    if (io.poll() > 0) ++late;
  }
  EXPECT_EQ(late, 0);
}

}  // namespace
}  // namespace loci
