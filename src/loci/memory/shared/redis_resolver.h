// SPDX-License-Identifier: Apache-2.0
// The addresses of the store's host. The system's resolver knows no deadline and cannot be stopped, so a
// thread of its own looks names up, one at a time. While a lookup hangs no other begins; callers wait for it
// as long as they like.
#pragma once

#include <netdb.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "loci/base/clock.h"
#include "loci/base/status.h"

namespace loci {

// Thread-safe. The destructor waits for nothing: a lookup under way ends by itself and touches nothing of
// this.
class RedisResolver {
 public:
  using Addresses = std::shared_ptr<const addrinfo>;  // never null
  using LookUp = std::function<Result<Addresses>(const std::string& host, std::uint16_t port)>;

  // `look_up` may block; it is the system's but for tests.
  RedisResolver(std::string host, std::uint16_t port, const Clock& clock, LookUp look_up = system_look_up);
  ~RedisResolver();
  RedisResolver(const RedisResolver&) = delete;
  RedisResolver& operator=(const RedisResolver&) = delete;

  // The result of the lookup under way, or of one that begins now. A result that came after all callers had
  // given up goes to the next caller, and to no other. Numbers need no lookup. Errors: kUnavailable (the name
  // is nobody's, or the system has no thread left), kDeadlineExceeded, kCancelled (stop()).
  Result<Addresses> resolve(Nanos deadline);
  // Waiting callers, and later ones, give up at once.
  void stop();

 private:
  struct State;
  static Result<Addresses> system_look_up(const std::string& host, std::uint16_t port);

  const Clock& clock_;
  const LookUp look_up_;
  const std::shared_ptr<State> state_;  // the thread's too
};

}  // namespace loci
