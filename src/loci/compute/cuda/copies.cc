// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/copies.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace loci::cuda {

CopyStream::~CopyStream() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  stream_.synchronize();
}

CopyTicket CopyStream::copy(std::span<const CopyPiece> pieces, CopyStream* other, CopyTicket ticket) {
  const std::shared_ptr<Event> event = take_event();
  const std::shared_ptr<Event> before = other == nullptr ? nullptr : other->event_of(ticket);
  CopyTicket queued = 0;
  {
    const MutexLock lock(queue_mutex_);
    if (before != nullptr) stream_.wait(*before);
    stream_.copy_pieces(pieces);
    stream_.record(*event);
    queued = ++queued_;
  }
  const MutexLock lock(mutex_);
  events_.emplace(queued, event);
  return queued;
}

void CopyStream::hold(Stream& stream, CopyTicket ticket) {
  if (const std::shared_ptr<Event> event = event_of(ticket)) stream.wait(*event);
}

void CopyStream::wait(CopyTicket ticket) {
  if (const std::shared_ptr<Event> event = event_of(ticket)) {
    event->synchronize();
    retire(ticket);
  }
}

void CopyStream::when_done(std::function<void(const Status&)> told) {
  {
    const MutexLock lock(mutex_);
    const CopyTicket last = events_.empty() ? 0 : events_.rbegin()->first;
    calls_.push_back({last, std::move(told)});
    if (!thread_.joinable()) thread_ = std::thread([this] { tell(); });
  }
  changed_.notify_all();
}

std::shared_ptr<Event> CopyStream::take_event() {
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

std::shared_ptr<Event> CopyStream::event_of(CopyTicket ticket) {
  const MutexLock lock(mutex_);
  const auto found =
      ticket <= done_.load(std::memory_order_relaxed) ? events_.end() : events_.lower_bound(ticket);
  return found == events_.end() ? nullptr : found->second;
}

void CopyStream::retire(CopyTicket ticket) {
  const MutexLock lock(mutex_);
  const auto end = events_.upper_bound(ticket);
  for (auto each = events_.begin(); each != end; ++each) {
    if (each->second.use_count() == 1) spare_.push_back(std::move(each->second));
  }
  events_.erase(events_.begin(), end);
  if (ticket > done_.load(std::memory_order_relaxed)) done_.store(ticket, std::memory_order_release);
}

void CopyStream::tell() {
  pthread_setname_np(pthread_self(), name_);
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&]() REQUIRES(mutex_) { return stopping_ || !calls_.empty(); });
    if (calls_.empty()) return;
    Call call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    wait(call.ticket);
    call.told(device_.status());
    lock.lock();
  }
}

}  // namespace loci::cuda
