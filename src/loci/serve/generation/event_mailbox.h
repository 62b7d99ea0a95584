// SPDX-License-Identifier: Apache-2.0
// How the engine's events reach the network thread: the core's thread puts them in, the network thread
// is woken once for all that wait and takes them out. Bounded by the tokens that its requests may
// generate.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "loci/base/clock.h"
#include "loci/engine/run/engine.h"

namespace loci {

struct MailboxEvent {
  std::uint32_t choice = 0;
  Nanos at = 0;  // when the core's thread handed it over
  GenerationEvent event;
};

// listener() and what it returns: any thread. The rest: the network thread.
class EventMailbox : public std::enable_shared_from_this<EventMailbox> {
 public:
  EventMailbox(boost::asio::io_context& io, const Clock& clock);

  // The listener keeps the mailbox alive, and may be called until its request has ended.
  GenerationListener listener(std::uint32_t choice);

  // Returns when there are events or wake() was called.
  boost::asio::awaitable<void> wait();
  std::vector<MailboxEvent> take();
  void wake();
  // Nobody will take events any more: later ones are dropped.
  void close();

 private:
  void put(MailboxEvent event);

  boost::asio::io_context& io_;
  const Clock& clock_;
  // Only the network thread locks the timer, so it is never destroyed on another one.
  std::shared_ptr<boost::asio::steady_timer> signal_;
  bool woken_ = false;

  std::mutex mutex_;
  std::vector<MailboxEvent> events_;  // guarded by mutex_
  bool closed_ = false;               // guarded by mutex_
};

}  // namespace loci
