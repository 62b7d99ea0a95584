// SPDX-License-Identifier: Apache-2.0
// Numbers work that is queued on a stream, so that other streams and threads can wait for it: each *ticket*
// is an event behind its work. Tickets of one stream count up, and are done in order.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

// Counts up; 0 has always been done.
using Ticket = std::uint64_t;

class Tickets {
 public:
  explicit Tickets(const Device& device) : device_(device) {}

  // An event that nobody uses. Record it behind the work, then give it to add().
  std::shared_ptr<Event> take_event();
  void add(Ticket ticket, std::shared_ptr<Event> event);
  // The last ticket that was added and is not known to be done; 0: there is none.
  Ticket last() const;

  // True: the ticket is known to be done. It may be done without being known yet.
  bool done(Ticket ticket) const { return ticket <= done_.load(std::memory_order_acquire); }
  // Makes all later work of `stream` wait for the ticket.
  void hold(Stream& stream, Ticket ticket) const;
  // Sleeps until the ticket is done; returns at once if the device is lost.
  void wait(Ticket ticket);
  // Says that the ticket, and so each before it, is done.
  void retire(Ticket ticket);
  // The event of this ticket, or of the next one that has an event and is not known to be done. Null: this
  // ticket is done.
  std::shared_ptr<Event> event_of(Ticket ticket) const;

 private:
  const Device& device_;
  mutable Mutex mutex_;
  // Events of tickets that are not known to be done. They are shared with threads that wait outside the
  // mutex, and used again when none does.
  std::map<Ticket, std::shared_ptr<Event>> events_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Event>> spare_ GUARDED_BY(mutex_);
  std::atomic<Ticket> done_{0};
};

// A ticket that work waits for.
struct After {
  const Tickets& of;
  Ticket ticket = 0;
};

}  // namespace loci::cuda
