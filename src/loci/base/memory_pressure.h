// SPDX-License-Identifier: Apache-2.0
// Whether programs stand still because the machine's memory is short (the kernel's pressure stall
// information): of this process's control group where it tells, else of the whole machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loci/base/clock.h"

namespace loci {

// Thread-compatible, but for stop(). Move-only.
class MemoryPressure {
 public:
  // Opens what there is under `root` ("" but in tests).
  explicit MemoryPressure(const std::string& root);
  MemoryPressure(MemoryPressure&& other) noexcept;
  MemoryPressure& operator=(MemoryPressure&&) = delete;
  ~MemoryPressure();

  // The file that is read; empty: the system tells nothing, and nothing is ever said to stall.
  const std::string& source() const { return source_; }
  // Stalls are those of this process's control group, not of the whole machine.
  bool is_own() const { return is_own_; }
  // The kernel wakes wait() itself. (It lets nobody ask for it in some containers.)
  bool wakes() const { return trigger_ >= 0; }

  // Returns after `time`, or sooner when programs begin to stand still or stop() was called.
  void wait(Nanos time);
  // wait() returns at once from now on. Thread-safe.
  void stop();
  // For how long some program stood still since the last call, in microseconds.
  std::uint64_t stalled_us();

 private:
  std::string source_;
  bool is_own_ = false;
  int trigger_ = -1;
  int stop_ = -1;
  std::optional<std::uint64_t> total_us_;  // as it was last read
};

}  // namespace loci
