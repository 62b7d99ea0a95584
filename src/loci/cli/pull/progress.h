// SPDX-License-Identifier: Apache-2.0
// Shows how far a pull is: on a terminal as one line that is drawn again and again, elsewhere as a line now
// and then.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "loci/base/clock.h"

namespace loci {

// add(): any thread. The rest: the thread that shows it.
class PullProgress {
 public:
  // Takes a line without its end. Empty: a bar on standard error.
  using Say = std::function<void(const std::string&)>;

  PullProgress(Say say, std::uint64_t bytes_total, std::uint64_t bytes_there, std::size_t files);

  void add(std::int64_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void file_done() { files_done_.fetch_add(1, std::memory_order_relaxed); }

  // If it is time for it.
  void show(Nanos now);
  void end(Nanos now);

  // "43%  1.2 GiB of 2.8 GiB  23.1 MiB/s  1.2 min left"
  std::string text(Nanos now) const;

 private:
  void draw(Nanos now) const;

  Say say_;
  std::uint64_t total_;
  std::uint64_t there_;  // before it began
  std::size_t files_;
  std::atomic<std::int64_t> bytes_;
  std::atomic<std::size_t> files_done_{0};
  Nanos began_ = 0;
  Nanos next_ = 0;
};

}  // namespace loci
