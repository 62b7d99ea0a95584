// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_resolver.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "loci/base/mutex.h"

namespace loci {
namespace {

Result<RedisResolver::Addresses> look_up_with(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found);
  if (error != 0) return Status(StatusCode::kUnavailable, fmt::format("{}: {}", host, ::gai_strerror(error)));
  return RedisResolver::Addresses(found, [](addrinfo* info) { ::freeaddrinfo(info); });
}

}  // namespace

struct RedisResolver::State {
  State(std::string h, std::uint16_t p) : host(std::move(h)), port(p) {}
  const std::string host;
  const std::uint16_t port;
  Mutex mutex;
  Condition changed;
  bool looking GUARDED_BY(mutex) = false;  // a thread is under way
  bool stopped GUARDED_BY(mutex) = false;
  std::uint64_t lookups GUARDED_BY(mutex) = 0;                // that ended
  std::optional<Result<Addresses>> answer GUARDED_BY(mutex);  // of the last one
  bool taken GUARDED_BY(mutex) = false;                       // by somebody
};

RedisResolver::RedisResolver(std::string host, std::uint16_t port, const Clock& clock, LookUp look_up)
    : clock_(clock), look_up_(std::move(look_up)), state_(std::make_shared<State>(std::move(host), port)) {}

RedisResolver::~RedisResolver() { stop(); }

Result<RedisResolver::Addresses> RedisResolver::system_look_up(const std::string& host, std::uint16_t port) {
  return look_up_with(host, port, 0);
}

Result<RedisResolver::Addresses> RedisResolver::resolve(Nanos deadline) {
  State& state = *state_;
  Result<Addresses> numeric = look_up_with(state.host, state.port, AI_NUMERICHOST);
  if (numeric.ok()) return numeric;
  MutexLock lock(state.mutex);
  if (!state.looking && !state.stopped) {
    if (state.answer && state.answer->ok() && !std::exchange(state.taken, true)) return *state.answer;
    try {
      std::thread([shared = state_, look_up = look_up_] {
        pthread_setname_np(pthread_self(), "loci-shared-dns");
        Result<Addresses> found = look_up(shared->host, shared->port);
        const MutexLock guard(shared->mutex);
        shared->answer.emplace(std::move(found));
        shared->taken = shared->looking = false;
        ++shared->lookups;
        shared->changed.notify_all();
      }).detach();
    } catch (const std::system_error& error) {
      return Status(StatusCode::kUnavailable,
                    fmt::format("{}: no thread to look it up: {}", state.host, error.what()));
    }
    state.looking = true;
  }
  const std::uint64_t before = state.lookups;
  const auto ended = [&]() REQUIRES(state.mutex) { return state.stopped || state.lookups != before; };
  const Nanos left = std::max<Nanos>(0, deadline - clock_.now());
  if (!state.changed.wait_for(lock, std::chrono::nanoseconds(left), ended))
    return Status(StatusCode::kDeadlineExceeded, fmt::format("{} was not resolved in time", state.host));
  if (state.stopped) return Status(StatusCode::kCancelled, "the store is being closed");
  state.taken = true;
  return *state.answer;
}

void RedisResolver::stop() {
  const MutexLock lock(state_->mutex);
  state_->stopped = true;
  state_->changed.notify_all();
}

}  // namespace loci
