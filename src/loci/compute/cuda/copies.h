// SPDX-License-Identifier: Apache-2.0
// Copies between host and device, in order, on a stream of their own. Each copy has a ticket. Another stream
// or the host can wait for a ticket, and a thread reports when tickets are done.
//
// Each ticket has an event, recorded after its copies. A stream that computes waits for a ticket's event, so
// it goes on as soon as its own bytes are there, whatever was queued after them.
//
// Thread-safe. One mutex is for threads that queue copies, others for tickets and for calls; no thread holds
// two. So a thread that waits for a ticket is not delayed by one that queues copies.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <thread>

#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/compute/cuda/tickets.h"

namespace loci::cuda {

class CopyStream {
 public:
  // `name`: the thread's name, for people who look at the process.
  CopyStream(const Device& device, const char* name)
      : device_(device), name_(name), stream_(device), tickets_(device) {}
  // Waits for all copies and for all calls of when_done().
  ~CopyStream();

  // Queues pieces after everything that was queued before; among themselves they are copied in any order.
  // They wait until the tickets in `after` are done.
  Ticket copy(std::span<const CopyPiece> pieces, std::initializer_list<After> after = {});

  // Of the copies: by these, streams and threads wait for them.
  Tickets& tickets() { return tickets_; }
  const Tickets& tickets() const { return tickets_; }
  // Calls `told` once, on this stream's thread, when all tickets that the caller has seen are done, or with
  // the device's error if it is lost. Calls come in order and must not block. While the system has no thread
  // left for this stream, this waits for the tickets and calls `told` before it returns.
  void when_done(std::function<void(const Status&)> told);

 private:
  struct Call {
    Ticket ticket = 0;
    std::function<void(const Status&)> told;
  };

  bool has_thread();  // or gets it; false: the system has none left
  void tell();        // runs on the thread

  const Device& device_;
  const char* const name_;

  Mutex queue_mutex_;
  Stream stream_ GUARDED_BY(queue_mutex_);
  Ticket queued_ GUARDED_BY(queue_mutex_) = 0;

  Tickets tickets_;

  Mutex mutex_;
  Condition changed_;
  std::deque<Call> calls_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_ GUARDED_BY(mutex_);  // begins with a call of when_done()
};

}  // namespace loci::cuda
