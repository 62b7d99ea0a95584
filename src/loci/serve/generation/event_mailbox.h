// SPDX-License-Identifier: Apache-2.0
// How the engine's events reach the network thread: the core's thread puts them in, the network thread
// is woken once for all that wait and takes them out. While the client does not read, the network thread
// takes none; once the mailbox is full, it is told so and pauses the client's requests. After that at most
// one pass's tokens follow.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/engine/run/engine.h"

namespace loci {

// Events that wait when a mailbox is full.
inline constexpr std::size_t kMailboxFull = 256;

struct MailboxEvent {
  std::uint32_t choice = 0;
  Nanos at = 0;  // when the core's thread handed it over
  GenerationEvent event;
};

// listener() and what it returns: any thread. The rest: the network thread, or who destroys `io` behind it.
// It is closed before `io` goes.
class EventMailbox : public std::enable_shared_from_this<EventMailbox> {
 public:
  EventMailbox(boost::asio::io_context& io, const Clock& clock);

  // The listener keeps the mailbox alive, and may be called until its request has ended.
  GenerationListener listener(std::uint32_t choice);

  // Returns true when there are events or wake() was called, false when neither has come within the limit.
  boost::asio::awaitable<bool> wait(std::optional<Nanos> limit);
  std::vector<MailboxEvent> take();
  bool empty();
  void wake();
  // Called when so many events wait that the mailbox is full, each time that it becomes so; until close().
  void on_full(std::function<void()> tell) { tell_full_ = std::move(tell); }
  // Nobody will take events any more: later ones are dropped.
  void close();

 private:
  void put(MailboxEvent event);
  void tell_if_full();

  boost::asio::io_context& io_;
  const Clock& clock_;
  // Only the network thread locks the timer, so it is never destroyed on another one.
  std::shared_ptr<boost::asio::steady_timer> signal_;
  bool woken_ = false;
  std::function<void()> tell_full_;

  Mutex mutex_;
  std::vector<MailboxEvent> events_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace loci
