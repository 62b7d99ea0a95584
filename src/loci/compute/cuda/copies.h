// SPDX-License-Identifier: Apache-2.0
// Copies between host and device, on a stream of their own: in order, with a ticket each, on which another
// stream can be made to wait, the host can wait, and about which a thread tells when it is done.
//
// Events: each ticket has one, recorded behind its copies. A stream that computes waits for a ticket's event,
// so it goes on as soon as its own bytes are there, whatever was queued behind them.
//
// Thread-safe. A mutex for those who queue (the stream), another for tickets, never both: who waits for a
// ticket is not held up by who queues copies.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

// Counts up; 0 has always been done.
using CopyTicket = std::uint64_t;

class CopyStream {
 public:
  // `name`: of its thread, for those who look at the process.
  CopyStream(const Device& device, const char* name) : device_(device), name_(name), stream_(device) {}
  // Waits for all copies; whoever was to be told has been.
  ~CopyStream();

  // Queues pieces, which are copied in any order, behind all that was queued before; once `ticket` of the
  // other stream is done, where there is one.
  CopyTicket copy(std::span<const CopyPiece> pieces, CopyStream* other = nullptr, CopyTicket ticket = 0);

  // Known to be done. It may be done and not yet known.
  bool done(CopyTicket ticket) const { return ticket <= done_.load(std::memory_order_acquire); }
  // What `stream` does from here on waits for the ticket.
  void hold(Stream& stream, CopyTicket ticket);
  // Sleeps until it is done; at once when the device is lost.
  void wait(CopyTicket ticket);
  // Calls `told` once, on this stream's thread, when all tickets that its caller has seen are done; with the
  // device's error where it is lost. Calls are in order and must not block.
  void when_done(std::function<void(const Status&)> told);

 private:
  struct Call {
    CopyTicket ticket = 0;
    std::function<void(const Status&)> told;
  };

  std::shared_ptr<Event> take_event();
  // Of the first ticket at or behind this one that is not known to be done; none: this one is.
  std::shared_ptr<Event> event_of(CopyTicket ticket);
  void retire(CopyTicket ticket);
  void tell();  // the thread

  const Device& device_;
  const char* const name_;

  Mutex queue_mutex_;
  Stream stream_ GUARDED_BY(queue_mutex_);
  CopyTicket queued_ GUARDED_BY(queue_mutex_) = 0;

  Mutex mutex_;
  Condition changed_;
  // Not known to be done. Shared with those who wait for them outside the mutex; used again when nobody does.
  std::map<CopyTicket, std::shared_ptr<Event>> events_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Event>> spare_ GUARDED_BY(mutex_);
  std::deque<Call> calls_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_ GUARDED_BY(mutex_);  // begins with the first call

  std::atomic<CopyTicket> done_{0};
};

}  // namespace loci::cuda
