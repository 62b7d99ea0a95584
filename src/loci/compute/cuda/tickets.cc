// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/tickets.h"

#include <utility>

namespace loci::cuda {

std::shared_ptr<Event> Tickets::take_event() {
  {
    const MutexLock lock(mutex_);
    if (!spare_.empty()) {
      std::shared_ptr<Event> event = std::move(spare_.back());
      spare_.pop_back();
      return event;
    }
  }
  return std::make_shared<Event>(device_);
}

void Tickets::add(Ticket ticket, std::shared_ptr<Event> event) {
  const MutexLock lock(mutex_);
  events_.emplace(ticket, std::move(event));
}

Ticket Tickets::last() const {
  const MutexLock lock(mutex_);
  return events_.empty() ? 0 : events_.rbegin()->first;
}

void Tickets::hold(Stream& stream, Ticket ticket) const {
  if (const std::shared_ptr<Event> event = event_of(ticket)) stream.wait(*event);
}

void Tickets::wait(Ticket ticket) {
  if (const std::shared_ptr<Event> event = event_of(ticket)) {
    event->synchronize();
    retire(ticket);
  }
}

void Tickets::retire(Ticket ticket) {
  const MutexLock lock(mutex_);
  const auto end = events_.upper_bound(ticket);
  for (auto each = events_.begin(); each != end; ++each) {
    if (each->second.use_count() == 1) spare_.push_back(std::move(each->second));
  }
  events_.erase(events_.begin(), end);
  if (ticket > done_.load(std::memory_order_relaxed)) done_.store(ticket, std::memory_order_release);
}

std::shared_ptr<Event> Tickets::event_of(Ticket ticket) const {
  if (done(ticket)) return nullptr;
  const MutexLock lock(mutex_);
  const auto found =
      ticket <= done_.load(std::memory_order_relaxed) ? events_.end() : events_.lower_bound(ticket);
  return found == events_.end() ? nullptr : found->second;
}

}  // namespace loci::cuda
