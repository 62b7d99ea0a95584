// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/host_lookup.h"

#include <pthread.h>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <map>
#include <system_error>
#include <thread>
#include <vector>

#include "loci/base/mutex.h"

namespace loci {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::size_t kRunningMax = 64;

}  // namespace

struct HostLookup::Running {
  Mutex mutex;
  std::map<Name, std::vector<HostLookup*>> waiting GUARDED_BY(mutex);  // for each name that is looked up
};

// Never destroyed: a thread may end after all else has.
HostLookup::Running& HostLookup::running() {
  static auto* const running = new Running;
  return *running;
}

HostLookup::HostLookup(asio::io_context& io, const std::string& host, std::uint16_t port, Done done)
    : io_(io), name_(host, port), done_(std::move(done)) {
  Running& all = running();
  const MutexLock lock(all.mutex);
  const bool is_running = all.waiting.contains(name_);
  if (!is_running && all.waiting.size() >= kRunningMax) {
    post(asio::error::host_not_found_try_again, {});
    return;
  }
  all.waiting[name_].push_back(this);
  if (is_running) return;
  try {
    std::thread([name = name_] { look_up(name); }).detach();
  } catch (const std::system_error&) {  // there is no thread
    all.waiting.erase(name_);
    post(asio::error::host_not_found_try_again, {});
  }
}

HostLookup::~HostLookup() {
  Running& all = running();
  const MutexLock lock(all.mutex);
  const auto found = all.waiting.find(name_);
  if (found != all.waiting.end()) std::erase(found->second, this);
}

void HostLookup::look_up(const Name& name) {
  pthread_setname_np(pthread_self(), "loci-dns");
  asio::io_context io;
  asio::ip::tcp::resolver resolver(io);
  error_code error;
  const Endpoints found = resolver.resolve(name.first, std::to_string(name.second), error);
  Running& all = running();
  const MutexLock lock(all.mutex);
  const auto waiting = all.waiting.extract(name);
  for (HostLookup* const one : waiting.mapped()) one->post(error, found);
}

void HostLookup::post(const error_code& error, const Endpoints& found) {
  asio::post(io_, [done = std::move(done_), error, found] { done(error, found); });
}

}  // namespace loci
