// SPDX-License-Identifier: Apache-2.0
#include "loci/base/memory_pressure.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "loci/base/control_group.h"

namespace loci {
namespace {

// A tenth of two seconds. (Windows of two seconds may be asked for without privileges.)
constexpr char kTrigger[] = "some 200000 2000000";

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=123"
std::optional<std::uint64_t> total_of(const std::string& path) {
  const std::string text = read_system_file(path).value_or("");
  if (!text.starts_with("some ")) return std::nullopt;
  const std::size_t at = text.find("total=");
  return at == std::string::npos ? std::nullopt : find_number(text.substr(at), "total=");
}

}  // namespace

MemoryPressure::MemoryPressure(const std::string& root) {
  stop_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  // The topmost group's is the machine's, whose own file says the same.
  std::string folder = control_group_folders(root).front();
  for (const std::string& path : {folder + "/memory.pressure", root + "/proc/pressure/memory"}) {
    total_us_ = total_of(path);
    if (!total_us_) continue;
    source_ = path;
    is_own_ = path.starts_with(folder);
    trigger_ = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (trigger_ >= 0 && ::write(trigger_, kTrigger, sizeof kTrigger) != sizeof kTrigger)
      ::close(std::exchange(trigger_, -1));
    return;
  }
}

MemoryPressure::MemoryPressure(MemoryPressure&& other) noexcept
    : source_(std::move(other.source_)),
      is_own_(other.is_own_),
      trigger_(std::exchange(other.trigger_, -1)),
      stop_(std::exchange(other.stop_, -1)),
      total_us_(other.total_us_) {}

MemoryPressure::~MemoryPressure() {
  if (trigger_ >= 0) ::close(trigger_);
  if (stop_ >= 0) ::close(stop_);
}

void MemoryPressure::wait(Nanos time) {
  // (poll() passes by what is below 0.)
  std::array<pollfd, 2> on = {pollfd{.fd = stop_, .events = POLLIN, .revents = 0},
                              pollfd{.fd = trigger_, .events = POLLPRI, .revents = 0}};
  ::poll(on.data(), on.size(), static_cast<int>(time / kNanosPerMilli));
}

void MemoryPressure::stop() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(stop_, &one, sizeof one);
}

std::uint64_t MemoryPressure::stalled_us() {
  if (source_.empty()) return 0;
  const std::optional<std::uint64_t> now = total_of(source_);
  if (!now) return 0;
  const std::uint64_t before = std::exchange(total_us_, now).value_or(*now);
  return *now > before ? *now - before : 0;
}

}  // namespace loci
