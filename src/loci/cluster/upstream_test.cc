// SPDX-License-Identifier: Apache-2.0
// A front's connection to an instance whose name cannot be resolved.
#include "loci/cluster/upstream.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace loci {
namespace {

constexpr std::string_view kHangingName = "hanging.invalid";
std::atomic<bool> resolver_may_go_on = false;

}  // namespace
}  // namespace loci

// In place of the system's, to which it leaves all names but one.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  if (node == nullptr || node != loci::kHangingName) {
    static const auto system = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
    return system(node, service, hints, found);
  }
  for (int i = 0; i < 1'000 && !loci::resolver_may_go_on; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  loci::resolver_may_go_on = true;
  return EAI_AGAIN;
}

namespace loci {
namespace {

namespace asio = boost::asio;

TEST(Upstream, ANameThatIsNotResolvedInTimeIsLeftAlone) {
  for (const bool is_closed : {false, true}) {
    asio::io_context io;
    Upstream upstream(io, nullptr);
    const Member member{.id = "0000000000000001", .host = std::string(kHangingName), .port = 1};
    std::optional<Status> connected;
    bool has_timed_out = false;
    resolver_may_go_on = false;
    asio::co_spawn(
        io,
        [&]() -> asio::awaitable<void> {
          connected = co_await upstream.connect(member, is_closed ? 3600 * kNanosPerSecond : kNanosPerMilli);
          has_timed_out = upstream.timed_out();
          EXPECT_FALSE(resolver_may_go_on) << "it waited for the resolver";
          resolver_may_go_on = true;
          upstream.set_deadline(kNanosPerSecond);
          EXPECT_FALSE(upstream.timed_out()) << "of the connection alone";
          upstream.set_deadline(0);
        },
        asio::detached);
    if (is_closed) asio::post(io, [&] { upstream.close(); });
    io.run();
    ASSERT_TRUE(connected);
    EXPECT_EQ(connected->code(), StatusCode::kUnavailable);
    EXPECT_EQ(has_timed_out, !is_closed);
  }
}

}  // namespace
}  // namespace loci
