// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/copies.h"

#include <pthread.h>

#include <system_error>
#include <utility>
#include <vector>

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

Ticket CopyStream::copy(std::span<const CopyPiece> pieces, std::initializer_list<After> after) {
  std::shared_ptr<Event> event = tickets_.take_event();
  std::vector<std::shared_ptr<Event>> before;
  for (const auto& [of, ticket] : after) before.push_back(of.event_of(ticket));
  Ticket queued = 0;
  {
    const MutexLock lock(queue_mutex_);
    for (const std::shared_ptr<Event>& each : before) {
      if (each != nullptr) stream_.wait(*each);
    }
    stream_.copy_pieces(pieces);
    stream_.record(*event);
    queued = ++queued_;
  }
  tickets_.add(queued, std::move(event));
  return queued;
}

void CopyStream::when_done(std::function<void(const Status&)> told) {
  const Ticket last = tickets_.last();
  if (has_thread()) {
    {
      const MutexLock lock(mutex_);
      calls_.push_back({last, std::move(told)});
    }
    changed_.notify_all();
  } else {
    tickets_.wait(last);
    told(device_.status());
  }
}

bool CopyStream::has_thread() {
  const MutexLock lock(mutex_);
  if (thread_.joinable()) return true;
  try {
    thread_ = std::thread([this] { tell(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
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
    tickets_.wait(call.ticket);
    call.told(device_.status());
    lock.lock();
  }
}

}  // namespace loci::cuda
