// SPDX-License-Identifier: Apache-2.0
// A resolver that does not answer, for tests of who must not wait for it. In one source of a program.
#pragma once

#include <dlfcn.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string_view>
#include <thread>

namespace loci {

// Nothing is said of this name for ten seconds, or until `resolver_may_go_on`, which is set then.
inline constexpr std::string_view kHangingName = "hanging.invalid";
inline std::atomic<bool> resolver_may_go_on = false;
// Is raised once when that name is asked for; 0: nothing.
inline std::atomic<int> resolver_raises = 0;

}  // namespace loci

// In place of the system's, to which it leaves all names but one.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  if (node == nullptr || node != loci::kHangingName) {
    static const auto system = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
    return system(node, service, hints, found);
  }
  if (const int signal = loci::resolver_raises.exchange(0); signal != 0) std::raise(signal);
  for (int i = 0; i < 1'000 && !loci::resolver_may_go_on; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  loci::resolver_may_go_on = true;
  return EAI_AGAIN;
}
