// SPDX-License-Identifier: Apache-2.0
// A call that a disk may never answer, made on a thread of its own, for which nobody waits without a bound: a
// thread that hangs inside the kernel can't be stopped, so it is left where it is, with all it uses.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "loci/base/clock.h"

namespace loci {

// Thread-compatible. Its end waits for nothing.
template <typename Answer>
class Aside {
 public:
  // `call` owns what it uses, since it may outlive everybody else; it must not throw. `patience`: from now
  // on, after which it is not waited for.
  Aside(std::function<Answer()> call, Nanos patience)
      : until_(std::chrono::steady_clock::now() + std::chrono::nanoseconds(patience)) {
    std::packaged_task<Answer()> task(std::move(call));
    answer_ = task.get_future();
    std::thread(std::move(task)).detach();
  }

  // True: it has answered, or its time is up. False: `stop`, which is asked every kGlance, said so.
  bool wait(const std::function<bool()>& stop) const {
    while (answer_.wait_for(kGlance) != std::future_status::ready) {
      if (std::chrono::steady_clock::now() >= until_) return true;
      if (stop()) return false;
    }
    return true;
  }
  // Once. Empty: it has not answered.
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
