// SPDX-License-Identifier: Apache-2.0
// Makes a call that may never return, such as one to a broken disk, on a thread of its own. Nobody waits for
// it without a bound. A thread that hangs inside the kernel cannot be stopped, so it is abandoned with
// everything that it uses. Where the system has no thread left, the call is not made, and its answer says so.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "loci/base/clock.h"
#include "loci/base/status.h"

namespace loci {

// Thread-compatible. The destructor does not wait for the call. An Answer can be made of a Status.
template <typename Answer>
class Aside {
 public:
  // `call` owns what it uses, because it may outlive everything else; it must not throw. wait() gives up
  // `patience` after this.
  Aside(std::function<Answer()> call, Nanos patience)
      : until_(std::chrono::steady_clock::now() + std::chrono::nanoseconds(patience)) {
    std::packaged_task<Answer()> task(std::move(call));
    answer_ = task.get_future();
    try {
      std::thread(std::move(task)).detach();
    } catch (const std::system_error& error) {
      std::promise<Answer> none;
      answer_ = none.get_future();
      none.set_value(resource_exhausted(std::string("no thread to do it: ") + error.what()));
    }
  }

  // True: the call has returned, or its time is up. False: `stop`, which is asked every kGlance, returned
  // true.
  bool wait(const std::function<bool()>& stop) const {
    while (answer_.wait_for(kGlance) != std::future_status::ready) {
      if (std::chrono::steady_clock::now() >= until_) return true;
      if (stop()) return false;
    }
    return true;
  }
  // The answer; call it once. Empty: the call has not returned.
  std::optional<Answer> take() {
    if (answer_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return std::nullopt;
    return answer_.get();
  }

 private:
  static constexpr std::chrono::milliseconds kGlance{2};

  std::chrono::steady_clock::time_point until_;
  std::future<Answer> answer_;
};

}  // namespace loci
