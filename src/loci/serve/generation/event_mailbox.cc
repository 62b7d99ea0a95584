// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/event_mailbox.h"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

namespace loci {
namespace asio = boost::asio;

EventMailbox::EventMailbox(asio::io_context& io, const Clock& clock)
    : io_(io),
      clock_(clock),
      signal_(std::make_shared<asio::steady_timer>(io, asio::steady_timer::time_point::max())) {}

GenerationListener EventMailbox::listener(std::uint32_t choice) {
  return [self = shared_from_this(), choice](const GenerationEvent& event) {
    self->put({.choice = choice, .at = self->clock_.now(), .event = event});
  };
}

// Posts under the mutex: once close() has returned, the io_context may go.
void EventMailbox::put(MailboxEvent event) {
  const MutexLock lock(mutex_);
  if (closed_) return;
  events_.push_back(std::move(event));
  if (events_.size() == 1) asio::post(io_, [self = shared_from_this()] { self->wake(); });
  if (events_.size() == kMailboxFull) asio::post(io_, [self = shared_from_this()] { self->tell_if_full(); });
}

// Somebody may have taken them since.
void EventMailbox::tell_if_full() {
  {
    const MutexLock lock(mutex_);
    if (closed_ || events_.size() < kMailboxFull) return;
  }
  if (tell_full_) tell_full_();
}

bool EventMailbox::empty() {
  const MutexLock lock(mutex_);
  return events_.empty();
}

std::vector<MailboxEvent> EventMailbox::take() {
  const MutexLock lock(mutex_);
  return std::exchange(events_, {});
}

void EventMailbox::wake() {
  woken_ = true;
  if (signal_) signal_->cancel();
}

asio::awaitable<bool> EventMailbox::wait(std::optional<Nanos> limit) {
  using Timer = asio::steady_timer;
  if (!woken_)
    signal_->expires_at(limit ? Timer::clock_type::now() + std::chrono::nanoseconds(*limit)
                              : Timer::time_point::max());
  while (!woken_) {
    boost::system::error_code cancelled;
    co_await signal_->async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    if (!cancelled && !woken_) co_return false;
  }
  woken_ = false;
  co_return true;
}

void EventMailbox::close() {
  signal_.reset();
  tell_full_ = nullptr;
  const MutexLock lock(mutex_);
  closed_ = true;
  events_.clear();
}

}  // namespace loci
