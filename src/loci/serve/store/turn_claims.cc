// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/turn_claims.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>

namespace loci {
namespace asio = boost::asio;

void TurnClaims::start(Nanos period) {
  const MutexLock lock(mutex_);
  if (store_thread_ == nullptr) return;
  // Kept alive by the timer, which goes with the store's threads.
  auto timer = std::make_shared<asio::steady_timer>(store_thread_->executor());
  const auto wait = std::make_shared<std::function<void()>>();
  *wait = [self = shared_from_this(), timer, period, weak = std::weak_ptr(wait)] {
    timer->expires_after(std::chrono::nanoseconds(period));
    timer->async_wait([self, again = weak.lock()](const boost::system::error_code& error) {
      if (error || !again) return;
      const Status renewed = self->store_.renew_claims(self->held());
      if (!renewed.ok())
        self->log_->warn(
            "this server's claims to conversations' turns could not be renewed, and are tried again: {}",
            renewed.message());
      (*again)();
    });
  };
  (*wait)();
}

void TurnClaims::hold(std::int64_t claim) {
  const MutexLock lock(mutex_);
  held_.insert(claim);
}

std::vector<std::int64_t> TurnClaims::held() {
  const MutexLock lock(mutex_);
  return {held_.begin(), held_.end()};
}

void TurnClaims::release(std::string tenant, std::string conversation, std::int64_t claim) {
  const MutexLock lock(mutex_);
  held_.erase(claim);  // whatever the store says: it is renewed no more
  if (store_thread_ == nullptr) return;
  asio::post(store_thread_->executor(), [self = shared_from_this(), tenant = std::move(tenant),
                                         conversation = std::move(conversation), claim] {
    const Status released = self->store_.release_turn(tenant, conversation, claim);
    if (!released.ok())
      self->log_->warn("the claim to a turn of {} could not be given back, and ends with its lease: {}",
                       conversation, released.message());
  });
}

void TurnClaims::stop() {
  const MutexLock lock(mutex_);
  store_thread_ = nullptr;
}

}  // namespace loci
