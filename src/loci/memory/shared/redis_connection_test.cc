// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/descriptor.h"
#include "loci/base/eventually_testing.h"
#include "loci/memory/shared/redis_testing.h"

namespace loci {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Listens, and answers nobody: its queue is full of connections that nobody takes.
class SilentHost {
 public:
  SilentHost() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    LOCI_CHECK(::bind(listener_.get(), plain, size) == 0 && ::listen(listener_.get(), 0) == 0 &&
                   ::getsockname(listener_.get(), plain, &size) == 0,
               "a port of this machine");
    address_ = address;
    while (knock()) {
    }
  }
  const sockaddr_in& address() const { return address_; }

 private:
  // True: the system has answered another one.
  bool knock() {
    constexpr int kPatienceMillis = 200;
    const Descriptor& one =
        knocked_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::connect(one.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) == 0) return true;
    pollfd watched{.fd = one.get(), .events = POLLOUT, .revents = 0};
    return ::poll(&watched, 1, kPatienceMillis) > 0;
  }

  Descriptor listener_;
  sockaddr_in address_{};
  std::vector<Descriptor> knocked_;
};

// A name of two addresses, of which the first is a host that has gone.
TEST(RedisConnection, AnAddressThatDoesNotAnswerLeavesTimeForTheNext) {
  const SilentHost gone;
  RedisFake fake;
  struct Found {
    std::array<sockaddr_in, 2> hosts;
    std::array<addrinfo, 2> list{};
  };
  const auto found = std::make_shared<Found>(Found{.hosts = {gone.address(), loopback(fake.port())}});
  for (std::size_t i = 0; i < 2; ++i) {
    found->list[i].ai_family = AF_INET;
    found->list[i].ai_addr = reinterpret_cast<sockaddr*>(&found->hosts[i]);
    found->list[i].ai_addrlen = sizeof found->hosts[i];
  }
  found->list[0].ai_next = &found->list[1];
  const SystemClock clock;
  RedisResolver resolver("cache.example", 7, clock, [found](const std::string&, std::uint16_t) {
    return Result<RedisResolver::Addresses>(RedisResolver::Addresses(found, &found->list[0]));
  });
  const RedisStop stop;
  Status status;
  EXPECT_TRUE(in_one_try(5, [&] {  // a busy machine may take longer than there is time
    status = RedisConnection::open({.host = "cache.example", .port = 7}, resolver, clock, stop,
                                   clock.now() + 8 * kNanosPerSecond)
                 .status();
    return status.ok();
  })) << status.to_string();
}

}  // namespace
}  // namespace loci
